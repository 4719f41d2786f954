"""A bound on the rate of writes to the API server, which all clusters of an operator share."""

from __future__ import annotations

import asyncio
from typing import Final

BURST_SECONDS: Final = 0.2
"""How much of the rate may be used at once after a rest."""


class Pace:
    """Hands out turns, first come, first served."""

    def __init__(self, per_second: float) -> None:
        """`per_second` turns on average; raises `ValueError` unless it is positive."""
        if per_second <= 0:
            raise ValueError(f"{per_second} turns a second would never come")
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
