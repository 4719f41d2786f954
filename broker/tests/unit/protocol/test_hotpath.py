"""The hand-written Produce and Fetch: borrowed memory, nulls, and wrong lengths."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import MalformedFrameError
from odradek.base.types import TopicPartition
from odradek.protocol.codec import decode_header
from odradek.protocol.hotpath import (
    FetchedPartition,
    FetchEntry,
    FetchRequest,
    ProducedPartition,
    ProduceRequest,
    decode_fetch,
    decode_fetch_response,
    decode_produce,
    decode_produce_response,
    encode_fetch_request,
    encode_fetch_response,
    encode_produce_request,
    encode_produce_response,
)
from odradek.protocol.hotpath_fetch_request import UNBOUNDED_BYTES

TOPIC_ID = UUID(int=7)


def produce_frame(version: int, *records: memoryview | None) -> tuple[bytearray, int]:
    entries = [(TopicPartition("t", number), each) for number, each in enumerate(records)]
    frame = bytearray(b"".join(encode_produce_request(version, 1, "me", ProduceRequest(None, -1, 5, entries)))[4:])
    return frame, decode_header(memoryview(frame))[1]


@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 11])
def test_produced_records_are_slices_of_the_frame(version: int) -> None:
    frame, position = produce_frame(version, memoryview(b"first"), None, memoryview(b""), memoryview(b"last"))
    request = decode_produce(version, memoryview(frame), position)
    first = request.entries[0][1]
    assert first is not None
    first[0:5] = b"FIRST"

    assert b"FIRST" in frame, "stamping a batch in place changes the frame, not a copy"
    assert [records and bytes(records) for _, records in request.entries] == [b"FIRST", None, b"", b"last"]


@pytest.mark.parametrize("version", [0, 3, 9])
def test_records_may_not_reach_beyond_the_frame(version: int) -> None:
    frame, position = produce_frame(version, memoryview(b"records"))
    at = frame.index(b"records")
    for lie in (b"\x7f", b"\xff"):
        lying = bytearray(frame)
        lying[at - 1 : at] = lie
        with pytest.raises(MalformedFrameError):
            decode_produce(version, memoryview(lying), position)


@pytest.mark.parametrize("version", [3, 9])
def test_records_of_a_produce_request_are_sent_as_they_lie(version: int) -> None:
    records = memoryview(b"records")
    buffers = encode_produce_request(version, 1, None, ProduceRequest(None, 1, 5, [(TopicPartition("t", 0), records)]))

    assert any(buffer is records for buffer in buffers)


def test_consecutive_partitions_share_their_topic() -> None:
    rows = [ProducedPartition(TopicPartition(topic, number)) for number, topic in enumerate("aab")]
    apart = [ProducedPartition(TopicPartition(topic, number)) for number, topic in enumerate("aba")]

    assert encode_produce_response(3, 1, rows)[8:12] == b"\x00\x00\x00\x02"
    assert encode_produce_response(3, 1, apart)[8:12] == b"\x00\x00\x00\x03"


@pytest.mark.parametrize(
    ("version", "topic"), [(11, {"topic": "t", "topic_id": None}), (13, {"topic": None, "topic_id": TOPIC_ID})]
)
def test_fetched_records_are_never_copied(version: int, topic: dict[str, Any]) -> None:
    records = [memoryview(b"one" * 1000), memoryview(b"two" * 1000)]
    rows = [FetchedPartition(**topic, partition=number, records=each) for number, each in enumerate(records)]
    buffers = encode_fetch_response(version, 1, rows)
    assert [buffer for buffer in buffers if isinstance(buffer, memoryview)] == records

    frame = bytearray(b"".join(buffers)[4:])
    decoded = decode_fetch_response(version, memoryview(frame))
    frame[frame.index(b"one")] = ord("O")
    assert bytes(decoded.partitions[0].records[:3]) == b"One"


@pytest.mark.parametrize(("version", "missing"), [(12, "name"), (13, "id")])
def test_topics_are_named_as_the_version_wants(version: int, missing: str) -> None:
    topic, topic_id = (None, TOPIC_ID) if missing == "name" else ("t", None)
    with pytest.raises(ValueError, match=missing):
        encode_fetch_response(version, 1, [FetchedPartition(topic, topic_id, 0)])
    entry = FetchEntry(topic, topic_id, 0, -1, 0, -1, -1, 1)
    with pytest.raises(ValueError, match=missing):
        encode_fetch_request(version, 1, None, FetchRequest(1, 1, 1, [entry]))


def test_null_records_of_a_fetch_read_as_none() -> None:
    """Kafka writes an empty set, older brokers null."""
    frame = bytearray(b"".join(encode_fetch_response(4, 1, [FetchedPartition("t", None, 0)]))[4:])
    frame[-4:] = b"\xff\xff\xff\xff"
    assert decode_fetch_response(4, memoryview(frame)).partitions[0].records == b""
    frame[-4:] = b"\xff\xff\xff\xfe"
    with pytest.raises(MalformedFrameError):
        decode_fetch_response(4, memoryview(frame))


def test_tagged_fields_of_newer_peers_are_skipped() -> None:
    entry = FetchEntry(None, TOPIC_ID, 0, -1, 0, -1, -1, 1)
    request = FetchRequest(1, 1, 1, [entry], replica_id=4, replica_epoch=9)
    frame = encode_fetch_request(15, 1, None, request)[4:]
    _, position = decode_header(frame)
    state = bytes.fromhex("01 0d 00000004 0000000000000009 00")
    assert frame.endswith(b"\x01" + state)
    newer = frame[: -len(state) - 1] + b"\x03" + bytes.fromhex("00 05 0461626364") + state + bytes.fromhex("63 01 ff")

    assert decode_fetch(15, newer, position) == request


@pytest.mark.parametrize("version", [0, 3, 4, 12, 17])
def test_bytes_after_the_last_field_of_a_request_are_ignored(version: int) -> None:
    request = FetchRequest(1, 1, 1 if version >= 3 else UNBOUNDED_BYTES, [])
    frame = encode_fetch_request(version, 1, None, request)[4:]
    _, position = decode_header(frame)
    assert decode_fetch(version, frame + b"\x00", position) == request


@pytest.mark.parametrize("version", [0, 3, 9, 11])
def test_bytes_after_the_last_field_of_a_produce_request_are_ignored(version: int) -> None:
    frame, position = produce_frame(version, memoryview(b"records"))
    (entry,) = decode_produce(version, memoryview(frame + b"\x00\x00"), position).entries
    assert entry[1] is not None
    assert bytes(entry[1]) == b"records"


@pytest.mark.parametrize("version", [2, 3, 8, 9, 11])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384])
def test_a_request_for_one_partition_is_decoded_like_one_for_two(version: int, size: int) -> None:
    """One partition has its own decoder, for some sizes of the records."""
    records = memoryview(bytes(size))
    frame, position = produce_frame(version, records)
    longer, _ = produce_frame(version, records, records)
    one = decode_produce(version, memoryview(frame), position)
    two = decode_produce(version, memoryview(longer), position)

    assert (one.transactional_id, one.acks, one.timeout_ms) == (None, -1, 5)
    assert (two.transactional_id, two.acks, two.timeout_ms) == (None, -1, 5)
    assert one.entries == two.entries[:1] == [(TopicPartition("t", 0), records)]


@pytest.mark.parametrize("version", [3, 9])
def test_every_cut_of_a_request_for_one_partition_is_refused(version: int) -> None:
    frame, position = produce_frame(version, memoryview(bytes(200)))
    for end in range(position, len(frame)):
        with pytest.raises(MalformedFrameError):
            decode_produce(version, memoryview(frame[:end]), position)


@pytest.mark.parametrize("version", [5, 7, 8, 9, 11])
def test_the_only_result_is_encoded_like_one_of_two(version: int) -> None:
    """The second row differs by its topic, so that the first one has the same bytes as alone."""
    row = ProducedPartition(TopicPartition("t", 3), 0, 7, 8, 9)
    only = encode_produce_response(version, 4, [row])
    both = encode_produce_response(version, 4, [row, row._replace(topic_partition=TopicPartition("u", 3))])
    decoded = decode_produce_response(version, only[4:])

    assert decoded.partitions == [row] == decode_produce_response(version, both[4:]).partitions[:1]
    assert int.from_bytes(only[:4]) == len(only) - 4
    assert int.from_bytes(only[4:8]) == 4
