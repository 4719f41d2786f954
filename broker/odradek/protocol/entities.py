"""Entity types in kio's form, made from tables, for the messages that kio does not have.

Enters: the rows of a message, and an API, a version and a direction. Leaves: a frozen, slotted dataclass that the
codec compiles like one of kio's. Called by `interbroker` and `legacy`, whose types `apis` keeps.
Invariant: a field's place in its table is its place on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader as RequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeader2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeader0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeader1
from kio.static.constants import EntityType
from kio.static.primitive import Records, TZAware, i8, i16, i32, i32Timedelta, i64

from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.schema import REQUIRED

LAST: Final = 32767
"""`until` of a field that every later version has."""


@dataclass(frozen=True, slots=True)
class Row:
    """One field: `since` and `until` are the first and the last version that have it."""

    name: str
    kind: str
    since: int = 0
    until: int = LAST
    default: object = REQUIRED
    is_array: bool = False
    nullable: bool = False
    tag: int | None = None
    struct: tuple[Row, ...] = ()


def array(name: str, kind: str, since: int = 0, until: int = LAST, *, default: object = REQUIRED) -> Row:
    """An array of numbers or texts."""
    return Row(name, kind, since, until, default=default, is_array=True)


def structs(name: str, rows: tuple[Row, ...], since: int = 0, until: int = LAST, *, nullable: bool = False) -> Row:
    """An array of structs."""
    return Row(name, "struct", since, until, is_array=True, nullable=nullable, struct=rows)


_TYPES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "int8": i8,
        "int16": i16,
        "int32": i32,
        "int64": i64,
        "bool": bool,
        "string": str,
        "records": Records,
        "uuid": UUID | None,
        "error_code": ErrorCode,
        "timedelta_i32": i32Timedelta,
        "datetime_i64": TZAware | None,
    }
)


def make_entity_type(rows: tuple[Row, ...], key: ApiKey, version: int, direction: str) -> type[Any]:
    """A new entity type of what a version has of a message; `direction` is "request" or "response"."""
    api = API_TABLE[key]
    flexible = api.is_flexible(version)
    header: Any
    if direction == "request":
        header = RequestHeader2 if flexible else RequestHeader1
    else:
        header = ResponseHeader1 if flexible else ResponseHeader0
    attributes = {
        "__type__": EntityType.request if direction == "request" else EntityType.response,
        "__version__": i16(version),
        "__flexible__": flexible,
        "__api_key__": i16(key),
        "__header_schema__": header,
    }
    return _make(api.name + direction.capitalize(), rows, attributes)


def _make(name: str, rows: tuple[Row, ...], attributes: Mapping[str, Any]) -> type[Any]:
    version = attributes["__version__"]
    made: list[tuple[str, Any, Any]] = []
    for row in rows:
        if not row.since <= version <= row.until:
            continue
        annotation: Any
        if row.struct:
            nested = {**attributes, "__type__": EntityType.nested}
            annotation = _make(f"{name}_{row.name}", row.struct, nested)
        else:
            annotation = _TYPES[row.kind]
        if row.is_array:
            annotation = tuple[annotation, ...]
        if row.nullable:
            annotation = annotation | None
        made.append((row.name, annotation, _dataclass_field(row)))
    return make_dataclass(name, made, namespace=dict(attributes), frozen=True, slots=True, kw_only=True)


def _dataclass_field(row: Row) -> Any:
    metadata: dict[str, object] = {} if row.struct else {"kafka_type": row.kind}
    if row.tag is not None:
        metadata["tag"] = row.tag
    if row.default is REQUIRED:
        return field(metadata=metadata)
    return field(default=row.default, metadata=metadata)
