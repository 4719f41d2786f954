"""Compares the hand-written Produce and Fetch with kio in every version and direction."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import (
    decode_header,
    decode_request,
    decode_response,
    decode_struct,
    encode_request,
    encode_struct,
)
from odradek.protocol.hotpath import (
    FetchedPartition,
    FetchEntry,
    FetchRequest,
    ForgottenPartition,
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
from odradek.protocol.schema import schema_of

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=12)
ids = st.one_of(st.just(ZERO_UUID), st.uuids())
blobs = st.binary(max_size=300)
produce_versions = st.integers(API_TABLE[ApiKey.PRODUCE].min_version, API_TABLE[ApiKey.PRODUCE].max_version)
fetch_versions = st.integers(API_TABLE[ApiKey.FETCH].min_version, API_TABLE[ApiKey.FETCH].max_version)
error_codes = st.integers(-1, 119)


def by_topic(rows: list[Any]) -> list[tuple[Any, list[Any]]]:
    return [(topic, list(group)) for topic, group in groupby(rows, key=lambda row: row[0])]


def restricted(schema: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that one version has, including those of nested structs."""
    fields = {field.name: field for field in (*schema.fields, *schema.tagged)}
    kept: dict[str, Any] = {}
    for name, value in message.items():
        field = fields.get(name)
        if field is None:
            continue
        if field.struct is not None and value is not None:
            value = (
                [restricted(field.struct, item) for item in value]
                if field.is_array
                else restricted(field.struct, value)
            )
        kept[name] = value
    return kept


def body(judge: Any, key: ApiKey, direction: str, version: int, message: dict[str, Any]) -> bytes:
    """Return the bytes that kio encodes, or the general codec for versions that kio lacks."""
    row = API_TABLE[key]
    message_type = row.request_type if direction == "request" else row.response_type
    entity_type = judge.kio_type(key, version, direction)
    if entity_type is None:
        return encode_struct(message_type, version, message)
    return judge.kio_bytes(judge.entity(entity_type, restricted(schema_of(message_type, version), message)))


produce_requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | names,
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=int32,
    entries=st.lists(st.tuples(st.builds(TopicPartition, names, int32), st.none() | blobs.map(memoryview)), max_size=6),
)


@given(produce_versions, produce_requests)
def test_produce_request(judge: Any, version: int, request: ProduceRequest) -> None:
    message = {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout_ms": request.timeout_ms,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [
                    {"index": tp.partition, "records": None if records is None else bytes(records)}
                    for _, tp, records in rows
                ],
            }
            for topic, rows in by_topic([(tp.topic, tp, records) for tp, records in request.entries])
        ],
    }
    raw = body(judge, ApiKey.PRODUCE, "request", version, message)
    frame = b"".join(encode_produce_request(version, 7, "me", request))
    header, position = decode_header(memoryview(frame)[4:])

    assert frame[4 + position :] == raw
    assert header == (ApiKey.PRODUCE, version, 7, "me")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    if version < 3:
        request.transactional_id = None
    assert decode_produce(version, memoryview(frame)[4:], position) == request


record_errors = st.lists(st.builds(RecordError, int32, st.none() | names), max_size=3).map(tuple)
produced = st.builds(
    ProducedPartition,
    st.builds(TopicPartition, names, int32),
    error_codes,
    int64,
    st.sampled_from([-1, 0, 1_700_000_000_000]),
    int64,
    record_errors,
    st.none() | names,
)


@given(produce_versions, st.lists(produced, max_size=6), int32)
def test_produce_response(judge: Any, version: int, partitions: list[ProducedPartition], throttle: int) -> None:
    message = {
        "throttle_time_ms": throttle,
        "responses": [
            {
                "name": topic,
                "partition_responses": [
                    {
                        "index": row.topic_partition.partition,
                        "error_code": row.error_code,
                        "base_offset": row.base_offset,
                        "log_append_time_ms": row.log_append_time_ms,
                        "log_start_offset": row.log_start_offset,
                        "record_errors": [
                            {"batch_index": item.batch_index, "batch_index_error_message": item.message}
                            for item in row.record_errors
                        ],
                        "error_message": row.error_message,
                    }
                    for _, row in rows
                ],
            }
            for topic, rows in by_topic([(row.topic_partition.topic, row) for row in partitions])
        ],
    }
    raw = body(judge, ApiKey.PRODUCE, "response", version, message)
    frame = encode_produce_response(version, 7, partitions, throttle_time_ms=throttle)

    assert frame.endswith(raw)
    assert decode_response(ApiKey.PRODUCE, version, frame[4:]) == decode_struct(
        API_TABLE[ApiKey.PRODUCE].response_type, version, raw
    )
    decoded = decode_produce_response(version, frame[4:])
    expected = [
        row._replace(
            log_append_time_ms=row.log_append_time_ms if version >= 2 else -1,
            log_start_offset=row.log_start_offset if version >= 5 else -1,
            record_errors=row.record_errors if version >= 8 else (),
            error_message=row.error_message if version >= 8 else None,
        )
        for row in partitions
    ]
    assert (decoded.partitions, decoded.throttle_time_ms) == (expected, throttle if version >= 1 else 0)


fetch_entries = st.builds(FetchEntry, names, ids, int32, int32, int64, int32, int64, int32)
fetch_requests = st.builds(
    FetchRequest,
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    entries=st.lists(fetch_entries, max_size=6),
    isolation_level=st.sampled_from([0, 1]),
    replica_id=int32,
    replica_epoch=int64,
    session_id=int32,
    session_epoch=int32,
    forgotten=st.lists(st.builds(ForgottenPartition, names, ids, int32), max_size=4),
    rack_id=names,
)


def same_topic_form(version: int, rows: list[Any]) -> list[Any]:
    """Return rows with only the name or only the id, depending on the version."""
    return [row._replace(topic_id=None) if version < 13 else row._replace(topic=None) for row in rows]


def topic_fields(version: int, row: Any) -> dict[str, Any]:
    return {"topic": row.topic, "topic_id": row.topic_id if version >= 13 else ZERO_UUID}


@given(fetch_versions, fetch_requests)
def test_fetch_request(judge: Any, version: int, request: FetchRequest) -> None:
    request.entries = same_topic_form(version, request.entries)
    request.forgotten = same_topic_form(version, request.forgotten)
    entry_fields = {
        "partition": "partition",
        "current_leader_epoch": "current_leader_epoch",
        "fetch_offset": "fetch_offset",
        "last_fetched_epoch": "last_fetched_epoch",
        "log_start_offset": "log_start_offset",
        "partition_max_bytes": "max_bytes",
    }
    message = {
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "max_wait_ms": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [
            topic_fields(version, rows[0][1])
            | {"partitions": [{to: getattr(row, of) for to, of in entry_fields.items()} for _, row in rows]}
            for _, rows in by_topic([((row.topic, row.topic_id), row) for row in request.entries])
        ],
        "forgotten_topics_data": [
            topic_fields(version, rows[0][1]) | {"partitions": [row.partition for _, row in rows]}
            for _, rows in by_topic([((row.topic, row.topic_id), row) for row in request.forgotten])
        ],
        "rack_id": request.rack_id,
    }
    raw = body(judge, ApiKey.FETCH, "request", version, message)
    frame = encode_fetch_request(version, 7, None, request)
    header, position = decode_header(memoryview(frame)[4:])

    assert frame[4 + position :] == raw
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_request(header, frame[4:], position) == decode_struct(
        API_TABLE[ApiKey.FETCH].request_type, version, raw
    )
    decoded = decode_fetch(version, memoryview(frame)[4:], position)
    expected = FetchRequest(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes if version >= 3 else 2**31 - 1,
        isolation_level=request.isolation_level if version >= 4 else 0,
        replica_id=request.replica_id,
        replica_epoch=request.replica_epoch if version >= 15 else -1,
        session_id=request.session_id if version >= 7 else 0,
        session_epoch=request.session_epoch if version >= 7 else -1,
        forgotten=request.forgotten if version >= 7 else [],
        rack_id=request.rack_id if version >= 11 else "",
        entries=[
            row._replace(
                current_leader_epoch=row.current_leader_epoch if version >= 9 else -1,
                last_fetched_epoch=row.last_fetched_epoch if version >= 12 else -1,
                log_start_offset=row.log_start_offset if version >= 5 else -1,
            )
            for row in request.entries
        ],
    )
    assert decoded == expected


fetched = st.builds(
    FetchedPartition,
    names,
    ids,
    int32,
    error_codes,
    int64,
    int64,
    int64,
    blobs,
    st.none() | st.lists(st.tuples(int64, int64), max_size=3).map(tuple),
    int32,
    st.none() | st.tuples(st.integers(0, 2**31 - 1), int64),
    st.none() | st.tuples(st.integers(0, 2**31 - 1), int32),
)


@given(fetch_versions, st.lists(fetched, max_size=6), error_codes, int32, int32)
def test_fetch_response(
    judge: Any, version: int, rows: list[FetchedPartition], code: int, session_id: int, throttle: int
) -> None:
    partitions = same_topic_form(version, rows)
    message = {
        "throttle_time_ms": throttle,
        "error_code": code,
        "session_id": session_id,
        "responses": [
            topic_fields(version, group[0][1])
            | {
                "partitions": [
                    {
                        "partition_index": row.partition,
                        "error_code": row.error_code,
                        "high_watermark": row.high_watermark,
                        "last_stable_offset": row.last_stable_offset,
                        "log_start_offset": row.log_start_offset,
                        "aborted_transactions": None
                        if row.aborted_transactions is None
                        else [{"producer_id": one, "first_offset": two} for one, two in row.aborted_transactions],
                        "preferred_read_replica": row.preferred_read_replica,
                        "records": row.records,
                    }
                    | (
                        {}
                        if row.diverging_epoch is None
                        else {
                            "diverging_epoch": {
                                "epoch": row.diverging_epoch[0],
                                "end_offset": row.diverging_epoch[1],
                            }
                        }
                    )
                    | (
                        {}
                        if row.current_leader is None
                        else {
                            "current_leader": {
                                "leader_id": row.current_leader[0],
                                "leader_epoch": row.current_leader[1],
                            }
                        }
                    )
                    for _, row in group
                ]
            }
            for _, group in by_topic([((row.topic, row.topic_id), row) for row in partitions])
        ],
    }
    raw = body(judge, ApiKey.FETCH, "response", version, message)
    buffers = encode_fetch_response(
        version, 7, partitions, error_code=code, session_id=session_id, throttle_time_ms=throttle
    )
    frame = b"".join(buffers)

    assert frame.endswith(raw)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert all(any(row.records is buffer for buffer in buffers) for row in partitions if row.records)
    decoded = decode_fetch_response(version, memoryview(frame)[4:])
    expected = [
        row._replace(
            last_stable_offset=row.last_stable_offset if version >= 4 else -1,
            log_start_offset=row.log_start_offset if version >= 5 else -1,
            aborted_transactions=row.aborted_transactions if version >= 4 else None,
            preferred_read_replica=row.preferred_read_replica if version >= 11 else -1,
            diverging_epoch=row.diverging_epoch if version >= 12 else None,
            current_leader=row.current_leader if version >= 12 else None,
        )
        for row in partitions
    ]
    assert decoded.partitions == expected
    assert decoded.throttle_time_ms == (throttle if version >= 1 else 0)
    assert (decoded.error_code, decoded.session_id) == ((code, session_id) if version >= 7 else (0, 0))


@pytest.mark.parametrize("version", [0, 2, 3, 9, 11])
def test_produce_is_decodable_by_the_general_codec(version: int) -> None:
    request = ProduceRequest(None, 1, 30_000, [(TopicPartition("orders", 0), memoryview(b"batch"))])
    frame = memoryview(b"".join(encode_produce_request(version, 1, "me", request)))[4:]
    header, position = decode_header(frame)
    entity = decode_request(header, frame, position)

    assert entity.topic_data[0].partition_data[0].records == b"batch"
    assert encode_request(
        ApiKey.PRODUCE,
        version,
        1,
        "me",
        {
            "transactional_id": None,
            "acks": 1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": b"batch"}]}],
        },
    )[4:] == bytes(frame)
