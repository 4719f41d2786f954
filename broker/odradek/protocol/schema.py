"""The wire format of a message in one version, read from its class.

The codec compiles a decoder and an encoder from a `StructSchema`. An unknown kind of field raises `TypeError` when the
schema is read, not when a frame arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from odradek.protocol.fields import METADATA_KEY, Versions, Wire


class Required:
    """Type of `REQUIRED`."""


REQUIRED: Final = Required()
"""Default of a field without default: a message must have it."""

FIXED_FORMATS: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
}
"""`struct` code of every kind with a fixed size, except `uuid`."""

VARIABLE_KINDS: Final = frozenset({"string", "bytes", "records", "uuid"})
STRUCT_KIND: Final = "struct"


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field: its name and kind (a primitive of Kafka's protocol, or `STRUCT_KIND`), and its defaults.

    For an array, `nullable` refers to the array. `default` is the value if a message lacks the field, or `REQUIRED` if
    it must have it. `unset` is the value in a decoded message if the frame lacks a tagged field.
    """

    name: str
    kind: str
    is_array: bool
    nullable: bool
    tag: int | None
    default: object
    unset: object
    struct: StructSchema | None

    @property
    def min_bytes(self) -> int:
        """Minimum size of the field in any version."""
        if self.tag is not None:
            return 0
        if self.is_array or self.kind in ("string", "bytes", "records"):
            return 1
        if self.kind == "uuid":
            return 16
        if self.struct is not None:
            return 1 if self.nullable else self.struct.min_bytes
        return {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4}.get(FIXED_FORMATS[self.kind], 8)


@dataclass(frozen=True, slots=True)
class StructSchema:
    """One struct in one version: `fields` in wire order, `tagged` by tag.

    `absent` has the names and defaults of the fields that the version lacks.
    """

    entity_type: type[Any]
    version: int
    flexible: bool
    fields: tuple[FieldSchema, ...]
    tagged: tuple[FieldSchema, ...]
    absent: tuple[tuple[str, object], ...]

    @property
    def min_bytes(self) -> int:
        """Minimum size of the struct, at least 1, so that the bytes of a frame limit the number of elements."""
        return max(1, sum(field.min_bytes for field in self.fields) + (1 if self.flexible else 0))


def _message_default(name: str, form: Wire, default: object, is_tagged: bool) -> object:
    """Return the value of a field that a message lacks, or `REQUIRED`.

    Kafka's implied default is used only where a missing field can mean nothing else: no delay, no flag, no id, an empty
    list of plain values, a tagged field that is not sent. Counts, codes, strings and arrays of structs stay required: a
    response without its error code is a bug.
    """
    is_struct = isinstance(form.kind, type)
    is_list = form.is_array and not is_struct
    is_plain = form.kind in ("bool", "uuid") and not form.is_array
    if form.has_default or is_tagged or is_list or is_plain or name == "throttle_time_ms":
        return default
    return REQUIRED


def _field_schema(name: str, form: Wire, default: object, version: int, flexible: bool) -> FieldSchema:
    struct = _read_schema(form.kind, version, flexible) if isinstance(form.kind, type) else None
    kind = STRUCT_KIND if isinstance(form.kind, type) else form.kind
    if kind != STRUCT_KIND and kind not in FIXED_FORMATS and kind not in VARIABLE_KINDS:
        raise TypeError(f"field {name} has the unknown kind {kind}")
    tag = form.tag if version in form.tagged else None
    if tag is not None and not flexible:
        raise TypeError(f"field {name} is tagged in version {version}, which is not flexible")
    nullable = version in form.nullable
    chosen = _message_default(name, form, default, tag is not None)
    return FieldSchema(name, kind, form.is_array, nullable, tag, chosen, default, struct)


_SCHEMAS: Final[dict[tuple[type[Any], int], StructSchema]] = {}


def schema_of(message_type: type[Any], version: int) -> StructSchema:
    """Return the schema of a message in one version, cached. Raises `TypeError` if a field has an unknown kind."""
    schema = _SCHEMAS.get((message_type, version))
    if schema is None:
        flexible = version in Versions(message_type.FLEXIBLE)
        schema = _SCHEMAS[message_type, version] = _read_schema(message_type, version, flexible)
    return schema


def _read_schema(entity_type: type[Any], version: int, flexible: bool) -> StructSchema:
    found: list[FieldSchema] = []
    absent: list[tuple[str, object]] = []
    for field in fields(entity_type):
        form: Wire = field.metadata[METADATA_KEY]
        if version in form.versions:
            found.append(_field_schema(field.name, form, field.default, version, flexible))
        else:
            absent.append((field.name, field.default))
    tagged = sorted((field for field in found if field.tag is not None), key=lambda field: field.tag or 0)
    plain = tuple(field for field in found if field.tag is None)
    return StructSchema(entity_type, version, flexible, plain, tuple(tagged), tuple(absent))
