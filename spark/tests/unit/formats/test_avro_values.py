"""Avro values, against an encoder that follows the specification. Another test compares with Apache Avro."""

from __future__ import annotations

import datetime
import json
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from odradek.base.errors import ConfigError
from pyspark_odradek.formats.avro_schema import parse_avro_schema
from pyspark_odradek.formats.avro_values import AvroDecoder

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def encode(schema: Any, value: Any) -> bytes:
    """Encode a value. A value of a union is a pair of branch and value."""
    if isinstance(schema, list):
        return varint(value[0]) + encode(schema[value[0]], value[1])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "null":
        return b""
    if kind == "boolean":
        return bytes([value])
    if kind in ("int", "long"):
        return varint(value)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind in ("bytes", "string"):
        content = value.encode() if isinstance(value, str) else value
        return varint(len(content)) + bytes(content)
    if kind == "fixed":
        return bytes(value)
    if kind == "enum":
        return varint(schema["symbols"].index(value))
    if kind == "record":
        return b"".join(encode(field["type"], value[field["name"]]) for field in schema["fields"])
    if kind == "array":
        items = [encode(schema["items"], item) for item in value]
    else:
        items = [encode("string", key) + encode(schema["values"], item) for key, item in value.items()]
    # The first block has a size, the second one none.
    first, second = items[:2], items[2:]
    sized = varint(-len(first)) + varint(sum(map(len, first))) + b"".join(first) if first else b""
    return sized + (varint(len(second)) + b"".join(second) if second else b"") + b"\0"


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": f"R{abs(hash(json.dumps(types)))}", "fields": fields}


def decoder(schema: Any, **options: bool) -> AvroDecoder:
    return AvroDecoder(parse_avro_schema(json.dumps(schema)), **options)


def decode(made: AvroDecoder, values: list[bytes | None]) -> tuple[list[Any], list[bytes | None]]:
    typed, wrong = made.decode(pa.array([b"before", *values], pa.binary()).slice(1))
    assert typed.type == to_arrow_type(made.value_type, timezone="UTC")
    typed.validate(full=True)
    return typed.to_pylist(), wrong.to_pylist()


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("boolean", True, True),
        ("int", -(2**31), -(2**31)),
        ("long", -(2**63), -(2**63)),
        ("long", 2**63 - 1, 2**63 - 1),
        ("float", 1.5, 1.5),
        ("double", -0.1, -0.1),
        ("bytes", b"\xff\x00", b"\xff\x00"),
        ("string", "ä" * 300, "ä" * 300),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "int", "logicalType": "date"}, 1, datetime.date(1970, 1, 2)),
        ({"type": "long", "logicalType": "timestamp-millis"}, -1, EPOCH - datetime.timedelta(milliseconds=1)),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1, EPOCH + datetime.timedelta(microseconds=1)),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 0, datetime.datetime(1970, 1, 1)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\xff", Decimal("-0.01")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x27\x0f", Decimal("99.99")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"", Decimal(0)),
        (
            {"type": "fixed", "name": "D", "size": 16, "logicalType": "decimal", "precision": 38},
            b"\xff" * 16,
            Decimal(-1),
        ),
        ({"type": "string", "logicalType": "uuid"}, "x", "x"),
        (["null", "int"], (1, 5), 5),
        (["int", "null"], (1, None), None),
        (["int", "long"], (1, 2**40), 2**40),
        (["float", "double"], (0, 0.5), 0.5),
        (["null", "int", "string"], (2, "x"), {"member0": None, "member1": "x"}),
        (["null", "int", "string"], (0, None), None),
        ({"type": "array", "items": "string"}, ["a", "b", "c", "d"], ["a", "b", "c", "d"]),
        ({"type": "map", "values": ["null", "int"]}, {"a": (0, None), "b": (1, 2)}, [("a", None), ("b", 2)]),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, [[1, 2, 3], [], [4]], [[1, 2, 3], [], [4]]),
    ],
)
def test_values_are_read(schema: Any, value: Any, expected: Any) -> None:
    raw = encode(schema, value)
    assert decode(decoder(schema), [raw, None, raw]) == ([expected, None, expected], [None] * 3)
    whole = record("int", schema, "string")
    raw = encode(whole, {"f0": 7, "f1": value, "f2": "end"})
    assert decode(decoder(whole), [raw]) == ([{"f0": 7, "f1": expected, "f2": "end"}], [None])


@pytest.mark.parametrize(
    ("schema", "raw"),
    [
        ("boolean", b"\x02"),
        ("boolean", b""),
        ("int", varint(2**31)),
        ("int", b"\x80"),
        ("long", b"\x80" * 10 + b"\x00"),
        ("double", b"1234567"),
        ("string", b"\x06ab"),
        ("string", b"\x01"),
        ("string", varint(2**40)),
        ("string", b"\x02\xff"),
        ("int", b"\x00\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(1)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(-1)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, varint(1) + b"\x64"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, varint(1) + b"\x9c"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, varint(17) + b"\x00" * 17),
        ({"type": "long", "logicalType": "timestamp-millis"}, varint(2**63 - 1)),
        (["null", "int"], varint(2)),
        (["null", "int"], varint(-1)),
        ({"type": "array", "items": "int"}, varint(2**60)),
        ({"type": "array", "items": "int"}, varint(-(2**63)) + varint(0)),
        ({"type": "array", "items": "int"}, varint(1) + varint(5)),
        ({"type": "map", "values": "int"}, varint(1) + varint(1) + b"\xff" + varint(1) + b"\x00"),
    ],
)
def test_what_does_not_match_is_wrong_and_affects_no_other(schema: Any, raw: bytes) -> None:
    made = decoder(record(schema))
    good = {"boolean": True, "int": 1, "long": 1, "double": 1.0, "string": "x"}
    sample = good.get(schema) if isinstance(schema, str) else None
    if sample is not None:
        right = encode(record(schema), {"f0": sample})
        typed, wrong = decode(made, [right, raw, None, right])
        assert wrong == [None, raw, None, None]
        assert typed == [{"f0": sample}, None, None, {"f0": sample}]
    assert decode(decoder(schema), [raw]) == ([None], [raw])


def test_the_prefix_of_a_schema_registry_is_skipped() -> None:
    made = decoder("string", confluent_prefix=True)
    raw = encode("string", "x")
    values = [b"\0\0\0\0\7" + raw, raw, b"\1\0\0\0\7" + raw, b"\0\0", None]
    assert decode(made, values) == (["x", None, None, None, None], [None, *values[1:4], None])


SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=5)),
    ("string", st.text(st.characters(codec="utf-8"), max_size=5)),
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema and a strategy of its values, with which the decoded value is equal (a union: its second part)."""
    kind = draw(st.sampled_from(["leaf", "array", "map", "record", "optional"] if depth < 3 else ["leaf"]))
    if kind == "leaf":
        return draw(st.sampled_from(SCALARS[depth > 0 :]))
    schema, values = draw(schemas(depth=depth + 1))
    if kind == "array":
        return {"type": "array", "items": schema}, st.lists(values, max_size=4)
    if kind == "map":
        return {"type": "map", "values": schema}, st.dictionaries(
            st.text(st.characters(codec="utf-8"), max_size=3), values
        )
    if kind == "record":
        other, others = draw(st.sampled_from(SCALARS[1:]))
        return record(schema, other), st.fixed_dictionaries({"f0": values, "f1": others})
    if isinstance(schema, list):
        return schema, values
    return ["null", schema], st.just((0, None)) | values.map(lambda value: (1, value))


def plain(schema: Any, value: Any) -> Any:
    """The value as Arrow returns it."""
    if isinstance(schema, list):
        return None if value[0] == 0 else plain(schema[1], value[1])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return [plain(schema["items"], item) for item in value]
    if kind == "map":
        return [(key, plain(schema["values"], item)) for key, item in value.items()]
    if kind == "record":
        return {field["name"]: plain(field["type"], value[field["name"]]) for field in schema["fields"]}
    return value


@given(data=st.data())
def test_random_values_of_random_schemas(data: st.DataObject) -> None:
    schema, values = data.draw(schemas())
    found = data.draw(st.lists(values, max_size=12))
    whole = record("int", schema)
    raw = [encode(whole, {"f0": 1, "f1": value}) for value in found]
    cut = data.draw(st.sets(st.sampled_from(range(len(raw))))) if raw else set()
    given_values = (
        [each[:-1] if number in cut else each for number, each in enumerate(raw)] if schema != "null" else raw
    )
    typed, wrong = decode(decoder(whole), list(given_values))
    for number, (value, each) in enumerate(zip(found, typed, strict=True)):
        if wrong[number] is None:
            assert each == {"f0": 1, "f1": plain(schema, value)}
        else:
            assert (each, wrong[number]) == (None, given_values[number])
            assert number in cut


@given(data=st.data(), values=st.lists(st.binary(max_size=60), max_size=30))
def test_any_bytes_are_either_a_value_or_wrong(data: st.DataObject, values: list[bytes]) -> None:
    schema, _ = data.draw(schemas())
    typed, wrong = decoder(record(schema, "int")).decode(pa.array(values, pa.binary()))
    typed.validate(full=True)
    assert (np.asarray(typed.is_null()) == np.asarray(wrong.is_valid())).all()


def test_names_and_namespaces() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    schema = {
        "type": "record",
        "name": "a.R",
        "fields": [{"name": "x", "type": inner}, {"name": "y", "type": "E"}, {"name": "z", "type": ["null", "a.E"]}],
    }
    assert parse_avro_schema(json.dumps(schema)).spark_type.simpleString() == "struct<x:string,y:string,z:string>"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "must be an Avro schema in JSON"),
        ("1", "1 is no type"),
        ('"text"', "type 'text' is unknown"),
        ("[]", "a union is empty"),
        ('{"type": "record", "fields": []}', "a record has no name"),
        ('{"type": "record", "name": "R"}', "record 'R' has no field"),
        ('{"type": "record", "name": "R", "fields": [{"name": "n", "type": "R"}]}', "type 'R' contains itself"),
        ('{"type": "fixed", "name": "F"}', "fixed 'F' has no size"),
        ('{"type": "array", "items": "null"}', "the elements of an array have no bytes"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 39}', "a decimal has 39 digits"),
        (json.dumps(["int"]).join(['{"type": "array", "items": ' * 60, "}" * 60]), "more than 50 deep"),
    ],
)
def test_mistakes_in_schemas_are_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"valueAvroSchema is not allowed: .*{problem}"):
        parse_avro_schema(text)
