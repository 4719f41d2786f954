"""Arrow columns of a query as the columns that `encode_records` takes: ranges of Arrow's buffers, nothing is copied."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.base.errors import OdradekError
from odradek.records.v2.encode import HeaderStrings
from odradek.records.v2.encode_fields import ByteStrings, Integers

_LARGE = (pa.large_string(), pa.large_binary())
_SMALL = (pa.string(), pa.binary())


def byte_strings(column: pa.Array) -> ByteStrings:
    """Return the values of a string or binary column."""
    if column.type not in _LARGE and column.type not in _SMALL:
        column = column.cast(pa.large_binary())
    _, positions, data = column.buffers()
    count = len(column)
    kind = np.int64 if column.type in _LARGE else np.int32
    if positions is None or not count:
        bounds = np.zeros(count + 1, dtype=np.int64)
    else:
        bounds = np.frombuffer(positions, kind)[column.offset : column.offset + count + 1].astype(np.int64)
    length = np.diff(bounds)
    if column.null_count:
        length[null_rows(column)] = -1
    buffer = np.frombuffer(b"" if data is None else data, np.uint8)
    return ByteStrings(buffer, bounds[:-1], length)


def null_rows(column: pa.Array) -> NDArray[np.bool_]:
    """Return which values of a column are null."""
    rows: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return rows


def header_strings(column: pa.ListArray) -> HeaderStrings:
    """Return the headers of the column `headers`; null is no header. Raises `OdradekError` if a header has no key."""
    bounds = column.offsets.to_numpy().astype(np.int64)
    counts = np.diff(bounds)
    if column.null_count:
        counts[null_rows(column)] = 0
    # The field arrays of `flatten` are null where the header itself is.
    names, values = (byte_strings(field) for field in column.values.flatten())
    headers = HeaderStrings(bounds[:-1], counts, names, values)
    if names.length.size and int(names.length.min()) < 0:
        _check_names(headers)
    return headers


def _check_names(headers: HeaderStrings) -> None:
    used = np.zeros(len(headers.names.length) + 1, dtype=np.int64)
    filled = headers.counts > 0
    np.add.at(used, headers.first[filled], 1)
    np.add.at(used, (headers.first + headers.counts)[filled], -1)
    if bool(((np.cumsum(used)[:-1] > 0) & (headers.names.length < 0)).any()):
        raise OdradekError("a header in the column `headers` has no key: filter such headers out before the write")


def numbers_or_null(column: pa.Array) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the numbers of a column of integers, and which rows have one."""
    filled = column.fill_null(0) if column.null_count else column
    return filled.to_numpy(zero_copy_only=False).astype(np.int64), ~null_rows(column)
