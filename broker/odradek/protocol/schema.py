"""What an entity type looks like on the wire, read from its dataclass.

Enters: a kio entity type, or one of `interbroker` in the same form. Leaves: a `StructSchema`, from which the codec
compiles a decoder and an encoder. Invariant: every kind of field that the served APIs have is understood; an unknown
one raises `TypeError` when the schema is read, not when a frame arrives.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin


class Required:
    """Type of `REQUIRED`."""


REQUIRED: Final = Required()
"""Default of a field that has none: a message must name it."""

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
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""`struct` code of every kind with a fixed size, except `uuid`."""

VARIABLE_KINDS: Final = frozenset({"string", "bytes", "records", "uuid"})
STRUCT_KIND: Final = "struct"


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field: its name and kind (a kio type name, or `STRUCT_KIND`), and how it may be absent.

    `nullable` speaks of the array where the field is one. `default` is a wire value: milliseconds for times, a bare
    integer for an error code, `REQUIRED` where the schema has none.
    """

    name: str
    kind: str
    is_array: bool
    nullable: bool
    tag: int | None
    default: object
    struct: StructSchema | None

    @property
    def min_bytes(self) -> int:
        """What the field takes at least in any version."""
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
    """One entity type: `fields` in the order of the wire, `tagged` by tag."""

    entity_type: type[Any]
    flexible: bool
    fields: tuple[FieldSchema, ...]
    tagged: tuple[FieldSchema, ...]

    @property
    def min_bytes(self) -> int:
        """What the struct takes at least; never below 1, so that counts are bounded by bytes."""
        return max(1, sum(field.min_bytes for field in self.fields) + (1 if self.flexible else 0))


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is UnionType:
        inner = [argument for argument in get_args(annotation) if argument is not NoneType]
        if len(inner) != 1:
            raise TypeError(f"a field may only be a union with None, not {annotation}")
        return inner[0], True
    return annotation, False


def _wire_default(field: Any, kind: str) -> object:
    """The default in wire terms."""
    default = field.default
    if default is MISSING:
        return _implied(field.name, kind)
    if default is None or kind in ("string", "bytes", "records", "uuid", STRUCT_KIND) or isinstance(default, tuple):
        found: object = default
        return found
    if kind.startswith("timedelta"):
        return round(default.total_seconds() * 1000)
    if kind.startswith("datetime"):
        return round(default.timestamp() * 1000)
    return int(default) if kind != "float64" else float(default)


def _implied(name: str, kind: str) -> object:
    """Kafka's implied default where leaving a field out can only mean that: no delay, no flag, no id.

    Counts, codes, texts and arrays stay required: a response without its error code is a bug.
    """
    if name == "throttle_time":
        return 0
    return {"bool": False, "uuid": None}.get(kind, REQUIRED)


def _field_schema(field: Any) -> FieldSchema:
    annotation, nullable = _without_none(field.type)
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation, _ = _without_none(get_args(annotation)[0])
    struct = schema_of(annotation) if isinstance(annotation, type) and is_dataclass(annotation) else None
    kind = STRUCT_KIND if struct is not None else field.metadata["kafka_type"]
    if kind != STRUCT_KIND and kind not in FIXED_FORMATS and kind not in VARIABLE_KINDS:
        raise TypeError(f"field {field.name} has the unknown kind {kind}")
    tag = field.metadata.get("tag")
    return FieldSchema(field.name, kind, is_array, nullable, tag, _wire_default(field, kind), struct)


_SCHEMAS: Final[dict[int, StructSchema]] = {}
"""By identity of the entity type, which its schema keeps alive; there are as many as versions in use."""


def schema_of(entity_type: type[Any]) -> StructSchema:
    """The schema of an entity type; read once. `TypeError` when a field is of an unknown kind."""
    schema = _SCHEMAS.get(id(entity_type))
    if schema is None:
        schema = _SCHEMAS[id(entity_type)] = _read_schema(entity_type)
    return schema


def _read_schema(entity_type: type[Any]) -> StructSchema:
    found = [_field_schema(field) for field in fields(entity_type)]
    tagged = sorted((field for field in found if field.tag is not None), key=lambda field: field.tag or 0)
    flexible: bool = entity_type.__flexible__
    if tagged and not flexible:
        raise TypeError(f"{entity_type.__name__} has tagged fields but is not flexible")
    return StructSchema(entity_type, flexible, tuple(f for f in found if f.tag is None), tuple(tagged))
