"""ElectLeaders in every version, for some or all partitions. The response waits for the leaders or the timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.base.errors import (
    ElectionNotNeededError,
    InvalidRequestError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
    RequestTimedOutError,
)
from odradek.base.types import TopicPartition
from odradek.controller.elections.candidates import ElectionKind
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def request(*partitions: int, everything: bool = False, timeout_ms: int = 5_000, **fields: object) -> Message:
    named = [{"topic": "t", "partitions": partitions}]
    return {"topic_partitions": None if everything else named, "timeout_ms": timeout_ms, "election_type": 0, **fields}


def codes(response: Any) -> dict[int, int]:
    return {
        result.partition_id: int(result.error_code)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_answer_waits_for_the_image(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [2, 1], 1: [2, 1]})
        server.controller.outcomes = {T0: 1, T1: PreferredLeaderNotAvailableError("it is dead")}
        answer = asyncio.ensure_future(server.connect().ask(ApiKey.ELECT_LEADERS, version, request(0, 1)))
        await server.clock.sleep_ms(1_000)
        assert not answer.done()
        await server.announce("t", {0: [1, 2]}, leader_epoch=1)
        assert codes(await answer) == {0: 0, 1: PreferredLeaderNotAvailableError.code}
        assert server.controller.asked == [(ElectionKind.PREFERRED, [T0, T1])]

    play(scenario)


def test_a_leader_that_the_image_does_not_have_in_time(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2], 1: [2, 1]})
        server.controller.outcomes = {T0: 1, T1: 1}
        before_ms = server.clock.monotonic_ms()
        response = await server.ask(ApiKey.ELECT_LEADERS, 2, request(0, 1, election_type=1))
        assert codes(response) == {0: 0, 1: RequestTimedOutError.code}
        assert server.clock.monotonic_ms() - before_ms == pytest.approx(5_000, abs=10)
        assert server.controller.asked == [(ElectionKind.UNCLEAN, [T0, T1])]

    play(scenario)


def test_a_request_for_all_returns_partitions_that_needed_an_election(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2]})
        server.controller.outcomes = {T0: 1, T1: ElectionNotNeededError("it leads")}
        assert codes(await server.ask(ApiKey.ELECT_LEADERS, 2, request(everything=True))) == {0: 0}
        assert codes(await server.ask(ApiKey.ELECT_LEADERS, 2, request(0, 1))) == {0: 0, 1: ElectionNotNeededError.code}
        assert server.controller.asked[0] == (ElectionKind.PREFERRED, None)

    play(scenario)


def test_refusals(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        response = await server.ask(ApiKey.ELECT_LEADERS, 2, request(0, election_type=2))
        assert (response.error_code, codes(response)) == (InvalidRequestError.code, {0: InvalidRequestError.code})
        server.controller.is_active = False
        response = await server.ask(ApiKey.ELECT_LEADERS, 2, request(0))
        assert (response.error_code, codes(response)) == (NotControllerError.code, {0: NotControllerError.code})
        assert codes(await server.ask(ApiKey.ELECT_LEADERS, 0, request(0))) == {0: NotControllerError.code}

    play(scenario)


def test_closing_the_server_ends_all_waiting_requests(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        server.controller.outcomes = {T0: 1}
        answer = asyncio.ensure_future(server.connect().ask(ApiKey.ELECT_LEADERS, 2, request(0)))
        await server.clock.sleep_ms(10)
        server.elections.close()
        assert codes(await answer) == {0: RequestTimedOutError.code}

    play(scenario)
