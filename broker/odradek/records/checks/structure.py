"""Validates the records of a produced batch before an append: lengths, fields, offset deltas, keys and timestamps.

`records/admission` calls it with the decompressed records section. It returns the largest timestamp of the records or
raises an error that names the invalid records. Invariant: a valid section consists exactly of as many records as the
header says, the fields fill each record, and the records are numbered 0, 1, 2 … without a gap.

There are three checks. `v2/record_walk` reads all records of a small batch, or of any batch if it is compiled. `survey`
checks the records of a larger batch by columns. Both may be unsure. This module then checks record by record, reports
what is wrong with which record, and decides. It is stricter than Kafka 3.9, which accepts uncompressed batches with
wrong offset deltas, lengths below -1 and, in compressed batches, fields that do not fill their record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.base.errors import InvalidRecordError, InvalidTimestampError, RecordFault
from odradek.base.ports import Buffer
from odradek.base.types import NO_TIMESTAMP
from odradek.records.checks.survey import NOTHING, Facts, survey
from odradek.records.checks.validate import UNBOUNDED_MS, AppendRules, timestamp_fault
from odradek.records.v2.batch import BatchHeader
from odradek.records.v2.record_walk import IS_COMPILED, Row, record_fault, walk

MAX_RECORD_ERRORS: Final = 100
"""Maximum number of records named in one error: a small compressed batch may have a million without a key."""

MAX_STEPS: Final = 1 << 18
"""Maximum number of records and headers of a batch that are checked one by one, which takes up to a second. Only
unusual batches need many such checks, but a small compressed batch may be crafted to contain millions."""

SURVEYED_COUNT: Final = 48
"""Number of records from which checking columns is cheaper than an interpreted walk (bench/record_validation)."""

_LEAST_BYTES: Final = 7
"""Minimum size of a record."""

_SHORT: Final = 64
"""Maximum size of a record whose length field takes one byte."""

_MOST_PLAIN_BYTES: Final = 4096
"""Maximum size of a single record that is copied to check its form: reading single bytes of the copy is faster."""

_NULL: Final = 1
"""The length -1 as a varint."""

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_AT_ONCE: Final = 1024
"""Number of records that are read before they are checked one by one, which limits the memory."""

_TOO_MANY: Final = "the batch has too many unusual records to check"
_NO_KEY: Final = "a compacted topic does not accept a record without a key"


def check_records(section: Buffer, header: BatchHeader, rules: AppendRules) -> int:
    """Return the largest timestamp of the records in the decompressed `section`; -1 if they have none.

    Raises `InvalidRecordError` if the section is invalid, or a record in a compacted topic has no key, and
    `InvalidTimestampError` if a timestamp is out of bounds. Both name at most `MAX_RECORD_ERRORS` records.
    """
    count, base = header.record_count, header.base_timestamp
    if (
        count == 1
        and base >= NO_TIMESTAMP
        and not rules.judges_records
        and len(section) <= _MOST_PLAIN_BYTES
        and _is_plain(bytes(section))
    ):
        return base
    facts = _facts(section, count)
    oldest, newest = base + facts.oldest_delta_ms, base + facts.newest_delta_ms
    if (
        not facts.number
        or not _MIN_INT64 <= oldest <= newest <= _MAX_INT64
        or (rules.compacted and not facts.all_keyed)
        or not _are_timely(oldest, newest, rules)
    ):
        return _inspect(bytes(section), header, rules, NOTHING)
    newest = max(newest, NO_TIMESTAMP)
    return newest if facts.number == count else max(newest, _inspect(bytes(section), header, rules, facts))


def _facts(section: Buffer, count: int) -> Facts:
    """Return the facts of the first records, of all of them in the usual case."""
    # The limit of steps is the same for both forms of the walk, so a batch is refused by both or by neither.
    if count < SURVEYED_COUNT or (IS_COMPILED and count <= MAX_STEPS):
        data = bytes(section)
        walked = walk(data, 0, count, most_headers=MAX_STEPS - count)
        if walked is not None:
            end, oldest, newest, all_keyed, numbered, _ = walked
            if numbered and end == len(data):
                return Facts(count, end, oldest, newest, all_keyed)
    return survey(section, count) if count >= SURVEYED_COUNT else NOTHING


def _is_plain(section: bytes) -> bool:
    """Whether the section is one valid record of the most common form; False only means that it has to be checked.

    The record is number 0, has the batch's timestamp, a key below 64 bytes if any, and no headers.
    """
    size = len(section)
    last = size - 1
    if size < _LEAST_BYTES or section[last] or not _begins_with(section, 0, size):
        return False
    at = 1 if size <= _SHORT else 2
    # Attributes are ignored; the deltas must be 0, as must be the header count at the end.
    if section[at + 1] or section[at + 2]:
        return False
    key = section[at + 3]
    # The lowest bit is the sign, and only -1 (no key) may have it.
    at += 4 + (key >> 1)
    if key >= 0x80 or (key & 1 and key != _NULL) or at >= last:
        return False
    return _begins_with(section, at, last - at) or (at == last - 1 and section[at] == _NULL)


def _begins_with(section: bytes, start: int, size: int) -> bool:
    """Whether `size` >= 1 bytes begin with the length of the bytes after it, in at most two bytes."""
    first = section[start]
    if size <= _SHORT:
        return first == (size - 1) << 1
    second = section[start + 1]
    # As a varint: zigzag encoding doubles it; a byte holds seven bits, and the first byte has the high bit set.
    return first >= 0x80 > second > 0 and (first & 0x7F | second << 7) == (size - 2) << 1


def _are_timely(oldest: int, newest: int, rules: AppendRules) -> bool:
    """Whether all timestamps in this range are valid. False if `oldest` is a missing timestamp (-1), because the oldest
    real one is then unknown."""
    if timestamp_fault(newest, rules) is not None or timestamp_fault(oldest, rules) is not None:
        return False
    return oldest > NO_TIMESTAMP or rules.timestamp_before_max_ms == UNBOUNDED_MS or oldest == newest


def check_messages(messages: Iterable[tuple[int, int, bytes | None, bytes | None]], rules: AppendRules) -> None:
    """Check messages of formats 0 and 1, as (offset, timestamp, key, value). Raises as `check_records`."""
    if not rules.judges_records:
        return
    faults = _Faults()
    for number, (_, timestamp, key, _) in enumerate(messages):
        faults.look(number, timestamp, key is not None, rules)
    faults.end()


class _Faults:
    """Records that break a rule of the topic, collected so that one error names all of them, up to a limit."""

    __slots__ = ("_errors", "_keyless", "_of_time")

    def __init__(self) -> None:
        self._errors: list[tuple[int, str]] = []
        self._of_time = False
        self._keyless = 0

    def look(self, number: int, timestamp_ms: int, keyed: bool, rules: AppendRules) -> None:
        """Check a record and note its error, if any. Raises as `end` once the limit is reached."""
        if rules.compacted and not keyed:
            fault: str | None = _NO_KEY
            self._keyless += 1
        else:
            fault = timestamp_fault(timestamp_ms, rules)
            if fault is None:
                return
            self._of_time = True
        self._errors.append((number, fault or ""))
        if len(self._errors) == MAX_RECORD_ERRORS:
            self.end()

    def end(self) -> None:
        """Raise if there are errors; a timestamp error takes precedence, as in Kafka."""
        if not self._errors:
            return
        text = f"{len(self._errors)} records are refused, the first (number {self._errors[0][0]}): {self._errors[0][1]}"
        refusal = InvalidTimestampError if self._of_time else InvalidRecordError
        raise refusal(text, record_errors=tuple(self._errors), fault=RecordFault.NO_KEY, fault_count=self._keyless)


def _inspect(section: bytes, header: BatchHeader, rules: AppendRules, known: Facts) -> int:
    """Check record by record after those known to be valid. Returns the largest timestamp of the checked records."""
    faults = _Faults() if rules.judges_records else None
    base_timestamp = header.base_timestamp
    newest = NO_TIMESTAMP
    number, position = known.number, known.end
    steps = 0
    while number < header.record_count:
        rows: list[Row] = []
        at_once = min(header.record_count - number, _AT_ONCE)
        walked = walk(section, position, at_once, rows=rows, most_headers=MAX_STEPS)
        for delta, offset_delta, _, key_length, _, _, headers, end in rows:
            position = end
            steps += 1 + headers
            timestamp = base_timestamp + delta
            if offset_delta != number or steps > MAX_STEPS:
                raise _invalid(number, f"its offset delta is {offset_delta}" if steps <= MAX_STEPS else _TOO_MANY)
            if timestamp > newest:
                newest = timestamp
            if delta and not _MIN_INT64 <= timestamp <= _MAX_INT64:
                raise _invalid(number, "its timestamp is longer than 64 bits")
            if faults is not None:
                faults.look(number, timestamp, key_length >= 0, rules)
            number += 1
        if walked is None:
            # A record that is valid by itself has exceeded the limit of headers.
            raise _invalid(number, record_fault(section, position, most_headers=MAX_STEPS) or _TOO_MANY)
    if position != len(section):
        raise InvalidRecordError(f"{len(section) - position} bytes follow the {header.record_count} records")
    if faults is not None:
        faults.end()
    return newest


def _invalid(number: int, fault: str) -> InvalidRecordError:
    return InvalidRecordError(f"record {number}: {fault}", record_errors=((number, fault),))
