"""A fast look at every record of a produced batch, column by column: sound, or not sure.

An unpacked records section enters; extremes of its timestamps and whether all records have keys leave, for as many
records from the first on as it is sure of. `records/structure` calls it for batches of some size and goes on record by
record where it stops, so a wrong "not sure" costs time and nothing else. Invariant: the records that it vouches for
tile the section without a gap, their fields tile them, and their offset deltas are 0, 1, 2 …

Three ways, by what the records are like:

- Many alike in a row (same lengths, same widths): a byte of all of them is a slice with a stride, compared at once with
  what it has to be. That proves their begins, too, as each length leads to the next.
- Sizes that differ: only the lengths need one another; so the places where a record may begin are guessed for the whole
  section at once, from the shape of a record's first three bytes, and then proved to be a chain. The fields are read
  as columns, all records a step at a time.
- Where the guess fails (some headers, data that looks like records) a Python loop follows the lengths.

Why numpy in the broker, which it costs 17 MB and 80 ms of its start: one record of 100 bytes takes a broker 0.2 µs of
everything else. Reading its fields in pure Python takes 0.5 µs in one flat loop and 1.3 µs in functions; here it is
0.04 µs for records that are alike and 0.12 µs for others (`tests/bench/record_validation.py`). Each step costs as much
for a few records as for hundreds, so small batches go without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.records.varint import decode_varint, encode_varint

Integers = NDArray[np.int64]
Octets = NDArray[np.uint8]

_CHUNK: Final = 8192
"""Records whose columns are held at once: bounds the memory for a section of millions of tiny ones. Also the number of
offset deltas that take at most two bytes."""

_FEW: Final = 8
"""So many alike in a row are worth a run."""

_MOST_RUNS: Final = 6
"""Records that change their shape more often are looked at otherwise."""

_GUESSED_BYTES: Final = 640
"""Above so many bytes a record, looking at every byte costs more than following the lengths."""

_GUESSED_COUNT: Final = 1 << 18
"""Above so many records their places are not kept in memory at once."""

_BLOCK: Final = 160 * 1024
"""Bytes that are searched at once, which bounds the memory for their flags. A batch of usual size takes one turn."""

_FIRST_SHAPE: Final = 6
"""Where the three bytes may stand at first that show the second record's begin."""

_MAX_SHIFT: Final = 56
"""Numbers of nine bytes; longer ones are left to the other look."""

_MAX_HEADERS: Final = 16
"""Headers a record that are walked in columns; each round costs as much for one record as for thousands."""

_DELTAS: Final = tuple(encode_varint(number) for number in range(_CHUNK))
_FIRST_BYTES: Final = bytes(delta[0] for delta in _DELTAS)
_LAST_BYTES: Final = bytes(delta[-1] for delta in _DELTAS)
_DELTA_FIRST: Final[Octets] = np.frombuffer(_FIRST_BYTES, dtype=np.uint8)
_DELTA_LAST: Final[Octets] = np.frombuffer(_LAST_BYTES, dtype=np.uint8)
_ONE_BYTE_DELTAS: Final = 64
_LEAST_VALUE: Final = 2
_WIDE_VALUE: Final = 66
"""Bytes of an empty value with its length and the number of headers; of the first one whose length takes two bytes."""
_VALUE_LENGTHS: Final = [(size - (2 if size < _WIDE_VALUE else 3)) << 1 for size in range(_CHUNK)]
_VALUE_FIRST: Final[Octets] = np.array(
    [length & 0x7F | (0 if size < _WIDE_VALUE else 0x80) for size, length in enumerate(_VALUE_LENGTHS)], dtype=np.uint8
)
_VALUE_LAST: Final[Octets] = np.array([length >> 7 & 0x7F for length in _VALUE_LENGTHS], dtype=np.uint8)
_SMALL: Final[Integers] = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(0x80)], dtype=np.int64)
"""What a varint of one byte says."""


class Facts(NamedTuple):
    """What the first records of a section hold, `number` of them, which end at `end` and are sound.

    Timestamps count from the batch's base timestamp, in milliseconds.
    """

    number: int = 0
    end: int = 0
    oldest_delta_ms: int = 0
    newest_delta_ms: int = 0
    all_keyed: bool = True


NOTHING: Final = Facts()


class _Unsure(Exception):  # noqa: N818 - not an error: the other look decides
    """The section is wrong or unusual."""


def survey(section: Buffer, count: int) -> Facts:
    """The facts of `count` records, at least one: of all, or of those before what is unsound or unusual."""
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
    """The facts with those of the records that follow, numbered from 0."""
    if not facts.number:
        return others
    return Facts(
        facts.number + others.number,
        others.end,
        min(facts.oldest_delta_ms, others.oldest_delta_ms),
        max(facts.newest_delta_ms, others.newest_delta_ms),
        facts.all_keyed and others.all_keyed,
    )


# Records that are all alike


class _Shape(NamedTuple):
    """How a record without headers is laid out; places count from its begin."""

    size: int
    fixed: list[int]
    """Where its lengths stand: its own, its key's, its value's, and the number of its headers."""
    delta_at: int
    offset_at: int
    key_at: int
    """Behind the offset delta."""
    keyed: bool


def _runs(data: Octets, section: memoryview, count: int) -> Iterator[Facts]:
    """The facts of the first records, run by run, as far as many in a row are alike.

    Alike are records whose lengths have the same values and whose other numbers the same widths. They stand in columns
    as they are, so each proves the next one's begin, and a byte of all of them is a slice.
    """
    number = start = 0
    for _ in range(_MOST_RUNS):
        shape = _shape_at(section, start, number) if number < count else None
        if shape is None:
            return
        # There the offset delta takes a byte more.
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
        yield Facts(alike, start, int(deltas.min()), int(deltas.max()), shape.keyed)


def _shape_at(section: memoryview, start: int, number: int) -> _Shape | None:
    """The layout of the record that begins there; None when it has headers, is unsound, or is not of that number."""
    length, body = decode_varint(section, start)
    _, offset_at = decode_varint(section, body + 1)
    offset, key_at = decode_varint(section, offset_at)
    key_length, key = decode_varint(section, key_at)
    value_at = key + max(key_length, 0)
    value_length, value = decode_varint(section, value_at)
    headers_at = value + max(value_length, 0)
    size = headers_at + 1 - start
    if (
        min(key_length, value_length) < -1
        or body + length != headers_at + 1
        or offset != number
        or number >= _CHUNK
        or key_at - offset_at != len(_DELTAS[number])
        or section[headers_at]
    ):
        return None
    fixed = [*range(start, body), *range(key_at, key), *range(value_at, value), headers_at]
    return _Shape(
        size, [at - start for at in fixed], body + 1 - start, offset_at - start, key_at - start, key_length >= 0
    )


def _is_repeated(section: memoryview, start: int, shape: _Shape) -> bool:
    """Whether the next few records, all of which are there, have the length of this one."""
    length = section[start : start + 2]
    return all(
        section[at : at + 2] == length for at in range(start + shape.size, start + _FEW * shape.size, shape.size)
    )


def _alike(rows: Octets, shape: _Shape) -> int:
    """How many records from the first on have its lengths."""
    alike = len(rows)
    for place in shape.fixed:
        column = rows[:alike, place].tobytes()
        if column != column[:1] * alike:
            alike -= len(column.lstrip(column[:1]))
    return alike


def _deltas_of(rows: Octets, shape: _Shape) -> Integers:
    """The timestamp deltas, as far as they take as many bytes as the first one, which are one or two."""
    column = rows[:, shape.delta_at].tobytes()
    first: Octets = np.frombuffer(column, dtype=np.uint8)
    if shape.offset_at - shape.delta_at == 1:
        return _SMALL[first if column.isascii() else first[: int((first >= 0x80).argmax())]]
    second = rows[:, shape.delta_at + 1]
    unfit = (first < 0x80) | (second >= 0x80)
    value: Integers = (second.astype(np.int64) << 7) + (first & 0x7F)
    value = (value >> 1) ^ -(value & 1)
    return value[: int(unfit.argmax())] if unfit.any() else value


def _are_counted(rows: Octets, first: int, shape: _Shape) -> bool:
    """Whether the offset deltas, which take as many bytes as the first one, count from there."""
    numbers = slice(first, first + len(rows))
    if rows[:, shape.offset_at].tobytes() != _FIRST_BYTES[numbers]:
        return False
    return shape.key_at - shape.offset_at == 1 or rows[:, shape.key_at - 1].tobytes() == _LAST_BYTES[numbers]


# Records of any shape


def _places(data: Octets, section: Buffer, count: int) -> Iterator[tuple[Integers, Integers]]:
    """Begins (behind the length) and ends of the records, a chunk of them at a time."""
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
    """Begins and ends of all records, if their places can be told from the shape of the first bytes.

    That is a length of two bytes and attributes of 0; or a length of one byte and attributes of 0 behind a record that
    ends without headers. Random bytes look so once in half a kilobyte. Those places are told apart by the chain: a true
    one is where another one ends, and ends where another one begins.
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
    # A second byte may not go on, and a sign in the lowest bit would be a negative length.
    return None if near.max() >= 0x80 or (np.where(wide, far, near) & 1).any() else (begin, end)


def _shaped(data: Octets) -> Integers:
    """Where the body of a record seems to begin; of the first record, where it does."""
    parts = [np.array([1 if data[0] < 0x80 else 2])]
    # The second record begins behind the seven bytes that the first one takes at least.
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
    """The places by following the lengths, of at most three bytes each, which must fill the section."""
    data = bytes(section)
    position = signs = 0
    for first in range(0, count, _CHUNK):
        begins: list[int] = []
        lengths: list[int] = []
        for _ in range(min(_CHUNK, count - first)):
            length = data[position]
            position += 1
            if length >= 0x80:
                length, position = _longer(data, length, position)
            signs |= length
            length >>= 1
            begins.append(position)
            lengths.append(length)
            position += length
        # The lowest bit of a varint is its sign, and no length is negative.
        _demand(not signs & 1)
        if first + _CHUNK >= count:
            _demand(position == len(data))
        begin = np.array(begins, dtype=np.int64)
        yield begin, begin + np.array(lengths, dtype=np.int64)


def _longer(data: bytes, length: int, position: int) -> tuple[int, int]:
    """A length whose first byte goes on, still with its sign, and the position behind it."""
    second = data[position]
    length = (length & 0x7F) | (second & 0x7F) << 7
    if second < 0x80:
        return length, position + 1
    third = data[position + 1]
    if third >= 0x80:
        raise _Unsure
    return length | third << 14, position + 2


def _look(data: Octets, first: int, begin: Integers, end: Integers) -> tuple[Integers, bool]:
    """Timestamp deltas of the records from number `first` on, and whether all have keys."""
    deltas, position = _numbers(data, begin + 1)
    position = _pass_offset_deltas(data, position, first)
    shortest_key, position = _pass_field(data, position)
    if not _end_with_values(data, position, end):
        _, position = _pass_field(data, position)
        position = _pass_headers(data, position)
        _demand((position == end).all())
    return deltas, shortest_key >= 0


def _numbers(data: Octets, position: Integers) -> tuple[Integers, Integers]:
    """The varint at each position, and the positions behind them."""
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
    # Read for all, as most numbers of a column have the same width; one that ends with the section reads what it then
    # does not use, one that goes on beyond it will not end where its record does.
    byte = data.take(position, mode="clip")
    # The byte takes the place of the mark by which the one before it went on.
    value += ((byte.astype(np.int64) << 7) - 0x80) * going_on
    position += going_on
    going_on &= byte >= 0x80
    if going_on.any():
        _go_on(data, value, position, np.flatnonzero(going_on))
    return (value >> 1) ^ -(value & 1), position


def _go_on(data: Octets, value: Integers, position: Integers, going_on: Integers) -> None:
    """Add the third and later bytes to the numbers that have them."""
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
    """Positions behind the offset deltas, which must be `first`, `first` + 1 …

    Those of at most two bytes, which are all of most batches, are compared as bytes.
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
    """The least length of the fields at the positions (-1: null), and the positions behind them.

    Positions never go back, so fields that reach beyond their record are told by where the record's last one ends.
    """
    length, position = _numbers(data, position)
    shortest, longest = int(length.min()), int(length.max())
    _demand(shortest >= -1 and longest <= len(data))
    if longest > 0:
        position += length if shortest >= 0 else np.maximum(length, 0)
    return shortest, position


def _end_with_values(data: Octets, position: Integers, end: Integers) -> bool:
    """Whether a value and no headers fill each record from there on, which leaves the value just one length.

    So that need not be read but compared. False also for nulls, and lengths of three bytes.
    """
    size = end - position
    if size.min() < _LEAST_VALUE or size.max() >= _CHUNK or data[end - 1].any():
        return False
    same = data[position] == _VALUE_FIRST[size]
    second = data[position + 1] == _VALUE_LAST[size]
    second |= size < _WIDE_VALUE
    return bool((same & second).all())


def _pass_headers(data: Octets, position: Integers) -> Integers:
    """The positions behind the headers."""
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
