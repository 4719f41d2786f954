"""Heartbeat without message objects is decoded and encoded as by the codec, in every version."""

from __future__ import annotations

import random

import pytest

from odradek.base.errors import MalformedFrameError
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.hotpath_heartbeat import decode_heartbeat, encode_heartbeat_response
from odradek.protocol.messages.membership import HeartbeatRequest
from odradek_testkit.frames import random_request

API = API_TABLE[ApiKey.HEARTBEAT]
VERSIONS = range(API.min_version, API.max_version + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests(version: int) -> None:
    source = random.Random(version)
    for _ in range(50):
        frame = memoryview(random_request(API, version, source)[4:])
        header, position = codec.decode_header(frame)
        expected: HeartbeatRequest = codec.decode_request(header, frame, position)
        assert decode_heartbeat(version, frame, position) == (
            expected.group_id,
            expected.generation_id,
            expected.member_id,
            expected.group_instance_id,
        )
        for end in range(position, len(frame)):
            with pytest.raises(MalformedFrameError):
                decode_heartbeat(version, frame[:end], position)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("code", "throttle_ms"), [(0, 0), (27, 0), (-1, 1234)])
def test_responses(version: int, code: int, throttle_ms: int) -> None:
    message = {"throttle_time_ms": throttle_ms, "error_code": code}
    expected = codec.encode_response(ApiKey.HEARTBEAT, version, 77, message)
    assert encode_heartbeat_response(version, 77, code, throttle_ms) == expected
