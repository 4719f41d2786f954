"""Random messages of every API and version, generated from the schemas, and kio's entities as a reference."""

from __future__ import annotations

import dataclasses
import io
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from odradek.base.types import ZERO_UUID
from odradek.protocol.apis import API_TABLE, Api, ApiKey
from odradek.protocol.schema import FieldSchema, StructSchema, schema_of

ERROR_CODES = [int(code) for code in ErrorCode]
TEXTS = ["", "a", "orders", "ünïcödé", "x" * 127, "y" * 128, "z" * 300]
BLOBS = [b"", b"\x00", bytes(range(256)), b"q" * 20_000]
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
KIO_TIMES = {
    "retention_time_ms": [-1, 0, 1, 86_400_000 * 365],
    "session_lifetime_ms": [0, 1, 86_400_000],
    "log_append_time_ms": [-1, 0, 1_700_000_000_000],
    **{name: [-1, 0, 86_400_000] for name in ("max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms")},
    **{name: [0, 1, 86_400_000] for name in ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms")},
    "transaction_start_time_ms": [0, 1, 86_400_000],
}
"""Fields with 64-bit times, which kio's types can represent only partly."""


def _scalar(field: FieldSchema, rng: random.Random) -> object:
    kind = field.kind
    if field.name in KIO_TIMES:
        return rng.choice(KIO_TIMES[field.name])
    if kind == "int16" and field.name.endswith("error_code"):
        return rng.choice(ERROR_CODES)
    if kind in INTEGER_BITS:
        high = 1 << (INTEGER_BITS[kind] - 1)
        return rng.choice([0, 1, -1, high - 1, -high, rng.randrange(-high, high)])
    if kind == "bool":
        return rng.random() < 0.5
    if kind in ("string", "bytes", "records"):
        return rng.choice(TEXTS if kind == "string" else BLOBS)
    if kind == "float64":
        return rng.choice([0.0, -1.5, 1e300, rng.random()])
    if kind == "uuid":
        return rng.choice([ZERO_UUID, UUID(int=rng.getrandbits(128))])
    raise AssertionError(f"no value for {kind}")


def _value(field: FieldSchema, rng: random.Random) -> object:
    if field.nullable and rng.random() < 0.2:
        return None
    make = (lambda: make_message(field.struct, rng)) if field.struct is not None else (lambda: _scalar(field, rng))
    if field.is_array:
        return [make() for _ in range(rng.choice([0, 1, 2, 9]) if field.struct is None else rng.choice([0, 1, 2]))]
    return make()


def make_message(schema: StructSchema, rng: random.Random) -> dict[str, Any]:
    """Return a strategy for messages with all fields of a schema."""
    message: dict[str, Any] = {}
    for field in (*schema.fields, *schema.tagged):
        value = _value(field, rng)
        if field.tag is not None and value is None and field.default is not None:
            continue
        message[field.name] = value
    return message


def kio_type(key: ApiKey, version: int, direction: str) -> Any:
    """Return kio's class of a message; None if kio does not have the API or version."""
    module = f"kio.schema.{key.name.lower()}.v{version}"
    if find_spec(f"kio.schema.{key.name.lower()}") is None or find_spec(module) is None:
        return None
    return getattr(import_module(f"{module}.{direction}"), API_TABLE[key].name + direction.capitalize())


def _inner(annotation: Any) -> Any:
    if get_origin(annotation) is UnionType:
        (annotation,) = [argument for argument in get_args(annotation) if argument is not NoneType]
    return annotation


def _name(field: Any) -> str:
    is_time = field.metadata.get("kafka_type", "").startswith(("timedelta", "datetime"))
    return f"{field.name}_ms" if is_time else str(field.name)


def _to_kio(annotation: Any, kind: str | None, value: Any) -> Any:
    annotation = _inner(annotation)
    if value is None or (kind == "uuid" and value == ZERO_UUID):
        return None
    if get_origin(annotation) is tuple:
        return tuple(_to_kio(get_args(annotation)[0], kind, item) for item in value)
    if kind is None:
        return make_entity(annotation, value)
    if kind == "error_code":
        return ErrorCode(value)
    if kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kind.startswith("datetime"):
        return None if value < 0 else datetime.fromtimestamp(value / 1000, UTC)
    return value


def make_entity(entity_type: Any, message: dict[str, Any]) -> Any:
    """Return kio's entity of a message."""
    values = {
        field.name: _to_kio(field.type, field.metadata.get("kafka_type"), message[_name(field)])
        for field in dataclasses.fields(entity_type)
        if _name(field) in message
    }
    return entity_type(**values)


def _from_kio(kind: str | None, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_from_kio(kind, item) for item in value)
    if value is None:
        return ZERO_UUID if kind == "uuid" else -1 if kind == "datetime_i64" else None
    if kind is None:
        return kio_message(value)
    if isinstance(value, ErrorCode):
        return int(value)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def kio_message(entity: Any) -> dict[str, Any]:
    """Return the fields of kio's entity by Kafka's names, as wire values."""
    return {
        _name(field): _from_kio(field.metadata.get("kafka_type"), getattr(entity, field.name))
        for field in dataclasses.fields(entity)
    }


def own_message(schema: StructSchema, decoded: Any) -> dict[str, Any]:
    """Return the fields of a decoded message that a version has; check that the others have their defaults."""
    for name, default in schema.absent:
        assert getattr(decoded, name) == default, name
    found: dict[str, Any] = {}
    for field in (*schema.fields, *schema.tagged):
        value, struct = getattr(decoded, field.name), field.struct
        if struct is not None and value is not None:
            value = tuple(own_message(struct, v) for v in value) if field.is_array else own_message(struct, value)
        found[field.name] = value
    return found


def kio_bytes(entity: Any) -> bytes:
    """Return the bytes of an entity as kio encodes it."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_read(entity_type: Any, raw: bytes) -> dict[str, Any]:
    """Return the fields that kio decodes, by Kafka's names."""
    return kio_message(entity_reader(entity_type)(raw, 0)[0])


class Judge:
    """The functions of this module, as a fixture."""

    message: Callable[[StructSchema, random.Random], dict[str, Any]] = staticmethod(make_message)
    entity: Callable[[Any, dict[str, Any]], Any] = staticmethod(make_entity)
    kio_bytes: Callable[[Any], bytes] = staticmethod(kio_bytes)
    kio_read: Callable[[Any, bytes], dict[str, Any]] = staticmethod(kio_read)
    kio_type: Callable[[ApiKey, int, str], Any] = staticmethod(kio_type)
    own_message: Callable[[StructSchema, Any], dict[str, Any]] = staticmethod(own_message)

    @staticmethod
    def schemas(row: Api) -> list[tuple[str, int, StructSchema]]:
        """Return (direction, version, schema) of all messages of an API."""
        versions = range(row.min_version, row.max_version + 1)
        return [("request", version, schema_of(row.request_type, version)) for version in versions] + [
            ("response", version, schema_of(row.response_type, version)) for version in versions
        ]


@pytest.fixture(scope="session")
def judge() -> Judge:
    return Judge()
