"""The walk over the records of a decompressed format 2 records section, one record after the other.

The check of produced records and `v2/record` use `walk`; `v2/record_starts` and the survey of produced records use
`follow_lengths`. Invariants: nothing outside the section is read; the time and the memory of a call are
bounded by the section's size and the caller's limits; a record is part of the result only if its fields fill exactly
its length.

The module is written for two ways to run. In the interpreter, one flat loop reads all fields, because a call per number
would triple the time. Compiled with mypyc, its integers are those of the machine, and the same loop is many times as
fast (design note 0022). No sum can exceed 64 bits, in either way: a length has at most 63 bits while it is encoded, so
at most 62 after that, and the next access checks the position before another length is added.

Numbers stay zigzag-encoded until they are used. The lowest bit is the sign: the length -1, null, becomes 1.

A fault ends the walk without a reason. `record_fault` then finds the reason: it reads one record in the order of its
fields and is written for readers, not for speed.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Final

from odradek.base.errors import CorruptMessageError
from odradek.records.v2.varint import decode_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

Row = tuple[int, int, int, int, int, int, int, int]
"""One record: timestamp delta in milliseconds, offset delta, start and length of the key, start and length of the
value, number of headers, end of the record. A length of -1 means null; starts and the end are positions in the data."""

ANY_OFFSET: Final = 1 << 61
ANY_NUMBER: Final = 1 << 61
"""No limit of offset deltas, and of the number of headers."""

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1


Walk = tuple[int, int, int, bool, bool, int]
"""The position after the last record, the smallest and the largest timestamp delta, whether all records have keys,
whether the offset deltas are 0, 1, 2 …, and the total size of keys and values in bytes. A plain tuple, because batches
with one record need one each."""


def walk(
    data: bytes,
    position: int,
    count: int,
    *,
    rows: list[Row] | None = None,
    last_offset_delta: int = ANY_OFFSET,
    most_headers: int = ANY_NUMBER,
) -> Walk | None:
    """Walk over `count` records, at least one, from `position` on; None if one of them is invalid.

    Appends a row per valid record to `rows`. Limits are the largest offset delta and the total number of headers.
    """
    at: i64 = position
    highest: i64 = last_offset_delta << 1
    headers_left: i64 = most_headers
    oldest: i64 = _MAX_INT64
    newest: i64 = _MIN_INT64
    keys: i64 = 0
    disorder: i64 = 0
    content: i64 = 0
    number: i64
    try:
        for number in range(count):
            length: i64 = data[at]
            at += 1
            if length >= 0x80:
                length, at = long_number(data, at)
            end: i64 = at + (length >> 1)
            delta: i64 = data[at + 1]  # The byte before it, the record's attributes, is unused.
            at += 2
            if delta >= 0x80:
                delta, at = long_timestamp(data, at)
            else:
                delta = (delta >> 1) ^ -(delta & 1)
            offset: i64 = data[at]
            at += 1
            if offset >= 0x80:
                offset, at = long_number(data, at)
            key: i64 = data[at]
            at += 1
            if key >= 0x80:
                key, at = long_number(data, at)
            key_at: i64 = at
            at += key >> 1
            value: i64 = data[at]
            at += 1
            if value >= 0x80:
                value, at = long_number(data, at)
            value_at: i64 = at
            at += value >> 1
            headers: i64 = data[at]
            # Comparisons instead of truth values: compiled, a mixture of integers and booleans would need objects.
            sound = (length | offset) & 1 == 0 and offset <= highest and (key & 1 == 0 or key == 1)
            sound = sound and (value & 1 == 0 or value == 1)
            if headers or at + 1 != end or not sound:
                headers = pass_headers(data, at, end, headers_left if sound else -1)
                headers_left -= headers
            at = end
            if rows is not None:
                key_length, value_length = (key >> 1) - (key & 1), (value >> 1) - (value & 1)
                rows.append((delta, offset >> 1, key_at, key_length, value_at, value_length, headers, end))
            keys |= key
            disorder |= offset ^ (number << 1)
            content += (key >> 1) + (value >> 1)
            oldest = delta if delta < oldest else oldest  # noqa: FURB136 - a call costs as much as a field
            newest = delta if delta > newest else newest  # noqa: FURB136
    except (CorruptMessageError, IndexError):
        return None
    return at, oldest, newest, not keys & 1, not disorder, content


def pass_headers(data: bytes, at: i64, end: i64, most: i64 = ANY_NUMBER) -> i64:
    """Return the number of headers, at most `most`, which must extend exactly from `at` to the record's `end`.

    Raises `CorruptMessageError` if they do not, and `IndexError` if a number extends beyond the data.
    """
    count: i64 = data[at]
    at += 1
    if count >= 0x80:
        count, at = long_number(data, at)
    # A header takes at least two bytes.
    if end > len(data) or count & 1 or count > end - at or count >> 1 > most:
        raise CorruptMessageError("a record is invalid, or has more headers than fit")
    for _ in range(count >> 1):
        name: i64 = data[at]
        at += 1
        if name >= 0x80:
            name, at = long_number(data, at)
        at += name >> 1
        value: i64 = data[at]
        at += 1
        if value >= 0x80:
            value, at = long_number(data, at)
        at += value >> 1
        if name & 1 or (value & 1 and value > 1) or at > end:
            raise CorruptMessageError("a header of a record is invalid")
    if at != end:
        raise CorruptMessageError("a record does not fill its length")
    return count >> 1


def long_number(data: bytes, at: i64) -> tuple[i64, i64]:
    """Return the number that began one byte before `at`, still zigzag-encoded, and the position after it.

    Raises `CorruptMessageError` for more than 63 bits, which neither a length nor an offset delta needs.
    """
    byte: i64 = data[at]
    value: i64 = (data[at - 1] & 0x7F) | (byte & 0x7F) << 7
    at += 1
    shift: i64 = 14
    while byte >= 0x80 and shift < 63:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
    # The tenth byte would hold the bits from the 64th on.
    if byte >= 0x80:
        if data[at]:
            raise CorruptMessageError("a length or an offset in a record is longer than 63 bits")
        at += 1
    return value, at


def long_timestamp(data: bytes, at: i64) -> tuple[i64, i64]:
    """Return the timestamp delta that began one byte before `at`, decoded, and the position after it."""
    byte: i64 = data[at]
    if byte >= 0x80:
        return decode_varint(data, at - 1)
    value: i64 = (data[at - 1] & 0x7F) | byte << 7
    return (value >> 1) ^ -(value & 1), at + 1


def follow_lengths(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Return the positions of the next `count` records, and the end of the last one, which may exceed the data.

    Only lengths are read, and their signs are ignored. Raises `CorruptMessageError` if a record begins after the data.
    """
    begins: list[int] = []
    try:
        return begins, _follow(data, position, count, begins)
    except IndexError:
        raise CorruptMessageError("a record extends beyond its batch") from None


def _follow(data: bytes, at: i64, count: i64, begins: list[int]) -> i64:
    for _ in range(count):
        begins.append(at)
        byte: i64 = data[at]
        if byte < 0x80:
            at += 1 + (byte >> 1)
            continue
        following: i64 = data[at + 1]
        if following < 0x80:
            at += 2 + ((byte & 0x7F | following << 7) >> 1)
            continue
        length, at = long_number(data, at + 1)
        at += length >> 1
    return at


def record_fault(
    data: bytes, position: int, *, last_offset_delta: int = ANY_OFFSET, most_headers: int = ANY_NUMBER
) -> str | None:
    """Return what is wrong with the record at `position`; None if it is valid by itself.

    The text completes "record 7: …". `most_headers` limits the headers of this record.
    """
    try:
        offset_delta = _read_slowly(data, position, most_headers)
    except CorruptMessageError as error:
        return str(error)
    return None if 0 <= offset_delta <= last_offset_delta else f"its offset delta is {offset_delta}"


def _read_slowly(data: bytes, position: int, most_headers: int) -> int:
    """Return the offset delta of the record. Raises `CorruptMessageError` with the first fault."""
    length, position = decode_varint(data, position)
    end = position + length
    if length <= 0 or end > len(data):
        raise CorruptMessageError(f"its length is {length}, but {len(data) - position} bytes are left")
    # The attributes of a record have no meaning yet.
    _, position = decode_varint(data, position + 1)
    offset_delta, position = decode_varint(data, position)
    key_length, position = decode_varint(data, position)
    value_length, position = decode_varint(data, position + max(key_length, 0))
    position += max(value_length, 0)
    if key_length < -1 or value_length < -1 or position >= end:
        raise CorruptMessageError(f"key of {key_length} and value of {value_length} bytes do not fit its length")
    count, position = decode_varint(data, position)
    # A header takes at least two bytes.
    if count and not 0 <= count <= min((end - position) // 2, most_headers):
        raise CorruptMessageError(f"it declares {count} headers, more than fit")
    for _ in range(count):
        name_length, position = decode_varint(data, position)
        value_length, position = decode_varint(data, position + max(name_length, 0))
        position += max(value_length, 0)
        if name_length < 0 or value_length < -1 or position > end:
            raise CorruptMessageError("a header extends beyond it")
    if position != end:
        raise CorruptMessageError("its fields do not fill its length")
    return offset_delta


IS_COMPILED: Final = type(walk) is not FunctionType
"""Whether this module runs compiled; the fastest method for large batches depends on it."""
