"""Random messages of every API and version, drawn from the schemas, and kio's form of them as the judge."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from odradek.protocol.apis import Api
from odradek.protocol.schema import FieldSchema, StructSchema, schema_of

ERROR_CODES = [int(code) for code in ErrorCode]
TEXTS = ["", "a", "orders", "ünïcödé", "x" * 127, "y" * 128, "z" * 300]
BLOBS = [b"", b"\x00", bytes(range(256)), b"q" * 20_000]
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32}


def _scalar(field: FieldSchema, rng: random.Random) -> object:
    kind = field.kind
    if kind in INTEGER_BITS:
        high = 1 << (INTEGER_BITS[kind] - 1)
        return rng.choice([0, 1, -1, high - 1, -high, rng.randrange(-high, high)])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "error_code":
        return rng.choice(ERROR_CODES)
    if kind == "timedelta_i64":
        return rng.choice([-1, 0, 1, 86_400_000 * 365])
    if kind == "datetime_i64":
        # Whole seconds: what kio's own type can hold.
        return rng.choice([0, 1_700_000_000_000])
    if kind in ("string", "bytes", "records"):
        return rng.choice(TEXTS if kind == "string" else BLOBS)
    if kind == "uuid":
        return rng.choice([None, UUID(int=rng.getrandbits(128))])
    raise AssertionError(f"no value for {kind}")


def _value(field: FieldSchema, rng: random.Random) -> object:
    if field.nullable and field.kind != "uuid" and rng.random() < 0.2:
        return None
    make = (lambda: make_message(field.struct, rng)) if field.struct is not None else (lambda: _scalar(field, rng))
    if field.is_array:
        return [make() for _ in range(rng.choice([0, 1, 2, 9]) if field.struct is None else rng.choice([0, 1, 2]))]
    return make()


def make_message(schema: StructSchema, rng: random.Random) -> dict[str, Any]:
    """A message with every field of a schema."""
    message: dict[str, Any] = {}
    for field in (*schema.fields, *schema.tagged):
        value = _value(field, rng)
        if field.tag is not None and value is None and field.default is not None:
            continue
        message[field.name] = value
    return message


def _entity_value(field: FieldSchema, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        one = FieldSchema(field.name, field.kind, False, False, None, field.default, field.struct)
        return tuple(_entity_value(one, item) for item in value)
    if field.struct is not None:
        return make_entity(field.struct, value)
    if field.kind == "error_code":
        return ErrorCode(value)
    if field.kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if field.kind.startswith("datetime"):
        return datetime.fromtimestamp(value / 1000, UTC)
    return value


def make_entity(schema: StructSchema, message: dict[str, Any]) -> Any:
    """kio's entity of a message."""
    fields = {field.name: field for field in (*schema.fields, *schema.tagged)}
    return schema.entity_type(**{name: _entity_value(fields[name], value) for name, value in message.items()})


def kio_bytes(entity: Any) -> bytes:
    """An entity as kio writes it."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


class Judge:
    """What the tests need of this module."""

    message: Callable[[StructSchema, random.Random], dict[str, Any]] = staticmethod(make_message)
    entity: Callable[[StructSchema, dict[str, Any]], Any] = staticmethod(make_entity)
    kio_bytes: Callable[[Any], bytes] = staticmethod(kio_bytes)

    @staticmethod
    def schemas(row: Api) -> list[tuple[str, int, StructSchema]]:
        """(direction, version, schema) of everything an API has."""
        versions = range(row.min_version, row.max_version + 1)
        return [("request", version, schema_of(row.request_type(version))) for version in versions] + [
            ("response", version, schema_of(row.response_type(version))) for version in versions
        ]


@pytest.fixture(scope="session")
def judge() -> Judge:
    return Judge()
