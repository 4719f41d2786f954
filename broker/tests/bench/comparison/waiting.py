"""Waiting for a condition with a deadline, in one place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_NEVER = threading.Event()


class TooLateError(RuntimeError):
    """A condition did not hold within the timeout."""


def pause(seconds: float) -> None:
    """Sleep."""
    _NEVER.wait(seconds)


def wait_until(
    condition: Callable[[], bool], what: str, *, timeout_seconds: float, every_seconds: float = 0.05
) -> None:
    """Wait until the condition holds. Raises `TooLateError` with its description on timeout."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TooLateError(f"{what}: not within {timeout_seconds:g} s")
        pause(every_seconds)
