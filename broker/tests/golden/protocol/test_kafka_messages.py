"""Bytes that Apache Kafka's message classes wrote are decoded to the original values and encoded to the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from odradek.base.types import TopicPartition
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_struct, encode_response_header, encode_struct
from odradek.protocol.hotpath import (
    FetchedPartition,
    FetchEntry,
    FetchRequest,
    ProducedPartition,
    ProduceRequest,
    RecordError,
    decode_fetch,
    decode_fetch_response,
    decode_produce,
    decode_produce_response,
    encode_fetch_request,
    encode_fetch_response,
    encode_produce_request,
    encode_produce_response,
)
from odradek.protocol.schema import StructSchema, schema_of

TOPIC_ID = UUID("00010203-0405-4607-8809-0a0b0c0d0e0f")
KEYS = {row.name: row.key for row in API_TABLE.values()}


def vectors(file: str = "kafka_3_9_1_messages.txt") -> list[tuple[str, int, bytes]]:
    lines = Path(__file__).with_name(file).read_text().splitlines()
    found = [line.split() for line in lines if not line.startswith("#")]
    return [(name, int(version), bytes.fromhex(raw)) for name, version, raw in found]


def leader_and_isr_request(version: int) -> dict[str, Any]:
    state = {
        "topic_name": "orders",
        "partition_index": 3,
        "controller_epoch": 4,
        "leader": 2,
        "leader_epoch": 9,
        "isr": [2, 3],
        "partition_epoch": 11,
        "replicas": [1, 2, 3],
        "adding_replicas": [4],
        "removing_replicas": [1],
        "is_new": True,
        "leader_recovery_state": 1,
    }
    grouped = {key: value for key, value in state.items() if key != "topic_name"}
    return {
        "controller_id": 1,
        "is_kraft_controller": True,
        "controller_epoch": 5,
        "broker_epoch": 77,
        "type": 1,
        "ungrouped_partition_states": [state],
        "topic_states": [{"topic_name": "orders", "topic_id": TOPIC_ID, "partition_states": [grouped]}],
        "live_leaders": [{"broker_id": 2, "host_name": "broker-2", "port": 9092}],
    }


def update_metadata_request(version: int) -> dict[str, Any]:
    state = {
        "topic_name": "orders",
        "partition_index": 3,
        "controller_epoch": 4,
        "leader": 2,
        "leader_epoch": 9,
        "isr": [2, 3],
        "zk_version": 11,
        "replicas": [1, 2, 3],
        "offline_replicas": [1],
    }
    endpoint = {"port": 9092, "host": "broker-2", "listener": "PLAINTEXT", "security_protocol": 0}
    return {
        "controller_id": 1,
        "is_kraft_controller": True,
        "type": 2,
        "controller_epoch": 5,
        "broker_epoch": 77,
        "ungrouped_partition_states": [state],
        "topic_states": [{"topic_name": "orders", "topic_id": TOPIC_ID, "partition_states": [state]}],
        "live_brokers": [{"id": 2, "v0_host": "broker-2", "v0_port": 9092, "endpoints": [endpoint], "rack": "a"}],
    }


def stop_replica_request(version: int) -> dict[str, Any]:
    return {
        "controller_id": 1,
        "is_kraft_controller": True,
        "controller_epoch": 5,
        "broker_epoch": 77,
        "delete_partitions": True,
        "ungrouped_partitions": [{"topic_name": "orders", "partition_index": 3}],
        "topics": [{"name": "orders", "partition_indexes": [3, 4]}],
        "topic_states": [
            {
                "topic_name": "orders",
                "partition_states": [{"partition_index": 3, "leader_epoch": 9, "delete_partition": True}],
            }
        ],
    }


def partition_errors(version: int) -> dict[str, Any]:
    return {
        "error_code": 11,
        "partition_errors": [{"topic_name": "orders", "partition_index": 3, "error_code": 56}],
    }


def leader_and_isr_response(version: int) -> dict[str, Any]:
    by_id = [{"topic_id": TOPIC_ID, "partition_errors": [{"partition_index": 3, "error_code": 56}]}]
    return partition_errors(version) | {"topics": by_id}


MESSAGES = {
    "LeaderAndIsrRequest": leader_and_isr_request,
    "LeaderAndIsrResponse": leader_and_isr_response,
    "StopReplicaRequest": stop_replica_request,
    "StopReplicaResponse": partition_errors,
    "UpdateMetadataRequest": update_metadata_request,
    "UpdateMetadataResponse": lambda version: {"error_code": 77},
    "ControlledShutdownRequest": lambda version: {"broker_id": 2, "broker_epoch": 77},
    "ControlledShutdownResponse": lambda version: {
        "error_code": 41,
        "remaining_partitions": [{"topic_name": "orders", "partition_index": 3}],
    },
}


def only_of(schema: StructSchema, message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that a version has."""
    kept: dict[str, Any] = {}
    for field in (*schema.fields, *schema.tagged):
        if field.name in message:
            value, struct = message[field.name], field.struct
            is_rows = struct is not None and isinstance(value, list)
            kept[field.name] = [only_of(struct, item) for item in value] if is_rows else value
    return kept


def differs(entity: Any, message: dict[str, Any]) -> list[str]:
    """Return the names of the fields whose values differ from the message."""
    found: list[str] = []
    for name, value in message.items():
        actual = getattr(entity, name)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            found += [f"{name}.{inner}" for pair in zip(actual, value, strict=True) for inner in differs(*pair)]
        elif (list(actual) if isinstance(value, list) else actual) != value:
            found.append(name)
    return found


@pytest.mark.parametrize(("name", "version", "raw"), [row for row in vectors() if row[0] in MESSAGES])
def test_interbroker_messages(name: str, version: int, raw: bytes) -> None:
    key = KEYS[name.removesuffix("Request").removesuffix("Response")]
    row = API_TABLE[key]
    message_type = row.request_type if name.endswith("Request") else row.response_type
    message = MESSAGES[name](version)

    assert differs(decode_struct(message_type, version, raw), only_of(schema_of(message_type, version), message)) == []
    assert encode_struct(message_type, version, message).hex() == raw.hex()


@pytest.mark.parametrize(("version", "raw"), [row[1:] for row in vectors() if row[0] == "ProduceResponse"])
def test_produce_response(version: int, raw: bytes) -> None:
    partitions = [
        ProducedPartition(TopicPartition("orders", 3), 87, 5, 6, 7, (RecordError(1, "no key"),), "one record"),
        ProducedPartition(TopicPartition("orders", 4), 0, 8),
    ]
    frame = encode_response_header(ApiKey.PRODUCE, version, 1, len(raw)) + raw

    assert encode_produce_response(version, 1, partitions, throttle_time_ms=12) == frame
    decoded = decode_produce_response(version, frame[4:])
    assert (decoded.partitions, decoded.throttle_time_ms) == (partitions, 12)


@pytest.mark.parametrize(("version", "raw"), [row[1:] for row in vectors() if row[0] == "FetchResponse"])
def test_fetch_response(version: int, raw: bytes) -> None:
    topic = ("orders", None) if version < 13 else (None, TOPIC_ID)
    partitions = [
        FetchedPartition(*topic, 3, 0, 100, 90, 10, b"", ((5, 50),), 2, (4, 44), (1, 6)),
        FetchedPartition(*topic, 4, 6, -1, aborted_transactions=()),
    ]
    frame = encode_response_header(ApiKey.FETCH, version, 1, len(raw)) + raw

    assert b"".join(encode_fetch_response(version, 1, partitions, session_id=99, throttle_time_ms=12)) == frame
    decoded = decode_fetch_response(version, memoryview(frame)[4:])
    assert (decoded.partitions, decoded.session_id, decoded.throttle_time_ms) == (partitions, 99, 12)


# Versions that Kafka 4 dropped


def topic(*partitions: dict[str, Any], name: str = "name") -> list[dict[str, Any]]:
    return [{name: "orders", "partitions": list(partitions)}]


def alter_partition(version: int, **fields: object) -> list[dict[str, Any]]:
    recovery = {"leader_recovery_state": 1} if version else {}
    part = {"partition_index": 3, "leader_epoch": 9, "partition_epoch": 11, **recovery, **fields}
    return topic(part, name="topic_name")


CREATABLE = {
    "name": "orders",
    "num_partitions": -1,
    "replication_factor": -1,
    "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
    "configs": [{"name": "retention.ms", "value": "5"}],
}
RULE: Final = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
ALICE = {"principal_type": "User", "principal_name": "alice"}
BOB = {"principal_type": "User", "principal_name": "bob"}
OLD_MESSAGES: dict[str, dict[str, Any]] = {
    "ListOffsetsRequest": {
        "replica_id": -1,
        "topics": topic({"partition_index": 3, "timestamp": -2, "max_num_offsets": 7}),
    },
    "ListOffsetsResponse": {"topics": topic({"partition_index": 3, "error_code": 6, "old_style_offsets": [9, 4]})},
    "OffsetCommitRequest": {
        "group_id": "group",
        "generation_id_or_member_epoch": 2,
        "member_id": "member",
        "topics": topic(
            {"partition_index": 3, "committed_offset": 8, "commit_timestamp": 77, "committed_metadata": "note"}
        ),
    },
    "OffsetCommitResponse": {"topics": topic({"partition_index": 3, "error_code": 22})},
    "OffsetFetchRequest": {"group_id": "group", "topics": [{"name": "orders", "partition_indexes": [3, 4]}]},
    "OffsetFetchResponse": {
        "topics": topic({"partition_index": 3, "committed_offset": 8, "metadata": "note", "error_code": 3})
    },
    "OffsetForLeaderEpochRequest": {"topics": topic({"partition": 3, "leader_epoch": 5}, name="topic")},
    "OffsetForLeaderEpochResponse": {
        "topics": topic({"error_code": 74, "partition": 3, "leader_epoch": 5, "end_offset": 60}, name="topic")
    },
    "CreateTopicsRequest": {"topics": [CREATABLE], "timeout_ms": 2500, "validate_only": True},
    "CreateTopicsResponse": {"topics": [{"name": "orders", "error_code": 36, "error_message": "exists"}]},
    "DeleteTopicsRequest": {"topic_names": ["orders", "old"], "timeout_ms": 2500},
    "DeleteTopicsResponse": {"responses": [{"name": "orders", "error_code": 41}]},
    "DescribeConfigsRequest": {
        "resources": [
            {"resource_type": 2, "resource_name": "orders", "configuration_keys": ["retention.ms"]},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
        ]
    },
    "DescribeConfigsResponse": {
        "throttle_time_ms": 12,
        "results": [
            {
                "error_code": 0,
                "error_message": None,
                "resource_type": 2,
                "resource_name": "orders",
                "configs": [
                    {
                        "name": "retention.ms",
                        "value": "5",
                        "read_only": True,
                        "is_default": True,
                        "is_sensitive": False,
                    }
                ],
            }
        ],
    },
    "DescribeLogDirsRequest": {"topics": [{"topic": "orders", "partitions": [3, 4]}]},
    "DescribeLogDirsResponse": {
        "throttle_time_ms": 12,
        "results": [
            {
                "error_code": 56,
                "log_dir": "/data",
                "topics": topic({"partition_index": 3, "partition_size": 1000, "offset_lag": 5, "is_future_key": True}),
            }
        ],
    },
    "AlterReplicaLogDirsRequest": {"dirs": [{"path": "/data", "topics": [{"name": "orders", "partitions": [3, 4]}]}]},
    "AlterReplicaLogDirsResponse": {
        "throttle_time_ms": 12,
        "results": topic({"partition_index": 3, "error_code": 57}, name="topic_name"),
    },
    "DescribeAclsRequest": {
        "resource_type_filter": 2,
        "resource_name_filter": "orders",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": "10.0.0.1",
        "operation": 3,
        "permission_type": 1,
    },
    "DescribeAclsResponse": {
        "throttle_time_ms": 7,
        "error_code": 54,
        "error_message": "no",
        "resources": [{"resource_type": 2, "resource_name": "orders", "pattern_type": 3, "acls": [RULE]}],
    },
    "CreateAclsRequest": {
        "creations": [{"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, **RULE}]
    },
    "CreateAclsResponse": {"throttle_time_ms": 7, "results": [{"error_code": 42, "error_message": "no"}]},
    "DeleteAclsRequest": {
        "filters": [
            {
                "resource_type_filter": 2,
                "resource_name_filter": None,
                "pattern_type_filter": 3,
                "principal_filter": "User:alice",
                "host_filter": None,
                "operation": 1,
                "permission_type": 3,
            }
        ]
    },
    "DeleteAclsResponse": {
        "throttle_time_ms": 7,
        "filter_results": [
            {
                "error_code": 0,
                "error_message": None,
                "matching_acls": [
                    {
                        "error_code": 7,
                        "error_message": "no",
                        "resource_type": 2,
                        "resource_name": "orders",
                        "pattern_type": 3,
                        **RULE,
                    }
                ],
            }
        ],
    },
    "CreateDelegationTokenRequest": {"renewers": [BOB], "max_lifetime_ms": -1},
    "CreateDelegationTokenResponse": {
        "error_code": 0,
        **ALICE,
        "issue_timestamp_ms": 10,
        "expiry_timestamp_ms": 20,
        "max_timestamp_ms": 30,
        "token_id": "id",
        "hmac": b"\1\2\3",
        "throttle_time_ms": 7,
    },
    "RenewDelegationTokenRequest": {"hmac": b"\1\2\3", "renew_period_ms": 500},
    "RenewDelegationTokenResponse": {"error_code": 66, "expiry_timestamp_ms": -1, "throttle_time_ms": 7},
    "ExpireDelegationTokenRequest": {"hmac": b"\1\2\3", "expiry_time_period_ms": -1},
    "ExpireDelegationTokenResponse": {"error_code": 0, "expiry_timestamp_ms": 20, "throttle_time_ms": 7},
    "DescribeDelegationTokenRequest": {"owners": [ALICE]},
    "DescribeDelegationTokenResponse": {
        "error_code": 0,
        "tokens": [
            {
                **ALICE,
                "issue_timestamp": 10,
                "expiry_timestamp": 20,
                "max_timestamp": 30,
                "token_id": "id",
                "hmac": b"\1\2\3",
                "renewers": [BOB],
            }
        ],
        "throttle_time_ms": 7,
    },
    "WriteTxnMarkersRequest": {
        "markers": [
            {
                "producer_id": 4000,
                "producer_epoch": 7,
                "transaction_result": True,
                "topics": [{"name": "orders", "partition_indexes": [3, 4]}],
                "coordinator_epoch": 9,
            }
        ]
    },
    "WriteTxnMarkersResponse": {
        "markers": [{"producer_id": 4000, "topics": topic({"partition_index": 3, "error_code": 47})}]
    },
}
OLD_VECTORS = vectors("kafka_3_9_1_old_versions.txt")


@pytest.mark.parametrize(
    ("name", "version", "raw"), [row for row in OLD_VECTORS if not row[0].startswith(("Produce", "Fetch"))]
)
def test_old_versions(name: str, version: int, raw: bytes) -> None:
    row = API_TABLE[KEYS[name.removesuffix("Request").removesuffix("Response")]]
    message_type = row.request_type if name.endswith("Request") else row.response_type
    if name == "AlterPartitionRequest":
        union: dict[str, Any] = {
            "broker_id": 2,
            "broker_epoch": 77,
            "topics": alter_partition(version, new_isr=[2, 3]),
        }
    elif name == "AlterPartitionResponse":
        topics = alter_partition(version, error_code=55, leader_id=2, isr=[2, 3])
        union = {"throttle_time_ms": 12, "error_code": 0, "topics": topics}
    else:
        union = OLD_MESSAGES[name]
    message = union

    assert differs(decode_struct(message_type, version, raw), only_of(schema_of(message_type, version), message)) == []
    assert encode_struct(message_type, version, message).hex() == raw.hex()


@pytest.mark.parametrize(("version", "raw"), [row[1:] for row in OLD_VECTORS if row[0] == "ProduceRequest"])
def test_old_produce_request(version: int, raw: bytes) -> None:
    entries = [(TopicPartition("orders", 3), memoryview(b"records")), (TopicPartition("orders", 4), None)]
    request = ProduceRequest(None, -1, 1500, entries)
    assert b"".join(encode_produce_request(version, 1, None, request)).endswith(raw)
    assert decode_produce(version, memoryview(raw), 0) == request


@pytest.mark.parametrize(("version", "raw"), [row[1:] for row in OLD_VECTORS if row[0] == "ProduceResponse"])
def test_old_produce_response(version: int, raw: bytes) -> None:
    rows = [ProducedPartition(TopicPartition("orders", 3), 2, 5, 6000 if version >= 2 else -1)]
    frame = encode_response_header(ApiKey.PRODUCE, version, 1, len(raw)) + raw
    assert encode_produce_response(version, 1, rows, throttle_time_ms=12) == frame
    decoded = decode_produce_response(version, frame[4:])
    assert (decoded.partitions, decoded.throttle_time_ms) == (rows, 12 if version >= 1 else 0)


@pytest.mark.parametrize(("version", "raw"), [row[1:] for row in OLD_VECTORS if row[0] == "FetchRequest"])
def test_old_fetch_request(version: int, raw: bytes) -> None:
    max_bytes = 9000 if version >= 3 else 2**31 - 1
    request = FetchRequest(500, 1, max_bytes, [FetchEntry("orders", None, 3, -1, 70, -1, -1, 4096)])
    assert encode_fetch_request(version, 1, None, request).endswith(raw)
    assert decode_fetch(version, raw, 0) == request


@pytest.mark.parametrize(("version", "raw"), [row[1:] for row in OLD_VECTORS if row[0] == "FetchResponse"])
def test_old_fetch_response(version: int, raw: bytes) -> None:
    rows = [FetchedPartition("orders", None, 3, 1, 100, records=b"records")]
    frame = encode_response_header(ApiKey.FETCH, version, 1, len(raw)) + raw
    assert b"".join(encode_fetch_response(version, 1, rows, throttle_time_ms=12)) == frame
    decoded = decode_fetch_response(version, memoryview(frame)[4:])
    assert (decoded.partitions, decoded.throttle_time_ms) == (rows, 12 if version >= 1 else 0)
