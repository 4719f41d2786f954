"""Bytes that Apache Kafka's own message classes wrote decode to the values put in, and encode back unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.base.types import TopicPartition
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_struct, encode_response_header, encode_struct
from odradek.protocol.hotpath import (
    FetchedPartition,
    ProducedPartition,
    RecordError,
    decode_fetch_response,
    decode_produce_response,
    encode_fetch_response,
    encode_produce_response,
)

TOPIC_ID = UUID("00010203-0405-4607-8809-0a0b0c0d0e0f")
KEYS = {row.name: row.key for row in API_TABLE.values()}


def vectors() -> list[tuple[str, int, bytes]]:
    lines = Path(__file__).with_name("kafka_3_9_1_messages.txt").read_text().splitlines()
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


def only_of(entity_type: type[Any], message: dict[str, Any]) -> dict[str, Any]:
    """The part of a message that a version has: `encode_struct` knows one version, not the union."""
    kept: dict[str, Any] = {}
    for name, field in entity_type.__dataclass_fields__.items():
        if name in message:
            value = message[name]
            if isinstance(value, list) and value and isinstance(value[0], dict):
                value = [only_of(field.type.__args__[0], item) for item in value]
            kept[name] = value
    return kept


def differs(entity: Any, message: dict[str, Any]) -> list[str]:
    """Names of the fields that do not have the message's values."""
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
    entity_type = row.request_type(version) if name.endswith("Request") else row.response_type(version)
    message = only_of(entity_type, MESSAGES[name](version))

    assert differs(decode_struct(entity_type, raw), message) == []
    assert encode_struct(entity_type, message).hex() == raw.hex()


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
