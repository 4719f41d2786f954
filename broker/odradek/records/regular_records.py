"""Reads the fields of records that have one size, at regular positions of a buffer.

Many producers write such records, and full batches of them have one size, too. `frame_columns` tries this form first.
Nothing is searched or gathered: arrays whose strides are the distances of batches and records are laid over the buffer,
one for each run of records with the same layout. Other records are left to `section_starts` and `record_cursors`.

Invariant: a result is the same as theirs. Every byte that decides where a field is, or how long a number is, was
compared for every record. In case of doubt there is no result, but also no error: the other form finds what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.records.record_cursors import Bytes, Integers
from odradek.records.v2.varint import decode_varint

FEWEST_ROWS: Final = 256
"""Fewer records are not read faster here."""
_MOST_SHORT_RUNS: Final = 4
"""How many runs of fewer records are accepted. At the begin of a batch, offsets and timestamps need fewer bytes."""
_FEW_AHEAD: Final = 16
"""Number of records that are compared before all."""
_MOST_NUMBER_BYTES: Final = 5
"""A longer timestamp, offset or length is unusual."""
_WORD: Final = np.dtype("<u8")
_WORD_BYTES: Final = 8
_MOST_WORDS: Final = 2
_BYTE: Final = np.dtype(np.uint8)
_CONTINUED: Final = 0x80
_PAYLOAD: Final = 0x7F
_PAYLOAD_BITS: Final = 7

Words = NDArray[np.uint64]


class PieceRun(NamedTuple):
    """Pieces of a buffer that have one length: those of `records` records in each of `batches` batches.

    The piece of record `k` in batch `b` is at `start + b * batch_step + k * record_step`, and in the row
    `row + b * batch_rows + k`.
    """

    start: int
    length: int
    """-1: the pieces are null."""
    batches: int
    batch_step: int
    records: int
    record_step: int
    row: int
    batch_rows: int


@dataclass(frozen=True, slots=True)
class RegularPieces:
    """One field of regular records: pieces of a buffer in `rows` rows, each of which is in one of the runs."""

    rows: int
    runs: tuple[PieceRun, ...]

    @property
    def start(self) -> Integers:
        """The position of each piece."""
        found = np.empty(self.rows, dtype=np.int64)
        for run in self.runs:
            in_batches = run.start + np.arange(run.batches)[:, None] * run.batch_step
            rows_of(found, run)[:] = in_batches + np.arange(run.records) * run.record_step
        return found

    @property
    def length(self) -> Integers:
        """The length of each piece, -1 for null."""
        found = np.empty(self.rows, dtype=np.int64)
        for run in self.runs:
            rows_of(found, run)[:] = run.length
        return found

    @property
    def longest(self) -> int:
        """The largest length."""
        return max((run.length for run in self.runs), default=0)


@dataclass(frozen=True, slots=True)
class RegularRecords:
    """Fields of records as columns of equal length."""

    timestamp_delta: Integers
    offset_delta: Integers
    key: RegularPieces
    value: RegularPieces
    headers: RegularPieces | None
    """The headers of each record with their number; None if no record has headers."""


def rows_of(column: NDArray[Any], run: PieceRun) -> NDArray[Any]:
    """Return the part of a contiguous column that belongs to a run, with a row for each batch."""
    size = column.itemsize
    return np.ndarray(
        shape=(run.batches, run.records),
        dtype=column.dtype,
        buffer=column,
        offset=run.row * size,
        strides=(run.batch_rows * size, size),
    )


class _Block(NamedTuple):
    """Consecutive sections of one size, at regular distances, with the same number of records."""

    start: int
    step: int
    """Distance of the sections."""
    batches: int
    size: int
    records: int
    """Number of records of each section."""


class _Layout(NamedTuple):
    """Positions in a record, relative to its begin, and the lengths of its fields."""

    timestamp_at: int
    offset_at: int
    key_length_at: int
    key_at: int
    key_length: int
    value_length_at: int
    value_at: int
    value_length: int
    headers_at: int
    size: int


class _Run(NamedTuple):
    """Records with one layout: `length` of them in each batch of a block, from `start` of the first batch on."""

    start: int
    length: int
    layout: _Layout
    expected: Words
    """The first bytes of each record, up to the key, in words of 8 bytes."""
    relevant: Words
    """The bits of these words that must be as expected."""


def read_regular(array: Bytes, start: Integers, end: Integers, count: Integers) -> RegularRecords | None:
    """Return the records of the sections, which are inside `array` and not empty; None if they are not regular enough.

    Never raises an error for what is in the sections.
    """
    rows = int(count.sum())
    most_runs = _MOST_SHORT_RUNS + rows // FEWEST_ROWS
    blocks = _blocks(start, end, count, most_runs) if rows >= FEWEST_ROWS else []
    if not blocks:
        return None
    columns = _Columns(rows)
    row = runs = short = 0
    for block in blocks:
        position, done = block.start, 0
        while done < block.records:
            run = _find_run(array, block, position, block.records - done)
            if run is None or not columns.add(array, block, run, row + done):
                return None
            runs += 1
            short += run.length * block.batches < FEWEST_ROWS
            if runs > most_runs or short > _MOST_SHORT_RUNS:
                return None
            position += run.length * run.layout.size
            done += run.length
        if position != block.start + block.size:
            return None
        row += block.batches * block.records
    return columns.finished()


def _blocks(start: Integers, end: Integers, count: Integers, most: int) -> list[_Block]:
    """Return the blocks of the sections in order; none if they are more than `most`."""
    size, step = end - start, np.diff(start)
    alike = (np.diff(size) == 0) & (np.diff(count) == 0)
    # In a block, all distances are the same.
    alike[1:] &= ~alike[:-1] | (np.diff(step) == 0)
    firsts = [0, *(np.flatnonzero(~alike) + 1).tolist()]
    if len(firsts) > most:
        return []
    return [
        _Block(
            start=int(start[first]),
            step=int(step[first]) if following - first > 1 else 0,
            batches=following - first,
            size=int(size[first]),
            records=int(count[first]),
        )
        for first, following in zip(firsts, [*firsts[1:], len(start)], strict=True)
    ]


def _find_run(array: Bytes, block: _Block, position: int, most: int) -> _Run | None:
    """Return the records from `position` of the first batch on that begin like the one there, at most `most`; None if
    that record is invalid or unusual. Only the first batch is looked at."""
    end = block.start + block.size
    layout = _layout(array, position, end)
    if layout is None:
        return None
    most = min(most, (end - position) // layout.size)
    run = _Run(position, most, layout, *_expected_words(array, position, layout))
    first_batch = block._replace(batches=1)
    for ahead in (_FEW_AHEAD, most):
        _, other = _beginnings(array, first_batch, run._replace(length=min(ahead, most)))
        if other.any():
            return run._replace(length=int(other[0].argmax()))
    return run


def _expected_words(array: Bytes, position: int, layout: _Layout) -> tuple[Words, Words]:
    """Return the first words of the record at `position`, and the bits that all records of a run have in common."""
    first = array[position : position + layout.key_at].tobytes()
    # The attributes are not used. Of timestamp and offset, the bits decide that tell whether a number goes on.
    mask = bytearray(b"\xff" * len(first))
    mask[layout.timestamp_at - 1] = 0
    mask[layout.timestamp_at : layout.key_length_at] = bytes([_CONTINUED]) * (
        layout.key_length_at - layout.timestamp_at
    )
    padding = bytes(-len(first) % _WORD_BYTES)
    return np.frombuffer(first + padding, dtype=_WORD), np.frombuffer(bytes(mask) + padding, dtype=_WORD)


def _layout(array: Bytes, position: int, end: int) -> _Layout | None:
    """Return the layout of the record at `position` of a section that ends at `end`; None if it is invalid or unusual.

    Its headers are not looked at.
    """
    data = array.data[position:end]
    try:
        length, body = decode_varint(data, 0)
        timestamp_at = body + 1
        _, offset_at = decode_varint(data, timestamp_at)
        _, key_length_at = decode_varint(data, offset_at)
        key_length, key_at = decode_varint(data, key_length_at)
        value_length_at = key_at + max(key_length, 0)
        value_length, value_at = decode_varint(data, value_length_at)
    except CorruptMessageError:
        return None
    headers_at = value_at + max(value_length, 0)
    size = body + length
    numbers = (body, offset_at - timestamp_at, key_length_at - offset_at)
    if min(key_length, value_length) < -1 or not headers_at < size <= len(data) or max(numbers) > _MOST_NUMBER_BYTES:
        return None
    words = -(-key_at // _WORD_BYTES)
    # The words must be inside the record. Without headers, the number of headers is the last byte.
    if words > _MOST_WORDS or words * _WORD_BYTES > size or (headers_at == size - 1 and data[headers_at]):
        return None
    return _Layout(
        timestamp_at,
        offset_at,
        key_length_at,
        key_at,
        key_length,
        value_length_at,
        value_at,
        value_length,
        headers_at,
        size,
    )


def _view(array: Bytes, kind: np.dtype[Any], block: _Block, run: _Run, at: int) -> NDArray[Any]:
    """Return a copy of the numbers at position `at` of the records, with a row for each batch."""
    return np.ndarray(
        shape=(block.batches, run.length),
        dtype=kind,
        buffer=array,
        offset=run.start + at,
        strides=(block.step, run.layout.size),
    ).copy()


def _beginnings(array: Bytes, block: _Block, run: _Run) -> tuple[list[Words], NDArray[np.bool_]]:
    """Return the first words of the records, and which records have another layout there."""
    words = [_view(array, _WORD, block, run, at * _WORD_BYTES) for at in range(len(run.expected))]
    others = []
    for word, expected, relevant in zip(words, run.expected, run.relevant, strict=True):
        difference = word ^ expected
        difference &= relevant
        others.append(difference != 0)
    return words, others[0] if len(others) == 1 else others[0] | others[1]


def _number(words: list[Words], at: int, end: int) -> Integers:
    """Return the zigzag varint in the bytes from `at` to before `end` of each record."""
    value = np.zeros((), dtype=np.uint64)
    for index, place in enumerate(range(at, end)):
        # The byte goes from its place in the word to its place in the number in one step.
        distance = 8 * (place % _WORD_BYTES) - _PAYLOAD_BITS * index
        word = words[place // _WORD_BYTES]
        moved = word >> np.uint64(distance) if distance >= 0 else word << np.uint64(-distance)
        moved &= np.uint64(_PAYLOAD << (_PAYLOAD_BITS * index))
        value = moved if index == 0 else np.bitwise_or(value, moved, out=moved)
    number = value.view(np.int64)
    sign = number & 1
    number >>= 1
    np.negative(sign, out=sign)
    number ^= sign
    return number


class _Columns:
    """The columns of regular records, filled run by run."""

    def __init__(self, rows: int) -> None:
        self._rows: Final = rows
        self._timestamp_delta: Final = np.empty(rows, dtype=np.int64)
        self._offset_delta: Final = np.empty(rows, dtype=np.int64)
        self._key: Final[list[PieceRun]] = []
        self._value: Final[list[PieceRun]] = []
        self._headers: Final[list[PieceRun]] = []
        self._with_headers = False

    def add(self, array: Bytes, block: _Block, run: _Run, row: int) -> bool:
        """Add the records of a run, the first of which has the number `row`. Returns false if not all of them have its
        layout."""
        layout = run.layout
        words, other = _beginnings(array, block, run)
        if other.any():
            return False
        alone = [layout.headers_at] if layout.headers_at == layout.size - 1 else []
        for place in (*range(layout.value_length_at, layout.value_at), *alone):
            if (_view(array, _BYTE, block, run, place) != array[run.start + place]).any():
                return False
        self._with_headers |= not alone
        headers = PieceRun(
            start=run.start + layout.headers_at,
            length=layout.size - layout.headers_at,
            batches=block.batches,
            batch_step=block.step,
            records=run.length,
            record_step=layout.size,
            row=row,
            batch_rows=block.records,
        )
        self._headers.append(headers)
        self._key.append(headers._replace(start=run.start + layout.key_at, length=layout.key_length))
        self._value.append(headers._replace(start=run.start + layout.value_at, length=layout.value_length))
        rows_of(self._timestamp_delta, headers)[:] = _number(words, layout.timestamp_at, layout.offset_at)
        rows_of(self._offset_delta, headers)[:] = _number(words, layout.offset_at, layout.key_length_at)
        return True

    def finished(self) -> RegularRecords:
        """Return the columns. All rows are filled."""
        return RegularRecords(
            self._timestamp_delta,
            self._offset_delta,
            RegularPieces(self._rows, tuple(self._key)),
            RegularPieces(self._rows, tuple(self._value)),
            RegularPieces(self._rows, tuple(self._headers)) if self._with_headers else None,
        )
