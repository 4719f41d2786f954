"""Generates request frames that match their schema, and damages them as a hostile or faulty peer might.

All choices come from a seeded `random.Random`, so that a frame that causes a failure can be generated again.
"""

from __future__ import annotations

import random
import struct
from typing import Any, Final
from uuid import UUID

from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, Api
from odradek.protocol.schema import FIXED_FORMATS, FieldSchema, StructSchema, schema_of

_RANGES: Final = {"b": 7, "h": 15, "i": 31, "q": 63}
_WORDS: Final = ("", "a", "topic-1", "__consumer_offsets", "gruppe", "x" * 249)


def random_request(api: Api, version: int, source: random.Random) -> bytes:
    """Return a complete, valid frame of this API and version, including the length prefix."""
    message = _struct(schema_of(api.request_type, version), source, depth=0)
    client_id = source.choice((None, "", "fuzz"))
    return codec.encode_request(api.key, version, source.randrange(1 << 31), client_id, message)


def every_api(source: random.Random) -> list[tuple[Api, int]]:
    """Return all supported APIs and versions in random order."""
    found = [(api, version) for api in API_TABLE.values() for version in range(api.min_version, api.max_version + 1)]
    source.shuffle(found)
    return found


def mutated(frame: bytes, source: random.Random) -> bytes:
    """Return the frame with one to four damages. Its length prefix is usually, but not always, corrected."""
    body = damaged(frame[4:], source)
    length = len(body) if source.random() < 0.9 else source.choice((0, -1, 1 << 20, 1 << 30, len(body) // 2))
    return struct.pack(">i", length) + body


def damaged(data: bytes, source: random.Random) -> bytes:
    """Return bytes with one to four damages."""
    body = bytearray(data)
    for _ in range(source.randint(1, 4)):
        _MUTATIONS[source.randrange(len(_MUTATIONS))](body, source)
    return bytes(body)


def _flip(body: bytearray, source: random.Random) -> None:
    if body:
        body[source.randrange(len(body))] ^= 1 << source.randrange(8)


def _overwrite_number(body: bytearray, source: random.Random) -> None:
    if len(body) >= 4:
        value = source.choice((-1, -2, 0, 1, 0x7FFF_FFFF, -0x8000_0000, 0x00FF_FFFF))
        struct.pack_into(">i", body, source.randrange(len(body) - 3), value)


def _cut(body: bytearray, source: random.Random) -> None:
    del body[source.randrange(len(body) + 1) :]


def _insert(body: bytearray, source: random.Random) -> None:
    at = source.randrange(len(body) + 1)
    body[at:at] = source.randbytes(source.randint(1, 16))


def _long_varint(body: bytearray, source: random.Random) -> None:
    at = source.randrange(len(body) + 1)
    body[at:at] = b"\xff\xff\xff\xff\x0f"


_MUTATIONS: Final = (_flip, _flip, _overwrite_number, _cut, _insert, _long_varint)


def _struct(schema: StructSchema, source: random.Random, depth: int) -> dict[str, object]:
    return {field.name: _value(field, source, depth) for field in (*schema.fields, *schema.tagged)}


def _value(field: FieldSchema, source: random.Random, depth: int) -> object:
    if field.is_array:
        if field.nullable and source.random() < 0.2:
            return None
        return [_one(field, source, depth + 1) for _ in range(source.randint(0, 3 if depth == 0 else 1))]
    if field.nullable and source.random() < 0.2:
        return None
    return _one(field, source, depth)


def _one(field: FieldSchema, source: random.Random, depth: int) -> Any:
    if field.struct is not None:
        return _struct(field.struct, source, depth + 1)
    if field.kind == "string":
        return source.choice(_WORDS)
    if field.kind in ("bytes", "records"):
        return source.randbytes(source.randint(0, 80))
    if field.kind == "uuid":
        return UUID(bytes=source.randbytes(16))
    return _number(FIXED_FORMATS[field.kind], source)


def _number(code: str, source: random.Random) -> object:
    if code == "?":
        return source.random() < 0.5
    if code == "d":
        return source.random()
    if code not in _RANGES:
        return source.randrange(128)
    high = 1 << _RANGES[code]
    return source.choice((0, 1, -1, 3, source.randrange(-high, high)))
