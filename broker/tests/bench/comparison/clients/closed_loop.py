"""A closed loop of produce requests over many connections, with little CPU per request.

`busy` uses it. Each connection has a fixed number of requests in flight: each response releases the next request. The
requests of a connection are encoded once and repeat in a cycle, correlation ids included, so one `send` takes all
requests that a `recv` has released. Responses have one size, so the loop counts them by their length. A few hundred
responses at a time are checked with numpy: size, correlation id, topic, partition and error
code of each. The time of each
`recv` and its number of responses give the latency of every request after the end.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from comparison.wire import PRODUCE_VERSION, Connection, produce_frame, result_position
from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import decode_response

Milliseconds = npt.NDArray[np.float64]

SILENCE_SECONDS: Final = 30.0
_CYCLE: Final = 64
"""Minimum length of a cycle, except for large frames. It exceeds the requests in flight, so that each correlation id
occurs at most once among them."""
_CYCLE_BYTES: Final = 1 << 20
_CHECKED_TOGETHER: Final = 128
"""Number of responses of a connection that one check covers."""
_PREFIX_BYTES: Final = 4


class LoadError(RuntimeError):
    """A response is wrong or missing. The message names the connection and the request."""


class Cycle:
    """The requests for some partitions, encoded once. Connections share it.

    Request number n has the frame n modulo the number of frames, which is also its correlation id.
    """

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        records: bytes,
        *,
        window: int,
        acks: int = 1,
        least: int = _CYCLE,
    ) -> None:
        """`window`: requests in flight of one connection; `least`: minimum number of frames.

        Raises `ValueError` if the names of the topics have different lengths: so would the frames.
        """
        if len({len(each.topic.encode()) for each in partitions}) != 1:
            raise ValueError("the names of the topics have different lengths")
        self.window: Final = window
        fitting = min(least, _CYCLE_BYTES // len(records))
        rounds = -(-max(window + 1, fitting) // len(partitions))
        self.partitions: Final = [*partitions] * rounds
        """The partition of each frame."""
        self.topics: Final = np.array([each.topic.encode() for each in self.partitions])
        self.indexes: Final = np.array([each.partition for each in self.partitions])
        self.length: Final = len(self.partitions)
        frames = [
            produce_frame(partition, records, acks=acks, correlation_id=number)
            for number, partition in enumerate(self.partitions)
        ]
        self.frame_bytes: Final = len(frames[0])
        repeated = (frames[number % self.length] for number in range(self.length + window))
        self.frames: Final = memoryview(b"".join(repeated))
        """One cycle and the first `window` frames again, so that every sequence of them is one slice."""

    @property
    def first(self) -> bytes:
        """The first frame."""
        return bytes(self.frames[: self.frame_bytes])


class ResponseLayout:
    """The size of a response, and the position of its fields."""

    def __init__(self, topic: str, size: int) -> None:
        """`topic`: name of one of the topics; `size` in bytes, with the length prefix."""
        self.size: Final = size
        position = _PREFIX_BYTES + result_position(topic)
        name_bytes = len(topic.encode())
        self._type = np.dtype(
            {
                "names": ["size", "correlation id", "topic", "partition", "error code"],
                "formats": [">i4", ">i4", f"S{name_bytes}", ">i4", ">i2"],
                "offsets": [0, _PREFIX_BYTES, position - 4 - name_bytes, position, position + 4],
                "itemsize": size,
            }
        )

    @classmethod
    def learn(cls, connection: Connection, cycle: Cycle) -> ResponseLayout:
        """Send the first request of a cycle, decode and check its response. Raises `LoadError`."""
        frame = connection.call(cycle.first)
        response = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, frame)
        rows = [
            (TopicPartition(topic.name, row.index), row.error_code)
            for topic in response.responses
            for row in topic.partition_responses
        ]
        if rows != [(cycle.partitions[0], 0)]:
            raise LoadError(f"the first produce request to {cycle.partitions[0].topic} was answered with {response}")
        return cls(cycle.partitions[0].topic, _PREFIX_BYTES + len(frame))

    def check(self, received: memoryview, cycle: Cycle, first: int) -> None:
        """Check the responses to the requests from number `first` on, and the size of an incomplete one at the end.

        Raises `LoadError` for the first wrong response.
        """
        whole, rest = divmod(len(received), self.size)
        if whole:
            self._check_whole(received[: whole * self.size], cycle, first)
        if rest >= _PREFIX_BYTES:
            size = int.from_bytes(received[whole * self.size :][:_PREFIX_BYTES])
            if size != self.size - _PREFIX_BYTES:
                raise _wrong(first + whole, "size", size, self.size - _PREFIX_BYTES)

    def _check_whole(self, received: memoryview, cycle: Cycle, first: int) -> None:
        found: Any = np.frombuffer(received, dtype=self._type)
        frames = np.arange(first, first + len(found)) % cycle.length
        expected = (
            ("size", self.size - _PREFIX_BYTES),
            ("correlation id", frames),
            ("topic", cycle.topics[frames]),
            ("partition", cycle.indexes[frames]),
            ("error code", 0),
        )
        wrong = np.zeros(len(found), dtype=bool)
        for name, value in expected:
            wrong |= found[name] != value
        if not wrong.any():
            return
        place = int(wrong.argmax())
        for name, value in expected:
            wanted = np.broadcast_to(value, len(found))[place]
            if found[name][place] != wanted:
                raise _wrong(first + place, name, found[name][place].item(), wanted.item())


def _wrong(request: int, field: str, found: int | bytes, expected: int | bytes) -> LoadError:
    return LoadError(f"the response to request {request} has the {field} {found!r} instead of {expected!r}")


class LoadConnection:
    """Sends a number of requests over one socket, with at most `window` of the cycle in flight."""

    def __init__(
        self, name: str, open_socket: socket.socket, cycle: Cycle, layout: ResponseLayout, budget: int
    ) -> None:
        """`budget`: number of requests, at least 1. Takes over the socket, which becomes non-blocking."""
        open_socket.setblocking(False)
        self.fileno: Final = open_socket.fileno()
        self.acknowledged = 0
        self.blocked = False
        """Whether the socket did not accept all bytes, so that the loop waits until it is writable."""
        self._name = name
        self._socket = open_socket
        self._cycle = cycle
        self._layout = layout
        self._budget = budget
        self._cycle_bytes = cycle.length * cycle.frame_bytes
        self._sent_bytes = 0
        capacity = max(_CHECKED_TOGETHER, cycle.window) + cycle.window
        self._row = memoryview(bytearray(capacity * layout.size))
        self._full = (capacity - cycle.window) * layout.size
        """From this fill level on, the row may not have enough space for all requests in flight."""
        self._filled = 0
        self._counted = 0
        """Number of whole responses in the row."""
        self._began = 0.0
        self._times = array("d")
        self._counts = array("l")

    @property
    def done(self) -> bool:
        """Whether every request is acknowledged."""
        return self.acknowledged == self._budget

    def begin(self) -> None:
        """Send the first requests."""
        self._began = time.perf_counter()
        self.send()

    def receive(self) -> None:
        """Receive what has arrived, and send a request for each response. Raises `LoadError`."""
        try:
            count = self._socket.recv_into(self._row[self._filled :])
        except BlockingIOError:
            return
        except OSError as error:
            raise self._failure(str(error)) from error
        if not count:
            raise self._failure("the broker closed it")
        self._filled += count
        new = self._filled // self._layout.size - self._counted
        if new:
            self._times.append(time.perf_counter())
            self._counts.append(new)
            self._counted += new
            self.acknowledged += new
            if self.acknowledged * self._cycle.frame_bytes > self._sent_bytes:
                raise self._failure("more responses than requests")
            self.send()
        if self._filled >= self._full or self.done:
            self.check()

    def send(self) -> None:
        """Send the requests that the window allows, as far as the socket accepts them. Raises `LoadError`."""
        cycle = self._cycle
        allowed = min(self.acknowledged + cycle.window, self._budget) * cycle.frame_bytes
        length = allowed - self._sent_bytes
        if not length:
            return
        start = self._sent_bytes % self._cycle_bytes
        try:
            sent = self._socket.send(cycle.frames[start : start + length])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise self._failure(str(error)) from error
        self._sent_bytes += sent
        self.blocked = sent < length

    def check(self) -> None:
        """Check the responses received since the last check. Raises `LoadError` for a wrong one."""
        end = self._counted * self._layout.size
        first = self.acknowledged - self._counted
        try:
            self._layout.check(self._row[: self._filled], self._cycle, first)
        except LoadError as error:
            raise LoadError(f"{self._name}: {error}") from None
        rest = self._filled - end
        self._row[:rest] = self._row[end : self._filled]
        self._filled, self._counted = rest, 0

    def _failure(self, reason: str) -> LoadError:
        """Return an error with this reason. Raises the error of a wrong response instead if there is one."""
        self.check()
        return LoadError(f"{self._name}: {reason} after {self.acknowledged} of {self._budget} responses")

    def milliseconds(self) -> Milliseconds:
        """Return the latency of each acknowledged request.

        It starts with the `recv` that released the request, and ends with the one that received its response.
        """
        received = np.repeat(np.frombuffer(self._times), np.frombuffer(self._counts, dtype=np.dtype("l")))
        window = self._cycle.window
        sent = np.concatenate([np.full(min(window, len(received)), self._began), received[:-window]])
        latencies: Milliseconds = (received - sent) * 1000
        return latencies

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class ClosedLoop:
    """Serves connections with one epoll until all their requests are acknowledged."""

    def __init__(self, connections: Sequence[LoadConnection], *, silence_seconds: float = SILENCE_SECONDS) -> None:
        """`silence_seconds`: `run` fails if no connection receives anything for this time."""
        self._silence_seconds: Final = silence_seconds
        self._connections: Final = {connection.fileno: connection for connection in connections}
        self._writing: set[int] = set()
        self._left = len(connections)
        self._epoll = select.epoll(len(connections) + 1)
        for fileno in self._connections:
            self._epoll.register(fileno, select.EPOLLIN)

    def run(self) -> float:
        """Send all requests. Return the seconds until the last response. Raises `LoadError`."""
        began = time.perf_counter()
        for connection in self._connections.values():
            connection.begin()
            self._watch(connection)
        while self._left:
            self.turn(self._silence_seconds)
        return time.perf_counter() - began

    def turn(self, timeout_seconds: float) -> None:
        """Serve every ready connection once. Raises `LoadError`, also if none is ready within the timeout."""
        ready = self._epoll.poll(timeout_seconds)
        if not ready:
            raise self._silence(timeout_seconds)
        for fileno, events in ready:
            connection = self._connections[fileno]
            if events & ~select.EPOLLOUT:
                connection.receive()
            if events & select.EPOLLOUT:
                connection.send()
            if connection.blocked or self._writing:
                self._watch(connection)
            if connection.done:
                self._epoll.unregister(fileno)
                self._left -= 1

    def _watch(self, connection: LoadConnection) -> None:
        """Watch for a writable socket exactly while the connection has unsent bytes."""
        fileno = connection.fileno
        if connection.blocked == (fileno in self._writing):
            return
        self._epoll.modify(fileno, select.EPOLLIN | (select.EPOLLOUT if connection.blocked else 0))
        self._writing.symmetric_difference_update([fileno])

    def _silence(self, seconds: float) -> LoadError:
        """Return the error of a wrong response if there is one, or else of the missing ones."""
        for connection in self._connections.values():
            connection.check()
        waiting = sum(not connection.done for connection in self._connections.values())
        acknowledged = sum(connection.acknowledged for connection in self._connections.values())
        return LoadError(
            f"no response within {seconds:g} s: {waiting} connections wait, {acknowledged} requests are acknowledged"
        )

    def milliseconds(self) -> Milliseconds:
        """Return the latencies of all requests, in ascending order."""
        return np.sort(np.concatenate([connection.milliseconds() for connection in self._connections.values()]))

    def close(self) -> None:
        """Close all connections."""
        self._epoll.close()
        for connection in self._connections.values():
            connection.close()
