"""Measures how far a client is above its quota, with the same results as Kafka's metrics (Kafka 3.9).

`Rate` is Kafka's `Rate` over a `WindowedSum`, and `TokenBucket` is the bucket of KIP-599. Times are milliseconds of any
clock that does not go back, and every call names the time, so nothing here waits or reads a clock.
"""

from __future__ import annotations

from typing import Final

MAX_THROTTLE_MS: Final = (1 << 31) - 1
"""The longest throttle time that a response can have, in ms."""


class _Sample:
    """What was recorded in one window."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        """When something was last recorded."""
        self.total = 0.0


class Rate:
    """Amount per second over the last `count` windows of `window_ms` each, with Kafka's rules.

    - A window begins with the first amount after the end of the one before, so windows have no fixed times.
    - A sample counts as a whole until its last amount is `count` windows old. So there may be one more than `count`.
    - The amounts are divided by the time since the oldest sample began. If that is less than `count` - 1 full windows,
      the missing ones count as windows without an amount. So the rate of a new client is not too high.
    """

    __slots__ = ("_count", "_current", "_oldest_ms", "_position", "_samples", "_total", "_valid_ms", "_window_ms")

    def __init__(self, count: int, window_ms: float) -> None:
        """`count` is at least 1 (`quota.window.num`), `window_ms` is above 0 (`quota.window.size.seconds`)."""
        self._count: Final = count
        self._window_ms: Final = window_ms
        self._samples: Final[list[_Sample]] = []
        """A ring of up to `count` + 1. An expired sample is empty and starts when the expiry was noticed."""
        self._position = 0
        """Position of the current sample."""
        self._current: _Sample | None = None
        self._total = 0.0
        """The sum of all samples. It and `_oldest_ms`, the start of the first, are correct before `_valid_ms`."""
        self._oldest_ms = 0.0
        self._valid_ms = float("-inf")

    def record(self, amount: float, now_ms: float) -> None:
        """Add an amount. A negative one takes back what was recorded."""
        sample = self._current
        if sample is None or now_ms - sample.start_ms >= self._window_ms:
            sample = self._next(now_ms)
        sample.total += amount
        self._total += amount
        sample.last_ms = now_ms

    def _next(self, now_ms: float) -> _Sample:
        """Begin the next window, or the first one."""
        samples = self._samples
        if self._current is not None:
            self._position = (self._position + 1) % (self._count + 1)
        if self._position == len(samples):
            samples.append(_Sample(now_ms))
        sample = self._current = samples[self._position]
        sample.start_ms, sample.total = now_ms, 0.0
        self._valid_ms = float("-inf")
        return sample

    def rate(self, now_ms: float) -> float:
        """Return the amount per second."""
        return self.measured(now_ms)[0]

    def measured(self, now_ms: float) -> tuple[float, float]:
        """Return the amount per second, and the milliseconds that it was divided by, at least 1."""
        if now_ms >= self._valid_ms:
            self._add_up(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        missing = self._count - 1 - int(elapsed_ms // self._window_ms)
        elapsed_ms = max(elapsed_ms + max(missing, 0) * self._window_ms, 1.0)
        return self._total * 1000.0 / elapsed_ms, elapsed_ms

    def _add_up(self, now_ms: float) -> None:
        """Empty expired samples, and add up the others. The result is correct until the next one expires."""
        samples, expiry_ms = self._samples, self._count * self._window_ms
        if not samples:
            # As in Kafka, the first window begins with the first use, even if that is a read.
            self._current = _Sample(now_ms)
            samples.append(self._current)
        oldest_ms, used_ms, total = now_ms, now_ms, 0.0
        for sample in samples:
            if now_ms - sample.last_ms >= expiry_ms:
                sample.start_ms = sample.last_ms = now_ms
                sample.total = 0.0
                continue
            total += sample.total
            oldest_ms = min(oldest_ms, sample.start_ms)
            used_ms = min(used_ms, sample.last_ms)
        self._total, self._oldest_ms, self._valid_ms = total, oldest_ms, used_ms + expiry_ms


class TokenBucket:
    """Tokens of one client (KIP-599): they accumulate at a rate up to a burst, and each mutation takes one.

    A bucket is full at first. The rate is an argument of each call, because a quota can change at any time.
    """

    __slots__ = ("_burst_s", "_is_new", "_tokens", "_updated_ms")

    def __init__(self, count: int, window_ms: float) -> None:
        """The burst is what accumulates in `count` windows (`controller.quota.window.num` and `.size.seconds`)."""
        self._burst_s: Final = count * window_ms / 1000.0
        self._tokens = 0.0
        self._updated_ms = 0.0
        self._is_new = True

    def tokens(self, rate: float, now_ms: float) -> float:
        """Return the number of tokens, negative if more were taken than there were. `rate` is in tokens per second."""
        tokens = burst = rate * self._burst_s
        if self._is_new:
            self._is_new = False
        else:
            tokens = min(burst, self._tokens + rate * (now_ms - self._updated_ms) / 1000.0)
        self._tokens, self._updated_ms = tokens, now_ms
        return tokens

    def take(self, amount: float, rate: float, now_ms: float) -> int:
        """Take tokens, also more than there are. A negative amount returns tokens, up to the burst.

        Returns the milliseconds until no token is missing, 0 if none is missing now.
        """
        tokens = self._tokens = min(rate * self._burst_s, self.tokens(rate, now_ms) - amount)
        if tokens >= 0.0:
            return 0
        return _bounded(-tokens / rate * 1000.0 if rate > 0.0 else MAX_THROTTLE_MS, MAX_THROTTLE_MS)


def throttle_ms(observed: float, limit: float, elapsed_ms: float, *, at_most_ms: int = MAX_THROTTLE_MS) -> int:
    """Return how long a client has to wait until its rate is down to its limit, 0 if it is not above it.

    `observed` was measured over `elapsed_ms`; both come from the same `Rate` at the same time. With a limit of 0 or
    below, the result is `at_most_ms`. In Kafka, such a limit overflows and does not throttle Produce and Fetch.
    """
    if observed <= limit:
        return 0
    return _bounded((observed - limit) / limit * elapsed_ms if limit > 0.0 else at_most_ms, at_most_ms)


def _bounded(wait_ms: float, at_most_ms: int) -> int:
    """Round as Java's `Math.round` does."""
    return at_most_ms if wait_ms >= at_most_ms else int(wait_ms + 0.5)
