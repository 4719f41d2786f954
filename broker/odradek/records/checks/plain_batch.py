"""Checks batches of the simplest form without an object for a header or a record.

`replication/leader/plain_appends` uses it for small requests. A batch that is not plain may be valid all the same:
`admission` decides about it. Invariant: a plain batch passes every check of `admission.prepare` for a topic whose rules
`take_plain`, and `prepare` would leave its bytes unchanged.

A plain batch is of format 2, from a client without a producer id, not compressed, and has create time. Its integers are
those of the machine in the compiled form, and it is read in one pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from crc32c import crc32c
from librt.strings import read_i64_be

from odradek.base.types import NO_TIMESTAMP
from odradek.records.checks.validate import AppendRules
from odradek.records.v2.batch import HEADER_SIZE, MAGIC, TimestampType
from odradek.records.v2.record_walk import walk

if TYPE_CHECKING:
    from mypy_extensions import i64

_OVERHEAD: Final = 12
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_COVERED_AT: Final = 21
_DELTA_AT: Final = 23
_BASE_TIMESTAMP_AT: Final = 27
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_AT: Final = 43
_COUNT_AT: Final = 57

_LOW_32: Final = 0xFFFF_FFFF
_CREATE_TIME: Final = TimestampType.CREATE_TIME
_NO_PRODUCER: Final = -1
_LEAST_BYTES: Final = 7
"""Minimum size of a record."""


class PlainBatch:
    """A plain batch in the bytes of a request."""

    __slots__ = ("count", "end", "offset", "start", "timestamp")

    def __init__(self, start: i64, end: i64, count: i64, timestamp: i64) -> None:
        """Its position, its number of records and their largest timestamp."""
        self.start: i64 = start
        self.end: i64 = end
        self.count: i64 = count
        self.timestamp: i64 = timestamp
        self.offset: i64 = -1
        """The offset of its first record, when it has one."""


def take_plain(rules: AppendRules) -> bool:
    """Whether a topic with these rules accepts every plain batch up to `max_message_bytes` as it is."""
    return (
        rules.codec is None
        and rules.magic == MAGIC
        and rules.timestamp_type is _CREATE_TIME
        and rules.validate_records
        and not rules.judges_records
    )


def plain_batch(data: bytes, start: i64, end: i64) -> PlainBatch | None:
    """Return the batch that fills `data` from `start` to `end`; None if it is not a plain one."""
    if end - start <= HEADER_SIZE or end > len(data):
        return None
    count = read_i64_be(data, start + _COUNT_AT) >> 32
    if (
        read_i64_be(data, start) != 0  # The base offset.
        or read_i64_be(data, start + _LENGTH_AT) >> 32 != end - start - _OVERHEAD
        or data[start + _MAGIC_AT] != MAGIC
        or data[start + _COVERED_AT] != 0  # The attributes, which have two bytes.
        or data[start + _COVERED_AT + 1] != 0
        or count < 1
        or read_i64_be(data, start + _DELTA_AT) >> 32 != count - 1
        or read_i64_be(data, start + _PRODUCER_AT) != _NO_PRODUCER
    ):
        return None
    base = read_i64_be(data, start + _BASE_TIMESTAMP_AT)
    newest = read_i64_be(data, start + _MAX_TIMESTAMP_AT)
    if not NO_TIMESTAMP <= base <= newest or not _are_records(data, start + HEADER_SIZE, end, count, newest - base):
        return None
    crc: i64 = crc32c(data[start + _COVERED_AT : end])
    if crc != read_i64_be(data, start + _MAGIC_AT + 1) >> 32 & _LOW_32:
        return None
    return PlainBatch(start, end, count, newest)


def _are_records(data: bytes, start: i64, end: i64, count: i64, newest_delta: i64) -> bool:
    """Whether valid records fill the section, and the largest timestamp delta is this one."""
    if count == 1 and newest_delta == 0 and _is_plain_record(data, start, end):
        return True
    section = data[start:end]
    walked = walk(section, 0, count)
    if walked is None:
        return False
    walked_end, oldest, newest, _, is_numbered, _ = walked
    return is_numbered and walked_end == len(section) and oldest >= 0 and newest == newest_delta


def _is_plain_record(data: bytes, start: i64, end: i64) -> bool:
    """Whether the section is one record with the timestamp of the batch, a key below 64 bytes if any, no headers, and a
    length that takes at most two bytes. False only means that it has to be checked in another way."""
    size = end - start
    last = end - 1
    if size < _LEAST_BYTES or data[last] != 0:
        return False
    at = _after_length(data, start, end)
    # Attributes are ignored; the deltas must be 0.
    if at == 0 or data[at + 1] != 0 or data[at + 2] != 0:
        return False
    key: i64 = data[at + 3]
    # The lowest bit is the sign, and only -1 (no key), which is encoded as 1, may have it.
    at += 4 + (key >> 1)
    if key >= 0x80 or (key & 1 != 0 and key != 1) or at >= last:
        return False
    return _after_length(data, at, last) != 0 or (at == last - 1 and data[at] == 1)


def _after_length(data: bytes, start: i64, end: i64) -> i64:
    """Return the position after a length in one or two bytes if it is that of the bytes up to `end`, else 0."""
    first: i64 = data[start]
    if first < 0x80:
        return start + 1 if first == (end - start - 1) << 1 else 0
    second: i64 = data[start + 1]
    if 0 < second < 0x80 and (first & 0x7F | second << 7) == (end - start - 2) << 1 and end - start > 2:
        return start + 2
    return 0
