"""Waits for what other processes do: a condition that is polled, with a deadline that fails the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

DEADLINE_SECONDS: Final = 150.0
"""Long, for machines that are busy with other things, and within the 300 s that a test has."""
_POLL_SECONDS: Final = 0.02


def wait_until(condition: Callable[[], bool], *, what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Return when the condition holds. Raises `AssertionError` that names `what` when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds:g} s")
        time.sleep(_POLL_SECONDS)
