"""A search in the messages of a topic: the parameters of the page, and whether a record matches. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from odradek.base.errors import ConfigError
from odradek.client.models import ConsumerRecord
from odradek.console.json_paths import JsonPath, is_equal, parse_path, values_at

DEFAULT_LIMIT: Final = 50
MAX_JSON_BYTES: Final = 1 << 20
"""A longer value is not parsed for a JSON path, and does not match."""
MAX_TEXT: Final = 1_000
"""Characters of a filter."""
_MAX_OFFSET: Final = 2**63 - 1
_MAX_PARTITION: Final = 2**31 - 1


class Start(Enum):
    """Where a search begins in each partition."""

    NEWEST = "newest"
    """So far before the end that the limits suffice to reach the end."""
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"
    POSITIONS = "positions"
    """At a given offset in each partition, to continue a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuery:
    """A search. Filters that are not set match every record."""

    start: Start = Start.NEWEST
    partition: int | None = None
    """None for all partitions."""
    offset: int = 0
    time_ms: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)
    """Offset of each partition that the search continues."""
    limit: int = DEFAULT_LIMIT
    key: str = ""
    """Text in the key."""
    value: str = ""
    header: str = ""
    """Text in one of the headers, written as `name=value`."""
    path: JsonPath = ()
    """A path into the value, which must be JSON; empty for none."""
    equals: str = ""
    """What the path must select; empty: something."""
    is_committed: bool = False
    """Whether records of open and aborted transactions are left out."""

    @property
    def has_filter(self) -> bool:
        """Whether some records may not match."""
        return bool(self.key or self.value or self.header or self.path)

    def matches(self, record: ConsumerRecord) -> bool:
        """Whether a record with bytes as key and value matches all filters."""
        return (
            _contains(record.key, self.key)
            and _contains(record.value, self.value)
            and self._matches_header(record)
            and self._matches_path(record)
        )

    def _matches_header(self, record: ConsumerRecord) -> bool:
        if not self.header:
            return True
        wanted = self.header.encode()
        return any(wanted in name.encode() + b"=" + (value or b"") for name, value in record.headers)

    def _matches_path(self, record: ConsumerRecord) -> bool:
        if not self.path:
            return True
        if record.value is None or len(record.value) > MAX_JSON_BYTES:
            return False
        try:
            content = json.loads(record.value)
        except (ValueError, RecursionError):
            return False
        return any(not self.equals or is_equal(found, self.equals) for found in values_at(content, self.path))


def _contains(content: bytes | None, text: str) -> bool:
    return not text or (content is not None and text.encode() in content)


def parse_query(parameters: Mapping[str, str], max_results: int) -> MessageQuery:
    """Return the search of a request. Raises `ConfigError`, which names the parameter."""
    given = {name: text.strip() for name, text in parameters.items() if text.strip()}
    for name, text in given.items():
        if name != "positions" and len(text) > MAX_TEXT:
            raise ConfigError(f"{name} is too long: it must have at most {MAX_TEXT} characters")
    try:
        start = Start(given.get("from", Start.NEWEST.value))
    except ValueError:
        names = ", ".join(each.value for each in Start)
        raise ConfigError(f"from={given['from']} is not allowed: it must be one of {names}") from None
    if start is Start.OFFSET and "offset" not in given:
        raise ConfigError("offset is missing: enter the offset at which the search begins")
    if start is Start.TIME and "time" not in given:
        raise ConfigError("time is missing: enter the time at which the search begins")
    if "equals" in given and "path" not in given:
        raise ConfigError("equals needs a path: enter a JSON path such as $.order.id")
    partition = _number(given, "partition", -1, 0, _MAX_PARTITION)
    return MessageQuery(
        start=start,
        partition=None if partition < 0 else partition,
        offset=_number(given, "offset", 0, 0, _MAX_OFFSET),
        time_ms=parse_time_ms(given["time"]) if "time" in given else 0,
        positions=_positions(given.get("positions", "")) if start is Start.POSITIONS else {},
        limit=_number(given, "limit", min(DEFAULT_LIMIT, max_results), 1, max_results),
        key=given.get("key", ""),
        value=given.get("value", ""),
        header=given.get("header", ""),
        path=parse_path(given["path"]) if "path" in given else (),
        equals=given.get("equals", ""),
        is_committed=given.get("isolation") == "read_committed",
    )


def _number(given: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = given.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not low <= int(text) <= high:
        raise ConfigError(f"{name}={text} is not allowed: it must be a number from {low} to {high}")
    return int(text)


def parse_time_ms(text: str) -> int:
    """Return milliseconds since 1970 for such a number, or for a time in ISO 8601, which is UTC without a zone.

    Raises `ConfigError`.
    """
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"time={text} is not allowed: it must be like 2026-01-31T13:00, or a number of milliseconds"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _positions(text: str) -> dict[int, int]:
    found = {}
    for item in text.split(",") if text else ():
        number, _, offset = item.partition(":")
        if not (number.isdecimal() and offset.isdecimal() and number.isascii() and offset.isascii()):
            raise ConfigError("positions must be a list of PARTITION:OFFSET")
        found[int(number)] = min(int(offset[:19]), _MAX_OFFSET)
    return found


def format_positions(positions: Mapping[int, int]) -> str:
    """Return the text that `parse_query` reads."""
    return ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items()))
