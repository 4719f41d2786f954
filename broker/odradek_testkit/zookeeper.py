"""A simulated ZooKeeper ensemble: sessions that suspend, resume and expire, over the simulated network.

`SimulatedZk` implements the `ZkClient` port on a `MemoryTree`, to which it only sends messages: each takes time, keeps
its order, and waits while the direction is blocked. `broker/tests/contract/zk` checks that it behaves like the real
client.

Fault model. The client closes a connection that is silent for two thirds of the session timeout: pending operations
fail with `ConnectionLost`, and it is unknown whether they were carried out. The ensemble expires a session from which
it has received nothing for the timeout; the client learns that when it reconnects. A host that dies sends nothing. The
ensemble itself never fails and loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.port import (
    ConnectionLost,
    SessionEvent,
    SessionExpired,
    SessionState,
    Watch,
    ZkError,
    ZkSettings,
    ZnodeStat,
)
from odradek_testkit.net import SimulatedNetwork, current_host

_T = TypeVar("_T")

ENSEMBLE: Final = "zookeeper"
"""The host name of the ensemble in the network."""

_RETRY_S: Final = 0.2
_PASSWORD: Final = bytes(16)


class _Way:
    """Sends messages in one direction, in order."""

    def __init__(self, network: SimulatedNetwork, source: str, target: str) -> None:
        self._network: Final = network
        self._source: Final = source
        self._target: Final = target
        self._waiting: Final[deque[Callable[[], None]]] = deque()
        self._is_moving = False
        self._is_cut = False

    def send(self, message: Callable[[], None]) -> None:
        """Send a message."""
        self._waiting.append(message)
        self._move()

    def cut(self) -> None:
        """Drop all messages in flight."""
        self._is_cut = True
        self._waiting.clear()

    def _move(self) -> None:
        if self._waiting and not self._is_moving and not self._is_cut:
            self._is_moving = True
            delay_s = self._network.delay_s(self._source, self._target)
            self._network.loop.call_later(delay_s, self._arrive, context=Context())

    def _arrive(self) -> None:
        self._is_moving = False
        if self._is_cut:
            return
        if self._network.is_blocked(self._source, self._target):
            self._is_moving = True
            self._network.loop.call_later(_RETRY_S, self._arrive, context=Context())
            return
        message = self._waiting.popleft()
        message()
        self._move()


@dataclass(slots=True)
class _Session:
    """A session in the ensemble."""

    timeout_s: float
    heard_at: float


class SimulatedEnsemble:
    """The ensemble: a tree and its sessions."""

    def __init__(self, network: SimulatedNetwork, tree: MemoryTree | None = None) -> None:
        """Without `tree`, the tree is empty."""
        self.network: Final = network
        self.tree: Final = MemoryTree() if tree is None else tree
        self._sessions: Final[dict[int, _Session]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def open(self, timeout_s: float) -> int:
        """Create a session and return its id."""
        session_id = next(self.tree.session_ids)
        self._sessions[session_id] = _Session(timeout_s, self.network.loop.time())
        self._watch_over()
        return session_id

    def keep_alive(self, session_id: int) -> bool:
        """Record a message of a session. Returns whether the session is alive."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.heard_at = self.network.loop.time()
        return session is not None

    def end(self, session_id: int) -> None:
        """End a session, as by its client, by another client with its password, or by the timeout. Idempotent."""
        if self._sessions.pop(session_id, None) is not None:
            self.tree.end_session(session_id)

    @property
    def sessions(self) -> frozenset[int]:
        """Ids of the live sessions."""
        return frozenset(self._sessions)

    def _watch_over(self) -> None:
        if self._timer is None and self._sessions:
            earliest = min(session.heard_at + session.timeout_s for session in self._sessions.values())
            self._timer = self.network.loop.call_at(earliest, self._expire, context=Context())

    def _expire(self) -> None:
        self._timer = None
        now = self.network.loop.time()
        for session_id, session in list(self._sessions.items()):
            if session.heard_at + session.timeout_s <= now:
                self.end(session_id)
        self._watch_over()


class SimulatedZk(MemoryZk):
    """A client of the ensemble. Create it on behalf of its host, and `start` it."""

    def __init__(self, ensemble: SimulatedEnsemble, settings: ZkSettings) -> None:
        """Only the timeouts of the settings have an effect."""
        super().__init__(ensemble.tree)
        self._session_id = 0
        self._state = SessionState.CONNECTING
        self._ensemble: Final = ensemble
        self._settings: Final = settings
        self._context: Final = copy_context()
        self._connected: Final = asyncio.Event()
        self._pending: Final[dict[asyncio.Future[Any], str]] = {}
        self._standing: Final[dict[_StandingWatch, None]] = {}
        self._out: _Way | None = None
        self._in: _Way | None = None
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """Id and password of the session while it is connected."""
        return (self._session_id, _PASSWORD) if self._state is SessionState.CONNECTED else None

    # Life

    async def start(self) -> None:
        """Connect. Raises `ConnectionLost` if that takes longer than `connection_timeout_ms`."""
        self._connect()
        try:
            async with asyncio.timeout(self._settings.connection_timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            await self.close()
            raise ConnectionLost("no ZooKeeper server answered") from None

    async def close(self) -> None:
        """See `ZkClient`. If the ensemble cannot be reached, the session expires by its timeout."""
        if self._state is SessionState.CLOSED:
            return
        if self._state is SessionState.CONNECTED and self._out is not None:
            done = self._network.loop.create_future()
            session_id = self._session_id
            self._out.send(lambda: self._end_at_server(session_id, done))
            await asyncio.wait([done], timeout=self._timeout_s / 3)
        self._state = SessionState.CLOSED
        self._hang_up()
        self._connected.set()
        for callback in tuple(self._session_callbacks):
            callback(SessionEvent.CLOSED)

    def _end_at_server(self, session_id: int, done: asyncio.Future[None]) -> None:
        self._ensemble.end(session_id)
        if self._in is not None:
            self._in.send(lambda: self._here(lambda: _settle(done)))

    # The connection

    @property
    def _network(self) -> SimulatedNetwork:
        return self._ensemble.network

    @property
    def _timeout_s(self) -> float:
        return self._settings.session_timeout_ms / 1000

    def _connect(self) -> None:
        """Try to connect until a connection is established."""
        host = current_host()
        name = "anywhere" if host is None else host.name
        self._hang_up()
        way_out = self._out = _Way(self._network, name, ENSEMBLE)
        way_in = self._in = _Way(self._network, ENSEMBLE, name)
        here = self._here
        wanted = self._session_id

        def at_server() -> None:
            alive = bool(wanted) and self._ensemble.keep_alive(wanted)
            session_id = wanted if alive or wanted else self._ensemble.open(self._timeout_s)
            is_expired = bool(wanted) and not alive
            way_in.send(lambda: here(lambda: self._opened(way_in, session_id, is_expired=is_expired)))

        way_out.send(at_server)
        self._timer = self._network.loop.call_later(self._timeout_s / 3, self._connect)

    def _here(self, callback: Callable[[], object]) -> None:
        """Run on behalf of this client's host, because messages are delivered on behalf of none."""
        self._network.loop.call_soon(callback, context=self._context)

    def _opened(self, way: _Way, session_id: int, *, is_expired: bool) -> None:
        if self._in is not way or self._state is SessionState.CLOSED:
            return
        if is_expired:
            self._state, self._session_id = SessionState.CONNECTING, 0
            self._tell(SessionEvent.EXPIRED)
            self._connect()
            return
        resumed = session_id == self._session_id
        self._state, self._session_id = SessionState.CONNECTED, session_id
        self._heard_at = self._network.loop.time()
        self._ping()
        self._connected.set()
        self._tell(SessionEvent.RESUMED if resumed else SessionEvent.ESTABLISHED)
        for watch in tuple(self._standing):
            watch.arm()
            watch.call()

    def _tell(self, event: SessionEvent) -> None:
        for callback in tuple(self._session_callbacks):
            callback(event)

    def _ping(self) -> None:
        """Send a ping every third of the timeout; close the connection if two thirds passed without an answer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._state is not SessionState.CONNECTED or self._out is None:
            return
        left_s = self._heard_at + 2 * self._timeout_s / 3 - self._network.loop.time()
        if left_s <= 0:
            self.lose_connection()
            return
        way_in, session_id = self._in, self._session_id

        def at_server() -> None:
            if self._ensemble.keep_alive(session_id) and way_in is not None:
                way_in.send(lambda: self._here(self._heard))

        self._out.send(at_server)
        self._timer = self._network.loop.call_later(min(self._timeout_s / 3, left_s), self._ping)

    def _heard(self) -> None:
        self._heard_at = self._network.loop.time()

    def lose_connection(self) -> None:
        """End the connection: pending operations fail, and the next connection is tried."""
        if self._state is not SessionState.CONNECTED:
            return
        self._state = SessionState.SUSPENDED
        self._connected.clear()
        self._hang_up()
        self._tell(SessionEvent.SUSPENDED)
        self._connect()

    def _hang_up(self) -> None:
        for way in (self._out, self._in):
            if way is not None:
                way.cut()
        self._out = self._in = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for future, path in list(self._pending.items()):
            if not future.done():
                future.set_exception(ConnectionLost("the connection was lost", path))
        self._pending.clear()

    # Operations

    async def _answer(self, path: str, operation: Callable[[], _T]) -> _T:
        """Send one operation. Its answer arrives after the notifications of the watches that it fires."""
        await self._ready(path)
        if self.failures:
            raise self.failures.pop(0)
        answer: asyncio.Future[_T] = self._network.loop.create_future()
        self._pending[answer] = path
        way_in, session_id = self._in, self._session_id

        def at_server() -> None:
            outcome = self._carry_out(session_id, path, operation)
            if way_in is not None:
                way_in.send(lambda: self._here(lambda: self._answered(answer, outcome)))

        assert self._out is not None, "connected"
        self._out.send(at_server)
        return await answer

    def _carry_out(self, session_id: int, path: str, operation: Callable[[], _T]) -> _T | Exception:
        if not self._ensemble.keep_alive(session_id):
            return SessionExpired("the session expired", path)
        try:
            return operation()
        except (ZkError, ValueError) as error:
            return error

    def _answered(self, answer: asyncio.Future[_T], outcome: _T | Exception) -> None:
        self._pending.pop(answer, None)
        self._heard()
        if isinstance(outcome, Exception):
            if not answer.done():
                answer.set_exception(outcome)
        elif not answer.done():
            answer.set_result(outcome)
        if isinstance(outcome, SessionExpired):
            # A server closes the connection of an expired session; the client learns of the expiry with the next one.
            self.lose_connection()

    def _is_in(self, state: SessionState) -> bool:
        return self._state is state

    async def _ready(self, path: str) -> None:
        if self._state is SessionState.CONNECTED:
            return
        try:
            async with asyncio.timeout(self._settings.suspended_wait_ms / 1000):
                while not self._is_in(SessionState.CONNECTED):
                    if self._is_in(SessionState.CLOSED):
                        raise ConnectionLost("the client is closed", path)
                    await self._connected.wait()
        except TimeoutError:
            raise ConnectionLost("there is no connection to ZooKeeper", path) from None

    # Several operations in one message

    async def get_many(self, paths: Iterable[str]) -> dict[str, tuple[bytes, ZnodeStat] | None]:
        """See `ZkClient`."""
        wanted = list(paths)
        tree = self.tree

        def read() -> dict[str, tuple[bytes, ZnodeStat] | None]:
            found = {path: tree.nodes.get(path) for path in wanted}
            return {path: None if node is None else (node.data, node.stat()) for path, node in found.items()}

        return await self._answer("", read)

    async def children_many(self, paths: Iterable[str]) -> dict[str, list[str] | None]:
        """See `ZkClient`."""
        wanted = list(paths)
        tree = self.tree
        return await self._answer(
            "", lambda: {path: tree.children(path) if path in tree.nodes else None for path in wanted}
        )

    # Watching

    def _watch(self, path: str, callback: Callable[[], None], *, children: bool) -> Watch:
        watch = _StandingWatch(self, path, callback, children=children)
        self._standing[watch] = None
        if self._state is SessionState.CONNECTED:
            watch.arm()
        return watch

    def tell_later(self, callback: Callable[[], None]) -> None:
        """Send the notification of a fired watch, in order with the answers."""
        if self._in is not None:
            self._in.send(lambda: self._here(callback))

    def arm(self, watch: _StandingWatch) -> None:
        """Register a watch with the ensemble; called by the watch."""
        session_id = self._session_id

        def at_server() -> None:
            if self._ensemble.keep_alive(session_id) and watch in self._standing:
                watch.registered(super(SimulatedZk, self)._watch(watch.path, watch.call, children=watch.children))

        if self._out is not None:
            self._out.send(at_server)

    def forget(self, watch: _StandingWatch) -> None:
        """Called by the watch when it is cancelled."""
        self._standing.pop(watch, None)


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class _StandingWatch:
    """A watch of one client, over all its sessions."""

    def __init__(self, client: SimulatedZk, path: str, callback: Callable[[], None], *, children: bool) -> None:
        self._client: Final = client
        self._callback: Final = callback
        self._at_server: Watch | None = None
        self.path: Final = path
        self.children: Final = children
        self._active = True

    def arm(self) -> None:
        self._client.arm(self)

    def registered(self, at_server: Watch) -> None:
        """Record that the ensemble has registered the watch, unless the connection has ended meanwhile."""
        if self._at_server is not None:
            self._at_server.cancel()
        self._at_server = at_server

    def call(self) -> None:
        if self._active:
            self._callback()

    def cancel(self) -> None:
        """Cancel the watch."""
        self._active = False
        self._client.forget(self)
        if self._at_server is not None:
            self._at_server.cancel()
