"""Parses Avro schemas and says which Spark type each of their types becomes. Pure.

The types are those of Spark's `from_avro` (`SchemaConverters`): an enum becomes a string, `fixed` becomes binary, a
union with null a nullable type, and a union of several types a struct with the fields `member0`, `member1` and so on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.base.errors import ConfigError

OPTION: Final = "valueAvroSchema"
_MAX_DEPTH: Final = 50
_MAX_PRECISION: Final = 38


class Kind(Enum):
    """How a type is encoded."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    FIXED = "fixed"
    ENUM = "enum"
    ARRAY = "array"
    MAP = "map"
    RECORD = "record"
    UNION = "union"


_SIMPLE: Final[dict[Kind, DataType]] = {
    Kind.NULL: NullType(),
    Kind.BOOLEAN: BooleanType(),
    Kind.INT: IntegerType(),
    Kind.LONG: LongType(),
    Kind.FLOAT: FloatType(),
    Kind.DOUBLE: DoubleType(),
    Kind.BYTES: BinaryType(),
    Kind.STRING: StringType(),
}
_LOGICAL: Final[dict[tuple[Kind, str], DataType]] = {
    (Kind.INT, "date"): DateType(),
    (Kind.LONG, "timestamp-millis"): TimestampType(),
    (Kind.LONG, "timestamp-micros"): TimestampType(),
    (Kind.LONG, "local-timestamp-millis"): TimestampNTZType(),
    (Kind.LONG, "local-timestamp-micros"): TimestampNTZType(),
}


@dataclass(frozen=True, slots=True)
class AvroType:
    """One type of a schema. `children`: the fields of a record, the branches of a union, or the elements."""

    kind: Kind
    spark_type: DataType
    children: tuple[AvroType, ...] = ()
    size: int = 0
    """Bytes of a `fixed`."""
    symbols: tuple[str, ...] = ()
    milliseconds: bool = False
    """Whether a timestamp counts milliseconds instead of microseconds."""

    @property
    def min_bytes(self) -> int:
        """Lower bound of the bytes of a value: 0 or 1, or the size of a `fixed`."""
        if self.kind is Kind.FIXED:
            return self.size
        if self.kind is Kind.RECORD:
            return sum(child.min_bytes for child in self.children)
        return 0 if self.kind is Kind.NULL else 1


def parse_avro_schema(text: str) -> AvroType:
    """Return the type of a schema in JSON. Raises `ConfigError` if it is invalid or contains itself."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{OPTION} is not allowed: it must be an Avro schema in JSON ({error})") from None
    return _Parser().parse(content, "", 0)


@dataclass(slots=True)
class _Parser:
    """Parses one schema. Named types are kept under their full names; None while one is being parsed."""

    named: dict[str, AvroType | None] = field(default_factory=dict)

    def parse(self, content: Any, namespace: str, depth: int) -> AvroType:
        """Return the type of one part of the schema."""
        if depth > _MAX_DEPTH:
            raise _error(f"types are nested more than {_MAX_DEPTH} deep")
        if isinstance(content, str):
            return self._of_name(content, namespace)
        if isinstance(content, list):
            return self._union(content, namespace, depth)
        if not isinstance(content, dict) or "type" not in content:
            raise _error(f"{content!r} is no type")
        kind = content["type"]
        if isinstance(kind, dict | list):
            return self.parse(kind, namespace, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(content, namespace, depth)
        if kind == "array":
            items = self.parse(content.get("items"), namespace, depth + 1)
            if not items.min_bytes:
                raise _error("the elements of an array have no bytes, so their number has no limit")
            return AvroType(Kind.ARRAY, ArrayType(items.spark_type), (items,))
        if kind == "map":
            values = self.parse(content.get("values"), namespace, depth + 1)
            return AvroType(Kind.MAP, MapType(StringType(), values.spark_type), (values,))
        return _logical(self._of_name(kind, namespace), content)

    def _of_name(self, name: str, namespace: str) -> AvroType:
        if name in {kind.value for kind in _SIMPLE}:
            kind = Kind(name)
            return AvroType(kind, _SIMPLE[kind])
        for full in (name, f"{namespace}.{name}"):
            if full in self.named:
                found = self.named[full]
                if found is None:
                    raise _error(f"type {name!r} contains itself, which Spark cannot express")
                return found
        raise _error(f"type {name!r} is unknown")

    def _named(self, content: dict[str, Any], namespace: str, depth: int) -> AvroType:
        name = content.get("name")
        if not isinstance(name, str) or not name:
            raise _error(f"a {content['type']} has no name")
        namespace = name.rpartition(".")[0] or content.get("namespace", namespace)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        self.named[full] = None
        if content["type"] == "enum":
            symbols = tuple(map(str, content.get("symbols", ())))
            made = AvroType(Kind.ENUM, StringType(), symbols=symbols)
        elif content["type"] == "fixed":
            size = content.get("size")
            if type(size) is not int or size < 0:
                raise _error(f"fixed {name!r} has no size")
            made = _logical(AvroType(Kind.FIXED, BinaryType(), size=size), content)
        else:
            made = self._record(content, namespace, depth)
        self.named[full] = made
        return made

    def _record(self, content: dict[str, Any], namespace: str, depth: int) -> AvroType:
        children, fields = [], []
        for entry in content.get("fields", ()):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise _error(f"a field of record {content['name']!r} has no name")
            child = self.parse(entry.get("type"), namespace, depth + 1)
            children.append(child)
            fields.append(StructField(entry["name"], child.spark_type))
        if not fields:
            raise _error(f"record {content['name']!r} has no field")
        return AvroType(Kind.RECORD, StructType(fields), tuple(children))

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        children = tuple(self.parse(branch, namespace, depth + 1) for branch in branches)
        if not children:
            raise _error("a union is empty")
        others = [child for child in children if child.kind is not Kind.NULL]
        kinds = {child.kind for child in others if isinstance(child.spark_type, type(_SIMPLE.get(child.kind)))}
        spark_type: DataType
        if not others:
            spark_type = NullType()
        elif len(others) == 1:
            spark_type = others[0].spark_type
        elif len(others) == 2 and kinds == {Kind.INT, Kind.LONG}:
            spark_type = LongType()
        elif len(others) == 2 and kinds == {Kind.FLOAT, Kind.DOUBLE}:
            spark_type = DoubleType()
        else:
            spark_type = StructType([StructField(f"member{n}", each.spark_type) for n, each in enumerate(others)])
        return AvroType(Kind.UNION, spark_type, children)


def _logical(base: AvroType, content: dict[str, Any]) -> AvroType:
    """Return the type with its logical type. As Avro demands, an unknown or invalid one is ignored."""
    logical = content.get("logicalType")
    if logical == "decimal" and base.kind in (Kind.BYTES, Kind.FIXED):
        precision, scale = content.get("precision"), content.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision >= 1:
            if precision > _MAX_PRECISION:
                raise _error(f"a decimal has {precision} digits, and Spark at most {_MAX_PRECISION}")
            return AvroType(base.kind, DecimalType(precision, scale), size=base.size)
    found = _LOGICAL.get((base.kind, str(logical)))
    return base if found is None else AvroType(base.kind, found, milliseconds=str(logical).endswith("millis"))


def _error(problem: str) -> ConfigError:
    return ConfigError(f"{OPTION} is not allowed: {problem}")
