"""Avro values as columns. Pure; no Python step per value.

Libraries read files of Avro, in which values have no bounds: after a wrong value, all others of a block are lost or
shifted. So this module reads the values of a column side by side. For each of them there is a position; each field of
the schema is read at all positions at once, and moves them. Invariants: no position passes the end of its value, and a
value that would is wrong and stays at its end; a value is right only if its last byte is read.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, DecimalType, StructType, TimestampNTZType, TimestampType

from pyspark_odradek.formats.avro_schema import AvroType, Kind
from pyspark_odradek.formats.byte_columns import Cursors, decimals, take_bytes, texts

CONFLUENT_PREFIX_BYTES: Final = 5
"""A zero byte and the number of the schema in a registry, before each value."""

_FIXED_WIDTH: Final[dict[Kind, tuple[int, str]]] = {Kind.FLOAT: (4, "<f4"), Kind.DOUBLE: (8, "<f8")}
_INT_MAX: Final = (1 << 31) - 1
_INT_MIN: Final = -(1 << 31)

Rows = NDArray[np.int64]


class AvroDecoder:
    """Decodes values that were written with one schema, without the header of a file."""

    def __init__(self, schema: AvroType, *, confluent_prefix: bool = False) -> None:
        """`confluent_prefix`: each value begins with a zero byte and four bytes, which are skipped."""
        self._schema = schema
        self._confluent_prefix = confluent_prefix
        self.value_type: DataType = schema.spark_type

    def decode(self, values: pa.BinaryArray) -> tuple[pa.Array, pa.BinaryArray]:
        """Return the typed values, and the bytes of those that do not match the schema."""
        given = np.asarray(values.is_valid())
        cursors = Cursors(values)
        rows = np.flatnonzero(given)
        if self._confluent_prefix:
            start = cursors.advance(rows, np.full(len(rows), CONFLUENT_PREFIX_BYTES))
            cursors.reject(rows[cursors.data[start] != 0])
        typed = _read(self._schema, cursors, rows)
        cursors.reject(rows[cursors.position[rows] != cursors.end[rows]])
        if len(rows) == len(values) and not cursors.wrong.any():
            return typed, pa.nulls(len(values), pa.binary())
        place = np.full(len(values), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        typed = typed.take(pa.array(place, mask=~given | cursors.wrong))
        index = np.arange(len(values), dtype=np.int64)
        return typed, values.take(pa.array(index, mask=~(given & cursors.wrong)))


def _read(node: AvroType, cursors: Cursors, rows: Rows) -> pa.Array:
    """Read one value of each row, and return the column. The values of wrong rows have no meaning."""
    if node.kind is Kind.RECORD:
        columns = [_read(child, cursors, rows) for child in node.children]
        return pa.StructArray.from_arrays(columns, fields=list(_arrow(node.spark_type)))
    if node.kind is Kind.UNION:
        return _union(node, cursors, rows)
    if node.kind in (Kind.ARRAY, Kind.MAP):
        return _list(node, cursors, rows)
    return _scalar(node, cursors, rows)


def _arrow(data_type: DataType) -> pa.DataType:
    return to_arrow_type(data_type, timezone="UTC")


def _scalar(node: AvroType, cursors: Cursors, rows: Rows) -> pa.Array:
    wanted = _arrow(node.spark_type)
    if node.kind is Kind.NULL:
        return pa.nulls(len(rows), wanted)
    if node.kind is Kind.BOOLEAN:
        start = cursors.advance(rows, np.ones(len(rows), dtype=np.int64))
        found = cursors.data[start]
        cursors.reject(rows[found > 1])
        return pa.array(found == 1)
    if node.kind in _FIXED_WIDTH:
        width, layout = _FIXED_WIDTH[node.kind]
        start = cursors.advance(rows, np.full(len(rows), width))
        numbers = cursors.data[start[:, None] + np.arange(width)].view(layout).reshape(-1)
        return pa.array(numbers, wanted)
    if node.kind in (Kind.INT, Kind.LONG):
        return _integer(node, cursors.varint(rows), cursors, rows)
    if node.kind is Kind.ENUM:
        number = cursors.varint(rows)
        wrong = (number < 0) | (number >= len(node.symbols))
        cursors.reject(rows[wrong])
        return pa.array(node.symbols, pa.string()).take(pa.array(number, mask=wrong))
    length = np.full(len(rows), node.size) if node.kind is Kind.FIXED else cursors.varint(rows)
    start = cursors.advance(rows, length)
    length = np.where(cursors.wrong[rows], 0, length)
    if isinstance(node.spark_type, DecimalType):
        return decimals(cursors, rows, start, length, node.spark_type)
    return texts(cursors, rows, start, length) if node.kind is Kind.STRING else take_bytes(cursors.data, start, length)


def _integer(node: AvroType, number: NDArray[np.int64], cursors: Cursors, rows: Rows) -> pa.Array:
    wanted = _arrow(node.spark_type)
    if node.kind is Kind.INT:
        cursors.reject(rows[(number < _INT_MIN) | (number > _INT_MAX)])
        number32 = number.astype(np.int32)
        return pa.array(number32, pa.int32()).view(wanted)
    if isinstance(node.spark_type, TimestampType | TimestampNTZType) and node.milliseconds:
        wrong = np.abs(number // 1000) > np.iinfo(np.int64).max // 1_000_000
        cursors.reject(rows[wrong])
        number = np.where(wrong, 0, number) * 1000
    return pa.array(number, pa.int64()).view(wanted)


def _union(node: AvroType, cursors: Cursors, rows: Rows) -> pa.Array:
    branch = cursors.varint(rows)
    cursors.reject(rows[(branch < 0) | (branch >= len(node.children))])
    wanted = _arrow(node.spark_type)
    parts = []
    for number, child in enumerate(node.children):
        of_branch = np.flatnonzero(branch == number)
        column = _read(child, cursors, rows[of_branch])
        if child.kind is not Kind.NULL:
            place = np.full(len(rows), -1, dtype=np.int64)
            place[of_branch] = np.arange(len(of_branch))
            parts.append(column.take(pa.array(place, mask=place < 0)))
    if not parts:
        return pa.nulls(len(rows), wanted)
    if len(parts) == 1:
        return parts[0]
    if isinstance(node.spark_type, StructType) and wanted.num_fields == len(parts):
        nothing = np.array([child.kind is Kind.NULL for child in node.children] + [True])
        is_null = nothing[np.clip(branch, -1, len(node.children))]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=pa.array(is_null))
    return pc.coalesce(*(part.cast(wanted) for part in parts))


def _list(node: AvroType, cursors: Cursors, rows: Rows) -> pa.Array:
    """Read lists or maps: one element of each row at a time, until the blocks of all rows have ended."""
    child = node.children[0]
    left = _block_counts(cursors, rows)
    counts = np.zeros(len(rows), dtype=np.int64)
    owners: list[Rows] = []
    keys: list[pa.Array] = []
    items: list[pa.Array] = []
    active = np.flatnonzero(left > 0)
    while len(active):
        here = rows[active]
        if node.kind is Kind.MAP:
            length = cursors.varint(here)
            start = cursors.advance(here, length)
            keys.append(texts(cursors, here, start, np.where(cursors.wrong[here], 0, length)))
        items.append(_read(child, cursors, here))
        owners.append(active)
        counts[active] += 1
        left[active] -= 1
        left[cursors.wrong[rows]] = 0
        ended = active[(left[active] == 0) & ~cursors.wrong[here]]
        left[ended] = _block_counts(cursors, rows[ended])
        active = np.flatnonzero(left > 0)
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    order = pa.array(np.argsort(np.concatenate(owners), kind="stable") if owners else np.empty(0, dtype=np.int64))
    wanted = _arrow(node.spark_type)
    elements = (pa.concat_arrays(items) if items else pa.nulls(0, _arrow(child.spark_type))).take(order)
    if node.kind is Kind.MAP:
        names = (pa.concat_arrays(keys) if keys else pa.nulls(0, pa.string())).take(order)
        # Only wrong values lack a key, and Arrow allows no null there.
        return pa.MapArray.from_arrays(offsets, pc.fill_null(names, ""), elements, type=wanted)
    return pa.ListArray.from_arrays(offsets, elements, type=wanted)


def _block_counts(cursors: Cursors, rows: Rows) -> NDArray[np.int64]:
    """Read the number of elements of the next block of each row; a negative number precedes the size of the block."""
    count = cursors.varint(rows)
    sized = np.flatnonzero(count < 0)
    cursors.varint(rows[sized])
    count = np.abs(count)
    # Each element has at least one byte, so a wrong number is noticed here.
    cursors.reject(rows[(count > cursors.end[rows] - cursors.position[rows]) | (count < 0)])
    return np.where(cursors.wrong[rows], 0, count)
