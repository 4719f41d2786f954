"""Writes are sent at a limited rate, in the order of their requests."""

from __future__ import annotations

import asyncio

import pytest

from odradek_operator.kube.api.api_client import BURST_SECONDS, Pace
from odradek_testkit.loop import run_virtual


def test_writes_are_admitted_at_the_rate_and_in_order() -> None:
    async def run() -> None:
        pace, loop = Pace(10), asyncio.get_running_loop()
        began, order = loop.time(), list[tuple[int, float]]()

        async def one(number: int) -> None:
            await pace.take()
            order.append((number, loop.time() - began))

        await asyncio.gather(*(one(number) for number in range(100)))
        assert [number for number, _ in order] == list(range(100))
        burst = int(10 * BURST_SECONDS) + 1
        assert [at for _, at in order[:burst]] == [0.0] * burst
        for number, at in order[burst:]:
            assert at == pytest.approx((number - burst + 1) / 10)

    run_virtual(run())


def test_a_pause_allows_no_more_than_the_burst() -> None:
    async def run() -> None:
        pace, loop = Pace(10), asyncio.get_running_loop()
        await pace.take()
        await asyncio.sleep(3_600)
        began = loop.time()
        for _ in range(11):
            await pace.take()
        assert loop.time() - began == pytest.approx(1 - BURST_SECONDS)

    run_virtual(run())


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(ValueError, match="not a valid rate"):
        Pace(rate)
