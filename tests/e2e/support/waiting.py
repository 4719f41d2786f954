"""Waits for changes of a cluster: observes repeatedly until an observation is accepted.

Returns the accepted observation, or raises `AssertionError` with the last one. Deadlines fit an idle machine with two
cores; `ODRADEK_E2E_PATIENCE` multiplies them for slower machines.
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
    """A deadline in seconds, scaled for this machine."""
    return seconds * float(environment.get(PATIENCE, "1"))


def eventually(
    observe: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    what: str,
    seconds: float = DEADLINE_SECONDS,
    poll: float = POLL_SECONDS,
) -> T:
    """Return the first observation that is accepted.

    kubectl may fail meanwhile, as it does while the API server is down. Raises `AssertionError` with `what`, the last
    observation and the last failure when `seconds`, scaled for this machine, have passed.
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
    """Observe for `seconds` (not scaled). Raise `AssertionError` as soon as an observation is not accepted."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = observe()
        assert accept(seen), f"{what}: it did not stay so\nseen: {seen!r}"
        _pause.wait(POLL_SECONDS)
