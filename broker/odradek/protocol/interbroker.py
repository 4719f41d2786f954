"""The requests between controller and brokers that Kafka 4 dropped: LeaderAndIsr, StopReplica, UpdateMetadata and
ControlledShutdown, as entity types of the same form as kio's.

Enters: an API key, a version and a direction. Leaves: a frozen dataclass, made on first use from the one table of its
message. Called by `apis`. Invariant: a field's place in its table is its place on the wire; the versions beside it are
those of Apache Kafka 3.9's message definitions, held by golden frames that Kafka's own classes wrote.
KIPs: 380 (broker epochs), 455 (adding and removing replicas), 516 (topic ids), 570 (epochs in StopReplica),
704 (recovery state), 866 (is_kraft_controller and type, for a migration that Odradek does not take part in).
"""

from __future__ import annotations

from typing import Any, Final

from odradek.protocol.apis import ApiKey
from odradek.protocol.entities import Row, array, make_entity_type, structs

_LEADER_AND_ISR_PARTITION: Final = (
    Row("topic_name", "string", 0, 1),
    Row("partition_index", "int32"),
    Row("controller_epoch", "int32"),
    Row("leader", "int32"),
    Row("leader_epoch", "int32"),
    array("isr", "int32"),
    Row("partition_epoch", "int32"),
    array("replicas", "int32"),
    array("adding_replicas", "int32", 3, default=()),
    array("removing_replicas", "int32", 3, default=()),
    Row("is_new", "bool", 1, default=False),
    Row("leader_recovery_state", "int8", 6, default=0),
)
_UPDATE_METADATA_PARTITION: Final = (
    Row("topic_name", "string", 0, 4),
    Row("partition_index", "int32"),
    Row("controller_epoch", "int32"),
    Row("leader", "int32"),
    Row("leader_epoch", "int32"),
    array("isr", "int32"),
    Row("zk_version", "int32"),
    array("replicas", "int32"),
    array("offline_replicas", "int32", 4, default=()),
)
_PARTITION_ERROR: Final = (
    Row("topic_name", "string"),
    Row("partition_index", "int32"),
    Row("error_code", "error_code"),
)

_MESSAGES: Final[dict[tuple[ApiKey, str], tuple[Row, ...]]] = {
    (ApiKey.LEADER_AND_ISR, "request"): (
        Row("controller_id", "int32"),
        Row("is_kraft_controller", "bool", 7, default=False),
        Row("controller_epoch", "int32"),
        Row("broker_epoch", "int64", 2, default=-1),
        Row("type", "int8", 5, default=0),
        structs("ungrouped_partition_states", _LEADER_AND_ISR_PARTITION, 0, 1),
        structs(
            "topic_states",
            (
                Row("topic_name", "string", 2),
                Row("topic_id", "uuid", 5),
                structs("partition_states", _LEADER_AND_ISR_PARTITION, 2),
            ),
            2,
        ),
        structs("live_leaders", (Row("broker_id", "int32"), Row("host_name", "string"), Row("port", "int32"))),
    ),
    (ApiKey.LEADER_AND_ISR, "response"): (
        Row("error_code", "error_code"),
        structs("partition_errors", _PARTITION_ERROR, 0, 4),
        structs(
            "topics",
            (
                Row("topic_id", "uuid", 5),
                structs("partition_errors", (Row("partition_index", "int32"), Row("error_code", "error_code")), 5),
            ),
            5,
        ),
    ),
    (ApiKey.STOP_REPLICA, "request"): (
        Row("controller_id", "int32"),
        Row("is_kraft_controller", "bool", 4, default=False),
        Row("controller_epoch", "int32"),
        Row("broker_epoch", "int64", 1, default=-1),
        Row("delete_partitions", "bool", 0, 2),
        structs("ungrouped_partitions", (Row("topic_name", "string"), Row("partition_index", "int32")), 0, 0),
        structs("topics", (Row("name", "string"), array("partition_indexes", "int32")), 1, 2),
        structs(
            "topic_states",
            (
                Row("topic_name", "string"),
                structs(
                    "partition_states",
                    (
                        Row("partition_index", "int32"),
                        Row("leader_epoch", "int32", default=-1),
                        Row("delete_partition", "bool"),
                    ),
                ),
            ),
            3,
        ),
    ),
    (ApiKey.STOP_REPLICA, "response"): (
        Row("error_code", "error_code"),
        structs("partition_errors", _PARTITION_ERROR),
    ),
    (ApiKey.UPDATE_METADATA, "request"): (
        Row("controller_id", "int32"),
        Row("is_kraft_controller", "bool", 8, default=False),
        Row("type", "int8", 8, default=0, tag=0),
        Row("controller_epoch", "int32"),
        Row("broker_epoch", "int64", 5, default=-1),
        structs("ungrouped_partition_states", _UPDATE_METADATA_PARTITION, 0, 4),
        structs(
            "topic_states",
            (
                Row("topic_name", "string"),
                Row("topic_id", "uuid", 7),
                structs("partition_states", _UPDATE_METADATA_PARTITION),
            ),
            5,
        ),
        structs(
            "live_brokers",
            (
                Row("id", "int32"),
                Row("v0_host", "string", 0, 0),
                Row("v0_port", "int32", 0, 0),
                structs(
                    "endpoints",
                    (
                        Row("port", "int32"),
                        Row("host", "string"),
                        Row("listener", "string", 3),
                        Row("security_protocol", "int16"),
                    ),
                    1,
                ),
                Row("rack", "string", 2, default=None, nullable=True),
            ),
        ),
    ),
    (ApiKey.UPDATE_METADATA, "response"): (Row("error_code", "error_code"),),
    (ApiKey.CONTROLLED_SHUTDOWN, "request"): (
        Row("broker_id", "int32"),
        Row("broker_epoch", "int64", 2, default=-1),
    ),
    (ApiKey.CONTROLLED_SHUTDOWN, "response"): (
        Row("error_code", "error_code"),
        structs("remaining_partitions", (Row("topic_name", "string"), Row("partition_index", "int32"))),
    ),
}


def entity_type(key: ApiKey, version: int, direction: str) -> type[Any]:
    """A new entity type of a message; `apis` keeps it. `KeyError` for what is not in the table."""
    return make_entity_type(_MESSAGES[key, direction], key, version, direction)
