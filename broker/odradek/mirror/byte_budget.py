"""The token bucket of `maxBytesPerSecond`: how long a source must not be read after it was read."""

from __future__ import annotations

from typing import Final


class ByteBudget:
    """Bytes that may be read now. At most those of one second are saved up.

    A response is only counted when it has arrived, so the balance can become negative. The source is read again when
    it is not negative any more; over a longer time, the rate is kept.
    """

    def __init__(self, bytes_per_second: int | None, now_ms: float) -> None:
        """None means no limit. `now_ms` is the monotonic time."""
        self._rate: Final = bytes_per_second
        self._balance = float(bytes_per_second or 0)
        self._updated_ms = now_ms

    def spend(self, size_bytes: int, now_ms: float) -> None:
        """Subtract fetched bytes from the budget."""
        if self._rate is not None:
            self._update(self._rate, now_ms)
            self._balance -= size_bytes

    def pause_ms(self, now_ms: float) -> float:
        """Return the milliseconds until the source may be read again; 0 if it may be read now."""
        if self._rate is None:
            return 0.0
        self._update(self._rate, now_ms)
        return max(0.0, -self._balance / self._rate * 1000)

    def _update(self, rate: int, now_ms: float) -> None:
        earned = max(0.0, now_ms - self._updated_ms) / 1000 * rate
        self._balance = min(float(rate), self._balance + earned)
        self._updated_ms = now_ms
