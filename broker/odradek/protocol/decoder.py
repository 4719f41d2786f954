"""Decoders compiled from schemas: they decode a frame into a message in one pass and check every length.

`codec` compiles one per schema. The messages own their memory. Consecutive numbers are read by one `Struct`, and
messages are filled through their slot descriptors, at half the cost of their keyword constructor. A field that the
version lacks gets its default.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from odradek.base.errors import MalformedFrameError
from odradek.protocol.schema import FIXED_FORMATS, FieldSchema, StructSchema
from odradek.protocol.wire import Reader

Decode = Callable[[Reader], Any]
_Setter = Callable[[Any, Any], None]
_Step = Callable[[Reader, Any], None]


_STRINGS: Final[dict[tuple[bool, bool], Decode]] = {
    (False, False): Reader.string,
    (False, True): Reader.nullable_string,
    (True, False): Reader.compact_string,
    (True, True): Reader.compact_nullable_string,
}
_BLOBS: Final[dict[tuple[bool, bool], Decode]] = {
    (False, False): Reader.blob,
    (False, True): Reader.nullable_blob,
    (True, False): Reader.compact_blob,
    (True, True): Reader.compact_nullable_blob,
}


def _fixed(kind: str) -> Decode:
    layout = Struct(">" + FIXED_FORMATS[kind])
    return lambda reader: reader.unpack(layout)[0]


def _element(field: FieldSchema, flexible: bool, nullable: bool) -> Decode:
    """Return the decoder of one value of the field, or of one element of its array."""
    if field.struct is not None:
        return _nullable_struct(field.struct) if nullable else decoder(field.struct)
    if field.kind == "string":
        return _STRINGS[flexible, nullable]
    if field.kind in ("bytes", "records"):
        return _BLOBS[flexible, nullable]
    if field.kind == "uuid":
        return Reader.uuid
    return _fixed(field.kind)


def _nullable_struct(schema: StructSchema) -> Decode:
    """Return the decoder of a struct after a presence byte, which is negative for null (KIP-893)."""
    decode = decoder(schema)
    return lambda reader: decode(reader) if reader.int8() >= 0 else None


def _element_bytes(field: FieldSchema) -> int:
    if field.struct is not None:
        return field.struct.min_bytes
    if field.kind in FIXED_FORMATS:
        return Struct(">" + FIXED_FORMATS[field.kind]).size
    return 16 if field.kind == "uuid" else 1


def _array(field: FieldSchema, flexible: bool) -> Decode:
    length = Reader.compact_array_length if flexible else Reader.array_length
    element_bytes = _element_bytes(field)
    nullable = field.nullable
    if field.kind in FIXED_FORMATS:
        return _plain_array(field, length, element_bytes)
    decode = _element(field, flexible, False)

    def read(reader: Reader) -> tuple[Any, ...] | None:
        count = length(reader, element_bytes)
        if count < 0 and not nullable:
            raise MalformedFrameError(f"null where the array {field.name} is required")
        return tuple([decode(reader) for _ in range(count)]) if count >= 0 else None

    return read


def _plain_array(field: FieldSchema, length: Callable[[Reader, int], int], element_bytes: int) -> Decode:
    """Return the decoder of an array of numbers, which unpacks it with one call."""
    letter = FIXED_FORMATS[field.kind]
    nullable = field.nullable
    short = [Struct(f">{count}{letter}") for count in range(8)]

    def read(reader: Reader) -> tuple[int, ...] | None:
        count = length(reader, element_bytes)
        if count < 0:
            if nullable:
                return None
            raise MalformedFrameError(f"null where the array {field.name} is required")
        return reader.unpack(short[count] if count < 8 else Struct(f">{count}{letter}"))

    return read


def _value(field: FieldSchema, flexible: bool) -> Decode:
    return _array(field, flexible) if field.is_array else _element(field, flexible, field.nullable)


def _setter(entity_type: type[Any], name: str) -> _Setter:
    """Return the setter of a field of a message class, for use while an object is created."""
    setter: _Setter = entity_type.__dict__[name].__set__
    return setter


def _run_step(entity_type: type[Any], run: list[FieldSchema]) -> _Step:
    """Read consecutive numbers with one call."""
    layout = Struct(">" + "".join(FIXED_FORMATS[field.kind] for field in run))
    setters = [_setter(entity_type, field.name) for field in run]

    def step(reader: Reader, entity: Any) -> None:
        for setter, value in zip(setters, reader.unpack(layout), strict=True):
            setter(entity, value)

    return step


def _single_step(entity_type: type[Any], field: FieldSchema, flexible: bool) -> _Step:
    setter = _setter(entity_type, field.name)
    decode = _value(field, flexible)
    return lambda reader, entity: setter(entity, decode(reader))


def _steps(schema: StructSchema) -> list[_Step]:
    steps: list[_Step] = []
    run: list[FieldSchema] = []
    for field in schema.fields:
        if field.kind in FIXED_FORMATS and not field.is_array:
            run.append(field)
            continue
        if run:
            steps.append(_run_step(schema.entity_type, run))
            run = []
        steps.append(_single_step(schema.entity_type, field, schema.flexible))
    if run:
        steps.append(_run_step(schema.entity_type, run))
    return steps


def _tag_step(schema: StructSchema) -> _Step:
    """Read the section of tagged fields: known ones into the entity, unknown ones skipped, missing ones set to
    default."""
    by_tag = {field.tag: (_setter(schema.entity_type, field.name), _value(field, True)) for field in schema.tagged}
    defaults = [(_setter(schema.entity_type, field.name), field.unset) for field in schema.tagged]

    def step(reader: Reader, entity: Any) -> None:
        for setter, default in defaults:
            setter(entity, default)
        last = -1
        for _ in range(reader.uvarint()):
            tag = reader.uvarint()
            size = reader.uvarint()
            if tag <= last:
                raise MalformedFrameError(f"tags must increase: tag {tag} follows tag {last}")
            last = tag
            after = reader.position + size
            if after > reader.end:
                raise MalformedFrameError(
                    f"tagged field of {size} bytes exceeds the {reader.remaining} bytes that remain"
                )
            known = by_tag.get(tag)
            if known is None:
                reader.position = after
                continue
            known[0](entity, known[1](reader))
            if reader.position != after:
                raise MalformedFrameError(f"tagged field {tag} does not match its length")

    return step


def _skip_step(reader: Reader, _entity: Any) -> None:
    reader.skip_tagged_fields()


_DECODERS: Final[dict[int, Decode]] = {}
"""Decoders by identity of their schema; schemas are never freed."""


def decoder(schema: StructSchema) -> Decode:
    """Return the decoder of a schema. It takes a reader, returns the message and raises `MalformedFrameError`."""
    decode = _DECODERS.get(id(schema))
    if decode is None:
        decode = _DECODERS[id(schema)] = _compile(schema)
    return decode


def _absent_step(schema: StructSchema) -> _Step:
    """Set the fields that the version lacks to their defaults."""
    defaults = [(_setter(schema.entity_type, name), default) for name, default in schema.absent]
    if len(defaults) == 1:
        ((only, value),) = defaults
        return lambda _reader, entity: only(entity, value)

    def step(_reader: Reader, entity: Any) -> None:
        for setter, default in defaults:
            setter(entity, default)

    return step


def _compile(schema: StructSchema) -> Decode:
    steps = _steps(schema)
    if schema.absent:
        steps.append(_absent_step(schema))
    if schema.flexible:
        steps.append(_tag_step(schema) if schema.tagged else _skip_step)
    new = object.__new__
    entity_type: Any = schema.entity_type

    def decode(reader: Reader) -> Any:
        entity = new(entity_type)
        for step in steps:
            step(reader, entity)
        return entity

    return decode
