"""The metrics of one client, with the names of the Java clients' metrics.

`cluster_client` and the parts of producers and consumers record them: once for each request or batch, never for each
record. As in Java, averages, maxima and rates cover the last 30 to 60 seconds, and totals the life of the client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from odradek.base.ports import Clock
from odradek.protocol.keys import ApiKey

WINDOW_MS: Final = 30_000
"""Length of a sample, of which the current one and the one before it count: Java's metrics.sample.window.ms."""

_NAMES: Final = {
    ApiKey.FETCH: ("fetch", "fetch-latency"),
    ApiKey.OFFSET_COMMIT: ("commit", "commit-latency"),
    ApiKey.JOIN_GROUP: ("join", "join-time"),
    ApiKey.SYNC_GROUP: ("sync", "sync-time"),
    ApiKey.HEARTBEAT: ("heartbeat", "heartbeat-response-time"),
}
"""Names of the number and the latency of requests that wait for something else than the broker's work. The latency of
all others is `request-latency`."""

PRODUCER_COUNTS: Final = ("record-send", "record-retry", "record-error", "byte")
PRODUCER_VALUES: Final = ("batch-size", "record-queue-time", "records-per-request")
CONSUMER_COUNTS: Final = ("records-consumed", "bytes-consumed", *(count for count, _ in _NAMES.values()))
CONSUMER_VALUES: Final = ("fetch-size", "records-per-poll", *(latency for _, latency in _NAMES.values()))


class _Samples:
    """The sum, number and maximum of values in the current window and in the one before it."""

    __slots__ = ("_before", "_count", "_max", "_start_ms", "_sum")

    def __init__(self, now_ms: float) -> None:
        self._start_ms = now_ms
        self._sum, self._count, self._max = 0.0, 0, -math.inf
        self._before: tuple[float, int, float] | None = None

    def add(self, value: float, now_ms: float) -> None:
        self._advance(now_ms)
        self._sum += value
        self._count += 1
        self._max = max(self._max, value)

    def _advance(self, now_ms: float) -> None:
        passed = int((now_ms - self._start_ms) // WINDOW_MS)
        if passed:
            self._before = (self._sum, self._count, self._max) if passed == 1 else (0.0, 0, -math.inf)
            self._sum, self._count, self._max = 0.0, 0, -math.inf
            self._start_ms += passed * WINDOW_MS

    def read(self, now_ms: float) -> tuple[float, float, float]:
        """Return the rate of the sum in seconds, and the average and maximum, which are NaN without values."""
        self._advance(now_ms)
        before_sum, before_count, before_max = self._before or (0.0, 0, -math.inf)
        # As in Java, a rate is over at least one window, so that the first records do not give a huge rate.
        rate = 1_000 * (before_sum + self._sum) / (now_ms - self._start_ms + WINDOW_MS)
        count = before_count + self._count
        if not count:
            return rate, math.nan, math.nan
        return rate, (before_sum + self._sum) / count, max(before_max, self._max)


class ClientMetrics:
    """What happened in one client."""

    def __init__(self, clock: Clock) -> None:
        """`clock` has the time of the samples."""
        self._clock: Final = clock
        self._totals: Final[dict[str, float]] = {}
        self._rates: Final[dict[str, _Samples]] = {}
        self._values: Final[dict[str, _Samples]] = {}
        self.declare(["request"], ["request-latency"])

    def declare(self, counts: Iterable[str], values: Iterable[str]) -> None:
        """Add metrics, so that the mapping has them from the start."""
        now_ms = self._clock.monotonic_ms()
        for name in counts:
            self._totals[name] = 0.0
            self._rates[name] = _Samples(now_ms)
        for name in values:
            self._values[name] = _Samples(now_ms)

    def count(self, name: str, amount: float = 1) -> None:
        """Add to `NAME-total` and `NAME-rate`. Undeclared metrics are ignored."""
        if name in self._totals:
            self._totals[name] += amount
            self._rates[name].add(amount, self._clock.monotonic_ms())

    def measure(self, name: str, value: float) -> None:
        """Add a value to `NAME-avg` and `NAME-max`. Undeclared metrics are ignored."""
        if name in self._values:
            self._values[name].add(value, self._clock.monotonic_ms())

    def answered(self, api_key: ApiKey, started_ms: float) -> None:
        """Note the response to a request that was sent at `started_ms` of the monotonic clock."""
        self.count("request")
        count, latency = _NAMES.get(api_key, ("", "request-latency"))
        self.count(count)
        self.measure(latency, self._clock.monotonic_ms() - started_ms)

    def sent(self, batches: Iterable[tuple[int, int, float]]) -> None:
        """Note a produce request: number of records and bytes of each batch, and when it was created."""
        now_ms = self._clock.monotonic_ms()
        records = 0
        for count, size, created_ms in batches:
            records += count
            self.count("byte", size)
            self.measure("batch-size", size)
            self.measure("record-queue-time", now_ms - created_ms)
        self.count("record-send", records)
        self.measure("records-per-request", records)

    def read(self) -> dict[str, float]:
        """Return all metrics by name. Another thread than that of the client can call it."""
        now_ms = self._clock.monotonic_ms()
        found = {f"{name}-total": total for name, total in self._totals.items()}
        for name, samples in self._rates.items():
            found[f"{name}-rate"] = samples.read(now_ms)[0]
        for name, samples in self._values.items():
            _, found[f"{name}-avg"], found[f"{name}-max"] = samples.read(now_ms)
        return found
