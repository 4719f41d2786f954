"""Counts and times requests: how many, which errors, and where their time was spent.

`server` counts; `collector` reads at a scrape. Every request is counted. To keep the hot path cheap, only some are
timed: the first thousand of an API in each window of the quantiles, then one in 64. A request that is not timed costs
one decrement. The parts of a request's time, as in Kafka:

    arrival          begin          parked             answered         sending          sent
       | request queue |    local     |     remote         | response queue | response send |

Parked: the handler has done all it can without waiting, and waits for replicas, a group or ZooKeeper. A request that is
answered at once has no remote part. Sent: the transport has the bytes and is not waiting for the peer.
Invariant: the parts of a request add up to its total.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.metrics.quantiles import Quantiles

TIMED_WHOLE: Final = 1_000
"""Number of requests per API and window that are all timed, before only a sample is."""

TIMED_SHARE: Final = 64
"""Then one in this many."""

PARTS: Final = ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")


class RequestSample:
    """The timestamps of one request in ms of the broker's clock, set by the components that handle it."""

    __slots__ = ("_times", "answered_ms", "begun_ms", "parked_ms", "received_ms")

    def __init__(self, times: RequestTimes, received_ms: float, begun_ms: float) -> None:
        """Created by `RequestTimes` when a handler begins."""
        self._times = times
        self.received_ms = received_ms
        self.begun_ms = begun_ms
        self.parked_ms = 0.0
        """When the handler began to wait, or 0."""
        self.answered_ms = 0.0

    def sent(self, sending_ms: float, sent_ms: float) -> None:
        """The response was sent: observe all parts."""
        parked_ms = self.parked_ms or self.answered_ms
        observe = self._times.observe
        observe(0, self.begun_ms - self.received_ms)
        observe(1, parked_ms - self.begun_ms)
        observe(2, self.answered_ms - parked_ms)
        observe(3, sending_ms - self.answered_ms)
        observe(4, sent_ms - sending_ms)
        observe(5, sent_ms - self.received_ms)


class RequestTimes:
    """Distributions of the times of one API, and the choice of requests to be timed."""

    __slots__ = ("_taken", "_windows", "countdown", "parts")

    def __init__(self) -> None:
        """The first request is timed."""
        self.countdown = 1
        """Requests until the next timed one. The data path decrements it, and times the request at 0."""
        self.parts = tuple(Quantiles() for _ in PARTS)
        """In the order of `PARTS`."""
        self._taken = 0
        self._windows = 0

    def sample(self, received_ms: float, begun_ms: float) -> RequestSample:
        """Time this request."""
        windows = self.parts[0].windows
        if windows != self._windows:
            self._windows, self._taken = windows, 0
        self._taken += 1
        self.countdown = 1 if self._taken < TIMED_WHOLE else TIMED_SHARE
        return RequestSample(self, received_ms, begun_ms)

    def observe(self, part: int, elapsed_ms: float) -> None:
        """Observe one value."""
        self.parts[part].observe(elapsed_ms)


class RequestStats:
    """Requests by API: number, times and errors."""

    __slots__ = ("_whole_failures", "counts", "errors", "times")

    def __init__(self) -> None:
        """Without requests."""
        self.counts: dict[tuple[str, int], int] = {}
        """By API and version."""
        self.errors: dict[tuple[str, int], int] = {}
        """Error codes in responses, by API and code. Errors of partitions and other parts are counted individually."""
        self.times: dict[str, RequestTimes] = {}
        self._whole_failures: dict[str, int] = {}

    def times_of(self, api: str) -> RequestTimes:
        """Return the distributions of an API, created at the first call."""
        times = self.times.get(api)
        if times is None:
            times = self.times[api] = RequestTimes()
        return times

    def answered(self, api: str, version: int, number: int = 1) -> None:
        """Count answered requests."""
        key = (api, version)
        self.counts[key] = self.counts.get(key, 0) + number

    def failed(self, api: str, code: int) -> None:
        """Count an error code in a response, for the whole request or for a part."""
        key = (api, code)
        self.errors[key] = self.errors.get(key, 0) + 1

    def failed_whole(self, api: str) -> None:
        """Record that the error code applied to the whole request."""
        self._whole_failures[api] = self._whole_failures.get(api, 0) + 1

    def answers(self) -> dict[str, int]:
        """Return the number of answered requests by API."""
        totals: dict[str, int] = {}
        for (api, _), count in self.counts.items():
            totals[api] = totals.get(api, 0) + count
        return totals

    def error_counts(self) -> Iterator[tuple[str, int, int]]:
        """(API, code, count); code 0 for requests that did not fail as a whole."""
        for api, count in self.answers().items():
            yield api, 0, max(0, count - self._whole_failures.get(api, 0))
        for (api, code), count in self.errors.items():
            yield api, code, count
