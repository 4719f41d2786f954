"""Channels to other brokers: opened on demand, closed with the metadata, reopened after failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from odradek.base.errors import (
    AuthenticationError,
    BrokerNotAvailableError,
    NetworkError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from odradek.base.types import Endpoint
from odradek.coordinator.broker_links import HIGHEST_VERSION, BrokerLinks
from odradek.protocol.codec import Message
from odradek.protocol.keys import ApiKey
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.senders.peer_brokers import LISTENER, PeerBrokers, PeerChannel

TIMEOUT_MS = 30_000.0


class Bench:
    """Links to brokers 1 and 2, which answer when `gate` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.versions: list[int] = []
        self.asked = asyncio.Event()
        self.clock = VirtualClock()
        self.brokers = PeerBrokers(self._answer)
        self.brokers.announce({1: 9001, 2: 9002})
        self.connect: Callable[[Endpoint], Awaitable[PeerChannel]] = self.brokers.connect
        self.links = BrokerLinks(
            cluster=self.brokers.cluster,
            listener=LISTENER,
            connect=lambda endpoint: self.connect(endpoint),
            clock=self.clock,
            timeout_ms=TIMEOUT_MS,
        )

    async def _answer(self, broker_id: int, version: int, request: Any) -> Message:
        self.versions.append(version)
        self.asked.set()
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return {"markers": [{"producer_id": broker_id, "topics": []}]}

    async def ask(self, broker_id: int = 1) -> int:
        response = await self.links.ask(broker_id, ApiKey.WRITE_TXN_MARKERS, lambda version: {"markers": []})
        answered: int = response.markers[0].producer_id
        return answered

    async def later(self, *brokers: int) -> asyncio.Task[list[int | BaseException]]:
        """Ask brokers in the background. Returns when a request has arrived."""
        self.asked.clear()

        async def ask_all() -> list[int | BaseException]:
            return await asyncio.gather(*map(self.ask, brokers), return_exceptions=True)

        task = asyncio.create_task(ask_all())
        await self.asked.wait()
        return task


def virtual(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            await test(bench)
        finally:
            await bench.links.close()
            assert not [channel for channel in bench.brokers.channels if channel.is_open]

    run_virtual(main())


def test_all_requests_to_a_broker_share_a_channel() -> None:
    async def scenario(bench: Bench) -> None:
        assert await asyncio.gather(*map(bench.ask, (1, 2, 1, 1))) == [1, 2, 1, 1]
        assert await bench.ask(2) == 2
        assert [channel.endpoint.port for channel in bench.brokers.channels] == [9001, 9002]

    virtual(scenario)


def test_unknown_brokers_are_not_available() -> None:
    async def scenario(bench: Bench) -> None:
        assert [bench.links.reaches(broker_id) for broker_id in (1, 3)] == [True, False]
        with pytest.raises(BrokerNotAvailableError):
            await bench.ask(3)

    virtual(scenario)


def test_an_idle_channel_that_the_broker_has_closed_is_replaced_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.ask()
        bench.brokers.hang_up(1)
        assert await bench.ask() == 1
        assert len(bench.brokers.channels) == 2

    virtual(scenario)


@pytest.mark.parametrize("refusal", [NetworkError("a"), AuthenticationError("b"), OSError("c")])
def test_the_pause_doubles_with_each_failure_up_to_a_second(refusal: Exception) -> None:
    async def scenario(bench: Bench) -> None:
        expected = AuthenticationError if isinstance(refusal, AuthenticationError) else NetworkError
        attempts = []

        async def refuse(endpoint: Endpoint) -> PeerChannel:
            attempts.append(bench.clock.monotonic_ms())
            raise refusal

        bench.connect = refuse
        while len(attempts) < 7:
            with pytest.raises((expected, NetworkError)):
                await bench.ask()
            await bench.clock.sleep_ms(1)
        pauses = [after - before for before, after in pairwise(attempts)]
        assert [pause // 10 * 10 for pause in pauses] == [50, 100, 200, 400, 800, 1000]

    virtual(scenario)


def test_a_response_resets_the_pause() -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(2):
            bench.failures = [NetworkError("once")]
            with pytest.raises(NetworkError, match="once"):
                await bench.ask()
            with pytest.raises(NetworkError, match="a moment ago"):
                await bench.ask()
            await bench.clock.sleep_ms(60)
            assert await bench.ask() == 1

    virtual(scenario)


def test_requests_in_progress_on_a_broken_channel_count_as_one_failure() -> None:
    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        asked = await bench.later(1, 1, 1)
        bench.brokers.hang_up(1)
        assert [type(outcome) for outcome in await asked] == [NetworkError] * 3
        bench.gate.set()
        await bench.clock.sleep_ms(60)
        assert await bench.ask() == 1

    virtual(scenario)


@pytest.mark.parametrize("brokers", [{2: 9002}, {1: 9011, 2: 9002}])
def test_a_broker_that_disappears_or_moves_ends_its_requests(brokers: dict[int, int]) -> None:
    """The connection may stay open for long when a host has died."""

    async def scenario(bench: Bench) -> None:
        await bench.ask(2)
        bench.gate.clear()
        before = bench.clock.monotonic_ms()
        asked = await bench.later(1)
        bench.brokers.announce(brokers)
        assert [type(outcome) for outcome in await asked] == [NetworkError]
        assert bench.clock.monotonic_ms() - before < TIMEOUT_MS
        bench.gate.set()
        if 1 in brokers:
            assert await bench.ask() == 1
            assert bench.brokers.channels[-1].endpoint.port == 9011
        assert len(bench.brokers.open_channels(2)) == 1

    virtual(scenario)


def test_a_broker_that_does_not_answer_in_time_gets_another_channel() -> None:
    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        before = bench.clock.monotonic_ms()
        with pytest.raises(RequestTimedOutError):
            await bench.ask()
        assert round(bench.clock.monotonic_ms() - before) == TIMEOUT_MS
        bench.gate.set()
        await bench.clock.sleep_ms(60)
        assert await bench.ask() == 1
        assert len(bench.brokers.open_channels(1)) == 1

        async def hang(endpoint: Endpoint) -> PeerChannel:
            await asyncio.Event().wait()
            raise AssertionError

        bench.connect = hang
        bench.brokers.hang_up(1)
        with pytest.raises(RequestTimedOutError):
            await bench.ask()

    virtual(scenario)


def test_versions_that_the_broker_lacks_keep_the_channel() -> None:
    async def scenario(bench: Bench) -> None:
        def refuse(version: int) -> Message:
            raise UnsupportedVersionError(f"{version} is too low")

        with pytest.raises(UnsupportedVersionError, match="1 is too low"):
            await bench.links.ask(1, ApiKey.WRITE_TXN_MARKERS, refuse)
        bench.brokers.versions[1] = {ApiKey.WRITE_TXN_MARKERS: -1}
        with pytest.raises(UnsupportedVersionError):
            await bench.ask()
        del bench.brokers.versions[1]
        assert await bench.ask() == 1
        assert len(bench.brokers.channels) == 1

    virtual(scenario)


@pytest.mark.parametrize(("supported", "at_most", "used"), [(1, HIGHEST_VERSION, 1), (1, 0, 0), (0, 1, 0)])
def test_the_version_is_the_highest_that_both_sides_support_and_the_caller_allows(
    supported: int, at_most: int, used: int
) -> None:
    async def scenario(bench: Bench) -> None:
        asked: list[int] = []

        def message(version: int) -> Message:
            asked.append(version)
            return {"markers": []}

        bench.brokers.versions[1] = {ApiKey.WRITE_TXN_MARKERS: supported}
        await bench.links.ask(1, ApiKey.WRITE_TXN_MARKERS, message, at_most=at_most)
        assert asked == bench.versions == [used]

    virtual(scenario)


def test_a_call_that_is_cancelled_does_not_disturb_the_others() -> None:
    async def scenario(bench: Bench) -> None:
        first, second = asyncio.create_task(bench.ask()), asyncio.create_task(bench.ask())
        await bench.clock.sleep_ms(0)
        first.cancel()
        assert await second == 1
        assert len(bench.brokers.channels) == 1

    virtual(scenario)


def test_close_ends_requests_and_attempts_to_connect() -> None:
    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        asked = await bench.later(1)
        attempting = asyncio.create_task(bench.ask(2))
        for _ in range(3):
            await bench.links.close()
        assert [type(outcome) for outcome in await asked] == [NetworkError]
        with pytest.raises(NetworkError):
            await attempting
        with pytest.raises(NetworkError):
            await bench.ask()

    virtual(scenario)
