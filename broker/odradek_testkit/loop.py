"""Virtual time for tests: an event loop whose clock jumps instead of waiting, and a clock that the test advances.

`run_virtual` runs a coroutine on a `VirtualLoop`. When nothing is ready, the time jumps to the next timer, so hours
pass in milliseconds, and equal programs have equal traces. `ManualClock` is for code without tasks. Invariant: there is
no real time and there are no threads; a loop on which nothing can ever happen again raises an error instead of hanging.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, Final, NoReturn, TypeVar

from odradek.base.ports import Timer

T = TypeVar("T")

START_MS: Final = 1_000_000.0
"""Monotonic time at the start of every test: not 0, so that a forgotten initial value is noticed."""
WALL_START_MS: Final = 1_700_000_000_000
_SHORTEST_DELAY_S: Final = 1e-6


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never waits: a wait becomes a jump of `now_s`."""

    now_s = START_MS / 1000
    before_jump: Callable[[], None] = staticmethod(lambda: None)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now. If nothing is, advance the time by `timeout` seconds."""
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready and timeout != 0:
            if timeout is None:
                raise RuntimeError("deadlock: no timer is set and nothing is ready")
            self.before_jump()
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        """The time starts at `START_MS`."""
        self._jumping: Final = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds."""
        return self._jumping.now_s

    def before_jumps(self, look: Callable[[], None]) -> None:
        """Call `look` before each jump of the time. An error that it raises ends the run."""
        self._jumping.before_jump = look

    def run_in_executor(self, *_: object) -> NoReturn:
        """Raise an error: a thread would depend on real time."""
        raise RuntimeError("no threads in virtual time")


class VirtualClock:
    """A `Clock` over a running `VirtualLoop`, with random numbers from a seed."""

    def __init__(self, seed: int = 0) -> None:
        """Equal seeds give equal random numbers."""
        self._loop: Final = asyncio.get_running_loop()
        self._random: Final = random.Random(seed)

    def monotonic_ms(self) -> float:
        """Virtual milliseconds."""
        return self._loop.time() * 1000

    def wall_ms(self) -> int:
        """Wall time, which advances with the virtual time."""
        return WALL_START_MS + round(self._loop.time() * 1000 - START_MS)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop after `delay_ms` of virtual time."""
        # Rounding may leave a delay too short to advance this clock: a caller that waits for the rest would never end.
        delay_s = max(_SHORTEST_DELAY_S, delay_ms / 1000) if delay_ms > 0 else 0.0
        return self._loop.call_later(delay_s, callback)

    async def sleep_ms(self, delay_ms: float) -> None:
        """Sleep in virtual time."""
        await asyncio.sleep(delay_ms / 1000)

    def random(self) -> float:
        """Return the next random number of the seed."""
        return self._random.random()

    def token_bytes(self, length: int) -> bytes:
        """Predictable bytes."""
        return self._random.randbytes(length)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion in virtual time. Raises an error if tasks are left."""

    async def checked() -> T:
        result = await main
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if left:
            raise AssertionError(f"tasks left running: {left}")
        return result

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(checked())


class _ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A `Clock` without a loop: `advance` moves the time and runs what is due, in order."""

    def __init__(self, seed: int = 0) -> None:
        """The time starts at `START_MS`."""
        self._now_ms = START_MS
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._count = 0
        self._random: Final = random.Random(seed)

    @property
    def pending(self) -> int:
        """Number of timers that are set."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def advance(self, delay_ms: float) -> None:
        """Advance the time and run the timers that are due."""
        end_ms = self._now_ms + delay_ms
        while self._timers and self._timers[0][0] <= end_ms:
            self._now_ms, _, timer = heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now_ms = end_ms

    def monotonic_ms(self) -> float:
        """The time to which it was advanced."""
        return self._now_ms

    def wall_ms(self) -> int:
        """Wall time, which advances with the monotonic time."""
        return WALL_START_MS + round(self._now_ms - START_MS)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Set a timer, which `advance` runs."""
        timer = _ManualTimer(callback)
        self._count += 1
        heappush(self._timers, (self._now_ms + max(0.0, delay_ms), self._count, timer))
        return timer

    async def sleep_ms(self, delay_ms: float) -> None:
        """Return at once: code with tasks should use `run_virtual`."""
        self.advance(delay_ms)

    def random(self) -> float:
        """Return the next random number of the seed."""
        return self._random.random()

    def token_bytes(self, length: int) -> bytes:
        """Predictable bytes."""
        return self._random.randbytes(length)
