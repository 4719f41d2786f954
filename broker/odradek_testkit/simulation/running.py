"""Runs a simulation from its first step to its last, and takes the world apart without a word from the dead.

A coroutine function that builds and uses a `World` enters, its result leaves. Called by `simulation.play` and tests.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from odradek_testkit.net import SimulatedLoop

T = TypeVar("T")

_LAST_ROUNDS: Final = 8
"""How often a coroutine that is ended may go on all the same."""


def run_simulated(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run to completion on a `SimulatedLoop` of the seed. What `main` leaves running is dropped, not cancelled."""
    with no_last_words():
        return _run(main, seed)


def _run(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    loop = SimulatedLoop(seed)
    loop.set_exception_handler(lambda *_: None)
    try:
        return loop.run_until_complete(main())
    except Exception as error:  # noqa: BLE001 - raised again, as text: its frames would keep the world until later
        error.add_note("".join(traceback.format_tb(error.__traceback__)))
        raise error.with_traceback(None) from None
    finally:
        _end_all(loop)
        loop.close()


def _end_all(loop: SimulatedLoop) -> None:
    """End what is left in the middle, of the dead and of the living, now: not when somebody collects it, much later.

    Coroutines that end may start others, and some await once more; what they say is of no interest any more. The loop
    counts as running meanwhile: else those others would go to the thread's default loop, and keep the world for ever.
    """
    ended: set[asyncio.Task[Any]] = set()
    asyncio._set_running_loop(loop)
    try:
        for _ in range(_LAST_ROUNDS):
            left = asyncio.all_tasks(loop) - ended
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _end(cast(Coroutine[Any, Any, Any], task.get_coro()))
            ended |= left
    finally:
        asyncio._set_running_loop(None)


def _end(work: Coroutine[Any, Any, Any]) -> None:
    for _ in range(_LAST_ROUNDS):
        try:
            work.close()
        except Exception:  # noqa: BLE001, S112 - the end of a killed process: it awaits again, or trips over the rest
            continue
        return


_is_quiet = False


@contextmanager
def no_last_words() -> Iterator[None]:
    """Killed processes leave coroutines in the middle; what these say when they are collected is of no interest.

    The collector rests meanwhile, as the moment at which it finds them would depend on the memory of the process.
    Within another one it does nothing: the outermost collects, when nobody holds the world any more.
    """
    global _is_quiet
    if _is_quiet:
        yield
        return
    was_on, hook = gc.isenabled(), sys.unraisablehook
    gc.disable()
    sys.unraisablehook = lambda _: None
    _is_quiet = True
    try:
        yield
    finally:
        gc.collect()
        _is_quiet = False
        sys.unraisablehook = hook
        if was_on:
            gc.enable()
