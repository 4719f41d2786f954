"""The requests between controller and brokers that Kafka 4 dropped: LeaderAndIsr, StopReplica, UpdateMetadata and
ControlledShutdown, as entity types of the same form as kio's.

Enters: an API key, a version and a direction. Leaves: a frozen dataclass, made on first use from the one table of its
message. Called by `apis`. Invariant: a field's place in its table is its place on the wire; the versions beside it are
those of Apache Kafka 3.9's message definitions, held by golden frames that Kafka's own classes wrote.
KIPs: 380 (broker epochs), 455 (adding and removing replicas), 516 (topic ids), 570 (epochs in StopReplica),
704 (recovery state), 866 (is_kraft_controller and type, for a migration that Odradek does not take part in).
"""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader as RequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeader2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeader0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeader1
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.schema import REQUIRED

_LAST: Final = 32767


@dataclass(frozen=True, slots=True)
class _Row:
    """One field: `since` and `until` are the first and the last version that have it."""

    name: str
    kind: str
    since: int = 0
    until: int = _LAST
    default: object = REQUIRED
    is_array: bool = False
    nullable: bool = False
    tag: int | None = None
    struct: tuple[_Row, ...] = ()


def _integers(name: str, since: int = 0, default: object = REQUIRED) -> _Row:
    return _Row(name, "int32", since, default=default, is_array=True)


def _structs(name: str, rows: tuple[_Row, ...], since: int = 0, until: int = _LAST) -> _Row:
    return _Row(name, "struct", since, until, is_array=True, struct=rows)


_TYPES: Final[dict[str, Any]] = {
    "int8": i8,
    "int16": i16,
    "int32": i32,
    "int64": i64,
    "bool": bool,
    "string": str,
    "uuid": UUID | None,
    "error_code": ErrorCode,
}

_LEADER_AND_ISR_PARTITION: Final = (
    _Row("topic_name", "string", 0, 1),
    _Row("partition_index", "int32"),
    _Row("controller_epoch", "int32"),
    _Row("leader", "int32"),
    _Row("leader_epoch", "int32"),
    _integers("isr"),
    _Row("partition_epoch", "int32"),
    _integers("replicas"),
    _integers("adding_replicas", 3, default=()),
    _integers("removing_replicas", 3, default=()),
    _Row("is_new", "bool", 1, default=False),
    _Row("leader_recovery_state", "int8", 6, default=0),
)
_UPDATE_METADATA_PARTITION: Final = (
    _Row("topic_name", "string", 0, 4),
    _Row("partition_index", "int32"),
    _Row("controller_epoch", "int32"),
    _Row("leader", "int32"),
    _Row("leader_epoch", "int32"),
    _integers("isr"),
    _Row("zk_version", "int32"),
    _integers("replicas"),
    _integers("offline_replicas", 4, default=()),
)
_PARTITION_ERROR: Final = (
    _Row("topic_name", "string"),
    _Row("partition_index", "int32"),
    _Row("error_code", "error_code"),
)

_MESSAGES: Final[dict[tuple[ApiKey, str], tuple[_Row, ...]]] = {
    (ApiKey.LEADER_AND_ISR, "request"): (
        _Row("controller_id", "int32"),
        _Row("is_kraft_controller", "bool", 7, default=False),
        _Row("controller_epoch", "int32"),
        _Row("broker_epoch", "int64", 2, default=-1),
        _Row("type", "int8", 5, default=0),
        _structs("ungrouped_partition_states", _LEADER_AND_ISR_PARTITION, 0, 1),
        _structs(
            "topic_states",
            (
                _Row("topic_name", "string", 2),
                _Row("topic_id", "uuid", 5),
                _structs("partition_states", _LEADER_AND_ISR_PARTITION, 2),
            ),
            2,
        ),
        _structs("live_leaders", (_Row("broker_id", "int32"), _Row("host_name", "string"), _Row("port", "int32"))),
    ),
    (ApiKey.LEADER_AND_ISR, "response"): (
        _Row("error_code", "error_code"),
        _structs("partition_errors", _PARTITION_ERROR, 0, 4),
        _structs(
            "topics",
            (
                _Row("topic_id", "uuid", 5),
                _structs("partition_errors", (_Row("partition_index", "int32"), _Row("error_code", "error_code")), 5),
            ),
            5,
        ),
    ),
    (ApiKey.STOP_REPLICA, "request"): (
        _Row("controller_id", "int32"),
        _Row("is_kraft_controller", "bool", 4, default=False),
        _Row("controller_epoch", "int32"),
        _Row("broker_epoch", "int64", 1, default=-1),
        _Row("delete_partitions", "bool", 0, 2),
        _structs("ungrouped_partitions", (_Row("topic_name", "string"), _Row("partition_index", "int32")), 0, 0),
        _structs("topics", (_Row("name", "string"), _integers("partition_indexes")), 1, 2),
        _structs(
            "topic_states",
            (
                _Row("topic_name", "string"),
                _structs(
                    "partition_states",
                    (
                        _Row("partition_index", "int32"),
                        _Row("leader_epoch", "int32", default=-1),
                        _Row("delete_partition", "bool"),
                    ),
                ),
            ),
            3,
        ),
    ),
    (ApiKey.STOP_REPLICA, "response"): (
        _Row("error_code", "error_code"),
        _structs("partition_errors", _PARTITION_ERROR),
    ),
    (ApiKey.UPDATE_METADATA, "request"): (
        _Row("controller_id", "int32"),
        _Row("is_kraft_controller", "bool", 8, default=False),
        _Row("type", "int8", 8, default=0, tag=0),
        _Row("controller_epoch", "int32"),
        _Row("broker_epoch", "int64", 5, default=-1),
        _structs("ungrouped_partition_states", _UPDATE_METADATA_PARTITION, 0, 4),
        _structs(
            "topic_states",
            (
                _Row("topic_name", "string"),
                _Row("topic_id", "uuid", 7),
                _structs("partition_states", _UPDATE_METADATA_PARTITION),
            ),
            5,
        ),
        _structs(
            "live_brokers",
            (
                _Row("id", "int32"),
                _Row("v0_host", "string", 0, 0),
                _Row("v0_port", "int32", 0, 0),
                _structs(
                    "endpoints",
                    (
                        _Row("port", "int32"),
                        _Row("host", "string"),
                        _Row("listener", "string", 3),
                        _Row("security_protocol", "int16"),
                    ),
                    1,
                ),
                _Row("rack", "string", 2, default=None, nullable=True),
            ),
        ),
    ),
    (ApiKey.UPDATE_METADATA, "response"): (_Row("error_code", "error_code"),),
    (ApiKey.CONTROLLED_SHUTDOWN, "request"): (
        _Row("broker_id", "int32"),
        _Row("broker_epoch", "int64", 2, default=-1),
    ),
    (ApiKey.CONTROLLED_SHUTDOWN, "response"): (
        _Row("error_code", "error_code"),
        _structs("remaining_partitions", (_Row("topic_name", "string"), _Row("partition_index", "int32"))),
    ),
}


def entity_type(key: ApiKey, version: int, direction: str) -> type[Any]:
    """A new entity type of a message; `apis` keeps it. `KeyError` for what is not in the table."""
    name = API_TABLE[key].name + direction.capitalize()
    return _make(name, _MESSAGES[key, direction], _class_attributes(key, version, direction))


def _class_attributes(key: ApiKey, version: int, direction: str) -> dict[str, Any]:
    flexible = API_TABLE[key].is_flexible(version)
    if direction == "request":
        header: Any = RequestHeader2 if flexible else RequestHeader1
    else:
        header = ResponseHeader1 if flexible else ResponseHeader0
    return {
        "__type__": EntityType.request if direction == "request" else EntityType.response,
        "__version__": i16(version),
        "__flexible__": flexible,
        "__api_key__": i16(key),
        "__header_schema__": header,
    }


def _make(name: str, rows: tuple[_Row, ...], attributes: dict[str, Any]) -> type[Any]:
    version = attributes["__version__"]
    made: list[tuple[str, Any, Any]] = []
    for row in rows:
        if not row.since <= version <= row.until:
            continue
        annotation: Any
        if row.struct:
            nested = attributes | {"__type__": EntityType.nested}
            annotation = _make(f"{name}_{row.name}", row.struct, nested)
        else:
            annotation = _TYPES[row.kind]
        if row.is_array:
            annotation = tuple[annotation, ...]
        elif row.nullable:
            annotation = annotation | None
        made.append((row.name, annotation, _dataclass_field(row)))
    return make_dataclass(name, made, namespace=dict(attributes), frozen=True, slots=True, kw_only=True)


def _dataclass_field(row: _Row) -> Any:
    metadata: dict[str, object] = {} if row.struct else {"kafka_type": row.kind}
    if row.tag is not None:
        metadata["tag"] = row.tag
    if row.default is REQUIRED:
        return field(metadata=metadata)
    return field(default=row.default, metadata=metadata)
