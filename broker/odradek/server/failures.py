"""How each API says that a whole request failed, and the wire's word for errors of what this broker stands on.

Most responses have an error code of their own; the others carry one for each thing that was asked about, so the answer
is built from the request. `server/dispatch` alone calls `failure`; handlers that answer for each thing apart share
`wire_error` with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from odradek.base.errors import (
    ConfigError,
    InvalidConfigError,
    KafkaStorageError,
    OdradekError,
    PolicyViolationError,
    ProtocolError,
    RequestTimedOutError,
    StorageError,
    UnknownServerError,
)
from odradek.base.types import ZERO_UUID
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.schema import REQUIRED, FieldSchema, schema_of
from odradek.server.fields import field, items
from odradek.zk.port import ConnectionLost, SessionExpired, TooLarge

_Fields = Mapping[str, object]


def wire_error(error: OdradekError) -> ProtocolError:
    """The error that tells a client of any failure that is no bug.

    Without ZooKeeper a request may have had its effect or not: the client is told that its time was over, and tries
    again. What has no name on the wire becomes `UnknownServerError`.
    """
    if isinstance(error, ProtocolError):
        return error
    if isinstance(error, StorageError):
        return KafkaStorageError("A log directory of the broker failed.")
    if isinstance(error, ConfigError):
        return InvalidConfigError(str(error))
    if isinstance(error, TooLarge):
        return PolicyViolationError(str(error))
    if isinstance(error, ConnectionLost | SessionExpired):
        return RequestTimedOutError("ZooKeeper did not answer in time: try again.")
    return UnknownServerError(str(error))


def failure(api_key: ApiKey, version: int, request: Any, error: ProtocolError) -> Message | None:
    """The response that tells a failed request, or None where the protocol has no place for it."""
    build = _PER_ITEM.get(api_key)
    if build is not None:
        return build(request, error)
    schema = schema_of(API_TABLE[api_key].response_type(version))
    if not any(item.name == "error_code" for item in schema.fields):
        return None
    return {**{item.name: _empty(item) for item in schema.fields if item.default is REQUIRED}, "error_code": error.code}


def _empty(item: FieldSchema) -> object:
    """What a failed response says where the schema demands a value and knows no default."""
    if item.is_array:
        return ()
    return {"string": "", "bytes": b""}.get(item.kind, 0)


def _topics(request: Any, error: ProtocolError, name: str, number: str, partition_fields: _Fields) -> Message:
    """One error for each partition of each topic: `name` and `number` are the fields that identify them."""
    return {
        "throttle_time": 0,
        "topics": [
            {
                name: getattr(topic, name),
                "partitions": [
                    {number: getattr(partition, number), "error_code": error.code, **partition_fields}
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _named(items: Iterable[Any], error: ProtocolError, *names: str) -> list[dict[str, object]]:
    return [
        {**{name: getattr(item, name) for name in names}, "error_code": error.code, "error_message": str(error)}
        for item in items
    ]


def _metadata(request: Any, error: ProtocolError) -> Message:
    topics: list[Message] = [
        {
            "name": topic.name or "",
            "topic_id": field(topic, "topic_id", ZERO_UUID),
            "error_code": error.code,
            "partitions": [],
        }
        for topic in items(request, "topics")
    ]
    return {"throttle_time": 0, "brokers": [], "topics": topics}


def _create_topics(request: Any, error: ProtocolError) -> Message:
    return {
        "throttle_time": 0,
        "topics": [{**item, "topic_id": None, "configs": []} for item in _named(request.topics, error, "name")],
    }


def _delete_topics(request: Any, error: ProtocolError) -> Message:
    wanted = [(topic.name, field(topic, "topic_id", ZERO_UUID)) for topic in items(request, "topics")]
    wanted += [(name, ZERO_UUID) for name in items(request, "topic_names")]
    responses = [
        {"name": name, "topic_id": topic_id, "error_code": error.code, "error_message": str(error)}
        for name, topic_id in wanted
    ]
    return {"throttle_time": 0, "responses": responses}


def _create_partitions(request: Any, error: ProtocolError) -> Message:
    return {"throttle_time": 0, "results": _named(request.topics, error, "name")}


def _describe_configs(request: Any, error: ProtocolError) -> Message:
    items = _named(request.resources, error, "resource_type", "resource_name")
    return {"throttle_time": 0, "results": [{**item, "configs": []} for item in items]}


def _alter_configs(request: Any, error: ProtocolError) -> Message:
    return {"throttle_time": 0, "responses": _named(request.resources, error, "resource_type", "resource_name")}


def _list_offsets(request: Any, error: ProtocolError) -> Message:
    return _topics(request, error, "name", "partition_index", {})


def _epochs(request: Any, error: ProtocolError) -> Message:
    return _topics(request, error, "topic", "partition", {})


def _offset_commit(request: Any, error: ProtocolError) -> Message:
    return _topics(request, error, "name", "partition_index", {})


def _describe_groups(request: Any, error: ProtocolError) -> Message:
    groups = [
        {
            "group_id": group,
            "error_code": error.code,
            "group_state": "",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
        for group in request.groups
    ]
    return {"throttle_time": 0, "groups": groups}


def _delete_groups(request: Any, error: ProtocolError) -> Message:
    return {
        "throttle_time": 0,
        "results": [{"group_id": group, "error_code": error.code} for group in request.groups_names],
    }


def _offset_fetch(request: Any, error: ProtocolError) -> Message:
    nothing: _Fields = {"committed_offset": -1, "metadata": ""}
    if not hasattr(request, "groups"):
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": number, "error_code": error.code, **nothing}
                    for number in topic.partition_indexes
                ],
            }
            for topic in items(request, "topics")
        ]
        return {"throttle_time": 0, "topics": topics, "error_code": error.code}
    groups = [{"group_id": group.group_id, "topics": (), "error_code": error.code} for group in request.groups]
    return {"throttle_time": 0, "groups": groups}


def _find_coordinator(request: Any, error: ProtocolError) -> Message:
    nowhere: _Fields = {"node_id": -1, "host": "", "port": -1, "error_code": error.code, "error_message": str(error)}
    coordinators = [{"key": key, **nowhere} for key in getattr(request, "coordinator_keys", ())]
    return {"throttle_time": 0, **nowhere, "coordinators": coordinators}


def _describe_log_dirs(request: Any, error: ProtocolError) -> Message:
    # Before version 3 there is no place but a directory's own error.
    result = {"error_code": error.code, "log_dir": "", "topics": ()}
    return {"throttle_time": 0, "error_code": error.code, "results": [result]}


def _alter_log_dirs(request: Any, error: ProtocolError) -> Message:
    numbers: dict[str, dict[int, None]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            numbers.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    results = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": number, "error_code": error.code} for number in partitions],
        }
        for name, partitions in numbers.items()
    ]
    return {"throttle_time": 0, "results": results}


def _delete_records(request: Any, error: ProtocolError) -> Message:
    return _topics(request, error, "name", "partition_index", {"low_watermark": -1})


def _describe_producers(request: Any, error: ProtocolError) -> Message:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": number,
                    "error_code": error.code,
                    "error_message": str(error),
                    "active_producers": (),
                }
                for number in topic.partition_indexes
            ],
        }
        for topic in request.topics
    ]
    return {"throttle_time": 0, "topics": topics}


def _elect_leaders(request: Any, error: ProtocolError) -> Message:
    # Version 0 has no error of the whole; clients of later ones look at either.
    results = [
        {
            "topic": topic.topic,
            "partition_result": [
                {"partition_id": number, "error_code": error.code, "error_message": str(error)}
                for number in topic.partitions
            ],
        }
        for topic in items(request, "topic_partitions")
    ]
    return {"throttle_time": 0, "error_code": error.code, "replica_election_results": results}


def _whole_with_message(name: str) -> Callable[[Any, ProtocolError], Message]:
    def build(request: Any, error: ProtocolError) -> Message:
        return {"throttle_time": 0, "error_code": error.code, "error_message": str(error), name: ()}

    return build


_PER_ITEM: Final[Mapping[ApiKey, Callable[[Any, ProtocolError], Message]]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _epochs,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _whole_with_message("responses"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _whole_with_message("topics"),
    ApiKey.UPDATE_FEATURES: _whole_with_message("results"),
}
