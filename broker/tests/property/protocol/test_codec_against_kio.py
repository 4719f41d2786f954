"""Our compiled encoders and decoders agree with kio's for every API, version and direction."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from odradek.protocol.apis import API_TABLE, Api
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
def test_same_bytes_and_entities(judge: Any, row: Api, seed: int) -> None:
    rng = random.Random(seed)
    for direction, version, schema in judge.schemas(row):
        message = judge.message(schema, rng)
        entity = judge.entity(schema, message)
        raw = judge.kio_bytes(entity)
        place = (direction, version)

        assert (place, encode_struct(schema.entity_type, message)) == (place, raw)
        decoded = decode_struct(schema.entity_type, raw)
        assert (place, decoded) == (place, entity_reader(schema.entity_type)(raw, 0)[0])


@rows
@few
@given(seed=st.integers(0, 2**64 - 1), client_id=st.one_of(st.none(), st.text(max_size=40)))
def test_whole_frames_round_trip(judge: Any, row: Api, seed: int, client_id: str | None) -> None:
    rng = random.Random(seed)
    for direction, version, schema in judge.schemas(row):
        message = judge.message(schema, rng)
        expected = decode_struct(schema.entity_type, judge.kio_bytes(judge.entity(schema, message)))
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
