"""Waits for a condition that other threads or processes fulfill. Fails the test after a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

DEADLINE_SECONDS: Final = 150.0
"""Long enough for busy machines, and within the 300 s of a test."""
_POLL_SECONDS: Final = 0.02


def wait_until(condition: Callable[[], bool], *, what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Return when the condition is true. Raises `AssertionError` with `what` after the timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {seconds:g} s while waiting for {what}")
        time.sleep(_POLL_SECONDS)
