"""The memory of requests that a broker receives, limited by `queued.max.request.bytes` (KIP-72).

One `RequestMemory` serves the connections of all listeners that have the limit. A `Connection` has a `Reservation`. If
its initial buffer is too small for a frame, it reserves the size of the frame when the length is known. It keeps the
reservation until the handler of the request returns.

Invariants:
- While the limit is reached, connections without a reservation do not read large frames. They wait in the order in
  which they asked. Memory that is released goes to the first of them at once, so no connection overtakes another one,
  and no wake-up is lost.
- A reservation is granted while less than the limit is reserved, whatever its size, as in Kafka. At most one frame less
  one byte is therefore reserved above the limit, and a large frame does not starve behind small ones.
- A connection that has a reservation never waits for another one, so connections cannot block one another for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from odradek.base.ports import Clock

SLOW_FRAME_MS: Final = 30_000.0
"""Default of `queued.max.request.slow.ms`, and of `request.timeout.ms` in Kafka's clients, which give up a slower
request themselves."""


class RequestMemory:
    """The limit, what is reserved, and who waits."""

    def __init__(self, limit_bytes: int, clock: Clock, *, slow_ms: float = SLOW_FRAME_MS) -> None:
        """`limit_bytes` must be above 0, and should be at least the size of the largest frame.

        `slow_ms`: time for which a frame whose peer is slow may have memory while others wait for memory.
        """
        if limit_bytes <= 0:
            raise ValueError(f"limit_bytes={limit_bytes}: a limit must be above 0")
        self.limit_bytes: Final = limit_bytes
        self.slow_ms: Final = slow_ms
        """Time after which a listener closes a connection with a slow frame if others wait for memory."""
        self._clock: Final = clock
        self._used_bytes = 0
        self._waiting: Final[OrderedDict[Reservation, None]] = OrderedDict()
        self._depleted_ms = 0.0
        self._depleted_since_ms = 0.0

    @property
    def used_bytes(self) -> int:
        """Reserved bytes."""
        return self._used_bytes

    @property
    def available_bytes(self) -> int:
        """Bytes below the limit. Negative while more is reserved."""
        return self.limit_bytes - self._used_bytes

    @property
    def waiting(self) -> int:
        """Number of connections that wait for memory."""
        return len(self._waiting)

    @property
    def depleted_ms(self) -> float:
        """Total time in milliseconds for which at least one connection waited."""
        if not self._waiting:
            return self._depleted_ms
        return self._depleted_ms + self._clock.monotonic_ms() - self._depleted_since_ms

    def reservation(self, on_granted: Callable[[], None]) -> Reservation:
        """Return the reservation of a new connection. `on_granted` is called when it has waited and gets its memory."""
        return Reservation(self, on_granted)

    def _reserve(self, reservation: Reservation, size: int) -> bool:
        """Reserve `size` bytes, or put the reservation at the end of the queue and return False."""
        if self._used_bytes < self.limit_bytes and not self._waiting:
            self._grant(reservation, size)
            return True
        if not self._waiting:
            self._depleted_since_ms = self._clock.monotonic_ms()
        reservation.wanted_bytes = size
        self._waiting[reservation] = None
        return False

    def _grant(self, reservation: Reservation, size: int) -> None:
        self._used_bytes += size
        reservation.held_bytes = size
        reservation.since_ms = self._clock.monotonic_ms()

    def _release(self, reservation: Reservation) -> None:
        """Take the memory of a reservation back, or remove it from the queue."""
        if reservation.wanted_bytes:
            reservation.wanted_bytes = 0
            del self._waiting[reservation]
            self._note_waited()
        elif reservation.held_bytes:
            self._used_bytes -= reservation.held_bytes
            reservation.held_bytes = 0
            self._serve()

    def _serve(self) -> None:
        """Grant memory to those that wait, in their order."""
        while self._waiting and self._used_bytes < self.limit_bytes:
            reservation, _ = self._waiting.popitem(last=False)
            size, reservation.wanted_bytes = reservation.wanted_bytes, 0
            self._grant(reservation, size)
            self._note_waited()
            reservation.on_granted()

    def _note_waited(self) -> None:
        """A connection no longer waits: if it was the last one, add the time to the total."""
        if not self._waiting:
            self._depleted_ms += self._clock.monotonic_ms() - self._depleted_since_ms


class Reservation:
    """The memory of one connection: for one frame at a time, or none."""

    __slots__ = ("_memory", "held_bytes", "on_granted", "since_ms", "wanted_bytes")

    def __init__(self, memory: RequestMemory, on_granted: Callable[[], None]) -> None:
        """Created by `RequestMemory` only."""
        self._memory: Final = memory
        self.on_granted: Final = on_granted
        self.held_bytes = 0
        """Reserved bytes, 0 for none."""
        self.wanted_bytes = 0
        """Bytes for which it waits, 0 if it does not wait."""
        self.since_ms = 0.0
        """Time at which the held bytes were reserved."""

    def covers(self, frame_bytes: int) -> bool:
        """Adjust the reservation to the frame that the connection receives now; 0 if it needs none.

        Return whether the connection may read the frame. If not, the reservation waits.
        """
        if frame_bytes == self.held_bytes and not self.wanted_bytes:
            return True
        if frame_bytes and frame_bytes == self.wanted_bytes:
            return False
        self.release()
        return not frame_bytes or self._memory._reserve(self, frame_bytes)

    def release(self) -> None:
        """Return the memory, and wait no longer. Idempotent."""
        self._memory._release(self)
