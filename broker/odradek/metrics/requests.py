"""What is counted and timed of requests: how many, which errors, and where their time went.

Counted by `server`, read by `collector` at a scrape. Every request is counted. Timed are the first thousand of an API
in each window of the quantiles, then one in sixty-four, since a distribution is as good from a sample: a request that
is not timed costs the hot path a countdown. The parts of a request's time, as Kafka has them:

    arrival          begin          parked             answered         sending          sent
       | request queue |    local     |     remote         | response queue | response send |

Parked: the handler has done what it can at once, and waits for replicas, a group or ZooKeeper. A request that is
answered at once has no remote part. Sent: the transport has the bytes and is not told to wait for the peer.
Invariant: the parts of one request add up to its total.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.metrics.quantiles import Quantiles

TIMED_WHOLE: Final = 1_000
"""So many requests of an API are timed one and all before only a sample is."""

TIMED_SHARE: Final = 64
"""Then one in so many."""

PARTS: Final = ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")


class RequestSample:
    """The times of one request in ms of the broker's clock; whoever has the request next notes when."""

    __slots__ = ("_times", "answered_ms", "begun_ms", "parked_ms", "received_ms")

    def __init__(self, times: RequestTimes, received_ms: float, begun_ms: float) -> None:
        """Made by `RequestTimes` when a handler begins."""
        self._times = times
        self.received_ms = received_ms
        self.begun_ms = begun_ms
        self.parked_ms = 0.0
        """When the handler began to wait; 0 while it has not."""
        self.answered_ms = 0.0

    def sent(self, sending_ms: float, sent_ms: float) -> None:
        """The answer left: everything is known."""
        parked_ms = self.parked_ms or self.answered_ms
        observe = self._times.observe
        observe(0, self.begun_ms - self.received_ms)
        observe(1, parked_ms - self.begun_ms)
        observe(2, self.answered_ms - parked_ms)
        observe(3, sending_ms - self.answered_ms)
        observe(4, sent_ms - sending_ms)
        observe(5, sent_ms - self.received_ms)


class RequestTimes:
    """Distributions of one API's times, and whose turn it is to be timed."""

    __slots__ = ("_taken", "_windows", "countdown", "parts")

    def __init__(self) -> None:
        """The first request is timed."""
        self.countdown = 1
        """The data path takes one off for each request, and times the one with which it is 0."""
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
        """Take one value in."""
        self.parts[part].observe(elapsed_ms)


class RequestStats:
    """Requests by API: how many, how long, and which errors their answers held."""

    __slots__ = ("_whole_failures", "counts", "errors", "times")

    def __init__(self) -> None:
        """Nothing served yet."""
        self.counts: dict[tuple[str, int], int] = {}
        """By API and version."""
        self.errors: dict[tuple[str, int], int] = {}
        """Error codes in answers, by API and code; those of partitions and the like count each."""
        self.times: dict[str, RequestTimes] = {}
        self._whole_failures: dict[str, int] = {}

    def times_of(self, api: str) -> RequestTimes:
        """The distributions of an API, made at the first call."""
        times = self.times.get(api)
        if times is None:
            times = self.times[api] = RequestTimes()
        return times

    def answered(self, api: str, version: int) -> None:
        """A request was answered."""
        key = (api, version)
        self.counts[key] = self.counts.get(key, 0) + 1

    def failed(self, api: str, code: int) -> None:
        """An answer held an error code, of the whole request or of a part."""
        key = (api, code)
        self.errors[key] = self.errors.get(key, 0) + 1

    def failed_whole(self, api: str) -> None:
        """It was that of the whole request."""
        self._whole_failures[api] = self._whole_failures.get(api, 0) + 1

    def answers(self) -> dict[str, int]:
        """Requests that were answered, by API."""
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
