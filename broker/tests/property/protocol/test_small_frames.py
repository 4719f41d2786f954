"""Small Produce requests and their responses agree with `hotpath_produce`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from odradek.base.errors import MalformedFrameError
from odradek.base.types import TopicPartition
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_header
from odradek.protocol.hotpath import (
    ProducedPartition,
    ProduceRequest,
    decode_produce,
    encode_produce_request,
    encode_produce_response,
)
from odradek.protocol.hotpath_small_produce import (
    SmallProduce,
    decode_small_produce,
    encode_small_answer,
    has_frame,
    is_produce,
)

no_deadline = settings(deadline=None)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
versions = st.integers(API_TABLE[ApiKey.PRODUCE].min_version, API_TABLE[ApiKey.PRODUCE].max_version)
small_versions = st.integers(5, API_TABLE[ApiKey.PRODUCE].max_version)
names = st.text(max_size=12)
blobs = st.binary(max_size=40) | st.integers(100, 20_000).map(bytes)
entries = st.lists(st.tuples(st.builds(TopicPartition, names, int32), blobs | st.none()), max_size=6)
requests = st.builds(ProduceRequest, st.none() | names, int16, int32, entries)


def framed(version: int, correlation_id: int, client_id: str | None, request: ProduceRequest) -> bytes:
    given_entries = [(key, None if data is None else memoryview(data)) for key, data in request.entries]
    whole = ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, given_entries)
    return b"".join(bytes(part) for part in encode_produce_request(version, correlation_id, client_id, whole))


def flat(request: SmallProduce, data: bytes) -> list[tuple[TopicPartition, bytes]]:
    return [
        (TopicPartition(topic.name.decode(), entry.partition), data[entry.start : entry.end])
        for topic in request.topics
        for entry in topic.entries
    ]


def usual(version: int, frame: bytes) -> ProduceRequest:
    _, position = decode_header(memoryview(frame)[4:])
    return decode_produce(version, memoryview(frame)[4:], position)


@no_deadline
@given(versions, int32, st.none() | names, requests, st.binary(max_size=20))
def test_a_small_request_is_decoded_like_any_other(
    version: int, correlation_id: int, client_id: str | None, request: ProduceRequest, rest: bytes
) -> None:
    frame = framed(version, correlation_id, client_id, request)
    data = b"x" + frame + rest
    assert has_frame(data, 1)
    assert is_produce(data, 1)
    small = decode_small_produce(data, 1)
    is_small = (
        version >= 5
        and request.transactional_id is None
        and bool(request.entries)
        and all(key.topic and records is not None for key, records in request.entries)
    )
    assert (small is not None) == is_small
    if small is not None:
        assert (small.version, small.correlation_id, small.acks) == (version, correlation_id, request.acks)
        assert small.end == 1 + len(frame)
        assert flat(small, data) == [(key, bytes(records)) for key, records in usual(version, frame).entries]


@no_deadline
@given(small_versions, requests, st.data())
def test_damaged_requests_are_refused_or_decoded_like_any_other(
    version: int, request: ProduceRequest, data: st.DataObject
) -> None:
    frame = bytearray(framed(version, 1, "me", request))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(12, len(frame))) :]
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    small = decode_small_produce(bytes(frame), 0)
    if small is None:
        return
    try:
        expected = usual(small.version, bytes(frame))
    except MalformedFrameError as error:
        assert "UTF-8" in str(error)
        return
    assert (expected.transactional_id, expected.acks) == (None, small.acks)
    assert flat(small, bytes(frame)) == [(key, bytes(records or b"")) for key, records in expected.entries]


@no_deadline
@given(small_versions, int32, requests, st.data())
def test_responses_are_encoded_like_any_other(
    version: int, correlation_id: int, request: ProduceRequest, data: st.DataObject
) -> None:
    small = decode_small_produce(framed(version, correlation_id, None, request), 0)
    if small is None:
        return
    rows = []
    for topic in small.topics:
        for entry in topic.entries:
            entry.base_offset, entry.log_start_offset = data.draw(int64), data.draw(int64)
            key = TopicPartition(topic.name.decode(), entry.partition)
            rows.append(ProducedPartition(key, 0, entry.base_offset, -1, entry.log_start_offset))
    writer = BytesWriter()
    encode_small_answer(writer, small)
    assert writer.getvalue() == encode_produce_response(version, correlation_id, rows)


@given(st.binary(max_size=40))
def test_incomplete_bytes_are_no_frame(data: bytes) -> None:
    if has_frame(data, 0):
        decode_small_produce(data, 0)
