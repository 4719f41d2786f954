"""CSV values as columns, through Arrow's CSV reader: RFC 4180, one record per value and no header. Pure.

A quote that is not closed would continue in the next value. So a regular expression first checks that each value is one
whole record, and those that are not are replaced before all values are read at once.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from odradek.base.errors import ConfigError
from pyspark_odradek.formats.bad_records import decode_values
from pyspark_odradek.formats.text_columns import convert_text, is_text_type

_QUOTED: Final = r'"(?:[^"]|"")*"'
_MAX_BLOCK_BYTES: Final = (1 << 31) - 1


class CsvDecoder:
    """Decodes records into a struct, by the order of fields. An empty field is null, even in quotes, as in Spark."""

    def __init__(self, value_type: StructType, *, delimiter: str = ",") -> None:
        """Raises `ConfigError` for a column that is a struct, list or map, and for a delimiter that is impossible."""
        if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
            raise ConfigError(
                f"valueDelimiter={delimiter!r} is not allowed: it must be a single ASCII character and no quote"
            )
        for field in value_type.fields:
            if not is_text_type(field.dataType):
                raise ConfigError(
                    f"valueSchema is not allowed: column {field.name} is a {field.dataType.simpleString()}, which CSV "
                    "cannot have"
                )
        self.value_type: DataType = value_type
        self._struct = value_type
        self._arrow_type = to_arrow_type(value_type, timezone="UTC")
        self._delimiter = delimiter
        other = re.escape(delimiter)
        field_pattern = rf'(?:{_QUOTED}|[^"\r\n{other}][^\r\n{other}]*|)'
        self._record = f"^{field_pattern}(?:{other}{field_pattern})*$"
        self._names = [str(number) for number in range(len(value_type.fields))]

    def decode(self, values: pa.BinaryArray) -> tuple[pa.Array, pa.BinaryArray]:
        """Return the structs, and the bytes of values that are no CSV record or do not match the schema."""
        return decode_values(values, self._parse, self._arrow_type)

    def _parse(self, values: pa.BinaryArray) -> pa.Array:
        texts = values.cast(pa.string())  # raises ArrowInvalid if one is not UTF-8
        wrong = pc.invert(self._plausible(texts))
        if pc.any(wrong).as_py():
            texts = pc.if_else(wrong, pa.scalar(self._delimiter * (len(self._names) - 1)), texts)
        table = self._read(texts)
        columns = []
        for number, field in enumerate(self._struct.fields):
            chunks = table.column(number).combine_chunks()
            column, wrong_here = convert_text(
                chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks, field.dataType
            )
            columns.append(column)
            wrong = pc.or_(wrong, wrong_here)
        return pa.StructArray.from_arrays(columns, fields=list(self._arrow_type), mask=wrong)

    def _plausible(self, texts: pa.StringArray) -> pa.BooleanArray:
        """Whether each text is one record with the right number of fields."""
        bare = texts
        if pc.any(pc.match_substring(texts, '"')).as_py():
            bare = pc.replace_substring_regex(texts, _QUOTED, "")
        count = pc.count_substring(bare, self._delimiter)
        return pc.and_(pc.match_substring_regex(texts, self._record), pc.equal(count, len(self._names) - 1))

    def _read(self, texts: pa.StringArray) -> pa.Table:
        lines = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
        block = pa.py_buffer(pc.binary_join(lines, "\n")[0].as_buffer().to_pybytes() + b"\n")
        if block.size >= _MAX_BLOCK_BYTES:
            raise pa.ArrowInvalid("the values are too large for one block")
        table = pv.read_csv(
            pa.BufferReader(block),
            read_options=pv.ReadOptions(use_threads=False, block_size=block.size + 1, column_names=self._names),
            parse_options=pv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pv.ConvertOptions(
                column_types=dict.fromkeys(self._names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        if table.num_rows != len(texts):
            raise pa.ArrowInvalid("a value has several records")
        return table
