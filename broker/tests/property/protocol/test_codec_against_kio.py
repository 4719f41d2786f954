"""Compares the compiled encoders and decoders with kio's for every API, version and direction."""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol.apis import API_TABLE, Api, ApiKey
from odradek.protocol.codec import (
    decode_header,
    decode_request,
    decode_response,
    decode_struct,
    encode_request,
    encode_response,
    encode_struct,
)

rows = pytest.mark.parametrize("row", API_TABLE.values(), ids=lambda row: row.name)
few = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@rows
@few
@given(seed=st.integers(0, 2**64 - 1))
def test_same_bytes_and_values(judge: Any, row: Api, seed: int) -> None:
    rng = random.Random(seed)
    for direction, version, schema in judge.schemas(row):
        message = judge.message(schema, rng)
        entity_type = judge.kio_type(row.key, version, direction)
        if entity_type is None:
            continue
        raw = judge.kio_bytes(judge.entity(entity_type, message))
        place = (direction, version)

        assert (place, encode_struct(schema.entity_type, version, message)) == (place, raw)
        decoded = decode_struct(schema.entity_type, version, raw)
        assert (place, judge.own_message(schema, decoded)) == (place, judge.kio_read(entity_type, raw))


def test_kio_judges_all_but_what_kafka_4_removed() -> None:
    lacking = {
        row.name: [version for version in range(row.max_version + 1) if kio_lacks(row.key, version)]
        for row in API_TABLE.values()
        if not row.private
    }
    assert {name: versions for name, versions in lacking.items() if versions} == {
        "Produce": [0, 1, 2],
        "Fetch": [0, 1, 2, 3],
        "ListOffsets": [0],
        "LeaderAndIsr": [0, 1, 2, 3, 4, 5, 6, 7],
        "StopReplica": [0, 1, 2, 3, 4],
        "UpdateMetadata": [0, 1, 2, 3, 4, 5, 6, 7, 8],
        "ControlledShutdown": [0, 1, 2, 3],
        "OffsetCommit": [0, 1],
        "OffsetFetch": [0],
        "CreateTopics": [0, 1],
        "DeleteTopics": [0],
        "OffsetForLeaderEpoch": [0, 1],
        "DescribeAcls": [0],
        "CreateAcls": [0],
        "DeleteAcls": [0],
        "CreateDelegationToken": [0],
        "RenewDelegationToken": [0],
        "ExpireDelegationToken": [0],
        "DescribeDelegationToken": [0],
        "DescribeConfigs": [0],
        "AlterReplicaLogDirs": [0],
        "DescribeLogDirs": [0],
        "AlterPartition": [0, 1],
        "WriteTxnMarkers": [0],
    }, "tests/golden/protocol compares these with Apache Kafka's classes"


def kio_lacks(key: ApiKey, version: int) -> bool:
    name = f"kio.schema.{key.name.lower()}"
    return find_spec(name) is None or find_spec(f"{name}.v{version}") is None


@rows
@few
@given(seed=st.integers(0, 2**64 - 1), client_id=st.one_of(st.none(), st.text(max_size=40)))
def test_whole_frames_round_trip(judge: Any, row: Api, seed: int, client_id: str | None) -> None:
    rng = random.Random(seed)
    for direction, version, schema in judge.schemas(row):
        message = judge.message(schema, rng)
        expected = decode_struct(schema.entity_type, version, encode_struct(schema.entity_type, version, message))
        correlation_id = rng.randrange(-(2**31), 2**31)
        if direction == "response":
            frame = encode_response(row.key, version, correlation_id, message)
            assert int.from_bytes(frame[4:8], "big", signed=True) == correlation_id
            assert decode_response(row.key, version, memoryview(frame)[4:]) == expected
        else:
            frame = encode_request(row.key, version, correlation_id, client_id, message)
            header, position = decode_header(memoryview(frame)[4:])
            has_client_id = row.request_header_version(version) > 0
            assert header == (row.key, version, correlation_id, client_id if has_client_id else None)
            assert decode_request(header, memoryview(frame)[4:], position) == expected
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
