"""Converts columns of text into typed columns. Pure; no Python step per value.

A regular expression tells which texts can have the type at all, so that columns with many wrong texts are converted at
once. What remains, such as the 31st of June or a number that is too large, fails the conversion as a whole.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

_INTEGER: Final = r"^[+-]?[0-9]+$"
_DECIMAL: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_FLOAT: Final = _DECIMAL + r"|^(NaN|[+-]?Inf|[+-]?Infinity)$"
_BOOLEAN: Final = r"^(?i:true|false)$"
DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LOCAL: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?"
_ZONE: Final = r"(Z|[+-][0-9]{2}:?[0-9]{2})"
_TIMESTAMP_NTZ: Final = f"^{_LOCAL}$"
_TIMESTAMP: Final = f"^{_LOCAL}$|^{_LOCAL}{_ZONE}$"


def is_text_type(data_type: DataType) -> bool:
    """Whether a text can have the type."""
    return isinstance(data_type, BinaryType | StringType) or _pattern(data_type) is not None


def convert_text(texts: pa.StringArray, data_type: DataType) -> tuple[pa.Array, pa.BooleanArray]:
    """Return the typed column, and whether each text is wrong; null stays null and is not wrong.

    Texts are as Spark's `from_csv` reads them by default; timestamps without a zone are in UTC. Raises `ArrowInvalid`
    if it cannot tell which text is wrong.
    """
    wanted = to_arrow_type(data_type, timezone="UTC")
    pattern = _pattern(data_type)
    if pattern is None:
        return texts.cast(wanted), pa.repeat(pa.scalar(False), len(texts))
    wrong = pc.invert(pc.fill_null(pc.match_substring_regex(texts, pattern), True))
    texts = pc.if_else(wrong, pa.scalar(None, pa.string()), texts)
    if isinstance(data_type, IntegralType | DecimalType):
        texts = pc.utf8_ltrim(texts, "+")
    elif isinstance(data_type, BooleanType):
        texts = pc.ascii_lower(texts)
    elif isinstance(data_type, TimestampType):
        texts = _with_zone(texts)
    return texts.cast(wanted), wrong


def _pattern(data_type: DataType) -> str | None:
    for kind, pattern in (
        (DecimalType, _DECIMAL),
        (IntegralType, _INTEGER),
        (FractionalType, _FLOAT),
        (BooleanType, _BOOLEAN),
        (DateType, DATE),
        (TimestampType, _TIMESTAMP),
        (TimestampNTZType, _TIMESTAMP_NTZ),
    ):
        if isinstance(data_type, kind):
            return pattern
    return None


def _with_zone(texts: pa.StringArray) -> pa.StringArray:
    """Add UTC to timestamps without a zone, and midnight to those without a time: Arrow needs both."""
    suffix = pc.if_else(
        pc.match_substring_regex(texts, DATE),
        pa.scalar("T00:00:00Z"),
        pc.if_else(pc.match_substring_regex(texts, f"{_ZONE}$"), pa.scalar(""), pa.scalar("Z")),
    )
    return pc.binary_join_element_wise(texts, suffix, "")
