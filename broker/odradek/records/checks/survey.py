"""Fast validation of all records of a produced batch, column by column; the result is "valid" or "not sure".

`checks/structure` calls it for batches above a certain size, with the decompressed records section. For as many
records from the first on as it can verify, it returns the range of timestamps and whether all records have keys. The
caller checks the rest record by record, so a wrong "not sure" only costs time. Invariant: the verified records fill the
section without a gap, their fields fill them, and their offset deltas are 0, 1, 2 …

There are three methods, depending on the records:

- Runs of similar records (same lengths, same widths): one byte of all of them is a slice with a stride and is compared
  at once with its expected value. That also proves where they begin, as each length leads to the next.
- Records of different sizes: only the lengths depend on each other. The possible positions of records are guessed for
  the whole section from the shape of a record's first three bytes, and then verified to form a chain. The fields are
  read as columns, one step for all records.
- If the guess fails (some headers, data that looks like records), `v2/record_walk` follows the lengths.

numpy costs the broker 17 MB and 80 ms at startup, but it pays off. A broker needs 0.2 µs for everything else about a
record of 100 bytes. Reading its fields in pure Python takes 0.5 µs in one flat loop and 1.3 µs in functions; here it
takes 0.04 µs for similar records and 0.12 µs for others (`tests/bench/record_validation.py`). Each step costs as much
for a few records as for hundreds, so small batches are not surveyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.records.v2.record_starts import RecordLayout, record_layout
from odradek.records.v2.record_walk import follow_lengths
from odradek.records.v2.varint import encode_varint

Integers = NDArray[np.int64]
Octets = NDArray[np.uint8]

_CHUNK: Final = 8192
"""Number of records whose columns are held at once: limits the memory for a section of millions of tiny records. It is
also the number of offset deltas that take at most two bytes."""

_FEW: Final = 8
"""Minimum length of a run of similar records."""

_MOST_RUNS: Final = 6
"""Maximum number of runs; records that change their shape more often are read in another way."""

_GUESSED_BYTES: Final = 640
"""Above this size per record, looking at every byte costs more than following the lengths."""

_MOST_LENGTH_BYTES: Final = 3
"""Maximum width of a record's length; records of a megabyte or more are so few that they are checked one by one."""

_GUESSED_COUNT: Final = 1 << 18
"""Above this number of records, their positions are not kept in memory all at once."""

_BLOCK: Final = 160 * 1024
"""Number of bytes searched at once, which limits the memory for their flags. A typical batch takes one step."""

_FIRST_SHAPE: Final = 6
"""First possible position of the three bytes that show where the second record starts."""

_MAX_SHIFT: Final = 56
"""Shift of the ninth byte of a number; longer numbers are left to the check record by record."""

_MAX_HEADERS: Final = 16
"""Maximum headers per record that are read in columns; each round costs as much for one record as for thousands."""

_DELTAS: Final = tuple(encode_varint(number) for number in range(_CHUNK))
_FIRST_BYTES: Final = bytes(delta[0] for delta in _DELTAS)
_LAST_BYTES: Final = bytes(delta[-1] for delta in _DELTAS)
_DELTA_FIRST: Final[Octets] = np.frombuffer(_FIRST_BYTES, dtype=np.uint8)
_DELTA_LAST: Final[Octets] = np.frombuffer(_LAST_BYTES, dtype=np.uint8)
_ONE_BYTE_DELTAS: Final = 64
_LEAST_VALUE: Final = 2
_WIDE_VALUE: Final = 66
"""Size of an empty value with its length and the header count; size from which the value length takes two bytes."""
_VALUE_LENGTHS: Final = [(size - (2 if size < _WIDE_VALUE else 3)) << 1 for size in range(_CHUNK)]
_VALUE_FIRST: Final[Octets] = np.array(
    [length & 0x7F | (0 if size < _WIDE_VALUE else 0x80) for size, length in enumerate(_VALUE_LENGTHS)], dtype=np.uint8
)
_VALUE_LAST: Final[Octets] = np.array([length >> 7 & 0x7F for length in _VALUE_LENGTHS], dtype=np.uint8)
_SMALL: Final[Integers] = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(0x80)], dtype=np.int64)
"""Decoded values of one-byte varints."""


class Facts(NamedTuple):
    """Facts about the first `number` records of a section, which end at `end` and are valid.

    Timestamps are relative to the batch's base timestamp, in milliseconds.
    """

    number: int = 0
    end: int = 0
    oldest_delta_ms: int = 0
    newest_delta_ms: int = 0
    all_keyed: bool = True


NOTHING: Final = Facts()


class _Unsure(Exception):  # noqa: N818 - not an error: the check record by record decides
    """The section is invalid or unusual."""


def survey(section: Buffer, count: int) -> Facts:
    """Return the facts of `count` records, at least one, or of those before the first invalid or unusual one."""
    data: Octets = np.frombuffer(section, dtype=np.uint8)
    facts = NOTHING
    try:
        for run in _runs(data, memoryview(section), count):
            facts = _joined(facts, run)
        start, left = facts.end, count - facts.number
        if not left:
            return facts if start == len(data) else NOTHING
        for begins, ends in _places(data[start:], memoryview(section)[start:], left):
            deltas, keyed = _look(data[start:], facts.number, begins, ends)
            end, oldest, newest = start + int(ends[-1]), int(deltas.min()), int(deltas.max())
            facts = _joined(facts, Facts(len(ends), end, oldest, newest, keyed))
    except (CorruptMessageError, IndexError, _Unsure):
        return facts
    return facts


def _joined(facts: Facts, others: Facts) -> Facts:
    """Combine the facts with those of the following records, which count from 0."""
    if not facts.number:
        return others
    return Facts(
        facts.number + others.number,
        others.end,
        min(facts.oldest_delta_ms, others.oldest_delta_ms),
        max(facts.newest_delta_ms, others.newest_delta_ms),
        facts.all_keyed and others.all_keyed,
    )


# Runs of similar records


def _runs(data: Octets, section: memoryview, count: int) -> Iterator[Facts]:
    """Yield the facts of the first records, one run of similar records at a time.

    Records are similar if their lengths have the same values and their other numbers the same widths. They then form
    columns in memory: each record proves where the next begins, and one byte of all of them is a slice.
    """
    number = start = 0
    for _ in range(_MOST_RUNS):
        shape = _shape_at(section, start, number) if number < count else None
        if shape is None:
            return
        # From there on the offset delta takes one more byte.
        wider = _ONE_BYTE_DELTAS if number < _ONE_BYTE_DELTAS else _CHUNK
        most = min(min(count, wider) - number, (len(data) - start) // shape.size)
        if most < _FEW or not _is_repeated(section, start, shape):
            return
        rows = data[start : start + most * shape.size].reshape(most, shape.size)
        rows = rows[: _alike(rows, shape)]
        deltas = _deltas_of(rows, shape)
        alike = len(deltas)
        if alike < _FEW or not _are_counted(rows[:alike], number, shape):
            return
        number += alike
        start += alike * shape.size
        yield Facts(alike, start, int(deltas.min()), int(deltas.max()), shape.key_length >= 0)


def _shape_at(section: memoryview, start: int, number: int) -> RecordLayout | None:
    """Return the layout of the record at `start`; None if it has headers, is invalid, or is not number `number`."""
    shape = record_layout(section, start)
    if shape is None or shape.offset_delta != number or number >= _CHUNK:
        return None
    return shape if shape.key_length_at - shape.offset_at == len(_DELTAS[number]) else None


def _is_repeated(section: memoryview, start: int, shape: RecordLayout) -> bool:
    """Whether the next few records, which are all in the section, have the same length."""
    length = section[start : start + 2]
    return all(
        section[at : at + 2] == length for at in range(start + shape.size, start + _FEW * shape.size, shape.size)
    )


def _alike(rows: Octets, shape: RecordLayout) -> int:
    """Return how many rows from the first on have the same lengths."""
    alike = len(rows)
    for place in (*range(shape.timestamp_at - 1), *shape.length_places):
        column = rows[:alike, place].tobytes()
        if column != column[:1] * alike:
            alike -= len(column.lstrip(column[:1]))
    return alike


def _deltas_of(rows: Octets, shape: RecordLayout) -> Integers:
    """Return the timestamp deltas of the rows that use as many bytes as the first one (one or two)."""
    column = rows[:, shape.timestamp_at].tobytes()
    first: Octets = np.frombuffer(column, dtype=np.uint8)
    if shape.offset_at - shape.timestamp_at == 1:
        return _SMALL[first if column.isascii() else first[: int((first >= 0x80).argmax())]]
    second = rows[:, shape.timestamp_at + 1]
    unfit = (first < 0x80) | (second >= 0x80)
    value: Integers = (second.astype(np.int64) << 7) + (first & 0x7F)
    value = (value >> 1) ^ -(value & 1)
    return value[: int(unfit.argmax())] if unfit.any() else value


def _are_counted(rows: Octets, first: int, shape: RecordLayout) -> bool:
    """Whether the offset deltas, which take as many bytes as the first one, count up from `first`."""
    numbers = slice(first, first + len(rows))
    if rows[:, shape.offset_at].tobytes() != _FIRST_BYTES[numbers]:
        return False
    return (
        shape.key_length_at - shape.offset_at == 1 or rows[:, shape.key_length_at - 1].tobytes() == _LAST_BYTES[numbers]
    )


# Records of any shape


def _places(data: Octets, section: Buffer, count: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield the starts (after the length) and ends of the records, a chunk at a time."""
    guessed = None
    if count <= _GUESSED_COUNT and len(data) < count * _GUESSED_BYTES:
        guessed = _guess(data, count)
    if guessed is None:
        yield from _follow(section, count)
        return
    begin, end = guessed
    for first in range(0, count, _CHUNK):
        yield begin[first : first + _CHUNK], end[first : first + _CHUNK]


def _guess(data: Octets, count: int) -> tuple[Integers, Integers] | None:
    """Return the starts and ends of all records, if the shape of the first bytes identifies them.

    The shape is a length of two bytes and attributes of 0; or a length of one byte and attributes of 0 after a record
    that ends without headers. Random data has this shape about once in half a kilobyte. The chain separates the true
    positions from the others: a record begins where another one ends, and ends where another one begins.
    """
    size = len(data)
    begin = _shaped(data)
    if len(begin) < count:
        return None
    near, far = data[begin - 1], data[begin - 2]
    wide = far >= 0x80
    wide[0] = begin[0] > 1
    end = begin + np.where(wide, (near.astype(np.int64) << 6) + ((far & 0x7F) >> 1), near >> 1)
    start = begin - 1 - wide
    if len(begin) > count:
        begins, ends = np.zeros(size + 1, dtype=np.bool_), np.zeros(size + 1, dtype=np.bool_)
        reached = np.minimum(end, size)
        begins[start] = begins[size] = True
        ends[reached] = ends[0] = True
        linked = begins[reached] & ends[start]
        begin, end, start = begin[linked], end[linked], start[linked]
        near, far, wide = near[linked], far[linked], wide[linked]
    if len(begin) != count or start[0] != 0 or end[-1] != size or not (end[:-1] == start[1:]).all():
        return None
    # A second byte must not have a continuation bit, and a sign in the lowest bit would mean a negative length.
    return None if near.max() >= 0x80 or (np.where(wide, far, near) & 1).any() else (begin, end)


def _shaped(data: Octets) -> Integers:
    """Return where the bodies of records seem to begin; the first position is certain."""
    parts = [np.array([1 if data[0] < 0x80 else 2])]
    # The second record begins after the seven bytes that the first one takes at least.
    for block in range(_FIRST_SHAPE, len(data), _BLOCK):
        octets = data[block : block + _BLOCK + 2]
        zero = octets == 0
        shaped = octets[:-2] >= 0x80
        shaped |= zero[:-2]
        shaped &= zero[2:]
        place = np.flatnonzero(shaped)
        place += block + 2
        parts.append(place)
    return np.concatenate(parts)


def _follow(section: Buffer, count: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield the positions found by following the lengths, of at most three bytes each, which must fill the section."""
    data = bytes(section)
    octets: Octets = np.frombuffer(data, dtype=np.uint8)
    position = 0
    for first in range(0, count, _CHUNK):
        begins, position = follow_lengths(data, position, min(_CHUNK, count - first))
        _demand(position <= len(data) if first + _CHUNK < count else position == len(data))
        begins.append(position)
        bounds = np.array(begins, dtype=np.int64)
        end = bounds[1:]
        length, begin = _numbers(octets, bounds[:-1])
        _demand((begin - bounds[:-1]).max() <= _MOST_LENGTH_BYTES)
        # Following ignores signs, so a negative length leads to an end that is not the one of its record.
        _demand((begin + length == end).all())
        yield begin, end


def _look(data: Octets, first: int, begin: Integers, end: Integers) -> tuple[Integers, bool]:
    """Return the timestamp deltas of the records from number `first` on, and whether all have keys."""
    deltas, position = _numbers(data, begin + 1)
    position = _pass_offset_deltas(data, position, first)
    shortest_key, position = _pass_field(data, position)
    if not _end_with_values(data, position, end):
        _, position = _pass_field(data, position)
        position = _pass_headers(data, position)
        _demand((position == end).all())
    return deltas, shortest_key >= 0


def _numbers(data: Octets, position: Integers) -> tuple[Integers, Integers]:
    """Return the varint at each position, and the positions after them."""
    byte = data[position]
    position = position + 1
    if byte.max() < 0x80:
        return _SMALL[byte], position
    if byte.min() >= 0x80:
        following = data.take(position, mode="clip")
        if following.max() < 0x80 and not (byte & 1).any():
            return (following.astype(np.int64) << 6) + ((byte & 0x7F) >> 1), position + 1
    value = byte.astype(np.int64)
    going_on = byte >= 0x80
    # Read a second byte for all, as most numbers of a column have the same width. At the end of the section an unneeded
    # read is clipped; a number that continues beyond it does not end where its record does.
    byte = data.take(position, mode="clip")
    # The byte replaces the continuation bit of the one before it.
    value += ((byte.astype(np.int64) << 7) - 0x80) * going_on
    position += going_on
    going_on &= byte >= 0x80
    if going_on.any():
        _go_on(data, value, position, np.flatnonzero(going_on))
    return (value >> 1) ^ -(value & 1), position


def _go_on(data: Octets, value: Integers, position: Integers, going_on: Integers) -> None:
    """Add the third and later bytes of longer numbers."""
    shift = 14
    while going_on.size:
        if shift > _MAX_SHIFT:
            raise _Unsure
        byte = data[position[going_on]]
        value[going_on] += (byte.astype(np.int64) - 1) << shift
        position[going_on] += 1
        going_on = going_on[byte >= 0x80]
        shift += 7


def _pass_offset_deltas(data: Octets, position: Integers, first: int) -> Integers:
    """Return the positions after the offset deltas, which must be `first`, `first` + 1 …

    Deltas of at most two bytes, which is all of them in most batches, are compared as bytes.
    """
    count = len(position)
    if first + count > _CHUNK:
        value, position = _numbers(data, position)
        _demand((value == np.arange(first, first + count)).all())
        return position
    _demand((data[position] == _DELTA_FIRST[first : first + count]).all())
    position = position + 1
    longer = position[max(_ONE_BYTE_DELTAS - first, 0) :]
    _demand((data[longer] == _DELTA_LAST[max(_ONE_BYTE_DELTAS, first) : first + count]).all())
    longer += 1
    return position


def _pass_field(data: Octets, position: Integers) -> tuple[int, Integers]:
    """Return the smallest field length (-1: null) at the positions, and the positions after the fields.

    Positions never go back, so a field that extends beyond its record is detected at the end of the record.
    """
    length, position = _numbers(data, position)
    shortest, longest = int(length.min()), int(length.max())
    _demand(shortest >= -1 and longest <= len(data))
    if longest > 0:
        position += length if shortest >= 0 else np.maximum(length, 0)
    return shortest, position


def _end_with_values(data: Octets, position: Integers, end: Integers) -> bool:
    """Whether the rest of each record is exactly a value and no headers, so that only one value length is possible.

    The length is then compared instead of decoded. Also false for nulls and for lengths of three bytes.
    """
    size = end - position
    if size.min() < _LEAST_VALUE or size.max() >= _CHUNK or data[end - 1].any():
        return False
    same = data[position] == _VALUE_FIRST[size]
    second = data[position + 1] == _VALUE_LAST[size]
    second |= size < _WIDE_VALUE
    return bool((same & second).all())


def _pass_headers(data: Octets, position: Integers) -> Integers:
    """Return the positions after the headers."""
    count, position = _numbers(data, position)
    most = int(count.max())
    _demand(most <= _MAX_HEADERS and int(count.min()) >= 0)
    for done in range(most):
        more = np.flatnonzero(count > done)
        shortest, behind = _pass_field(data, position[more])
        _demand(shortest >= 0)
        _, position[more] = _pass_field(data, behind)
    return position


def _demand(sound: bool | np.bool_) -> None:
    if not sound:
        raise _Unsure
