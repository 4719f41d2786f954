"""The time for which a client above its quota gets no further request handled (KIP-219).

The answer that reports the throttle time is sent at once. Until the time is over, the connection passes on no request,
and it stops reading when one waits. Requests that were passed on before are answered as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.base.ports import Clock, Timer


class Muting:
    """The muting of one connection."""

    __slots__ = ("_clock", "_timer", "_unmuted", "_until_ms", "is_on")

    def __init__(self, clock: Clock, unmuted: Callable[[], None]) -> None:
        """`unmuted` is called when the time is over. It is not called after `cancel`."""
        self._clock: Final = clock
        self._unmuted: Final = unmuted
        self._timer: Timer | None = None
        self._until_ms = 0.0
        self.is_on = False
        """Whether the client is muted now."""

    def begin(self, duration_ms: float) -> None:
        """Mute the client for this time, right after its request was answered. The latest end of all calls applies."""
        until_ms = self._clock.monotonic_ms() + duration_ms
        if duration_ms <= 0 or (self.is_on and until_ms <= self._until_ms):
            return
        self.cancel()
        self.is_on, self._until_ms = True, until_ms
        self._timer = self._clock.call_later(duration_ms, self._end)

    def cancel(self) -> None:
        """End the muting without calling `unmuted`. Idempotent."""
        self.is_on = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.cancel()
        self._unmuted()
