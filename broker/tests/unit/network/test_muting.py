"""For how long a client is muted."""

from __future__ import annotations

from odradek.network.muting import Muting
from odradek_testkit.loop import VirtualClock, run_virtual


def test_the_latest_end_applies() -> None:
    async def main() -> None:
        clock = VirtualClock()
        ends: list[float] = []
        muting = Muting(clock, lambda: ends.append(clock.monotonic_ms()))
        start = clock.monotonic_ms()
        muting.begin(0)
        assert not muting.is_on
        muting.begin(300)
        muting.begin(100)
        await clock.sleep_ms(200)
        assert muting.is_on
        muting.begin(250)
        await clock.sleep_ms(200)
        assert muting.is_on
        assert ends == []
        await clock.sleep_ms(100)
        assert not muting.is_on
        assert ends == [start + 450]

    run_virtual(main())


def test_a_cancelled_muting_calls_nobody() -> None:
    async def main() -> None:
        clock = VirtualClock()
        ends: list[int] = []
        muting = Muting(clock, lambda: ends.append(1))
        muting.begin(100)
        muting.cancel()
        muting.cancel()
        assert not muting.is_on
        await clock.sleep_ms(300)
        assert ends == []
        muting.begin(100)
        await clock.sleep_ms(150)
        assert ends == [1], "it can be muted again"

    run_virtual(main())
