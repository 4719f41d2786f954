"""The versions of clients before Kafka 1.0 that Apache Kafka 3.9 still serves and kio, which follows Kafka 4, lacks.

Enters: an API key, a version and a direction. Leaves: an entity type of kio's form, made on first use from the one
table of its message. Called by `apis` for every version below the first that kio has. Invariant: the fields and their
versions are those of Apache Kafka 3.9's message definitions, held by frames that Kafka's own classes wrote.
KIPs: 32 (timestamps), 74 (response limit), 101 (leader epochs), 113 (log directories), 497 (AlterPartition).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from odradek.protocol.apis import ApiKey
from odradek.protocol.entities import Row, array, make_entity_type, structs

_REQUEST: Final = "request"
_RESPONSE: Final = "response"


def _throttle_time(since: int = 0) -> Row:
    return Row("throttle_time", "timedelta_i32", since, default=timedelta(0))


def _partition_code(number: str, *rest: Row) -> tuple[Row, ...]:
    return (Row(number, "int32"), Row("error_code", "error_code"), *rest)


_PARTITION_NUMBERS: Final = array("partitions", "int32")

_DATA: Final[Mapping[tuple[ApiKey, str], tuple[Row, ...]]] = {
    (ApiKey.PRODUCE, _REQUEST): (
        Row("acks", "int16"),
        Row("timeout", "timedelta_i32"),
        structs(
            "topic_data",
            (
                Row("name", "string"),
                structs("partition_data", (Row("index", "int32"), Row("records", "records", nullable=True))),
            ),
        ),
    ),
    (ApiKey.PRODUCE, _RESPONSE): (
        structs(
            "responses",
            (
                Row("name", "string"),
                structs(
                    "partition_responses",
                    _partition_code("index", Row("base_offset", "int64"), Row("log_append_time", "datetime_i64", 2)),
                ),
            ),
        ),
        _throttle_time(1),
    ),
    (ApiKey.FETCH, _REQUEST): (
        Row("replica_id", "int32", default=-1),
        Row("max_wait", "timedelta_i32"),
        Row("min_bytes", "int32"),
        Row("max_bytes", "int32", 3, default=(1 << 31) - 1),
        structs(
            "topics",
            (
                Row("topic", "string"),
                structs(
                    "partitions",
                    (Row("partition", "int32"), Row("fetch_offset", "int64"), Row("partition_max_bytes", "int32")),
                ),
            ),
        ),
    ),
    (ApiKey.FETCH, _RESPONSE): (
        _throttle_time(1),
        structs(
            "responses",
            (
                Row("topic", "string"),
                structs(
                    "partitions",
                    _partition_code(
                        "partition_index", Row("high_watermark", "int64"), Row("records", "records", nullable=True)
                    ),
                ),
            ),
        ),
    ),
    (ApiKey.LIST_OFFSETS, _REQUEST): (
        Row("replica_id", "int32"),
        structs(
            "topics",
            (
                Row("name", "string"),
                structs(
                    "partitions",
                    (
                        Row("partition_index", "int32"),
                        Row("timestamp", "int64"),
                        Row("max_num_offsets", "int32", default=1),
                    ),
                ),
            ),
        ),
    ),
    (ApiKey.LIST_OFFSETS, _RESPONSE): (
        structs(
            "topics",
            (
                Row("name", "string"),
                structs(
                    "partitions", _partition_code("partition_index", array("old_style_offsets", "int64", default=()))
                ),
            ),
        ),
    ),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, _REQUEST): (
        structs(
            "topics",
            (Row("topic", "string"), structs("partitions", (Row("partition", "int32"), Row("leader_epoch", "int32")))),
        ),
    ),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, _RESPONSE): (
        structs(
            "topics",
            (
                Row("topic", "string"),
                structs(
                    "partitions",
                    (
                        Row("error_code", "error_code"),
                        Row("partition", "int32"),
                        Row("leader_epoch", "int32", 1, default=-1),
                        Row("end_offset", "int64", default=-1),
                    ),
                ),
            ),
        ),
    ),
}

_GROUPS: Final[Mapping[tuple[ApiKey, str], tuple[Row, ...]]] = {
    (ApiKey.OFFSET_COMMIT, _REQUEST): (
        Row("group_id", "string"),
        Row("generation_id_or_member_epoch", "int32", 1, default=-1),
        Row("member_id", "string", 1),
        structs(
            "topics",
            (
                Row("name", "string"),
                structs(
                    "partitions",
                    (
                        Row("partition_index", "int32"),
                        Row("committed_offset", "int64"),
                        Row("commit_timestamp", "int64", 1, default=-1),
                        Row("committed_metadata", "string", nullable=True),
                    ),
                ),
            ),
        ),
    ),
    (ApiKey.OFFSET_COMMIT, _RESPONSE): (
        structs("topics", (Row("name", "string"), structs("partitions", _partition_code("partition_index")))),
    ),
    (ApiKey.OFFSET_FETCH, _REQUEST): (
        Row("group_id", "string"),
        structs("topics", (Row("name", "string"), array("partition_indexes", "int32", default=()))),
    ),
    (ApiKey.OFFSET_FETCH, _RESPONSE): (
        structs(
            "topics",
            (
                Row("name", "string"),
                structs(
                    "partitions",
                    (
                        Row("partition_index", "int32"),
                        Row("committed_offset", "int64"),
                        Row("metadata", "string", nullable=True),
                        Row("error_code", "error_code"),
                    ),
                ),
            ),
        ),
    ),
}

_TOPICS: Final[Mapping[tuple[ApiKey, str], tuple[Row, ...]]] = {
    (ApiKey.CREATE_TOPICS, _REQUEST): (
        structs(
            "topics",
            (
                Row("name", "string"),
                Row("num_partitions", "int32"),
                Row("replication_factor", "int16"),
                structs("assignments", (Row("partition_index", "int32"), array("broker_ids", "int32", default=()))),
                structs("configs", (Row("name", "string"), Row("value", "string", nullable=True))),
            ),
        ),
        Row("timeout", "timedelta_i32", default=timedelta(seconds=60)),
        Row("validate_only", "bool", 1, default=False),
    ),
    (ApiKey.CREATE_TOPICS, _RESPONSE): (
        structs(
            "topics",
            (
                Row("name", "string"),
                Row("error_code", "error_code"),
                Row("error_message", "string", 1, nullable=True),
            ),
        ),
    ),
    (ApiKey.DELETE_TOPICS, _REQUEST): (
        array("topic_names", "string", default=()),
        Row("timeout", "timedelta_i32"),
    ),
    (ApiKey.DELETE_TOPICS, _RESPONSE): (
        structs("responses", (Row("name", "string"), Row("error_code", "error_code"))),
    ),
    (ApiKey.DESCRIBE_CONFIGS, _REQUEST): (
        structs(
            "resources",
            (
                Row("resource_type", "int8"),
                Row("resource_name", "string"),
                Row("configuration_keys", "string", default=(), is_array=True, nullable=True),
            ),
        ),
    ),
    (ApiKey.DESCRIBE_CONFIGS, _RESPONSE): (
        _throttle_time(),
        structs(
            "results",
            (
                Row("error_code", "error_code"),
                Row("error_message", "string", nullable=True),
                Row("resource_type", "int8"),
                Row("resource_name", "string"),
                structs(
                    "configs",
                    (
                        Row("name", "string"),
                        Row("value", "string", nullable=True),
                        Row("read_only", "bool"),
                        Row("is_default", "bool"),
                        Row("is_sensitive", "bool"),
                    ),
                ),
            ),
        ),
    ),
}

_DIRECTORIES: Final[Mapping[tuple[ApiKey, str], tuple[Row, ...]]] = {
    (ApiKey.DESCRIBE_LOG_DIRS, _REQUEST): (
        structs("topics", (Row("topic", "string"), _PARTITION_NUMBERS), nullable=True),
    ),
    (ApiKey.DESCRIBE_LOG_DIRS, _RESPONSE): (
        _throttle_time(),
        structs(
            "results",
            (
                Row("error_code", "error_code"),
                Row("log_dir", "string"),
                structs(
                    "topics",
                    (
                        Row("name", "string"),
                        structs(
                            "partitions",
                            (
                                Row("partition_index", "int32"),
                                Row("partition_size", "int64"),
                                Row("offset_lag", "int64"),
                                Row("is_future_key", "bool"),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, _REQUEST): (
        structs("dirs", (Row("path", "string"), structs("topics", (Row("name", "string"), _PARTITION_NUMBERS)))),
    ),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, _RESPONSE): (
        _throttle_time(),
        structs("results", (Row("topic_name", "string"), structs("partitions", _partition_code("partition_index")))),
    ),
}

_CONTROLLER: Final[Mapping[tuple[ApiKey, str], tuple[Row, ...]]] = {
    (ApiKey.ALTER_PARTITION, _REQUEST): (
        Row("broker_id", "int32"),
        Row("broker_epoch", "int64", default=-1),
        structs(
            "topics",
            (
                Row("topic_name", "string"),
                structs(
                    "partitions",
                    (
                        Row("partition_index", "int32"),
                        Row("leader_epoch", "int32"),
                        array("new_isr", "int32", default=()),
                        Row("leader_recovery_state", "int8", 1, default=0),
                        Row("partition_epoch", "int32"),
                    ),
                ),
            ),
        ),
    ),
    (ApiKey.ALTER_PARTITION, _RESPONSE): (
        _throttle_time(),
        Row("error_code", "error_code"),
        structs(
            "topics",
            (
                Row("topic_name", "string"),
                structs(
                    "partitions",
                    _partition_code(
                        "partition_index",
                        Row("leader_id", "int32"),
                        Row("leader_epoch", "int32"),
                        array("isr", "int32", default=()),
                        Row("leader_recovery_state", "int8", 1, default=0),
                        Row("partition_epoch", "int32"),
                    ),
                ),
            ),
        ),
    ),
}

_MESSAGES: Final[Mapping[tuple[ApiKey, str], tuple[Row, ...]]] = MappingProxyType(
    {**_DATA, **_GROUPS, **_TOPICS, **_DIRECTORIES, **_CONTROLLER}
)


def entity_type(key: ApiKey, version: int, direction: str) -> type[Any]:
    """A new entity type of a message; `apis` keeps it. `KeyError` for what is not in the table."""
    return make_entity_type(_MESSAGES[key, direction], key, version, direction)
