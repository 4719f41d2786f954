"""Frames of old versions, and the search for error codes without decoding."""

from __future__ import annotations

import struct

import pytest
from comparison.wire import (
    FETCH_VERSION,
    METADATA_VERSION,
    Partition,
    fetch_frame,
    fetched,
    metadata_frame,
    old_fetch_frame,
    old_fetched,
    old_produce_frame,
    partitions_of,
    produce_frame,
    produce_result,
)

from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import decode_header, decode_request, encode_response
from odradek.protocol.hotpath import ProducedPartition, decode_produce, encode_produce_response


def test_a_produce_frame_is_what_the_broker_reads() -> None:
    frame = memoryview(produce_frame(TopicPartition("t", 3), b"records", acks=-1))
    header, position = decode_header(frame[4:])
    request = decode_produce(header.api_version, frame[4:], position)
    [(partition, records)] = request.entries
    assert (request.acks, partition, bytes(records or b"")) == (-1, TopicPartition("t", 3), b"records")
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4


def test_the_result_is_found_at_its_place() -> None:
    row = ProducedPartition(TopicPartition("näme", 1), 6, 42)
    response = encode_produce_response(7, 9, [row])
    assert produce_result(response[4:], "näme") == (6, 42)
    assert produce_result(response, "näme", from_position=8) == (6, 42)


def test_a_fetch_frame_is_what_the_broker_reads() -> None:
    frame = memoryview(fetch_frame(TopicPartition("näme", 3), 2**40, fetch_bytes=100))
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, position = decode_header(frame[4:])
    request = decode_request(header, frame[4:], position)
    assert (header.api_key, header.api_version) == (ApiKey.FETCH, FETCH_VERSION)
    assert (request.replica_id, request.max_bytes, request.session_epoch) == (-1, 100, -1)
    [topic] = request.topics
    [partition] = topic.partitions
    assert (topic.topic, partition.partition, partition.fetch_offset) == ("näme", 3, 2**40)
    assert (partition.current_leader_epoch, partition.partition_max_bytes) == (-1, 100)


@pytest.mark.parametrize(
    ("code", "partition_code", "records", "expected"),
    [(0, 0, b"batches", (0, b"batches")), (0, 3, None, (3, b"")), (71, 0, b"", (71, b""))],
)
def test_records_are_found_in_a_fetch_response(
    code: int, partition_code: int, records: bytes | None, expected: tuple[int, bytes]
) -> None:
    row = {
        "partition_index": 0,
        "error_code": partition_code,
        "high_watermark": 9,
        "last_stable_offset": 9,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": records,
    }
    topics = [] if code else [{"topic": "näme", "partitions": [row]}]
    message = {"throttle_time_ms": 0, "error_code": code, "session_id": 0, "responses": topics}
    frame = memoryview(encode_response(ApiKey.FETCH, FETCH_VERSION, 4, message))[4:]
    found, content = fetched(frame, "näme")
    assert (found, bytes(content)) == expected


def test_an_old_produce_frame_says_its_lengths() -> None:
    frame = old_produce_frame(TopicPartition("topic", 2), b"message set")
    length, key, version, _, client = struct.unpack_from(">ihhih", frame)
    assert (length, key, version) == (len(frame) - 4, 0, 2)
    body = frame[14 + client :]
    assert struct.unpack_from(">hiih5siii", body) == (1, 30_000, 1, 5, b"topic", 1, 2, 11)
    assert body.endswith(b"message set")


def test_an_old_fetch_frame_asks_for_every_partition() -> None:
    frame = old_fetch_frame("topic", [(0, 5), (1, 7)], partition_bytes=100)
    length, key, version, _, client = struct.unpack_from(">ihhih", frame)
    assert (length, key, version) == (len(frame) - 4, 1, 3)
    body = frame[14 + client :]
    assert struct.unpack(">iiiiih5siiqiiqi", body) == (-1, 500, 1, 200, 1, 5, b"topic", 2, 0, 5, 100, 1, 7, 100)


def test_an_old_fetch_response_is_read_partition_by_partition() -> None:
    rows = struct.pack(">ihqi", 0, 0, 9, 3) + b"abc" + struct.pack(">ihqi", 1, 6, -1, -1)
    frame = struct.pack(">iiih5si", 1, 0, 1, 5, b"topic", 2) + rows
    found = [(*fields, bytes(records)) for *fields, records in old_fetched(memoryview(frame))]
    assert found == [(0, 0, 9, b"abc"), (1, 6, -1, b"")]


def test_partitions_are_found_in_metadata_without_decoding() -> None:
    rows = [
        {
            "error_code": 0,
            "partition_index": number,
            "leader_id": leader,
            "leader_epoch": 7,
            "replica_nodes": replicas,
            "isr_nodes": replicas[:1],
            "offline_replicas": replicas[1:],
        }
        for number, leader, replicas in ((0, 1, (1, 2)), (5, -1, (2,)))
    ]
    message = {
        "brokers": [
            {"node_id": 1, "host": "höst", "port": 9, "rack": None},
            {"node_id": 2, "host": "h", "port": 9, "rack": "r"},
        ],
        "cluster_id": None,
        "controller_id": 2,
        "topics": [
            {"error_code": 0, "name": "näme", "is_internal": False, "partitions": rows},
            {"error_code": 3, "name": "none", "is_internal": True, "partitions": []},
            {"error_code": 0, "name": "b", "is_internal": False, "partitions": rows[:1]},
        ],
    }
    frame = memoryview(encode_response(ApiKey.METADATA, METADATA_VERSION, 4, message))[4:]
    first, second = Partition(1, (1, 2), (1,)), Partition(-1, (2,), (2,))
    assert partitions_of(frame) == {
        TopicPartition("näme", 0): first,
        TopicPartition("näme", 5): second,
        TopicPartition("b", 0): first,
    }


@pytest.mark.parametrize("topics", [None, [], ["a", "b"]])
def test_metadata_is_asked_for_and_no_topic_made(topics: list[str] | None) -> None:
    frame = metadata_frame(topics)[4:]
    header, position = decode_header(frame)
    request = decode_request(header, frame, position)
    names = None if request.topics is None else [topic.name for topic in request.topics]
    assert (names, request.allow_auto_topic_creation) == (topics, False)
