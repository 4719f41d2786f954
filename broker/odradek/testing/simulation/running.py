"""Runs a simulation from its first step to its last, and takes the world apart without a word from the dead.

A coroutine function that builds and uses a `World` enters, its result leaves. Called by `simulation.play` and tests.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from odradek.testing.net import SimulatedLoop

T = TypeVar("T")


def run_simulated(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run to completion on a `SimulatedLoop` of the seed. What `main` leaves running is dropped, not cancelled."""
    with _no_last_words():
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
        loop.close()


@contextmanager
def _no_last_words() -> Iterator[None]:
    """Killed processes leave coroutines in the middle; what these say when they are collected is of no interest."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        gc.collect()
        sys.unraisablehook = hook
