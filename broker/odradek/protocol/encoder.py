"""Encoders compiled from schemas: they encode a message of plain mappings and sequences without intermediate objects.

`codec` compiles one per schema. A message has the field names of its class, which are those of all versions. A field
that the version lacks is omitted; a field that the message lacks takes the schema's default. A name that no version
has, or a missing value without a default, is a bug in this program and raises `ValueError`. Consecutive numbers are
packed by one `Struct`. An array can be given as `EncodedElements`, for content that is sent repeatedly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, cast

from odradek.protocol.schema import FIXED_FORMATS, REQUIRED, FieldSchema, StructSchema
from odradek.protocol.wire import base128, compact_string, legacy_string

Message = Mapping[str, object]
"""Fields of one struct by name; nested mappings for structs, sequences for arrays, None for null."""

Encode = Callable[[bytearray, Any], None]


class EncodedElements(NamedTuple):
    """Elements of an array that were encoded before, for the same version of the same API."""

    number: int
    data: bytes


_NO_UUID: Final = bytes(16)
_INT32: Final = Struct(">i")
_REMEMBERED_NUMBERS: Final = 8
_REMEMBERED_TUPLES: Final = 512


def _string(value: str | None, *, flexible: bool, nullable: bool) -> bytes:
    if value is None and not nullable:
        raise ValueError("null where a string is required")
    return compact_string(value) if flexible else legacy_string(value)


def _string_encoder(flexible: bool, nullable: bool) -> Encode:
    def encode(out: bytearray, value: str | None) -> None:
        out += _string(value, flexible=flexible, nullable=nullable)

    return encode


def _blob_encoder(flexible: bool, nullable: bool) -> Encode:
    def encode(out: bytearray, value: bytes | None) -> None:
        if value is None:
            if not nullable:
                raise ValueError("null where bytes are required")
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        out += base128(len(value) + 1) if flexible else _INT32.pack(len(value))
        out += value

    return encode


def _encode_uuid(out: bytearray, value: Any) -> None:
    out += _NO_UUID if value is None else value.bytes


def _fixed_encoder(kind: str) -> Encode:
    pack = Struct(">" + FIXED_FORMATS[kind]).pack

    def encode(out: bytearray, value: int) -> None:
        out += pack(value)

    return encode


def _nullable_struct(encode_struct: Encode) -> Encode:
    """Return the encoder of a struct after a presence byte: -1 for null, 1 otherwise (KIP-893)."""

    def encode(out: bytearray, value: Message | None) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            encode_struct(out, value)

    return encode


def _element(item: FieldSchema, flexible: bool, nullable: bool) -> Encode:
    if item.struct is not None:
        encode = compile_encoder(item.struct)
        return _nullable_struct(encode) if nullable else encode
    if item.kind == "string":
        return _string_encoder(flexible, nullable)
    if item.kind in ("bytes", "records"):
        return _blob_encoder(flexible, nullable)
    if item.kind == "uuid":
        return _encode_uuid
    return _fixed_encoder(item.kind)


def _array(item: FieldSchema, flexible: bool) -> Encode:
    encode_length: Callable[[int], bytes] = (lambda count: base128(count + 1)) if flexible else _INT32.pack
    if item.kind in FIXED_FORMATS:
        return _numbers(item, encode_length)
    encode_all = _each(_element(item, flexible, False))

    def encode(out: bytearray, values: Sequence[Any] | None) -> None:
        if type(values) is EncodedElements:
            out += encode_length(values.number)
            out += values.data
            return
        if values is None:
            if not item.nullable:
                raise ValueError(f"null where the array {item.name} is required")
            out += encode_length(-1)
            return
        out += encode_length(len(values))
        encode_all(out, values)

    return encode


def _each(encode_one: Encode) -> Encode:
    def encode(out: bytearray, values: Sequence[Any]) -> None:
        for value in values:
            encode_one(out, value)

    return encode


def _numbers(item: FieldSchema, encode_length: Callable[[int], bytes]) -> Encode:
    """Return the encoder of an array of numbers. It caches short tuples: thousands of rows have the same few
    replicas."""
    letter = FIXED_FORMATS[item.kind]
    remembered: dict[tuple[Any, ...], bytes] = {}

    def encode(out: bytearray, values: Sequence[Any] | None) -> None:
        if values is None:
            if not item.nullable:
                raise ValueError(f"null where the array {item.name} is required")
            out += encode_length(-1)
            return
        count = len(values)
        if type(values) is not tuple or count > _REMEMBERED_NUMBERS:
            out += encode_length(count) + Struct(f">{count}{letter}").pack(*values)
            return
        raw = remembered.get(values)
        if raw is None:
            if len(remembered) >= _REMEMBERED_TUPLES:
                remembered.clear()
            raw = remembered[values] = encode_length(count) + Struct(f">{count}{letter}").pack(*values)
        out += raw

    return encode


def _value(item: FieldSchema, flexible: bool) -> Encode:
    return _array(item, flexible) if item.is_array else _element(item, flexible, item.nullable)


def _picked(message: Message, item: FieldSchema, place: str) -> object:
    """Return the message's value for a field, or the schema's default."""
    value = message.get(item.name, REQUIRED)
    if value is REQUIRED:
        value = item.default
        if value is REQUIRED:
            raise ValueError(f"{place} requires the field {item.name}")
    return value


def _run_encoder(run: list[FieldSchema], place: str) -> Encode:
    """Return the encoder of consecutive numbers by one `Struct`."""
    pack = Struct(">" + "".join(FIXED_FORMATS[item.kind] for item in run)).pack
    if len(run) == 1:
        only = run[0]

        def encode_one(out: bytearray, message: Message) -> None:
            out += pack(_picked(message, only, place))

        return encode_one
    pick_all = itemgetter(*(item.name for item in run))

    def encode(out: bytearray, message: Message) -> None:
        try:
            values = pick_all(message)
        except KeyError:
            values = [_picked(message, item, place) for item in run]
        out += pack(*values)

    return encode


def _single_encoder(item: FieldSchema, schema: StructSchema) -> Encode:
    encode_value = _value(item, schema.flexible)
    place = schema.entity_type.__name__

    def encode(out: bytearray, message: Message) -> None:
        encode_value(out, _picked(message, item, place))

    return encode


def _is_run_kind(item: FieldSchema) -> bool:
    return item.kind in FIXED_FORMATS and not item.is_array


def _plain_steps(schema: StructSchema) -> list[Encode]:
    steps: list[Encode] = []
    run: list[FieldSchema] = []
    place = schema.entity_type.__name__
    for item in schema.fields:
        if _is_run_kind(item):
            run.append(item)
            continue
        if run:
            steps.append(_run_encoder(run, place))
            run = []
        steps.append(_single_encoder(item, schema))
    if run:
        steps.append(_run_encoder(run, place))
    return steps


def _default_bytes(item: FieldSchema, encode: Encode) -> bytes | None:
    """Return the encoded default of a tagged field, or None if that is null."""
    if item.default is None:
        return None
    out = bytearray()
    encode(out, {} if item.struct is not None and not item.is_array else item.default)
    return bytes(out)


def _tagged_step(schema: StructSchema) -> Encode:
    """Return the encoder of the tagged fields, which omits those with their default (KIP-482)."""
    rows: list[tuple[str, int, Encode, bytes | None]] = []
    for item in schema.tagged:
        encode_value = _value(item, True)
        rows.append((item.name, cast(int, item.tag), encode_value, _default_bytes(item, encode_value)))

    def encode(out: bytearray, message: Message) -> None:
        count = 0
        section = bytearray()
        for name, tag, encode_value, default in rows:
            value = message.get(name, REQUIRED)
            if value is REQUIRED or (value is None and default in (None, _NO_UUID)):
                continue
            raw = bytearray()
            encode_value(raw, value)
            if default is None or bytes(raw) != default:
                count += 1
                section += base128(tag) + base128(len(raw)) + raw
        out += base128(count)
        out += section

    return encode


def _no_tagged_step(out: bytearray, _message: Message) -> None:
    out.append(0)


def compile_encoder(schema: StructSchema) -> Encode:
    """The encoder of one struct. It appends a message to a buffer; raises `ValueError` if the message is invalid."""
    place = schema.entity_type.__name__
    names = frozenset(item.name for item in (*schema.fields, *schema.tagged)) | {name for name, _ in schema.absent}
    steps = _plain_steps(schema)
    if schema.flexible:
        steps.append(_tagged_step(schema) if schema.tagged else _no_tagged_step)

    def encode(out: bytearray, message: Message) -> None:
        if not message.keys() <= names:
            unknown = ", ".join(sorted(message.keys() - names))
            raise ValueError(f"no version of {place} has the field {unknown}")
        try:
            for step in steps:
                step(out, message)
        except struct_error as error:
            raise ValueError(f"a value of {place} does not fit its field: {error}") from error

    return encode
