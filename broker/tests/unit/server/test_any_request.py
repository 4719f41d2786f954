"""Every API responds to any request that can be decoded, in its version and without UNKNOWN_SERVER_ERROR."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest

from odradek.base.errors import NetworkError, UnknownServerError
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.hotpath import decode_produce
from odradek_testkit.frames import random_request
from odradek_testkit.server import MemoryServer

REQUESTS = 25
"""Number of requests for each API and version."""

OWN_SOFTWARE = {"client_software_name": "odradek", "client_software_version": "1"}
QUIET = {"log.dir.check.interval.ms": "0", "log.dir.stall.timeout.ms": "0"} | dict.fromkeys(
    (
        "log.dir.free.check.interval.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.retention.check.interval.ms",
        "replica.fetch.backoff.ms",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.lag.time.max.ms",
    ),
    str(2**31 - 1),
)
"""A request may have a timeout of weeks, which pass in virtual time."""


def has_no_answer(frame: bytes) -> bool:
    """Whether the request is a Produce with acks=0: no response and a closed connection are both correct."""
    header, position = codec.decode_header(memoryview(frame)[4:])
    if header.api_key is not ApiKey.PRODUCE:
        return False
    return decode_produce(header.api_version, memoryview(frame)[4:], position).acks == 0


@pytest.mark.parametrize("api_key", API_TABLE, ids=lambda key: API_TABLE[key].name)
def test_any_request_is_answered(play: Callable[..., None], api_key: ApiKey) -> None:
    api = API_TABLE[api_key]
    source = random.Random(int(api_key))

    async def scenario(server: MemoryServer) -> None:
        for topic in ("a", "topic-1", "gruppe"):
            await server.announce(topic, {0: [1], 1: [1, 2], 3: [2]}, topic_id=UUID(bytes=source.randbytes(16)))
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(REQUESTS):
                frame = random_request(api, version, source)
                client = server.connect()
                if api.private:
                    await client.ask(ApiKey.API_VERSIONS, 4, OWN_SOFTWARE)
                answered = client.send(frame)
                if has_no_answer(frame):
                    assert not answered.done() or isinstance(answered.exception(), NetworkError)
                else:
                    codec.decode_response(api_key, version, (await answered)[4:])
        assert UnknownServerError.code not in {code for _, code in server.request_stats.errors}

    play(scenario, settings=QUIET)
