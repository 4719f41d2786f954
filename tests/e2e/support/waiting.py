"""Waits for what a cluster does: something is observed again and again until it is as wanted.

Enters: how to observe, what to accept. Leaves: the accepted observation, or an `AssertionError` with the last one.
Deadlines are for a quiet machine of two cores; `ODRADEK_E2E_PATIENCE` stretches them for slower ones.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from support.kubectl import KubectlError

POLL_SECONDS: Final = 0.5
DEADLINE_SECONDS: Final = 120.0
PATIENCE: Final = "ODRADEK_E2E_PATIENCE"

T = TypeVar("T")
_pause = threading.Event()


def scaled(seconds: float, environment: Mapping[str, str] = os.environ) -> float:
    """A deadline on this machine."""
    return seconds * float(environment.get(PATIENCE, "1"))


def eventually(
    observe: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    what: str,
    seconds: float = DEADLINE_SECONDS,
    poll: float = POLL_SECONDS,
) -> T:
    """The first observation that is accepted.

    kubectl may fail in between, as it does while the API server is away. Raises `AssertionError` with `what`, the last
    observation and the last failure when the time is over.
    """
    limit = scaled(seconds)
    deadline = time.monotonic() + limit
    last: object = "nothing"
    failure: KubectlError | None = None
    while True:
        try:
            seen = observe()
        except KubectlError as error:
            failure = error
        else:
            last, failure = seen, None
            if accept(seen):
                return seen
        if time.monotonic() > deadline:
            raise AssertionError(_complaint(what, limit, last, failure))
        _pause.wait(poll)


def _complaint(what: str, limit: float, last: object, failure: KubectlError | None) -> str:
    text = f"{what}: not within {limit:g} s\nlast seen: {last!r}"
    return text if failure is None else f"{text}\nthen kubectl failed: {failure}"


def holds(observe: Callable[[], T], accept: Callable[[T], object], *, what: str, seconds: float) -> None:
    """Look for `seconds` (not scaled) and raise `AssertionError` as soon as an observation is not accepted."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = observe()
        assert accept(seen), f"{what}: it did not stay so\nseen: {seen!r}"
        _pause.wait(POLL_SECONDS)
