"""A ZooKeeper client for the event loop, on top of kazoo.

kazoo runs the protocol in its own thread. Its results, watch events and session changes pass through one queue to the
event loop and are handled in that order. Nothing here blocks the event loop. `KazooZkClient` implements the port of
`zk/port`, whose names this module re-exports. Only this module converts kazoo's errors. `zk/session` changes kazoo's
session handling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.hosts import collect_hosts
from kazoo.protocol import serialization
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, Id

from odradek.base.errors import ConfigError
from odradek.security.tls.contexts import client_context
from odradek.zk.acl import CREATOR, acls_for
from odradek.zk.multi_read import MultiRead, Read
from odradek.zk.pipeline import Pipeline
from odradek.zk.port import (
    ANY_VERSION,
    AuthenticationFailed,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Created,
    Delete,
    InvalidPath,
    NodeExists,
    NoNode,
    NotEmpty,
    NotSent,
    Operation,
    Result,
    SessionEvent,
    SessionExpired,
    SessionState,
    SetData,
    Watch,
    ZkClient,
    ZkError,
    ZkSettings,
    ZnodeStat,
    check_size,
    parents,
)
from odradek.zk.session import AUTHENTICATION_REQUIRED, Kazoo, LoopHandler, LoopQueue, connect_timeout_s
from odradek.zk.watch import Fired, StandingWatch

__all__ = [
    "ANY_VERSION",
    "AuthenticationFailed",
    "BadVersion",
    "Check",
    "ConnectionLost",
    "Create",
    "Created",
    "Delete",
    "InvalidPath",
    "KazooZkClient",
    "NoNode",
    "NodeExists",
    "NotEmpty",
    "Operation",
    "Result",
    "SessionEvent",
    "SessionExpired",
    "SessionState",
    "SetData",
    "Watch",
    "ZkClient",
    "ZkError",
    "ZkSettings",
    "ZnodeStat",
]

log = logging.getLogger(__name__)
_T = TypeVar("_T")

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2

_READS_PER_REQUEST: Final = 50
"""Maximum number of znodes per request. Larger requests are not cheaper, and their responses delay others."""

_ERRORS: Final[tuple[tuple[type[Exception], type[ZkError], str], ...]] = (
    (kazoo_errors.NoNodeError, NoNode, "the znode does not exist"),
    (kazoo_errors.NodeExistsError, NodeExists, "the znode already exists"),
    (kazoo_errors.BadVersionError, BadVersion, "the znode has another version"),
    (kazoo_errors.NotEmptyError, NotEmpty, "the znode has children"),
    (
        kazoo_errors.NoAuthError,
        AuthenticationFailed,
        "the ACL of the znode does not allow it. Connect with the identity of the brokers that created it "
        "(zookeeper.sasl.jaas.config, zookeeper.auth.digest or a TLS client certificate), or change the ACL",
    ),
    (kazoo_errors.AuthFailedError, AuthenticationFailed, "the ensemble rejects the credentials of this client"),
    (kazoo_errors.SessionClosedRequireSaslError, AuthenticationFailed, AUTHENTICATION_REQUIRED),
    (
        kazoo_errors.InvalidACLError,
        AuthenticationFailed,
        "zookeeper.set.acl=true, but the ensemble does not accept an identity of this client. It accepts a TLS client "
        "certificate as identity only if its properties ssl.clientAuth and authProvider.x509 are set",
    ),
    # In kazoo, this error is a subclass of the session expiration, but it only means that the client is closed.
    (kazoo_errors.ConnectionClosedError, ConnectionLost, "the client is closed"),
    (kazoo_errors.SessionExpiredError, SessionExpired, "the session expired"),
    (kazoo_errors.ConnectionLoss, ConnectionLost, "the connection was lost"),
    (kazoo_errors.SessionMovedError, ConnectionLost, "the session moved to another server"),
    (kazoo_errors.OperationTimeoutError, ConnectionLost, "the ensemble did not answer in time"),
)


def _translated(error: BaseException, path: str) -> BaseException:
    for theirs, ours, text in _ERRORS:
        if isinstance(error, theirs):
            return ours(text, path)
    if isinstance(error, kazoo_errors.KazooException):
        return ZkError(f"ZooKeeper answered {type(error).__name__}", path)
    return error


class KazooZkClient:
    """Implements `ZkClient` with kazoo. Create and use it on one event loop. Await `start` first and `close` last."""

    def __init__(self, settings: ZkSettings, *, on_latency: Callable[[float], None] = lambda _: None) -> None:
        """Create an unconnected client. Raises `ConfigError` if the connect string is invalid.

        `on_latency` is called after each request with the milliseconds from sending it to its response or error.
        """
        servers, self._root = settings.split()
        try:
            hosts, _ = collect_hosts(servers)
        except ValueError:
            raise ConfigError(
                f"zookeeper.connect={settings.connect!r} is not valid: it must be host:port,host:port/chroot"
            ) from None
        self._connect_timeout_s = connect_timeout_s(settings.session_timeout_ms, len(hosts))
        self._settings = settings
        self._on_latency = on_latency
        self._servers = servers
        self._state = SessionState.CONNECTING
        self._session_id = 0
        self._kazoo: Kazoo | None = None
        self._connected = asyncio.Event()
        self._session_callbacks: list[Callable[[SessionEvent], None]] = []
        self._watches: dict[StandingWatch, None] = {}
        self._closing = False
        self._refusal = ""

    # Session

    @property
    def state(self) -> SessionState:
        """The current state of the session."""
        return self._state

    def _in(self, state: SessionState) -> bool:
        return self._state is state

    @property
    def session_id(self) -> int:
        """Id of the current or last session; 0 before the first."""
        return self._session_id

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """Id and password of the session while it is connected. With them, another process can end the session."""
        client_id: tuple[int, bytes] | None = None if self._kazoo is None else self._kazoo.client_id
        return client_id

    async def start(self) -> None:
        """Connect and create the chroot.

        Raises `ConnectionLost` if it takes longer than `connection_timeout_ms`, `AuthenticationFailed` if the ensemble
        refuses the credentials, and `ConfigError` if a key file cannot be used.
        """
        settings = self._settings
        if settings.tls is not None:
            client_context(settings.tls)  # report invalid files immediately, not at each attempt to connect
        queue = LoopQueue(asyncio.get_running_loop())
        self._kazoo = kazoo = Kazoo(
            settings,
            LoopHandler(settings.tls, self._connect_timeout_s, queue),
            lambda state, session_id: queue.put(lambda: self._session_changed(state, session_id)),
            timeout=settings.session_timeout_ms / 1000,
        )
        kazoo.start_async()
        try:
            async with asyncio.timeout(settings.connection_timeout_ms / 1000):
                await self._connected.wait()
                await self._make_root()
        except TimeoutError:
            reason = f" ({kazoo.failure})" if kazoo.failure else ""
            await self.close()
            raise ConnectionLost(
                f"no ZooKeeper server of {self._servers} answered within {settings.connection_timeout_ms} ms{reason}"
            ) from None
        except BaseException:
            await self.close()
            raise

    async def _make_root(self) -> None:
        root, self._root = self._root, ""
        try:
            await self.exists("/")  # an ensemble that requires authentication rejects the first request
            if root:
                await self.ensure_path(root)
        finally:
            self._root = root

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Call `callback` with every session event."""
        self._session_callbacks.append(callback)

    async def close(self) -> None:
        """End the session and with it its ephemeral znodes. Idempotent."""
        if self._closing or self._kazoo is None:
            self._state = SessionState.CLOSED
            return
        self._closing = True
        kazoo = self._kazoo

        def stop() -> None:
            kazoo.stop()
            kazoo.close()

        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, stop))
        self._session_changed(KeeperState.CLOSED, 0)

    def _session_changed(self, keeper_state: str, session_id: int) -> None:
        """Handle a change of kazoo's state. Runs on the event loop, in order with responses and watches."""
        if self._in(SessionState.CLOSED):
            return
        event = self._session_event(keeper_state, session_id)
        if event is None:
            return
        log.info("ZooKeeper session 0x%x: %s", self._session_id, event.name.lower())
        if self._in(SessionState.CONNECTED):
            self._connected.set()
        elif self._in(SessionState.CLOSED):
            self._connected.set()  # those that wait for a connection check the state and fail
        else:
            self._connected.clear()
        for callback in tuple(self._session_callbacks):
            callback(event)
        if self._in(SessionState.CONNECTED):
            for watch in tuple(self._watches):
                watch.arm_and_call()

    def _session_event(self, keeper_state: str, session_id: int) -> SessionEvent | None:
        if keeper_state in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            resumed = self._in(SessionState.SUSPENDED) and session_id == self._session_id
            self._state, self._session_id = SessionState.CONNECTED, session_id
            return SessionEvent.RESUMED if resumed else SessionEvent.ESTABLISHED
        if keeper_state == KeeperState.EXPIRED_SESSION:
            self._state = SessionState.CONNECTING
            return SessionEvent.EXPIRED
        if keeper_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
            if keeper_state == KeeperState.AUTH_FAILED and self._kazoo is not None:
                self._refusal = self._kazoo.failure
            self._state = SessionState.CLOSED
            return SessionEvent.CLOSED
        if self._in(SessionState.CONNECTED):
            self._state = SessionState.SUSPENDED
            return SessionEvent.SUSPENDED
        return None

    async def _ready(self, path: str) -> None:
        """Return when the client is connected. Raises `ConnectionLost` if that takes too long or is impossible."""
        if self._in(SessionState.CONNECTED):
            return
        try:
            async with asyncio.timeout(self._settings.suspended_wait_ms / 1000):
                while not self._in(SessionState.CONNECTED):
                    if self._in(SessionState.CLOSED):
                        raise self._gone(path)
                    await self._connected.wait()
        except TimeoutError:
            raise ConnectionLost("there is no connection to ZooKeeper", path) from None

    def _gone(self, path: str) -> ZkError:
        if self._refusal:
            return AuthenticationFailed(f"ZooKeeper rejects this client: {self._refusal}")
        return ConnectionLost("the client is closed", path)

    # Requests

    def _submit(self, path: str, call: Callable[[Kazoo], Any]) -> asyncio.Future[Any]:
        """Send a request immediately. The future gets its response or the converted error."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        began_s = loop.time()

        def answered(result: Any) -> None:
            self._on_latency((loop.time() - began_s) * 1000)
            if future.done():
                return
            error = result.exception
            if error is None:
                future.set_result(result.value)
            else:
                future.set_exception(_translated(error, path))

        if self._kazoo is None or self._in(SessionState.CLOSED):
            future.set_exception(self._gone(path))
            return future
        try:
            request = call(self._kazoo)
        except NotSent as error:
            future.set_exception(error)
        else:
            request.rawlink(answered)
        return future

    def _submit_get(self, path: str) -> asyncio.Future[Any]:
        return self._submit(path, lambda kazoo: kazoo.get_async(self._absolute(path)))

    def submit_children(self, path: str, watch: Fired | None = None) -> asyncio.Future[list[str]]:
        """Send a request for the children immediately. `watch` is called at their next change."""
        return self._submit(path, lambda kazoo: kazoo.get_children_async(self._absolute(path), watch=watch))

    def submit_exists(self, path: str, watch: Fired | None = None) -> asyncio.Future[Any]:
        """Send a request for the stat (None if the znode does not exist) immediately. `watch` is called at the next
        change."""
        return self._submit(path, lambda kazoo: kazoo.exists_async(self._absolute(path), watch=watch))

    def _absolute(self, path: str) -> str:
        """Return the path below the chroot. Raises `InvalidPath` if the result could be outside of the chroot."""
        if not path.startswith("/") or {".", ".."}.intersection(path.split("/")):
            raise InvalidPath("not an absolute path of a znode", path)
        return (self._root + path).rstrip("/") or "/"

    def _check_size(self, operations: Sequence[Operation]) -> None:
        check_size(operations, self._settings.max_request_bytes, self._root)

    def _acls(self, path: str) -> list[ACL]:
        acls = acls_for(path, secure=self._settings.set_acl, owner=self._settings.owner or CREATOR)
        return [ACL(each.permissions, Id(each.scheme, each.identity)) for each in acls]

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Read data (empty if there is none) and stat. Raises `NoNode`."""
        await self._ready(path)
        return _data_and_stat(await self._submit_get(path))

    async def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """Like `get`, but returns None if the znode does not exist."""
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def get_many(self, paths: Iterable[str]) -> dict[str, tuple[bytes, ZnodeStat] | None]:
        """Read many znodes like `get_or_none`, in groups if the server supports it, with limited pipelining."""
        wanted = list(dict.fromkeys(paths))
        await self._ready("")
        if len(wanted) > 1 and self._kazoo is not None and self._kazoo.reads_groups:
            return await self._get_groups(wanted)
        found = await self._read_many(wanted, self._submit_get)
        return {path: None if value is None else _data_and_stat(value) for path, value in found.items()}

    async def _get_groups(self, paths: Sequence[str]) -> dict[str, tuple[bytes, ZnodeStat] | None]:
        groups = [paths[start : start + _READS_PER_REQUEST] for start in range(0, len(paths), _READS_PER_REQUEST)]
        submits = [lambda group=group: self._submit_reads(group) for group in groups]
        found: dict[str, tuple[bytes, ZnodeStat] | None] = {}
        for group, answers in zip(groups, await Pipeline(submits, self._settings.max_in_flight).run(), strict=True):
            if isinstance(answers, BaseException):
                raise answers
            for path, answer in zip(group, answers, strict=True):
                if isinstance(answer, kazoo_errors.NoNodeError):
                    found[path] = None
                elif isinstance(answer, Exception):
                    raise _translated(answer, path)
                else:
                    found[path] = _data_and_stat(answer)
        return found

    def _submit_reads(self, paths: Sequence[str]) -> asyncio.Future[list[Read]]:
        def send(kazoo: Kazoo) -> Any:
            answer = kazoo.handler.async_result()
            kazoo._call(MultiRead([self._absolute(path) for path in paths]), answer)
            return answer

        return self._submit(paths[0], send)

    async def children(self, path: str) -> list[str]:
        """Read the sorted names of the children. Raises `NoNode`."""
        await self._ready(path)
        return sorted(await self.submit_children(path))

    async def children_or_none(self, path: str) -> list[str] | None:
        """Like `children`, but returns None if the znode does not exist."""
        try:
            return await self.children(path)
        except NoNode:
            return None

    async def children_many(self, paths: Iterable[str]) -> dict[str, list[str] | None]:
        """Read the children of many znodes like `children_or_none`, pipelined."""
        found = await self._read_many(paths, self.submit_children)
        return {path: None if names is None else sorted(names) for path, names in found.items()}

    async def _read_many(
        self, paths: Iterable[str], submit: Callable[[str], asyncio.Future[_T]]
    ) -> dict[str, _T | None]:
        await self._ready("")
        wanted = list(dict.fromkeys(paths))
        submits = [lambda path=path: submit(path) for path in wanted]
        found: dict[str, _T | None] = {}
        for path, result in zip(wanted, await Pipeline(submits, self._settings.max_in_flight).run(), strict=True):
            if isinstance(result, NoNode):
                found[path] = None
            elif isinstance(result, BaseException):
                raise result
            else:
                found[path] = result
        return found

    async def exists(self, path: str) -> ZnodeStat | None:
        """Read the stat. Returns None if the znode does not exist."""
        await self._ready(path)
        stat = await self.submit_exists(path)
        return None if stat is None else ZnodeStat(*stat)

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        """Create a znode. Raises `NodeExists`, and `NoNode` if the parent does not exist and is not created."""
        await self._ready(path)
        try:
            return await self._create(path, data, ephemeral=ephemeral, sequential=sequential)
        except NoNode:
            if not make_parents:
                raise
        for parent in parents(path):
            await self._ensure_one(parent)
        return await self._create(path, data, ephemeral=ephemeral, sequential=sequential)

    async def _create(self, path: str, data: bytes | None, *, ephemeral: bool, sequential: bool) -> Created:
        self._check_size([Create(path, data)])
        created, stat = await self._submit(
            path,
            lambda kazoo: kazoo.create_async(
                # The name of a sequential znode may consist only of its number. The path then ends with a slash.
                self._absolute(path) + ("/" if sequential and path.endswith("/") else ""),
                data,
                acl=self._acls(path),
                ephemeral=ephemeral,
                sequence=sequential,
                include_data=True,
            ),
        )
        return Created(created.removeprefix(self._root), ZnodeStat(*stat))

    async def ensure_path(self, path: str) -> None:
        """Create the znode and its parents, without data, if they do not exist."""
        await self._ready(path)
        self._absolute(path)
        for part in [*parents(path), path]:
            await self._ensure_one(part)

    async def _ensure_one(self, path: str) -> None:
        # Check first, because the client may not be allowed to create znodes above one that it may use.
        if await self.submit_exists(path) is None:
            try:
                await self._create(path, None, ephemeral=False, sequential=False)
            except NodeExists:
                return

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> ZnodeStat:
        """Replace the data. Raises `BadVersion`, `NoNode`."""
        self._check_size([SetData(path, data)])
        await self._ready(path)
        return ZnodeStat(*await self._submit(path, lambda kazoo: kazoo.set_async(self._absolute(path), data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode. Raises `NotEmpty`, `BadVersion`, `NoNode`."""
        await self._ready(path)
        await self._submit(path, lambda kazoo: kazoo.delete_async(self._absolute(path), version))

    async def sync(self, path: str = "/") -> None:
        """Return when the connected server has caught up with the leader of the ensemble."""
        await self._ready(path)
        await self._submit(path, lambda kazoo: kazoo.sync_async(self._absolute(path)))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Execute all operations or none. Raises the error of the first that failed."""
        await self._ready(operations[0].path if operations else "")
        return self._outcome(operations, await self._submit_multi(operations))

    async def multi_many(self, transactions: Iterable[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        """Execute many independent transactions, pipelined. Returns the results or the error of each.

        A lost connection or session is raised. A transaction that is `NotSent` is returned as an error, and the others
        are executed.
        """
        await self._ready("")
        wanted = list(transactions)
        submits = [lambda operations=operations: self._submit_multi(operations) for operations in wanted]
        outcomes: list[list[Result] | ZkError] = []
        answers = await Pipeline(submits, self._settings.max_in_flight).run()
        for operations, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, NotSent):
                outcomes.append(answer)
                continue
            if isinstance(answer, BaseException):
                raise answer
            try:
                outcomes.append(self._outcome(operations, answer))
            except ZkError as error:
                outcomes.append(error)
        return outcomes

    async def reset_acls(self, paths: Iterable[str]) -> None:
        """Give each znode the ACL with which this client would create it, pipelined. Ignores missing ones."""
        await self._read_many(paths, self._submit_acls)

    def _submit_acls(self, path: str) -> asyncio.Future[Any]:
        return self._submit(path, lambda kazoo: kazoo.set_acls_async(self._absolute(path), self._acls(path)))

    def _submit_multi(self, operations: Sequence[Operation]) -> asyncio.Future[list[Any]]:
        def send(kazoo: Kazoo) -> Any:
            self._check_size(operations)
            # kazoo's transaction builder is not used, because it rejects znodes without data.
            answer = kazoo.handler.async_result()
            kazoo._call(serialization.Transaction([self._request(operation) for operation in operations]), answer)
            return answer

        return self._submit(operations[0].path if operations else "/", send)

    def _request(self, operation: Operation) -> Any:
        if not operation.path.startswith("/"):
            raise InvalidPath("not an absolute path of a znode", operation.path)
        path = self._root + operation.path  # the path is not normalised, because the server validates it
        match operation:
            case Create(_, data, ephemeral, sequential):
                flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENTIAL if sequential else 0)
                return serialization.Create(path, data, self._acls(operation.path), flags)
            case SetData(_, data, version):
                return serialization.SetData(path, data, version)
            case Delete(_, version):
                return serialization.Delete(path, version)
            case Check(_, version):
                return serialization.CheckVersion(path, version)

    def _outcome(self, operations: Sequence[Operation], answers: list[Any]) -> list[Result]:
        for operation, answer in zip(operations, answers, strict=False):
            undone = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
            if isinstance(answer, Exception) and not isinstance(answer, undone):
                raise _translated(answer, operation.path)
        results: list[Result] = []
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Exception):
                raise _translated(answer, operation.path)
            if isinstance(answer, str):
                results.append(answer.removeprefix(self._root))
            else:
                results.append(None if answer is True else ZnodeStat(*answer))
        return results

    # Watches

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call `callback` after the znode was created, changed or deleted, and after a reconnection."""
        return self._watch(StandingWatch(self, path, callback, children=False))

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call `callback` after the set of children changed. The znode does not have to exist yet."""
        return self._watch(StandingWatch(self, path, callback, children=True))

    def _watch(self, watch: StandingWatch) -> Watch:
        self._absolute(watch.path)
        self._watches[watch] = None
        if self._in(SessionState.CONNECTED):
            watch.arm()
        return watch

    def forget(self, watch: StandingWatch) -> None:
        """Remove a cancelled watch."""
        self._watches.pop(watch, None)


def _data_and_stat(value: tuple[bytes | None, Sequence[int]]) -> tuple[bytes, ZnodeStat]:
    data, stat = value
    return data or b"", ZnodeStat(*stat)
