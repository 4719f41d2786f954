"""Parses the DDL of schemas, as `StructType.fromDDL` does. Pure: the planner of a Python source has no JVM to ask.

    id BIGINT, name STRING NOT NULL COMMENT 'of the customer', prices ARRAY<STRUCT<day: DATE, price: DECIMAL(10, 2)>>

A schema can also be the JSON text of `StructType.json()`. Every field and element is nullable, as in Spark's
`from_json`: a record may lack it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.base.errors import ConfigError

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))")
_MAX_PRECISION: Final = 38
_MAX_DEPTH: Final = 50
"""Spark has no limit. Deeper types would exceed Python's stack in its own functions."""

_SIMPLE: Final[dict[str, Callable[[], DataType]]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
    "string": StringType,
    "binary": BinaryType,
}
_DECIMAL: Final = ("decimal", "dec", "numeric")


def parse_schema(option: str, text: str) -> StructType:
    """Return the schema of an option: DDL, or JSON of `StructType.json()`. Raises a `ConfigError` with the option."""
    if text.lstrip().startswith("{"):
        try:
            schema = StructType.fromJson(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{option}={text!r} is not allowed: it is not JSON of a StructType ({error})") from None
        return nullable(schema)
    parser = _Parser(option, text)
    schema = StructType(parser.fields(end=None, depth=0))
    if not schema.fields:
        raise parser.error("it has no column")
    return schema


def nullable(schema: StructType) -> StructType:
    """Return the schema with every field and element nullable, without metadata."""
    return StructType([StructField(field.name, _nullable(field.dataType)) for field in schema.fields])


def _nullable(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return nullable(data_type)
    if isinstance(data_type, ArrayType):
        return ArrayType(_nullable(data_type.elementType))
    if isinstance(data_type, MapType):
        return MapType(_nullable(data_type.keyType), _nullable(data_type.valueType))
    return data_type


class _Parser:
    """A recursive descent over the tokens of one DDL text."""

    def __init__(self, option: str, text: str) -> None:
        self._option = option
        self._text = text
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(f"{text[position:].strip()[:20]!r} is not understood")
            self._tokens.append(match[0].strip())
            position = match.end()
        self._next = 0

    def error(self, problem: str) -> ConfigError:
        """Return the error with the option, its value and an example."""
        example = "id BIGINT, name STRING, tags ARRAY<STRING>"
        return ConfigError(f"{self._option}={self._text!r} is not allowed: {problem}; a valid schema is {example}")

    def fields(self, *, end: str | None, depth: int) -> list[StructField]:
        """Parse fields up to the token `end`, which is consumed, or up to the end of the text."""
        if depth > _MAX_DEPTH:
            raise self.error(f"types are nested more than {_MAX_DEPTH} deep")
        found: list[StructField] = []
        if self._peek() == end:
            self._take()
            return found
        while True:
            found.append(self._field(depth))
            token = self._take()
            if token == end:
                return found
            if token != ",":
                raise self.error(f"{self._shown(token)} follows field {found[-1].name!r}")

    def _field(self, depth: int) -> StructField:
        name = self._name()
        if self._peek() == ":":
            self._take()
        data_type = self._type(depth)
        while (word := (self._peek() or "").lower()) in ("not", "null", "comment"):
            self._take()
            if word == "not" and (self._take() or "").lower() != "null":
                raise self.error(f"NULL must follow NOT of field {name!r}")
            if word == "comment" and not (self._take() or "").startswith(("'", '"')):
                raise self.error(f"a text in quotes must follow COMMENT of field {name!r}")
        return StructField(name, data_type)

    def _name(self) -> str:
        token = self._take()
        if token is None or token in "<>(),:" or token[0] in "'\"":
            raise self.error(f"{self._shown(token)} stands where the name of a field is expected")
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _type(self, depth: int) -> DataType:
        word = self._take()
        name = (word or "").lower()
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name in _DECIMAL:
            return self._decimal()
        if name in ("char", "character", "varchar"):
            self._numbers(name, count=(1, 1))
            return StringType()
        if name not in ("array", "map", "struct"):
            raise self.error(f"{self._shown(word)} is not a supported type")
        self._expect("<", name)
        if name == "struct":
            return StructType(self.fields(end=">", depth=depth + 1))
        if depth > _MAX_DEPTH:
            raise self.error(f"types are nested more than {_MAX_DEPTH} deep")
        inner = self._type(depth + 1)
        if name == "array":
            self._expect(">", name)
            return ArrayType(inner)
        self._expect(",", name)
        values = self._type(depth + 1)
        self._expect(">", name)
        return MapType(inner, values)

    def _decimal(self) -> DecimalType:
        numbers = self._numbers("decimal", count=(0, 2))
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise self.error(
                f"DECIMAL({precision}, {scale}) must have up to {_MAX_PRECISION} digits, and no greater scale"
            )
        return DecimalType(precision, scale)

    def _numbers(self, name: str, *, count: tuple[int, int]) -> tuple[int, ...]:
        """Parse whole numbers in parentheses, between `count[0]` and `count[1]` of them."""
        found: list[int] = []
        if self._peek() == "(":
            token: str | None = ","
            self._take()
            while token == ",":
                number = self._take() or ""
                if not (number.isascii() and number.isdigit()):
                    raise self.error(f"{self._shown(number)} stands where a number of {name.upper()} is expected")
                found.append(int(number))
                token = self._take()
            if token != ")":
                raise self.error(f"{self._shown(token)} stands where ) of {name.upper()} is expected")
        if not count[0] <= len(found) <= count[1]:
            raise self.error(f"{name.upper()} has {len(found)} numbers")
        return tuple(found)

    def _expect(self, wanted: str, name: str) -> None:
        token = self._take()
        if token != wanted:
            raise self.error(f"{self._shown(token)} stands where {wanted} of {name.upper()} is expected")

    def _peek(self) -> str | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self) -> str | None:
        token = self._peek()
        self._next += token is not None
        return token

    @staticmethod
    def _shown(token: str | None) -> str:
        return repr(token) if token else "the end"
