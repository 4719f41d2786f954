"""Separates values that a parser refuses from the others. Pure.

Parsers of whole blocks, such as those of Arrow, refuse a block as soon as one value is wrong. So a block that fails is
made smaller until it succeeds, or consists of one value, which is wrong; blocks that succeed become larger again.
Invariants: each value is parsed in a block of whole values, so a wrong one affects no other. A wrong value costs one or
two calls of the parser if the parser knows its row, else about `log2(n)`; a block of nothing but wrong values costs one
call for each. The number of values that are parsed again is bounded in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Parse = Callable[[pa.BinaryArray], pa.Array]
"""Parses values without nulls into an array of the same length. A null in the result is a value that is wrong. Raises
`ArrowInvalid` if it cannot tell which values are wrong."""


_SMALL: Final = 8
"""Size of the next block after a wrong value: wrong values often come together."""


class WrongRowError(pa.ArrowInvalid):  # type: ignore[misc]
    """A parser that knows which row of the block it cannot parse."""

    def __init__(self, message: str, row: int) -> None:
        """`row`: from 0 in the block."""
        super().__init__(message)
        self.row = row


def decode_values(values: pa.BinaryArray, parse: Parse, value_type: pa.DataType) -> tuple[pa.Array, pa.BinaryArray]:
    """Return the parsed values, and the bytes of those that are wrong. Both are null for a null value."""
    given = np.flatnonzero(values.is_valid())
    present = values.drop_null() if values.null_count else values
    pieces, indices = _parse(present, parse)
    if len(pieces) == 1 and len(pieces[0]) == len(values):
        # The usual case: nothing has to be moved.
        typed = pieces[0]
        if not typed.null_count:
            return typed, pa.nulls(len(values), pa.binary())
        return typed, _only(values, typed.is_null())
    parsed = pa.concat_arrays(pieces) if pieces else pa.nulls(0, value_type)
    place = np.full(len(values), -1, dtype=np.int64)
    place[given[indices]] = np.arange(len(indices))
    typed = parsed.take(pa.array(place, mask=place < 0))
    return typed, _only(values, typed.is_null())


def _only(values: pa.BinaryArray, mask: pa.BooleanArray) -> pa.BinaryArray:
    """Return the values where `mask` is true, null elsewhere."""
    indices = np.arange(len(values), dtype=np.int64)
    return values.take(pa.array(indices, mask=~np.asarray(mask)))


def _parse(values: pa.BinaryArray, parse: Parse) -> tuple[list[pa.Array], NDArray[np.int64]]:
    """Return the parsed blocks, and the position in `values` of each parsed value."""
    pieces: list[pa.Array] = []
    positions: list[NDArray[np.int64]] = []
    start, size, wrong = 0, len(values), -1
    while start < len(values):
        if start == wrong:
            start += 1
            continue
        stop = min(start + size, len(values))
        try:
            pieces.append(parse(values.slice(start, stop - start)))
        except pa.ArrowInvalid as error:
            row = error.row if isinstance(error, WrongRowError) and error.row < stop - start else None
            # The row counts only if the rows before it are those of the values before it: parsing these will show it.
            if row:
                wrong, size = start + row, row
            elif row == 0:
                wrong, size = start, _SMALL
            elif stop - start == 1:
                wrong, size = start, 1
            else:
                wrong, size = -1, (stop - start) // 2
        else:
            positions.append(np.arange(start, stop))
            start, size = stop, 4 * size
    return pieces, np.concatenate(positions) if positions else np.empty(0, dtype=np.int64)
