"""Keys, values and headers as text for people: UTF-8 or hexadecimal, truncated, without harmful characters. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from odradek.client.models import ConsumerRecord

KEY_BYTES: Final = 200
VALUE_BYTES: Final = 1_000
"""Bytes of a key and a value in a list of messages."""
WHOLE_BYTES: Final = 256 << 10
"""Bytes of a key, value or header on the page of one message. Longer ones can be downloaded."""
HEX_PART: Final = 10
"""Hexadecimal takes more space, and people read less of it: it has this part of the limit."""
HEADERS: Final = 20
"""Headers of a message in a list."""

_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters, and characters that change the direction of the text around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBytes:
    """Bytes as text."""

    text: str
    """Without the end of long bytes."""
    encoding: str
    """`utf-8`, `hex`, or `null` if there are no bytes."""
    size_bytes: int
    is_truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """A message as text."""

    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970 UTC; -1 if it has none."""
    timestamp_type: str
    key: ShownBytes
    value: ShownBytes
    headers: tuple[tuple[str, ShownBytes], ...] = ()
    header_count: int = 0
    """Number of all headers."""


def shown_bytes(content: bytes | None, limit: int) -> ShownBytes:
    """Return up to `limit` bytes as text: UTF-8 if they are valid, else a part of them in hexadecimal."""
    if content is None:
        return ShownBytes(text="", encoding="null", size_bytes=0)
    is_truncated = len(content) > limit
    try:
        text, encoding = _decoded(content[:limit], is_truncated=is_truncated), "utf-8"
    except UnicodeDecodeError:
        limit = max(1, limit // HEX_PART)
        is_truncated = len(content) > limit
        text, encoding = content[:limit].hex(" "), "hex"
    return ShownBytes(text=safe_text(text), encoding=encoding, size_bytes=len(content), is_truncated=is_truncated)


def _decoded(part: bytes, *, is_truncated: bool) -> str:
    """Decode UTF-8. A truncated text may end inside a character. Raises `UnicodeDecodeError`."""
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        if is_truncated and error.start >= len(part) - 3 and error.reason == "unexpected end of data":
            return part[: error.start].decode()
        raise


def safe_text(text: str) -> str:
    """Return a text whose control characters and direction marks are replaced by their escapes."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def shown_record(record: ConsumerRecord) -> ShownRecord:
    """Return a record as an entry of a list."""
    return _shown(record, KEY_BYTES, VALUE_BYTES, HEADERS)


def whole_record(record: ConsumerRecord) -> ShownRecord:
    """Return a record for its own page."""
    return _shown(record, WHOLE_BYTES, WHOLE_BYTES, len(record.headers))


def _shown(record: ConsumerRecord, key_bytes: int, value_bytes: int, headers: int) -> ShownRecord:
    return ShownRecord(
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=record.timestamp_type.name,
        key=shown_bytes(record.key, key_bytes),
        value=shown_bytes(record.value, value_bytes),
        headers=tuple(
            (safe_text(name[:KEY_BYTES]), shown_bytes(value, key_bytes)) for name, value in record.headers[:headers]
        ),
        header_count=len(record.headers),
    )


def indented_json(content: bytes | None) -> str | None:
    """Return a JSON object or array with line breaks; None if the bytes are something else or too long."""
    if content is None or len(content) > WHOLE_BYTES or content.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        text = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    # Deeply nested JSON grows with the square of its depth.
    return safe_text(text) if len(text) <= 4 * WHOLE_BYTES else None
