"""A `ZkClient` in memory, for tests that need ZooKeeper's answers but not ZooKeeper.

A `MemoryZk` is one session on a `MemoryTree`; sessions that share a tree see each other's writes. Conditional writes,
transactions, sequential and ephemeral znodes, stats and watches are as on a server: broker/tests/contract/zk runs one
suite over this and the real client. As there, no operation completes without a turn of the event loop, and a watch is
told, on the loop, before the answer to its own session's write.

Left out: a session is born connected and ends with `close` only, so of the session's events there is `CLOSED` alone;
there are no ACLs, and no chroot. `failures` makes the next operations fail.
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
    """Replaced, never changed, so that a copy of the dictionary of znodes is a snapshot of the tree."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    owner: int = 0
    version: int = 0
    num_children: int = 0
    children_made: int = 0

    def stat(self) -> ZnodeStat:
        """The stat as a server gives it: the children's version counts those made and those deleted."""
        return ZnodeStat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=2 * self.children_made - self.num_children,
            aversion=0,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            num_children=self.num_children,
            pzxid=self.pzxid,
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """A znode whose data, or whose set of children, changed; its coming and going is a change of both."""

    path: str
    of_data: bool
    of_children: bool


class _Watch:
    """A standing watch of one session."""

    def __init__(self, tree: MemoryTree, session: MemoryZk, path: str, callback: Callable[[], None], *, children: bool):
        self._tree = tree
        self._owner = session
        self.session = session.session_id
        self._path = path
        self._callback = callback
        self._children = children

    def tell(self) -> None:
        """On its way to its owner."""
        self._owner.tell_later(self.call)

    def sees(self, change: _Change) -> bool:
        """Whether its owner is to be told."""
        return change.path == self._path and (change.of_children if self._children else change.of_data)

    def call(self) -> None:
        """Tell, unless cancelled meanwhile."""
        if self in self._tree.watches:
            self._callback()

    def cancel(self) -> None:
        """Call back no more."""
        self._tree.watches.pop(self, None)


class MemoryTree:
    """The znodes of an ensemble, its sessions and their watches."""

    def __init__(self) -> None:
        """The root only."""
        self.nodes: dict[str, _Znode] = {ROOT: _Znode(b"", 0, 0, 0, 0, 0)}
        self.watches: dict[_Watch, None] = {}
        self.session_ids = count(FIRST_SESSION_ID)
        self.wall_ms = 0
        """The time that changes are stamped with, ms since the epoch; stands still unless set."""
        self._zxid = 0
        self._changes: list[_Change] = []

    @property
    def last_zxid(self) -> int:
        """Of the last transaction: nothing has changed while this stands still."""
        return self._zxid

    def node(self, path: str) -> _Znode:
        """`NoNode` when there is none."""
        if path not in self.nodes:
            raise NoNode("no such znode", path)
        return self.nodes[path]

    def children(self, path: str) -> list[str]:
        """Names, sorted; `NoNode`."""
        if not self.node(path).num_children:
            return []
        return sorted(each.rpartition("/")[2] for each in self.nodes if each != ROOT and _parent(each) == path)

    def transaction(self, operations: Sequence[Operation], session: int) -> list[Result]:
        """Carry out all, under one zxid, and schedule what watches see of it; or nothing, and raise the first error."""
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

    def end_session(self, session: int) -> None:
        """Its watches and its ephemeral znodes go."""
        for watch in [watch for watch in self.watches if watch.session == session]:
            watch.cancel()
        mine = [path for path, node in self.nodes.items() if node.owner == session]
        self.transaction([Delete(path) for path in mine], session)

    def _tell(self) -> None:
        # The first change of a transaction fires a one-shot watch; it is armed again only after the whole of it.
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
            raise NodeExists("the znode exists already", path)
        above = self.nodes.get(_parent(path))
        if above is None:
            raise NoNode("no such znode", path)
        if operation.sequential:
            path = f"{path}{above.children_made:010d}"
        if not _is_valid(path):
            raise ZkError("not a valid path", operation.path)
        if path in self.nodes:
            raise NodeExists("the znode exists already", operation.path)
        if above.owner:
            raise ZkError("an ephemeral znode cannot have children", operation.path)
        now, zxid = self.wall_ms, self._zxid
        owner = session if operation.ephemeral else 0
        self.nodes[path] = _Znode(operation.data or b"", zxid, zxid, zxid, now, now, owner)
        self._count_child(path, made=1, more=1)
        return path

    def _delete(self, path: str, version: int) -> None:
        if path == ROOT:
            raise ValueError("the root stays")
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
        """Connected, to a tree of its own if none is given."""
        self.tree = MemoryTree() if tree is None else tree
        self.failures: list[ZkError] = []
        """Errors of this session's next operations, one each; a failed operation is not carried out."""
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
        """Another one for every client of a tree."""
        return self._session_id

    # Reading

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """As the port says."""
        return await self._answer(path, lambda: self._get(_normal(path)))

    async def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """As the port says."""
        return await self._answer(path, lambda: _or_none(self._get, _normal(path)))

    async def get_many(self, paths: Iterable[str]) -> dict[str, tuple[bytes, ZnodeStat] | None]:
        """As the port says; other sessions may write in between."""
        self._demand_open("")
        return {path: await self.get_or_none(path) for path in paths}

    async def children(self, path: str) -> list[str]:
        """As the port says."""
        return await self._answer(path, lambda: self.tree.children(_normal(path)))

    async def children_or_none(self, path: str) -> list[str] | None:
        """As the port says."""
        return await self._answer(path, lambda: _or_none(self.tree.children, _normal(path)))

    async def children_many(self, paths: Iterable[str]) -> dict[str, list[str] | None]:
        """As the port says; other sessions may write in between."""
        self._demand_open("")
        return {path: await self.children_or_none(path) for path in paths}

    async def exists(self, path: str) -> ZnodeStat | None:
        """As the port says."""
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
        """As the port says."""

        def make() -> Created:
            # A sequential znode may have no name of its own but its number.
            normal = _normal(path)
            wanted = f"{normal}/" if sequential and path.endswith("/") and normal != ROOT else normal
            if make_parents:
                self._ensure(parents(normal))
            (made,) = self._transaction([Create(wanted, data, ephemeral, sequential)])
            assert isinstance(made, str), "a create answers with its path"
            return Created(made, self.tree.node(made).stat())

        return await self._answer(path, make)

    async def ensure_path(self, path: str) -> None:
        """As the port says."""
        await self._answer(path, lambda: self._ensure([*parents(_normal(path)), _normal(path)]))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> ZnodeStat:
        """As the port says."""
        (stat,) = await self.multi([SetData(_normal(path), data, version)])
        assert isinstance(stat, ZnodeStat), "a set answers with its stat"
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """As the port says."""
        await self.multi([Delete(_normal(path), version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """As the port says."""
        path = operations[0].path if operations else ""
        return await self._answer(path, lambda: self._transaction(operations))

    async def multi_many(self, transactions: Iterable[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        """As the port says. One operation to `failures`, and one that is raised, not listed."""
        return await self._answer("", lambda: [self._outcome(operations) for operations in transactions])

    # Watching

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """As the port says; armed at once."""
        return self._watch(path, callback, children=False)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """As the port says; armed at once."""
        return self._watch(path, callback, children=True)

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """As the port says; only `CLOSED` ever comes."""
        self._session_callbacks.append(callback)

    async def close(self) -> None:
        """As the port says."""
        if self._state is SessionState.CLOSED:
            return
        self._state = SessionState.CLOSED
        self.tree.end_session(self._session_id)
        for callback in tuple(self._session_callbacks):
            callback(SessionEvent.CLOSED)
        await asyncio.sleep(0)

    def tell_later(self, callback: Callable[[], None]) -> None:
        """A watch fired: tell on the loop, before the answer to the write that fired it."""
        asyncio.get_running_loop().call_soon(callback)

    # Inside

    async def _answer(self, path: str, operation: Callable[[], _T]) -> _T:
        """Carry out one operation at once; its answer comes after the watches that it fires."""
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
    """A path as the real client sends it in a single operation: without empty parts. `InvalidPath` for a relative one.

    Transactions are sent as they are.
    """
    normal = ROOT + "/".join(part for part in path.split("/") if part)
    if not path.startswith("/") or not _is_valid(normal):
        raise InvalidPath("not an absolute path", path)
    return normal


def _is_valid(path: str) -> bool:
    """Whether a server makes a znode of this path."""
    return path == ROOT or (path.startswith("/") and not {"", ".", ".."}.intersection(path[1:].split("/")))
