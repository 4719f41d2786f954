"""A disk in memory that loses unsynced data in a crash: implements the `Files` port for simulation and crash tests.

`crash` simulates a power failure and leaves one of the states that a real disk may have afterwards. Fault model:

- A byte that was written before the last `sync` of its file survives. Each later write to the file may survive, be
  lost, or survive up to some byte (torn); a later write may survive although an earlier one is lost. A later
  `truncate` survives or is lost like a write.
- Names are durable after `sync_directory` of their directory and after `write_atomically`. Of the later creations,
  renames and removals in a directory a prefix survives, as in a journaling file system that replays them in order.
- A crash releases all locks and makes all open files unusable.

`fail` makes selected operations raise; a full disk refuses writes that extend a file. The caller's random generator
decides what survives, so a seed reproduces a crash. `fork` returns a copy, so that the same moment can crash in several
ways. `kill` ends the process that uses the disk, and loses nothing. Invariant: without a crash the disk behaves like
the operating system; `tests/contract/test_files.py` runs the same tests on both.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from odradek.base.errors import StorageError
from odradek.base.ports import Buffer, File
from odradek_testkit.loop import WALL_START_MS

UNBOUNDED: Final = 1 << 62


class Fate(Enum):
    """What a power failure does to a write that was not synced."""

    LOST = "lost"
    TORN = "torn"
    """The write survives up to some byte."""
    KEPT = "kept"


ANY_FATE: Final = (Fate.LOST, Fate.TORN, Fate.KEPT)


@dataclass(slots=True, eq=False)
class _Node:
    """Content of one file: the current one, the durable one, and the operations between them."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, data) of writes and (size, None) of truncations since the last sync."""
    modified_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        self.pending.append((position, data))
        _apply(self.content, position, data)

    def truncate(self, size: int) -> None:
        self.pending.append((size, None))
        _apply(self.content, size, None)

    def sync(self) -> None:
        for position, data in self.pending:
            _apply(self.durable, position, data)
        self.pending.clear()

    def crash(self, chance: random_module.Random, fates: Sequence[Fate]) -> None:
        survivor = self.durable
        for position, data in self.pending:
            fate = fates[chance.randrange(len(fates))]
            if fate is Fate.LOST:
                continue
            if data is not None and fate is Fate.TORN:
                data = data[: chance.randrange(len(data) + 1)]
            _apply(survivor, position, data)
        self.content = bytearray(survivor)
        self.pending.clear()


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


class _Directory:
    """Names in one directory: the current ones, the durable ones, and the changes between them.

    They belong to the directory and not to its path, so a renamed directory keeps its synced names.
    """

    __slots__ = ("durable", "journal", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Node | _Directory] = {}
        self.durable: dict[str, _Node | _Directory] = {}
        self.journal: list[_Change] = []

    def sync(self) -> None:
        for change in self.journal:
            change.apply(self.durable)
        self.journal.clear()

    def crash(self, chance: random_module.Random, fates: Sequence[Fate]) -> None:
        if self.journal:
            del self.journal[_prefix(len(self.journal), chance, fates) :]
        self.sync()
        self.names = dict(self.durable)
        for name in sorted(self.names):
            self.names[name].crash(chance, fates)


class MemoryFile:
    """An open file of a `MemoryFiles`."""

    __slots__ = ("_disk", "_life", "_node", "_open", "_path", "_read_only")

    def __init__(self, disk: MemoryFiles, path: str, node: _Node, *, read_only: bool) -> None:
        """Created by `MemoryFiles.open`."""
        self._disk = disk
        self._path = path
        self._node = node
        self._read_only = read_only
        self._life = disk.life
        self._open = True

    @property
    def path(self) -> str:
        """The path that the file was opened with, or that of the last `renamed_to`."""
        return self._path

    @property
    def is_remote(self) -> bool:
        """False: no call waits."""
        return False

    def _begin(self, operation: str) -> None:
        if not self._open or self._life != self._disk.life:
            raise StorageError(f"cannot {operation} {self._path}: it is not open", path=self._path)
        self._disk.step(operation, self._path, self._node)

    def size(self) -> int:
        """Length in bytes."""
        self._begin("measure")
        return len(self._node.content)

    def pread(self, length: int, position: int) -> bytes:
        """Read at most `length` bytes from `position`; fewer only at the end of the file."""
        self._begin("read")
        return bytes(self._node.content[position : position + length])

    def pread_now(self, length: int, position: int) -> Buffer | None:
        """Read exactly `length` bytes from `position`; None if the file ends before, or if `is_cold` says so."""
        is_cold = self._disk.is_cold
        if length and is_cold is not None and is_cold():
            return None
        data = self.pread(length, position)
        return data if len(data) == length else None

    def pread_into(self, buffer: bytearray, length: int, position: int) -> bool:
        """Read exactly `length` bytes into the start of `buffer`; see `pread_now`."""
        data = self.pread_now(length, position)
        if data is not None:
            buffer[:length] = data
        return data is not None

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers from `position`. If the disk becomes full, it keeps what fits, as a real one does."""
        data = b"".join(buffers)
        self._writable("write")
        self._begin("write")
        growth = max(position + len(data) - max(len(self._node.content), position), 0)
        missing = self._disk.missing_for(growth)
        if missing > 0:
            self._node.write(position, data[: max(len(data) - missing, 0)])
            raise StorageError(f"cannot write {self._path}: no space is left", path=self._path, full=True)
        self._node.write(position, data)
        self._node.modified_ms = self._disk.wall_ms()
        return len(data)

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros, to `size` bytes."""
        self._writable("truncate")
        self._begin("truncate")
        self._node.truncate(size)
        self._node.modified_ms = self._disk.wall_ms()

    def allocate(self, size: int) -> None:
        """Extend the file with zeros to at least `size` bytes, or change nothing if they do not fit."""
        self._writable("allocate")
        self._begin("allocate")
        growth = size - len(self._node.content)
        if self._disk.missing_for(growth) > 0:
            raise StorageError(f"cannot allocate {self._path}: no space is left", path=self._path, full=True)
        if growth > 0:
            self._node.truncate(size)

    def _writable(self, operation: str) -> None:
        if self._read_only:
            raise StorageError(f"cannot {operation} {self._path}: it is open for reading", path=self._path)

    def sync(self) -> None:
        """Make all bytes written before durable."""
        self._begin("sync")
        self._node.sync()

    def renamed_to(self, path: str) -> None:
        """Record that `Files.rename` moved this open file."""
        self._path = path

    def fileno(self) -> int | None:
        """None: a file in memory has no descriptor."""
        return None

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._open = False


class MemoryFiles:
    """A file system in memory with crash semantics; see the module's fault model."""

    def __init__(self, *, capacity_bytes: int = UNBOUNDED) -> None:
        """Create an empty disk with the root directory `/`."""
        self.capacity_bytes = capacity_bytes
        self.life = 0
        """Number of crashes; files that were opened before the last one are unusable."""
        self.operations = 0
        """Number of operations so far that change or sync something."""
        self.stop_after: int | None = None
        """Number of operations after which the power fails: later ones raise `PowerCutError`."""
        self.is_off = False
        """Whether the power failed during an operation, and `crash` was not called yet."""
        self.fail: Callable[[str, str], StorageError | None] | None = None
        """Called before each operation with its name (write, sync, truncate, read, ...) and path."""
        self.on_change: Callable[[str, str], None] | None = None
        """Called before each operation that changes or syncs the file or directory that has this path now."""
        self.wall_ms: Callable[[], int] = lambda: WALL_START_MS
        """Modification time of files that are written now."""
        self.free: dict[str, tuple[int, int]] = {}
        """(free, total) bytes of directories that are separate disks; all others report the free space of this disk."""
        self.remote: str | None = None
        """Result of `remote_type`."""
        self.is_cold: Callable[[], bool] | None = None
        """Called by each read that must not wait: whether the bytes are not in memory. None: all bytes are."""
        self._root = _Directory()
        self._locks: set[str] = set()

    # Faults

    def step(self, operation: str, path: str, node: _Node | None = None) -> None:
        """Count an operation and apply faults before it. `node` is that of an open file, which may have been moved."""
        if self.fail is not None:
            error = self.fail(operation, path)
            if error is not None:
                raise error
        if operation in _READS:
            return
        if self.stop_after is not None and self.operations >= self.stop_after:
            self.is_off = True
            raise PowerCutError(f"the power is off: cannot {operation} {path}")
        self.operations += 1
        if self.on_change is not None and (node is None or self._find(path) is node):
            self.on_change(operation, path)

    def room(self) -> int:
        """Number of bytes that still fit."""
        return self.capacity_bytes - sum(len(node.content) for _, node in self._walk() if isinstance(node, _Node))

    def missing_for(self, growth: int) -> int:
        """Return how many of `growth` more bytes do not fit: 0 if all do."""
        # The count of all bytes takes long, and most disks are unbounded.
        return 0 if self.capacity_bytes == UNBOUNDED else max(growth - self.room(), 0)

    def crash(self, chance: random_module.Random, fates: Sequence[Fate] = ANY_FATE) -> None:
        """Simulate a power failure, which leaves one of the states that the fault model allows.

        `fates` are the possible fates of a write, equally likely. If all writes are lost, or all kept, so are the
        names.
        """
        self._root.crash(chance, fates)
        self.kill()

    def kill(self) -> None:
        """End the process that uses the disk: its open files and locks are gone, no written data is lost."""
        self._locks.clear()
        self.life += 1
        self.stop_after = None
        self.is_off = False

    def fork(self) -> MemoryFiles:
        """Return an independent copy; open files stay with the original."""
        other = MemoryFiles(capacity_bytes=self.capacity_bytes)
        other._root = deepcopy(self._root)
        other._locks = set(self._locks)
        other.free = dict(self.free)
        other.remote = self.remote
        other.wall_ms = self.wall_ms
        other.life, other.operations = self.life, self.operations
        other.stop_after, other.is_off = self.stop_after, self.is_off
        return other

    def unsynced_from(self, path: str) -> int | None:
        """Return the position below which all bytes written to a file are durable; None if all are."""
        pending = self._node("inspect", path).pending
        return min((position for position, data in pending if data is not None), default=None)

    def content(self, path: str = "/") -> dict[str, bytes | None]:
        """Return every name below a directory with its content, None for directories. Faults do not apply."""
        prefix = path.rstrip("/") + "/"
        return {
            name: bytes(node.content) if isinstance(node, _Node) else None
            for name, node in self._walk()
            if name.startswith(prefix)
        }

    # Names

    def _walk(self, directory: _Directory | None = None, prefix: str = "") -> Iterator[tuple[str, _Node | _Directory]]:
        for name, node in (directory or self._root).names.items():
            yield f"{prefix}/{name}", node
            if isinstance(node, _Directory):
                yield from self._walk(node, f"{prefix}/{name}")

    def _find(self, path: str) -> _Node | _Directory | None:
        node: _Node | _Directory | None = self._root
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(name)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise StorageError(f"cannot open {path}: there is no such directory", path=path, missing=node is None)
        return node

    def _node(self, action: str, path: str) -> _Node:
        node = self._find(path)
        if not isinstance(node, _Node):
            reason = "there is no such file" if node is None else "it is a directory"
            raise StorageError(f"cannot {action} {path}: {reason}", path=path, missing=node is None)
        return node

    # The port

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open an existing file; with `create`, create it if it does not exist."""
        if create and self._find(path) is None:
            self._create(path)
        else:
            self.step("open", path)
        return MemoryFile(self, path, self._node("open", path), read_only=read_only)

    def _create(self, path: str) -> _Node:
        parent, name = _split(path)
        directory = self._directory(parent)
        self.step("create", path)
        node = directory.names[name] = _Node(modified_ms=self.wall_ms())
        directory.journal.append(_Added(name, node))
        return node

    def read(self, path: str) -> bytes:
        """Return the content."""
        self.step("read", path)
        return bytes(self._node("read", path).content)

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content, durably."""
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.pwritev((data,), 0)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_directory(_split(path)[0])

    def exists(self, path: str) -> bool:
        """Whether a file or directory with this path exists."""
        return self._find(path) is not None

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        self.step("list", path)
        return sorted(self._directory(path).names)

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        return isinstance(self._find(path), _Directory)

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents if they do not exist."""
        made = ""
        for name in filter(None, path.split("/")):
            parent = self._directory(made or "/")
            made = f"{made}/{name}"
            if name not in parent.names:
                self.step("make directory", made)
                child = parent.names[name] = _Directory()
                parent.journal.append(_Added(name, child))
            elif not isinstance(parent.names[name], _Directory):
                raise StorageError(f"cannot make directory {path}: {made} is a file", path=path)

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory to `target` atomically, replacing a file there."""
        node = self._find(source)
        if node is None:
            raise StorageError(f"cannot rename {source}: there is no such file", path=source, missing=True)
        (source_parent, source_name), (target_parent, target_name) = _split(source), _split(target)
        target_directory = self._directory(target_parent)
        existing = target_directory.names.get(target_name)
        if isinstance(existing, _Directory) != isinstance(node, _Directory) and existing is not None:
            raise StorageError(f"cannot rename {source}: only one of it and {target} is a directory", path=source)
        if isinstance(existing, _Directory) and existing.names and existing is not node:
            raise StorageError(f"cannot rename {source}: {target} is not empty", path=source)
        self.step("rename", source)
        source_directory = self._directory(source_parent)
        del source_directory.names[source_name]
        target_directory.names[target_name] = node
        if source_directory is target_directory:
            source_directory.journal.append(_Moved(source_name, target_name))
        else:
            added = _Added(target_name, node)
            target_directory.journal.append(added)
            source_directory.journal.append(_Removed(source_name, after=added))

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        node = self._find(path)
        if node is None:
            return
        self._node("remove", path)
        self.step("remove", path)
        parent, name = _split(path)
        directory = self._directory(parent)
        del directory.names[name]
        directory.journal.append(_Removed(name))

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its contents if it exists."""
        if self._find(path) is None:
            return
        parent, name = _split(path)
        self.step("remove", path)
        directory = self._directory(parent)
        del directory.names[name]
        directory.journal.append(_Removed(name))

    def sync_directory(self, path: str) -> None:
        """Make renames, creations and removals in a directory durable."""
        directory = self._directory(path)
        self.step("sync directory", path)
        directory.sync()

    def size(self, path: str) -> int:
        """Length of a file in bytes."""
        self.step("measure", path)
        return len(self._node("measure", path).content)

    def modified_ms(self, path: str) -> int:
        """Wall time of the last write to a file, or the value set by `set_modified_ms`. A crash does not change it."""
        self.step("measure", path)
        return self._node("measure", path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        node = self._node("date", path)
        self.step("date", path)
        node.modified_ms = modified_ms

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (free, total) bytes of the disk."""
        self._directory(path)
        self.step("measure", path)
        return self.free.get(path) or (max(self.room(), 0), self.capacity_bytes)

    def remote_type(self, path: str) -> str | None:
        """Return `remote`, if it is set. Reads of the files stay in memory."""
        self._directory(path)
        return self.remote

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock file and return a function to release it."""
        if path in self._locks:
            raise StorageError(f"cannot lock {path}: another process holds it", path=path, held=True)
        self.open(path, create=True).close()
        self._locks.add(path)
        return lambda: self._locks.discard(path)


class PowerCutError(BaseException):
    """The power failed during a run. Not an `Exception`, so that no handler in the tested code continues."""


_READS: Final = frozenset({"open", "read", "list", "measure"})


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rstrip("/").rpartition("/")
    return parent or "/", name


def _prefix(count: int, chance: random_module.Random, fates: Sequence[Fate]) -> int:
    """Return how many of `count` changes of names survive."""
    if len(set(fates)) == 1 and fates[0] is not Fate.TORN:
        return 0 if fates[0] is Fate.LOST else count
    return chance.randrange(count + 1)


# Changes of names, as values so that `fork` can copy them

_Names = dict[str, _Node | _Directory]


@dataclass(slots=True, eq=False)
class _Added:
    name: str
    node: _Node | _Directory
    applied: bool = False

    def apply(self, names: _Names) -> None:
        names[self.name] = self.node
        self.applied = True


@dataclass(frozen=True, slots=True, eq=False)
class _Removed:
    name: str
    after: _Added | None = None
    """The name of the same node in another directory, which must be durable first."""

    def apply(self, names: _Names) -> None:
        if self.after is None or self.after.applied:
            names.pop(self.name, None)


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    source: str
    target: str

    def apply(self, names: _Names) -> None:
        names[self.target] = names.pop(self.source)


_Change = _Added | _Removed | _Moved
