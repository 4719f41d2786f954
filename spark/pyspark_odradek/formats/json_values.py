"""JSON values as columns, through Arrow's JSON reader. Pure.

The reader parses a stream of objects. Each value becomes the only element of an array in an object of its own, and a
newline stands between: `{"v":[VALUE]}`. An object is complete only with its last bracket, and JSON allows no object
after an object, so no value can continue in the next one. A value that contains several objects has another number of
elements or of rows, which is checked.

Arrow reads numbers, strings, booleans, timestamps, lists and structs. Dates and binary columns are read as strings and
converted, and maps are rewritten before (`json_maps`).
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, DataType, DateType, MapType, StringType, StructField, StructType

from odradek.base.errors import ConfigError
from pyspark_odradek.formats.bad_records import WrongRowError, decode_values
from pyspark_odradek.formats.base64_text import decode_base64
from pyspark_odradek.formats.json_maps import has_maps, rewrite_maps
from pyspark_odradek.formats.text_columns import DATE

_COLUMN: Final = "v"
_BEFORE: Final = b'{"v":['
_AFTER: Final = b"]}\n"
_OBJECT: Final = r"^[ \t\r\n]*\{(?s:.*)\}[ \t\r\n]*$"
_MAX_BLOCK_BYTES: Final = (1 << 31) - 1
_ROW: Final = re.compile(r" in row (\d+)$")
"""The end of the messages of Arrow's parser. Errors of conversions, such as a number that is too large, lack it."""


class JsonDecoder:
    """Decodes JSON objects into a struct. Keys that the schema does not have are ignored."""

    def __init__(self, value_type: StructType) -> None:
        """Raises `ConfigError` for a map whose keys are not strings."""
        _check(value_type)
        self.value_type: DataType = value_type
        self._arrow_type = to_arrow_type(value_type, timezone="UTC")
        self._read_schema = pa.schema([pa.field(_COLUMN, pa.list_(_read_type(value_type)))])
        self._row_type = StructType([StructField(_COLUMN, ArrayType(value_type))])
        self._rewrites = has_maps(value_type)

    def decode(self, values: pa.BinaryArray) -> tuple[pa.Array, pa.BinaryArray]:
        """Return the structs, and the bytes of values that are no JSON object or do not match the schema."""
        return decode_values(values, self._parse, self._arrow_type)

    def _parse(self, values: pa.BinaryArray) -> pa.Array:
        text = values.cast(pa.string())  # raises ArrowInvalid if one is not UTF-8
        plausible = pc.match_substring_regex(text, _OBJECT)
        if not pc.all(plausible, min_count=0).as_py():
            # The most common mistakes, such as empty values, cost no search.
            values = pc.if_else(plausible, values, pa.scalar(b"null", pa.binary()))
        block = _join(values)
        if self._rewrites:
            block = rewrite_maps(block, self._row_type, len(values))
        column = self._read(block, len(values))
        lengths = pc.list_value_length(column)
        if pc.any(pc.not_equal(lengths, 1)).as_py():
            raise pa.ArrowInvalid("a value has several objects")
        return _convert(column.values.slice(column.offsets[0].as_py(), len(column)), self.value_type)

    def _read(self, block: pa.Buffer, rows: int) -> pa.ListArray:
        if block.size >= _MAX_BLOCK_BYTES:
            raise pa.ArrowInvalid("the values are too large for one block")
        try:
            table = pj.read_json(
                pa.BufferReader(block),
                read_options=pj.ReadOptions(use_threads=False, block_size=block.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=self._read_schema, newlines_in_values=True, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid as error:
            if row := _ROW.search(str(error)):
                raise WrongRowError(str(error), int(row[1])) from None
            raise
        if table.num_rows != rows:
            raise pa.ArrowInvalid("a value has several objects")
        column = table.column(0).combine_chunks()
        return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _check(data_type: DataType, where: str = "value") -> None:
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            _check(field.dataType, field.name)
        names = [field.name for field in data_type.fields]
        if not names:
            raise ConfigError(f"valueSchema is not allowed: {where} has no field")
        if len({*names}) < len(names):
            raise ConfigError(f"valueSchema is not allowed: {where} has two fields of one name")
    elif isinstance(data_type, ArrayType):
        _check(data_type.elementType, where)
    elif isinstance(data_type, MapType):
        if not isinstance(data_type.keyType, StringType):
            raise ConfigError(f"valueSchema is not allowed: JSON has only strings as keys of the map {where}")
        _check(data_type.valueType, where)


def _join(values: pa.BinaryArray) -> pa.Buffer:
    """Return the text for Arrow's reader."""
    wrapped = pc.binary_join_element_wise(
        pa.scalar(_BEFORE, pa.binary()), values, pa.scalar(_AFTER, pa.binary()), pa.scalar(b"", pa.binary())
    )
    _, offsets, data = wrapped.buffers()
    positions = np.frombuffer(offsets, dtype=np.int32)[wrapped.offset :]
    first, last = int(positions[0]), int(positions[len(wrapped)])
    return data.slice(first, last - first)


def _read_type(data_type: DataType) -> pa.DataType:
    """Return the type as which Arrow reads a column."""
    if isinstance(data_type, StructType):
        return pa.struct([pa.field(field.name, _read_type(field.dataType)) for field in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(_read_type(data_type.elementType))
    if isinstance(data_type, MapType):
        pair = [pa.field("key", pa.string()), pa.field("value", _read_type(data_type.valueType))]
        return pa.list_(pa.struct(pair))
    if isinstance(data_type, DateType | BinaryType):
        return pa.string()
    return to_arrow_type(data_type, timezone="UTC")


def _convert(array: pa.Array, data_type: DataType) -> pa.Array:
    """Convert an array as read into the type that Spark expects. Raises `ArrowInvalid` for a value without one."""
    wanted = to_arrow_type(data_type, timezone="UTC")
    if isinstance(data_type, StructType):
        columns = [
            _convert(pc.struct_field(array, number), field.dataType) for number, field in enumerate(data_type.fields)
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)
    if isinstance(data_type, ArrayType):
        offsets, elements = _list_parts(array)
        return pa.ListArray.from_arrays(offsets, _convert(elements, data_type.elementType), type=wanted)
    if isinstance(data_type, MapType):
        offsets, pairs = _list_parts(array)
        keys = pc.struct_field(pairs, 0)
        if keys.null_count:
            raise pa.ArrowInvalid("a key of a map is missing")
        return pa.MapArray.from_arrays(
            offsets, keys, _convert(pc.struct_field(pairs, 1), data_type.valueType), type=wanted
        )
    if isinstance(data_type, DateType):
        if not pc.all(pc.match_substring_regex(array, DATE), min_count=0).as_py():
            raise pa.ArrowInvalid("a date is not like 2026-01-31")
        return array.cast(wanted)
    return decode_base64(array) if isinstance(data_type, BinaryType) else array


def _list_parts(array: pa.ListArray) -> tuple[pa.Int32Array, pa.Array]:
    """Return the offsets of lists, null for a null list, and the elements that they refer to."""
    offsets = np.array(array.offsets)
    elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    missing = np.append(np.asarray(array.is_null()), False)
    return pa.array(offsets - offsets[0], pa.int32(), mask=missing if array.null_count else None), elements
