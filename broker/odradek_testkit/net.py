"""A simulated network: named hosts and connections with delays, resets, stalls and partitions, all in virtual time.

`SimulatedLoop` replaces the real event loop, so that the production listener and channel open and accept connections on
it. The methods of `SimulatedNetwork` inject faults.

Fault model. Like TCP, a stream keeps its order and loses nothing while both ends live: data that is sent in a blocked
direction waits, and arrives when the block is removed. If a host *dies*, its streams are reset, as by its kernel; if it
*vanishes*, its peers receive nothing. Nothing arrives twice. Delays are random numbers of the seed, so equal seeds give
equal runs. Invariant: no code runs on behalf of a dead host.

Callbacks of a host have its `Host` in their context (`as_host`). `VirtualLoop` drops those of a dead host, and lets
those of a frozen host wait.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, Final, cast

from odradek.base.ports import Buffer
from odradek_testkit.loop import OWNER, Call, VirtualLoop

DELAY_MS: Final = (0.05, 1.0)
"""Network delay without faults."""

CHUNK_BYTES: Final = 16 << 10
"""Maximum number of bytes that arrive in one callback."""

FIRST_CLIENT_PORT: Final = 40_000


class Host:
    """One machine or pod: what runs on it ends when it dies. A restarted one is a new `Host` with the same name."""

    __slots__ = ("_held", "alive", "is_frozen", "name", "tasks", "turns")

    def __init__(self, name: str) -> None:
        """A new host is alive."""
        self.name: Final = name
        self.alive = True
        self.is_frozen = False
        self.turns = 0
        """Number of callbacks that have run on this host: its state has not changed while this number is the same."""
        self._held: list[Call] = []
        self.tasks: Final[set[asyncio.Task[Any]]] = set()
        """Tasks on this host. They keep the tasks of a dead host referenced: if a task were collected, the `finally`
        blocks of a killed process would run."""

    def freeze(self) -> None:
        """Run no callback until `thaw`, as after SIGSTOP or in a long pause of the machine; incoming data waits."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Continue: run all callbacks that became due meanwhile, in order."""
        self.is_frozen = False
        held, self._held = self._held, []
        for call in held:
            call.again()

    def hold(self, call: Call) -> None:
        """Queue a call while the host is frozen."""
        self._held.append(call)

    def __repr__(self) -> str:
        """For traces."""
        return f"Host({self.name}{'' if self.alive else ', dead'})"


@contextmanager
def as_host(host: Host) -> Iterator[None]:
    """Run everything that the block schedules, directly or indirectly, on `host`."""
    token = OWNER.set(host)
    try:
        yield
    finally:
        OWNER.reset(token)


def current_host() -> Host | None:
    """Return the host on whose behalf the caller runs; None if there is none."""
    host: Host | None = OWNER.get()  # type: ignore[assignment]  # all owners are hosts
    return host


class _NumberedTask(asyncio.Task[Any]):
    """A task with a numbered hash, so that iterating over a set of tasks does not depend on memory addresses."""

    def __init__(
        self,
        number: int,
        coro: Coroutine[Any, Any, Any],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        # Set first: the constructor adds the task to the set of all tasks.
        self._number = number
        super().__init__(coro, loop=loop, context=context)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(VirtualLoop):
    """A loop in virtual time whose connections go over a `SimulatedNetwork`, and whose tasks belong to hosts."""

    def __init__(self, seed: int = 0) -> None:
        """`seed` determines the delays."""
        super().__init__()
        self._tasks_made = 0
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.network: Final = SimulatedNetwork(self, seed)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        self._tasks_made += 1
        return _NumberedTask(self._tasks_made, coro, loop, context)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Like that of the base class; the task belongs to the current host."""
        task = super().create_task(coro, name=name, context=context)
        host: Host | None = OWNER.get() if context is None else context.get(OWNER)  # type: ignore[assignment]
        if host is not None:
            host.tasks.add(task)
            task.add_done_callback(host.tasks.discard)
        return task

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect over the simulated network. Raises `ConnectionRefusedError`; waits while the direction is blocked."""
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], *, sock: SimulatedSocket, backlog: int = 100
    ) -> SimulatedServer:
        """Accept connections on an address of `bind`."""
        return self.network.listen(protocol_factory, sock)


class SimulatedSocket:
    """A bound address."""

    def __init__(self, host: str, port: int) -> None:
        """Created by `SimulatedNetwork.bind`."""
        self._address: Final = (host, port)

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self._address

    def setsockopt(self, *_: int) -> None:
        """Do nothing: there is no kernel buffer."""

    def close(self) -> None:
        """Do nothing: closing the server releases the address."""


class SimulatedServer:
    """A listening address."""

    def __init__(self, network: SimulatedNetwork, address: tuple[str, int]) -> None:
        """Created by `SimulatedNetwork.listen`."""
        self._network: Final = network
        self._address: Final = address

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        self._network.stop_listening(self._address)


class SimulatedNetwork:
    """The streams of all hosts, and the state of the links between them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int) -> None:
        """At the start, all hosts are connected."""
        self.loop: Final = loop
        self._random: Final = random.Random(seed)
        self._servers: Final[dict[tuple[str, int], tuple[Callable[[], asyncio.BaseProtocol], Host, Context]]] = {}
        self._blocked: Final[set[tuple[str, str]]] = set()
        self._slow: Final[dict[tuple[str, str], float]] = {}
        self._ends: Final[dict[SimulatedTransport, None]] = {}
        self._next_port = FIRST_CLIENT_PORT

    # Addresses

    def bind(self, host: str, port: int) -> SimulatedSocket:
        """Reserve an address; port 0 is a free one. Raises `OSError` if it is in use."""
        if not port:
            port = self._client_port()
        if (host, port) in self._servers:
            raise OSError(98, "address in use")
        return SimulatedSocket(host, port)

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], bound: SimulatedSocket) -> SimulatedServer:
        """Accept connections to a bound address on behalf of the current host."""
        host = current_host()
        if host is None:
            raise RuntimeError("only a host can listen: use as_host")
        address = bound.getsockname()
        self._servers[address] = (factory, host, copy_context())
        return SimulatedServer(self, address)

    def stop_listening(self, address: tuple[str, int]) -> None:
        """Release an address. Idempotent."""
        self._servers.pop(address, None)

    def _client_port(self) -> int:
        self._next_port += 1
        return self._next_port

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a stream from the current host to a listening one."""
        source = current_host()
        if source is None:
            raise RuntimeError("only a host can connect: use as_host")
        await self._travel(source.name, host)
        entry = self._servers.get((host, port))
        if entry is None or not entry[1].alive:
            await self._travel(host, source.name)
            raise ConnectionRefusedError(111, "Connection refused")
        server_factory, server_host, context = entry
        here = (source.name, self._client_port())
        near = SimulatedTransport(self, source, copy_context(), (here, (host, port)))
        far = SimulatedTransport(self, server_host, context.copy(), ((host, port), here))
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        context.copy().run(lambda: far.attach(server_factory()))
        await self._travel(host, source.name)
        if near.is_lost:
            raise ConnectionResetError(104, "Connection reset by peer")
        protocol = factory()
        near.attach(protocol)
        return near, protocol

    async def _travel(self, source: str, target: str) -> None:
        """Wait until a packet has arrived, which takes at least as long as the direction is blocked."""
        while True:
            await asyncio.sleep(self.delay_s(source, target))
            if (source, target) not in self._blocked:
                return
            await asyncio.sleep(0.2)

    def delay_s(self, source: str, target: str) -> float:
        """Return a random delay for one packet."""
        low, high = DELAY_MS
        return (low + (high - low) * self._random.random() + self._slow.get((source, target), 0.0)) / 1000

    # Faults

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether the direction from `source` to `target` is blocked."""
        return (source, target) in self._blocked

    def is_clear(self, source: str, target: str) -> bool:
        """Whether the direction is neither blocked nor slow."""
        return (source, target) not in self._blocked and not self._slow.get((source, target))

    def block(self, source: str, target: str) -> None:
        """Block one direction: data waits."""
        self._blocked.add((source, target))

    def partition(self, one: str, other: str) -> None:
        """Block both directions."""
        self.block(one, other)
        self.block(other, one)

    def slow(self, source: str, target: str, extra_ms: float) -> None:
        """Set the additional delay in one direction; 0 is normal."""
        self._slow[source, target] = extra_ms

    def heal(self) -> None:
        """Remove all blocks and additional delays; data that waited arrives now."""
        self._blocked.clear()
        self._slow.clear()
        for end in list(self._ends):
            end.pump()

    def reset(self, one: str, other: str) -> None:
        """Reset every stream between two hosts."""
        for end in list(self._ends):
            if end.host.name == one and end.peer.host.name == other:
                end.fail(ConnectionResetError("connection reset"))
                end.peer.fail(ConnectionResetError("connection reset"))

    def kill(self, host: Host, *, silently: bool = False) -> None:
        """End a host at once. Its peers receive a reset, or nothing if it vanishes `silently`."""
        host.alive = False
        for address, (_, owner, _) in list(self._servers.items()):
            if owner is host:
                del self._servers[address]
        for end in list(self._ends):
            if end.host is host:
                self._ends.pop(end, None)
                if not silently:
                    end.peer.reset_later()

    def forget(self, end: SimulatedTransport) -> None:
        """Forget one end of a stream."""
        self._ends.pop(end, None)


class SimulatedTransport(asyncio.Transport):
    """One end of a stream."""

    def __init__(
        self,
        network: SimulatedNetwork,
        host: Host,
        context: Context,
        addresses: tuple[tuple[str, int], tuple[str, int]],
    ) -> None:
        """`addresses`: of this end and of the other one."""
        super().__init__({"sockname": addresses[0], "peername": addresses[1]})
        self.host: Final = host
        self.peer: SimulatedTransport
        self._network: Final = network
        self._context: Final = context
        self._protocol: asyncio.BaseProtocol | None = None
        self._outgoing: Final[deque[bytes]] = deque()
        self._outgoing_bytes = 0
        self._high_water = 64 << 10
        self._is_write_paused = False
        self._is_read_paused = False
        self._closing = False
        self._is_lost = False
        self._pumping = False
        self._incoming: Final[deque[bytes]] = deque()
        self._delivering = False

    # Life

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect the stream to its protocol."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._deliver_soon()

    @property
    def is_lost(self) -> bool:
        """Whether this end of the stream is closed."""
        return self._is_lost

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the stream was reset."""
        return self._closing

    def close(self) -> None:
        """Send the waiting data, then close."""
        if not self._closing:
            self._closing = True
            self.pump()

    def abort(self) -> None:
        """Close now; the peer receives a reset."""
        self._closing = True
        self._outgoing.clear()
        if not self._is_lost:
            self.peer.reset_later()
            self.fail(None)

    def fail(self, error: Exception | None) -> None:
        """Close this end of the stream."""
        if self._is_lost:
            return
        self._is_lost = self._closing = True
        self._network.forget(self)
        self._incoming.clear()
        self._network.loop.call_soon(self._lost, error, context=self._context)

    def _lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def reset_later(self) -> None:
        """Deliver a reset of the peer after the network delay."""
        self._after_delay(self.peer, self, lambda: self.fail(ConnectionResetError("connection reset by peer")))

    def _after_delay(self, source: SimulatedTransport, target: SimulatedTransport, action: Callable[[], None]) -> None:
        network = self._network

        def arrive() -> None:
            if network.is_blocked(source.host.name, target.host.name):
                network.loop.call_later(0.2, arrive)
            else:
                action()

        delay_s = network.delay_s(source.host.name, target.host.name)
        network.loop.call_later(delay_s, arrive, context=Context())

    # Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Number of bytes in flight above which the protocol is paused."""
        self._high_water = 64 << 10 if high is None else high

    def get_write_buffer_size(self) -> int:
        """Number of bytes in flight."""
        return self._outgoing_bytes

    def write(self, data: Buffer) -> None:
        """Send data, in order."""
        if self._closing or not data:
            return
        self._outgoing.append(bytes(data))
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes > self._high_water and not self._is_write_paused:
            self._is_write_paused = True
            cast(asyncio.Protocol, self._protocol).pause_writing()
        self.pump()

    def pump(self) -> None:
        """Send the next bytes, unless some are in flight or the direction is blocked."""
        blocked = self._network.is_blocked(self.host.name, self.peer.host.name)
        if self._pumping or self._is_lost or blocked or not (self._outgoing or self._closing):
            return
        self._pumping = True
        delay_s = self._network.delay_s(self.host.name, self.peer.host.name)
        self._network.loop.call_later(delay_s, self._arrived, context=Context())

    def _arrived(self) -> None:
        self._pumping = False
        if self._is_lost or not self.host.alive:
            return
        if self._network.is_blocked(self.host.name, self.peer.host.name):
            return
        sent = 0
        while self._outgoing and sent < CHUNK_BYTES:
            data = self._outgoing.popleft()
            sent += len(data)
            self.peer.receive(data)
        self._outgoing_bytes -= sent
        if self._is_write_paused and self._outgoing_bytes <= self._high_water // 4:
            self._is_write_paused = False
            self._network.loop.call_soon(self._resume_writing, context=self._context)
        if self._outgoing:
            self.pump()
        elif self._closing:
            self.peer.receive(b"")
            self.fail(None)

    def _resume_writing(self) -> None:
        if self._protocol is not None:
            cast(asyncio.Protocol, self._protocol).resume_writing()

    # Reading

    def pause_reading(self) -> None:
        """Queue data that arrives."""
        self._is_read_paused = True

    def resume_reading(self) -> None:
        """Pass the queued data to the protocol."""
        self._is_read_paused = False
        self._deliver_soon()

    def receive(self, data: bytes) -> None:
        """Receive bytes of the peer; no bytes mean that it has closed its side."""
        if not self._is_lost:
            self._incoming.append(data)
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if self._incoming and not (self._delivering or self._is_read_paused) and self._protocol is not None:
            self._delivering = True
            self._network.loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        self._delivering = False
        while self._incoming and not self._is_read_paused and self._protocol is not None and not self._is_lost:
            data = self._incoming.popleft()
            if not data:
                if not cast(asyncio.Protocol, self._protocol).eof_received():
                    self.close()
                return
            self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            place = memoryview(protocol.get_buffer(-1))
            taken = min(len(place), len(data))
            place[:taken] = data[:taken]
            if taken < len(data):
                self._incoming.appendleft(data[taken:])
            protocol.buffer_updated(taken)
        else:
            cast(asyncio.Protocol, protocol).data_received(data)
