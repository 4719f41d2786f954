"""The contract of `Clock`, tested with the system's clock on both event loops and with the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from odradek.base.ports import Clock
from odradek.base.system_ports import LONGEST_WAIT_MS, SystemClock
from odradek_testkit.loop import VirtualClock, VirtualLoop

Run = Callable[[Callable[[Clock], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["asyncio", "uvloop", "virtual"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine function with the clock, on the event loop of the clock."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.SelectorEventLoop,
        "uvloop": uvloop.new_event_loop,
        "virtual": VirtualLoop,
    }

    def run_on(main: Callable[[Clock], Coroutine[Any, Any, None]]) -> None:
        async def start() -> None:
            await main(VirtualClock() if request.param == "virtual" else SystemClock())

        with asyncio.Runner(loop_factory=loops[request.param]) as runner:
            runner.run(start())

    return run_on


def test_a_timer_fires_once_and_never_early(run: Run) -> None:
    async def main(clock: Clock) -> None:
        calls: list[float] = []
        done = asyncio.Event()
        begin_ms = clock.monotonic_ms()

        def callback() -> None:
            calls.append(clock.monotonic_ms() - begin_ms)
            done.set()

        timer = clock.call_later(1.7, callback)
        await done.wait()
        timer.cancel()
        timer.cancel()
        assert len(calls) == 1
        assert calls[0] >= 1.7 - 1e-6

    run(main)


def test_a_cancelled_timer_never_fires(run: Run) -> None:
    async def main(clock: Clock) -> None:
        calls: list[str] = []
        done = asyncio.Event()
        clock.call_later(0, lambda: calls.append("cancelled")).cancel()
        clock.call_later(2, done.set)
        await done.wait()
        assert calls == []

    run(main)


def test_calls_come_in_the_order_of_their_times(run: Run) -> None:
    async def main(clock: Clock) -> None:
        calls: list[int] = []
        done = asyncio.Event()
        for delay_ms in (9, 3, 6):
            clock.call_later(delay_ms, lambda delay_ms=delay_ms: calls.append(delay_ms))  # type: ignore[misc]
        clock.call_later(12, done.set)
        await done.wait()
        assert calls == [3, 6, 9]

    run(main)


def test_sleep_lets_others_run_and_takes_its_time(run: Run) -> None:
    async def main(clock: Clock) -> None:
        order: list[str] = []

        async def other() -> None:
            order.append("other")

        task = asyncio.create_task(other())
        begin_ms = clock.monotonic_ms()
        await clock.sleep_ms(0)
        order.append("slept")
        await clock.sleep_ms(2.5)
        assert clock.monotonic_ms() - begin_ms >= 2.5 - 1e-6
        await task
        assert order == ["other", "slept"]

    run(main)


def test_the_longest_setting_is_a_wait_that_can_be_cancelled(run: Run) -> None:
    async def main(clock: Clock) -> None:
        timer = clock.call_later(LONGEST_WAIT_MS * 1000, lambda: None)
        timer.cancel()
        task = asyncio.create_task(clock.sleep_ms(LONGEST_WAIT_MS * 1000))
        await clock.sleep_ms(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)


def test_random_and_tokens(run: Run) -> None:
    async def main(clock: Clock) -> None:
        numbers = {clock.random() for _ in range(50)}
        assert all(0 <= number < 1 for number in numbers)
        assert len(numbers) > 1
        tokens = {clock.token_bytes(16) for _ in range(10)}
        assert {len(token) for token in tokens} == {16}
        assert len(tokens) == 10

    run(main)


def test_a_wait_of_two_to_the_63_ms_is_possible_on_this_machine() -> None:
    async def main() -> None:
        clock = SystemClock(asyncio.get_running_loop())
        clock.call_later(2.0**63, lambda: None).cancel()
        task = asyncio.create_task(clock.sleep_ms(2.0**63))
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for factory in (asyncio.SelectorEventLoop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
