"""Runs a simulation and disposes of its world, without output from the tasks of killed processes.

`play` and tests call it with a coroutine function that creates and uses a `World`.
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
"""Number of attempts to close a coroutine that continues to await."""


def run_simulated(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run `main` on a `SimulatedLoop` with the seed. Tasks that it leaves are dropped, not cancelled."""
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
    """Close all unfinished coroutines now, and not when the garbage collector finds them.

    A closing coroutine may start others or await again; its errors are ignored. The loop counts as running meanwhile:
    otherwise these others would use the thread's default loop, which would keep the world in memory.
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
    """Suppress the warnings about the unfinished coroutines of killed processes when these are collected.

    The garbage collector is disabled in the block, because the time of a collection depends on the memory of the
    process. A nested block does nothing: the outermost collects when the world is no longer referenced. It checks
    only objects created in the block, or after an earlier `gc.freeze`, because a collection of all imported modules
    takes longer than a short run.
    """
    global _is_quiet
    if _is_quiet:
        yield
        return
    was_on, was_frozen, hook = gc.isenabled(), gc.get_freeze_count() > 0, sys.unraisablehook
    gc.disable()
    if not was_frozen:
        gc.freeze()
    sys.unraisablehook = lambda _: None
    _is_quiet = True
    try:
        yield
    finally:
        gc.collect()
        if not was_frozen:
            gc.unfreeze()
        _is_quiet = False
        sys.unraisablehook = hook
        if was_on:
            gc.enable()
