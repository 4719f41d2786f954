"""Parses the input of `odradek produce`: lines of text, or one JSON object on each line. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from odradek.base.errors import OdradekError

Headers = tuple[tuple[str, bytes | None], ...]

_BASE64: Final = "_base64"
_IGNORED: Final = frozenset({"topic", "offset"})
"""Fields of the output of `odradek consume --output json` that have no effect."""
_FIELDS: Final = frozenset({"key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition"})
_HEADER_FIELDS: Final = frozenset({"name", "value", "value_base64"})


class InputError(OdradekError):
    """A line of the input is not a record. The message has the number of the line."""


class OutgoingRecord(NamedTuple):
    """A record to send. None means: the default of the command, or of the producer."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line is divided: HEADERS, delimiter of headers, KEY, separator of the key, VALUE.

    It is the format of Kafka's console producer with `parse.headers` and `parse.key`.
    """

    key_separator: bytes | None = None
    """None: lines have no key."""
    headers_delimiter: bytes | None = None
    """None: lines have no headers."""
    headers_separator: bytes = b","
    """Between two headers."""
    header_key_separator: bytes = b":"
    """Between the name and the value of a header."""
    null_marker: bytes | None = None
    """A key, a value or the value of a header that equals it is null (KIP-810)."""
    empty_as_null: bool = False
    """Whether an empty value is null: a tombstone."""
    keys_only: bool = False
    """Whether the rest of the line is a key, and the value is null: a tombstone."""

    def records(self, lines: Sequence[bytes], *, first_number: int) -> list[OutgoingRecord]:
        """Return the record of each line. Raises `InputError`."""
        return [self._record(line, number) for number, line in enumerate(lines, first_number)]

    def _record(self, line: bytes, number: int) -> OutgoingRecord:
        headers: Headers = ()
        key: bytes | None = None
        if self.headers_delimiter is not None:
            text, line = self._split(line, self.headers_delimiter, number, "headers delimiter", "--headers-delimiter")
            headers = self._headers(text, number)
        if self.keys_only:
            return OutgoingRecord(self._or_null(line), None, headers)
        if self.key_separator is not None:
            text, line = self._split(line, self.key_separator, number, "key separator", "--key-separator")
            key = self._or_null(text)
        return OutgoingRecord(key, None if self.empty_as_null and not line else self._or_null(line), headers)

    def _headers(self, text: bytes, number: int) -> Headers:
        found = []
        for header in text.split(self.headers_separator) if text else ():
            name, value = self._split(
                header, self.header_key_separator, number, "separator of a header's name", "--header-key-separator"
            )
            try:
                found.append((name.decode(), self._or_null(value)))
            except UnicodeDecodeError:
                raise InputError(f"Line {number} has a header whose name is not text in UTF-8: {name!r}.") from None
        return tuple(found)

    def _or_null(self, text: bytes) -> bytes | None:
        return None if self.null_marker is not None and text == self.null_marker else text

    @staticmethod
    def _split(text: bytes, separator: bytes, number: int, what: str, option: str) -> tuple[bytes, bytes]:
        first, found, rest = text.partition(separator)
        if not found:
            shown = separator.decode("utf-8", "backslashreplace")
            raise InputError(f"Line {number} does not contain the {what} {shown!r}: see {option}.")
        return first, rest


def json_records(lines: Sequence[bytes], *, first_number: int) -> list[OutgoingRecord]:
    """Return the record of each JSON object; empty lines are skipped. Raises `InputError`.

    The fields are those of the output of `odradek consume --output json`. Only `value` or `value_base64` is required;
    null is a tombstone. A key or value that is not text, such as an object, is sent as compact JSON.
    """
    return [_json_record(line, number) for number, line in enumerate(lines, first_number) if line.strip()]


def _json_record(line: bytes, number: int) -> OutgoingRecord:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"Line {number} is not JSON: {error}.") from error
    try:
        return _parsed(found)
    except ValueError as error:
        raise InputError(f"Line {number} is not a record: {error}.") from error


def _parsed(found: object) -> OutgoingRecord:
    """Return the record of a JSON value. Raises `ValueError`."""
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    if unknown := sorted(found.keys() - _FIELDS - _IGNORED):
        raise ValueError(f"it has the unknown field {unknown[0]!r}; the fields are {', '.join(sorted(_FIELDS))}")
    if "value" not in found and f"value{_BASE64}" not in found:
        raise ValueError("it has neither value nor value_base64; for a tombstone, value is null")
    return OutgoingRecord(
        _content(found, "key"),
        _content(found, "value"),
        _json_headers(found.get("headers")),
        _json_timestamp(found.get("timestamp")),
        _json_partition(found.get("partition")),
    )


def _content(found: Mapping[str, object], name: str) -> bytes | None:
    encoded = found.get(f"{name}{_BASE64}")
    if encoded is None:
        value = found.get(name)
        if value is None or isinstance(value, str):
            return None if value is None else value.encode()
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if found.get(name) is not None:
        raise ValueError(f"it has both {name} and {name}{_BASE64}")
    if not isinstance(encoded, str):
        raise ValueError(f"{name}{_BASE64} is not text")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name}{_BASE64} is not base64: {error}") from error


def _json_headers(found: object) -> Headers:
    """Accept a list of objects with `name` and `value`, or one object with a value for each name."""
    if found is None:
        return ()
    if isinstance(found, dict):
        return tuple((str(name), _content({"value": value}, "value")) for name, value in found.items())
    if not isinstance(found, list):
        raise ValueError("headers is neither a list nor an object")
    headers = []
    for header in found:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str) or header.keys() - _HEADER_FIELDS:
            raise ValueError("a header needs a name, and value or value_base64")
        headers.append((header["name"], _content(header, "value")))
    return tuple(headers)


def _json_timestamp(found: object) -> int | None:
    """Accept milliseconds since 1970 UTC, or ISO 8601, where a time without a zone is UTC."""
    if found is None:
        return None
    if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
        return found
    try:
        time = datetime.fromisoformat(found) if isinstance(found, str) else None
    except ValueError:
        time = None
    if time is None:
        raise ValueError("timestamp is neither a number of milliseconds since 1970 nor an ISO 8601 time")
    return int((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _json_partition(found: object) -> int | None:
    if found is None or (isinstance(found, int) and not isinstance(found, bool) and found >= 0):
        return found
    raise ValueError("partition is not a number of at least 0")
