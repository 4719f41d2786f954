"""A `ZkClient` in memory: one tree, one session, for tests that need ZooKeeper's answers but not ZooKeeper.

Conditional writes, transactions, sequential names and watches behave as the port says. Nothing here waits: what a real
ensemble does to timing and sessions is for the tests against one. `failures` makes the next operations fail.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from odradek.zk.port import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
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
    parents,
)

SESSION_ID = 0x0D12


@dataclass(slots=True)
class _Znode:
    data: bytes
    czxid: int
    mzxid: int
    is_ephemeral: bool
    version: int = 0
    children_made: int = 0


class _Watch:
    def __init__(self, watches: list[tuple[str, _Watch]], path: str, callback: Callable[[], None]) -> None:
        self._watches = watches
        self.callback = callback
        self._entry = (path, self)
        watches.append(self._entry)

    def cancel(self) -> None:
        if self._entry in self._watches:
            self._watches.remove(self._entry)


class MemoryZk:
    """See the module."""

    def __init__(self) -> None:
        """An empty tree."""
        self._nodes: dict[str, _Znode] = {}
        self._zxid = 0
        self._data_watches: list[tuple[str, _Watch]] = []
        self._child_watches: list[tuple[str, _Watch]] = []
        self.failures: list[ZkError] = []
        """Errors of the next operations, one each."""
        self.operations = 0
        """How many operations there were."""

    @property
    def state(self) -> SessionState:
        """Always connected."""
        return SessionState.CONNECTED

    @property
    def session_id(self) -> int:
        """Always the same session."""
        return SESSION_ID

    # Reading

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """As the port says."""
        self._begin()
        return self._node(path).data, self._stat(path)

    async def get_or_none(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """As the port says."""
        self._begin()
        return (self._nodes[path].data, self._stat(path)) if path in self._nodes else None

    async def get_many(self, paths: Iterable[str]) -> dict[str, tuple[bytes, ZnodeStat] | None]:
        """As the port says."""
        return {path: await self.get_or_none(path) for path in paths}

    async def children(self, path: str) -> list[str]:
        """As the port says."""
        self._begin()
        self._node(path)
        return self._children(path)

    async def children_or_none(self, path: str) -> list[str] | None:
        """As the port says."""
        self._begin()
        return self._children(path) if path in self._nodes else None

    async def children_many(self, paths: Iterable[str]) -> dict[str, list[str] | None]:
        """As the port says."""
        return {path: await self.children_or_none(path) for path in paths}

    async def exists(self, path: str) -> ZnodeStat | None:
        """As the port says."""
        self._begin()
        return self._stat(path) if path in self._nodes else None

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
        self._begin()
        if make_parents:
            await self.ensure_path(path.rpartition("/")[0])
        made = self._apply(Create(path, data, ephemeral, sequential))
        assert isinstance(made, str)
        self._notify([made])
        return Created(made, self._stat(made))

    async def ensure_path(self, path: str) -> None:
        """As the port says."""
        for each in [*parents(path), path] if path else []:
            if each not in self._nodes:
                self._apply(Create(each))
                self._notify([each])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> ZnodeStat:
        """As the port says."""
        self._begin()
        self._apply(SetData(path, data, version))
        self._notify([path])
        return self._stat(path)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """As the port says."""
        self._begin()
        self._apply(Delete(path, version))
        self._notify([path])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """As the port says."""
        self._begin()
        return self._transaction(operations)

    async def multi_many(self, transactions: Iterable[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        """As the port says."""
        self._begin()
        outcomes: list[list[Result] | ZkError] = []
        for operations in transactions:
            try:
                outcomes.append(self._transaction(operations))
            except ZkError as error:
                outcomes.append(error)
        return outcomes

    # Watching

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Called back within the call that changes the znode."""
        return _Watch(self._data_watches, path, callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Called back within the call that changes the set."""
        return _Watch(self._child_watches, path, callback)

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Never calls back: the session does not end."""

    async def close(self) -> None:
        """Ephemeral znodes go."""
        for path in [path for path, node in self._nodes.items() if node.is_ephemeral]:
            del self._nodes[path]

    # Inside

    def _begin(self) -> None:
        self.operations += 1
        if self.failures:
            raise self.failures.pop(0)

    def _node(self, path: str) -> _Znode:
        if path not in self._nodes:
            raise NoNode("no such znode", path)
        return self._nodes[path]

    def _children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(
            each[len(prefix) :] for each in self._nodes if each.startswith(prefix) and "/" not in each[len(prefix) :]
        )

    def _stat(self, path: str) -> ZnodeStat:
        node = self._node(path)
        owner = SESSION_ID if node.is_ephemeral else 0
        children = len(self._children(path))
        return ZnodeStat(node.czxid, node.mzxid, 0, 0, node.version, 0, 0, owner, len(node.data), children, node.mzxid)

    def _transaction(self, operations: Sequence[Operation]) -> list[Result]:
        before = copy.deepcopy(self._nodes)
        try:
            results = [self._apply(operation) for operation in operations]
        except ZkError:
            self._nodes = before
            raise
        self._notify([operation.path for operation in operations if not isinstance(operation, Check)])
        return results

    def _apply(self, operation: Operation) -> Result:
        self._zxid += 1
        if isinstance(operation, Create):
            return self._create(operation)
        node = self._node(operation.path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersion(f"version {node.version}, not {operation.version}", operation.path)
        if isinstance(operation, SetData):
            node.data, node.version, node.mzxid = operation.data, node.version + 1, self._zxid
            return self._stat(operation.path)
        if isinstance(operation, Delete):
            if self._children(operation.path):
                raise NotEmpty("the znode has children", operation.path)
            del self._nodes[operation.path]
        return None

    def _create(self, operation: Create) -> str:
        path = operation.path
        parent = self._nodes.get(path.rpartition("/")[0])
        if parent is None and path.count("/") > 1:
            raise NoNode("the parent is missing", path)
        if operation.sequential and parent is not None:
            path = f"{path}{parent.children_made:010d}"
        if path in self._nodes:
            raise NodeExists("there is one already", path)
        if parent is not None:
            parent.children_made += 1
        self._nodes[path] = _Znode(operation.data or b"", self._zxid, self._zxid, operation.ephemeral)
        return path

    def _notify(self, paths: Iterable[str]) -> None:
        for path in paths:
            parent = path.rpartition("/")[0]
            for watches, watched in ((self._data_watches, path), (self._child_watches, parent)):
                for each, watch in list(watches):
                    if each == watched:
                        watch.callback()
