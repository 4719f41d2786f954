"""Virtual time for tests: an event loop whose clock jumps instead of waiting, and a clock that the test advances.

`run_virtual` runs a coroutine on a `VirtualLoop`. When nothing is ready, the time jumps to the next timer, so hours
pass in milliseconds, and equal programs have equal traces. `ManualClock` is for code without tasks. Invariant: there is
no real time and there are no threads; a loop on which nothing can ever happen again raises an error instead of hanging.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, Final, NoReturn, Protocol, TypeVar

from odradek.base.ports import Timer

T = TypeVar("T")

START_MS: Final = 1_000_000.0
"""Monotonic time at the start of every test: not 0, so that a forgotten initial value is noticed."""
WALL_START_MS: Final = 1_700_000_000_000
_SHORTEST_DELAY_S: Final = 1e-6
_RESOLUTION_S: Final = 1e-9
"""Timers that are due within this time run at once."""
_MANY_TIMERS: Final = 100
_LONGEST_JUMP_S: Final = 86_400.0


class Owner(Protocol):
    """The simulated process on whose behalf callbacks run."""

    alive: bool
    """Whether callbacks run at all; otherwise they are dropped."""
    is_frozen: bool
    """Whether callbacks wait."""
    turns: int
    """Number of callbacks that have run."""

    def hold(self, call: Call, /) -> None:
        """Queue a call that became due while the owner is frozen."""
        ...


OWNER: Final[ContextVar[Owner | None]] = ContextVar("simulated_owner", default=None)
"""The owner of the callbacks that a context schedules."""


class Call:
    """A callback that is scheduled: a handle of asyncio with only what a `VirtualLoop` needs."""

    __slots__ = ("__weakref__", "args", "callback", "context", "is_cancelled", "is_timer", "loop", "owner", "when_s")

    def __init__(
        self, loop: VirtualLoop, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> None:
        """Schedules nothing: `VirtualLoop` does."""
        self.loop: Final = loop
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context: Final = context
        self.owner: Final = context.get(OWNER)
        self.is_cancelled = False
        self.is_timer = False
        """Whether it waits for its time."""
        self.when_s = 0.0

    def cancel(self) -> None:
        """Do not run the callback. Idempotent."""
        if not self.is_cancelled:
            self.is_cancelled = True
            if self.is_timer:
                self.loop.timer_cancelled()
            self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self.is_cancelled

    def when(self) -> float:
        """Return the virtual time of a timer in seconds."""
        return self.when_s

    def again(self) -> None:
        """Run the callback in the next iteration, unless it is cancelled: it was due while its owner was frozen."""
        self.loop.requeue(self)


class _Due(float):
    """The time of a timer. A heap compares these numbers without running Python code."""

    __slots__ = ("call",)
    call: Call


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. It never waits and polls no descriptor: a wait becomes a jump of the time.

    It runs the iterations itself, because those of asyncio take a fifth of the time of a simulated cluster. The order
    of callbacks is that of asyncio, also that of timers with equal times.
    """

    def __init__(self) -> None:
        """The time starts at `START_MS`."""
        self._now_s = START_MS / 1000
        self._before_jump: Callable[[], None] = lambda: None
        super().__init__()
        self._ready: deque[Call] = deque()
        self._scheduled: list[_Due] = []
        self._cancelled_timers = 0
        self._closed: bool
        self._stopping: bool

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def pause(self, pause_ms: float) -> None:
        """Let time pass in which nothing runs, as if the process was stopped."""
        self._now_s += pause_ms / 1000

    def before_jumps(self, look: Callable[[], None]) -> None:
        """Call `look` before each jump of the time. An error that it raises ends the run."""
        self._before_jump = look

    def run_in_executor(self, *_: object) -> NoReturn:
        """Raise an error: a thread would depend on real time."""
        raise RuntimeError("no threads in virtual time")

    # Scheduling

    def requeue(self, call: Call) -> None:
        """Run a call in the next iteration. It can still be cancelled."""
        self._ready.append(call)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """Run `callback` in the next iteration."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        call = Call(self, callback, args, copy_context() if context is None else context)
        self._ready.append(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """Run `callback` in the next iteration: there are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """Run `callback` after `delay` virtual seconds."""
        return self._schedule(self._now_s + delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """Run `callback` at the virtual time `when`, in seconds."""
        return self._schedule(when, callback, args, context)

    def _schedule(
        self, when_s: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Call:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        call = Call(self, callback, args, copy_context() if context is None else context)
        call.is_timer, call.when_s = True, when_s
        due = _Due(when_s)
        due.call = call
        heappush(self._scheduled, due)
        return call

    def timer_cancelled(self) -> None:
        """Count a timer that was cancelled before its time."""
        self._cancelled_timers += 1

    # Iterations

    def _run_once(self) -> None:
        """Run all callbacks that are ready. If none is, let the time jump to the next timer first."""
        scheduled = self._scheduled
        if self._cancelled_timers:
            self._drop_cancelled()
        if not (self._ready or self._stopping):
            self._jump()
        end_s = self._now_s + _RESOLUTION_S
        while scheduled and scheduled[0] < end_s:
            call = heappop(scheduled).call
            call.is_timer = False
            self._ready.append(call)
        self._run_ready()

    def _run_ready(self) -> None:
        ready = self._ready
        for _ in range(len(ready)):
            call = ready.popleft()
            if call.callback is None:
                continue
            owner = call.owner
            if owner is not None:
                if owner.is_frozen:
                    owner.hold(call)
                    continue
                if not owner.alive:
                    continue
                owner.turns += 1
            try:
                call.context.run(call.callback, *call.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - like asyncio, whose loops survive any other error
                message = f"Exception in callback {call.callback!r}"
                self.call_exception_handler({"message": message, "exception": error})

    def _drop_cancelled(self) -> None:
        """Drop cancelled timers when most are, and those at the head of the heap. The numbers are asyncio's."""
        scheduled = self._scheduled
        if len(scheduled) > _MANY_TIMERS and self._cancelled_timers / len(scheduled) > 0.5:
            for due in scheduled:
                due.call.is_timer = not due.call.is_cancelled
            scheduled[:] = [due for due in scheduled if due.call.is_timer]
            heapify(scheduled)
            self._cancelled_timers = 0
            return
        while scheduled and scheduled[0].call.is_cancelled:
            self._cancelled_timers -= 1
            heappop(scheduled).call.is_timer = False

    def _jump(self) -> None:
        if not self._scheduled:
            raise RuntimeError("deadlock: no timer is set and nothing is ready")
        wait_s = float(self._scheduled[0]) - self._now_s
        if wait_s > 0:
            self._before_jump()
            self._now_s += min(wait_s, _LONGEST_JUMP_S)


class VirtualClock:
    """A `Clock` over a running `VirtualLoop`, with random numbers from a seed."""

    def __init__(self, seed: int = 0) -> None:
        """Equal seeds give equal random numbers."""
        self._loop: Final = asyncio.get_running_loop()
        self._time: Final = self._loop.time
        self._random: Final = random.Random(seed)

    def monotonic_ms(self) -> float:
        """Virtual milliseconds."""
        return self._time() * 1000

    def wall_ms(self) -> int:
        """Wall time, which advances with the virtual time."""
        return WALL_START_MS + round(self._time() * 1000 - START_MS)

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
