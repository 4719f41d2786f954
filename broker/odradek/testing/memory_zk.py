"""A `ZkClient` in memory, for tests without a ZooKeeper server.

A `MemoryZk` is a session on a `MemoryTree`; sessions that share a tree see each other's writes. Conditional writes,
transactions, sequential and ephemeral znodes, stats and watches work as on a server: broker/tests/contract/zk tests
this and the real client with the same suite. As with the real client, no operation completes in the same iteration of
the event loop, and a watch is called, on the loop, before the response to a write of its own session.

Not implemented: a session is connected from the start and only ends with `close`, so `CLOSED` is its only event; there
are no ACLs and no chroot. `failures` makes the next operations fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from odradek.zk.port import (
    ANY_VERSION,
    MAX_REQUEST_BYTES,
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
    Operation,
    Result,
    SessionEvent,
    SessionState,
    SetData,
    Watch,
    ZkError,
    ZnodeStat,
    check_size,
    parents,
)

ROOT = "/"
FIRST_SESSION_ID = 0x0D12
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Znode:
    """A znode. It is replaced, never modified, so a copy of the dictionary of znodes is a snapshot of the tree."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    owner: int = 0
    version: int = 0
    aversion: int = 0
    num_children: int = 0
    children_made: int = 0

    def stat(self) -> ZnodeStat:
        """Return the stat as on a server: the version of the children counts creations and deletions."""
        return ZnodeStat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=2 * self.children_made - self.num_children,
            aversion=self.aversion,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            num_children=self.num_children,
            pzxid=self.pzxid,
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """A znode whose data or set of children changed; its creation and deletion change both."""

    path: str
    of_data: bool
    of_children: bool


class _Watch:
    """A permanent watch of one session."""

    def __init__(self, tree: MemoryTree, session: MemoryZk, path: str, callback: Callable[[], None], *, children: bool):
        self._tree = tree
        self._owner = session
        self.session = session.session_id
        self._path = path
        self._callback = callback
        self._children = children

    def tell(self) -> None:
        """Whether a callback is scheduled."""
        self._owner.tell_later(self.call)

    def sees(self, change: _Change) -> bool:
        """Whether the callback must be called."""
        return change.path == self._path and (change.of_children if self._children else change.of_data)

    def call(self) -> None:
        """Call the callback, unless the watch was cancelled in the meantime."""
        if self in self._tree.watches:
            self._callback()

    def cancel(self) -> None:
        """Stop the callbacks."""
        self._tree.watches.pop(self, None)


class MemoryTree:
    """The znodes of an ensemble, its sessions and their watches."""

    def __init__(self) -> None:
        """The tree contains only the root."""
        self.nodes: dict[str, _Znode] = {ROOT: _Znode(b"", 0, 0, 0, 0, 0)}
        self.watches: dict[_Watch, None] = {}
        self.session_ids = count(FIRST_SESSION_ID)
        self.wall_ms = 0
        """Time in the stats of changes, in ms since the epoch; constant unless set."""
        self._zxid = 0
        self._changes: list[_Change] = []

    @property
    def last_zxid(self) -> int:
        """Id of the last transaction; unchanged while nothing changes."""
        return self._zxid

    def node(self, path: str) -> _Znode:
        """Return a znode. Raises `NoNode`."""
        if path not in self.nodes:
            raise NoNode("the znode does not exist", path)
        return self.nodes[path]

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children. Raises `NoNode`."""
        if not self.node(path).num_children:
            return []
        return sorted(each.rpartition("/")[2] for each in self.nodes if each != ROOT and _parent(each) == path)

    def transaction(self, operations: Sequence[Operation], session: int) -> list[Result]:
        """Execute all operations with one zxid, and schedule their watches; or none, and raise the first error."""
        before = dict(self.nodes)
        self._zxid += 1
        self._changes = []
        try:
            results = [self._apply(operation, session) for operation in operations]
        except BaseException:
            self.nodes = before
            raise
        self._tell()
        return results

    def count_acls(self, paths: Iterable[str]) -> None:
        """Count a change of the ACL of each znode that exists."""
        for path in paths:
            if (node := self.nodes.get(path)) is not None:
                self.nodes[path] = replace(node, aversion=node.aversion + 1)

    def end_session(self, session: int) -> None:
        """End a session: remove its watches and ephemeral znodes."""
        for watch in [watch for watch in self.watches if watch.session == session]:
            watch.cancel()
        mine = [path for path, node in self.nodes.items() if node.owner == session]
        self.transaction([Delete(path) for path in mine], session)

    def _tell(self) -> None:
        # The first change of a transaction fires a one-shot watch, which is set again only after the transaction.
        seen = dict.fromkeys(watch for change in self._changes for watch in self.watches if watch.sees(change))
        for watch in seen:
            watch.tell()

    def _apply(self, operation: Operation, session: int) -> Result:
        match operation:
            case Create():
                return self._create(operation, session)
            case SetData(path, data, version):
                node = self._demand(path, version)
                self.nodes[path] = changed = replace(
                    node, data=data, version=node.version + 1, mzxid=self._zxid, mtime_ms=self.wall_ms
                )
                self._changes.append(_Change(path, of_data=True, of_children=False))
                return changed.stat()
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._demand(path, version)
        return None

    def _demand(self, path: str, version: int) -> _Znode:
        node = self.node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion("the znode has another version", path)
        return node

    def _create(self, operation: Create, session: int) -> str:
        path = operation.path
        if path == ROOT and not operation.sequential:
            raise NodeExists("the znode already exists", path)
        above = self.nodes.get(_parent(path))
        if above is None:
            raise NoNode("the znode does not exist", path)
        if operation.sequential:
            path = f"{path}{above.children_made:010d}"
        if not _is_valid(path):
            raise ZkError("not a valid path", operation.path)
        if path in self.nodes:
            raise NodeExists("the znode already exists", operation.path)
        if above.owner:
            raise ZkError("an ephemeral znode cannot have children", operation.path)
        now, zxid = self.wall_ms, self._zxid
        owner = session if operation.ephemeral else 0
        self.nodes[path] = _Znode(operation.data or b"", zxid, zxid, zxid, now, now, owner)
        self._count_child(path, made=1, more=1)
        return path

    def _delete(self, path: str, version: int) -> None:
        if path == ROOT:
            raise ValueError("the root cannot be deleted")
        if self._demand(path, version).num_children:
            raise NotEmpty("the znode has children", path)
        del self.nodes[path]
        self._count_child(path, made=0, more=-1)

    def _count_child(self, path: str, *, made: int, more: int) -> None:
        above = _parent(path)
        node = self.nodes[above]
        self.nodes[above] = replace(
            node,
            num_children=node.num_children + more,
            children_made=node.children_made + made,
            pzxid=self._zxid,
        )
        self._changes.append(_Change(path, of_data=True, of_children=True))
        self._changes.append(_Change(above, of_data=False, of_children=True))


class MemoryZk:
    """One session on a tree. Use it on a running event loop."""

    def __init__(self, tree: MemoryTree | None = None) -> None:
        """The session is connected. Without `tree`, it creates one."""
        self.tree = MemoryTree() if tree is None else tree
        self.failures: list[ZkError] = []
        """Errors of the next operations of this session, one each; a failed operation is not executed."""
        self.max_request_bytes = MAX_REQUEST_BYTES
        self._session_id = next(self.tree.session_ids)
        self._state = SessionState.CONNECTED
        self._session_callbacks: list[Callable[[SessionEvent], None]] = []

    @property
    def state(self) -> SessionState:
        """Connected until closed."""
        return self._state

    @property
    def session_id(self) -> int:
        """The id of the session, which no other session of the tree has."""
        return self._session_id

    # Reading

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """See `ZkClient`."""
        return await self._answer(path, lambda: self._get(_normal(path)))

    async def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """See `ZkClient`."""
        return await self._answer(path, lambda: _or_none(self._get, _normal(path)))

    async def get_many(self, paths: Iterable[str]) -> dict[str, tuple[bytes, ZnodeStat] | None]:
        """See `ZkClient`; other sessions may write in between."""
        self._demand_open("")
        return {path: await self.get_or_none(path) for path in paths}

    async def children(self, path: str) -> list[str]:
        """See `ZkClient`."""
        return await self._answer(path, lambda: self.tree.children(_normal(path)))

    async def children_or_none(self, path: str) -> list[str] | None:
        """See `ZkClient`."""
        return await self._answer(path, lambda: _or_none(self.tree.children, _normal(path)))

    async def children_many(self, paths: Iterable[str]) -> dict[str, list[str] | None]:
        """See `ZkClient`; other sessions may write in between."""
        self._demand_open("")
        return {path: await self.children_or_none(path) for path in paths}

    async def exists(self, path: str) -> ZnodeStat | None:
        """See `ZkClient`."""
        found = await self.get_or_none(path)
        return None if found is None else found[1]

    # Writing

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        """See `ZkClient`."""

        def make() -> Created:
            # The name of a sequential znode can be only its number.
            normal = _normal(path)
            wanted = f"{normal}/" if sequential and path.endswith("/") and normal != ROOT else normal
            if make_parents:
                self._ensure(parents(normal))
            (made,) = self._transaction([Create(wanted, data, ephemeral, sequential)])
            assert isinstance(made, str), "the result of a create is its path"
            return Created(made, self.tree.node(made).stat())

        return await self._answer(path, make)

    async def ensure_path(self, path: str) -> None:
        """See `ZkClient`."""
        await self._answer(path, lambda: self._ensure([*parents(_normal(path)), _normal(path)]))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> ZnodeStat:
        """See `ZkClient`."""
        (stat,) = await self.multi([SetData(_normal(path), data, version)])
        assert isinstance(stat, ZnodeStat), "the result of a set is the stat"
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `ZkClient`."""
        await self.multi([Delete(_normal(path), version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """See `ZkClient`."""
        path = operations[0].path if operations else ""
        return await self._answer(path, lambda: self._transaction(operations))

    async def multi_many(self, transactions: Iterable[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        """See `ZkClient`. Each operation takes one of `failures`; one that is raised is not returned."""
        return await self._answer("", lambda: [self._outcome(operations) for operations in transactions])

    async def reset_acls(self, paths: Iterable[str]) -> None:
        """See `ZkClient`. The tree has no ACLs, only their versions."""
        await self._answer("", lambda: self.tree.count_acls(_normal(path) for path in paths))

    # Watching

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `ZkClient`; set immediately."""
        return self._watch(path, callback, children=False)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """See `ZkClient`; set immediately."""
        return self._watch(path, callback, children=True)

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """See `ZkClient`; the only event is `CLOSED`."""
        self._session_callbacks.append(callback)

    async def close(self) -> None:
        """See `ZkClient`."""
        if self._state is SessionState.CLOSED:
            return
        self._state = SessionState.CLOSED
        self.tree.end_session(self._session_id)
        for callback in tuple(self._session_callbacks):
            callback(SessionEvent.CLOSED)
        await asyncio.sleep(0)

    def tell_later(self, callback: Callable[[], None]) -> None:
        """Schedule the callback of a watch that fired, before the response to the write that fired it."""
        asyncio.get_running_loop().call_soon(callback)

    # Implementation

    async def _answer(self, path: str, operation: Callable[[], _T]) -> _T:
        """Execute one operation now. Its response arrives after the watches that it fires."""
        try:
            self._demand_open(path)
            if self.failures:
                raise self.failures.pop(0)
            return operation()
        finally:
            await asyncio.sleep(0)

    def _demand_open(self, path: str) -> None:
        if self._state is SessionState.CLOSED:
            raise ConnectionLost("the client is closed", path)

    def _get(self, path: str) -> tuple[bytes, ZnodeStat]:
        node = self.tree.node(path)
        return node.data, node.stat()

    def _ensure(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path not in self.tree.nodes:
                self._transaction([Create(path)])

    def _transaction(self, operations: Sequence[Operation]) -> list[Result]:
        check_size(operations, self.max_request_bytes)
        return self.tree.transaction(operations, self._session_id)

    def _outcome(self, operations: Sequence[Operation]) -> list[Result] | ZkError:
        try:
            return self._transaction(operations)
        except ZkError as error:
            return error

    def _watch(self, path: str, callback: Callable[[], None], *, children: bool) -> Watch:
        watch = _Watch(self.tree, self, _normal(path), callback, children=children)
        if self._state is SessionState.CONNECTED:
            self.tree.watches[watch] = None
        return watch


def _or_none(read: Callable[[str], _T], path: str) -> _T | None:
    try:
        return read(path)
    except NoNode:
        return None


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def _normal(path: str) -> str:
    """Return a path as the real client sends it in a single operation: without empty parts. Raises `InvalidPath`.

    Transactions are sent unchanged.
    """
    normal = ROOT + "/".join(part for part in path.split("/") if part)
    if not path.startswith("/") or not _is_valid(normal):
        raise InvalidPath("not an absolute path", path)
    return normal


def _is_valid(path: str) -> bool:
    """Whether a server accepts a znode with this path."""
    return path == ROOT or (path.startswith("/") and not {"", ".", ".."}.intersection(path[1:].split("/")))
