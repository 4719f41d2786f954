"""Limits the rate of writes to the API server, for all clusters of an operator."""

from __future__ import annotations

import asyncio
from typing import Final

BURST_SECONDS: Final = 0.2
"""Seconds of the rate that may be used at once after a pause."""


class Pace:
    """A rate limiter, first come, first served."""

    def __init__(self, per_second: float) -> None:
        """`per_second`: the average rate. Raises `ValueError` unless it is positive."""
        if per_second <= 0:
            raise ValueError(f"{per_second} per second is not a valid rate")
        self._interval = 1 / per_second
        self._next = 0.0

    async def take(self) -> None:
        """Wait for the next turn."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        turn = max(self._next, now - BURST_SECONDS)
        self._next = turn + self._interval
        if turn > now:
            await asyncio.sleep(turn - now)
