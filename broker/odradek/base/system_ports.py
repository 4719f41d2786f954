"""Implements the ports with the operating system: `SystemClock` and `SystemFiles`. Reports why a process ends.

Only `app` creates the ports; all other code uses `base.ports`. Invariant: `SystemFiles` converts every
`OSError` into a `StorageError`, and continues reads and writes that the kernel completed only partly.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import random
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from odradek.base.errors import StorageError
from odradek.base.mounts import device_number, is_remote, parse_mounts, type_at
from odradek.base.ports import Buffer, File, Timer

LONGEST_WAIT_MS: Final = 86_400_000.0
"""Longer delays are split: event loops reject delays that overflow their timers, and settings allow 2**63 ms."""

MOST_BUFFERS: Final = 512
"""Buffers in one pwritev call; Linux allows 1024 (IOV_MAX)."""

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
"""Linux only."""

FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

MOUNT_TABLE: Final = Path("/proc/self/mountinfo")
"""The mounts that this process sees. Only Linux has it."""

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""The kubelet creates the file in each container and shows its content in the status of the pod.

https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""
MAX_TERMINATION_CHARACTERS: Final = 1_000
"""The kubelet shows at most 4,096 bytes."""

logger = logging.getLogger(__name__)


class _LoopTimer:
    """A call on the event loop that is never early: event loops round delays, so it is started again until it is
    due."""

    __slots__ = ("_callback", "_due_ms", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, due_ms: float, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._due_ms = due_ms
        self._callback: Callable[[], None] | None = callback
        self._arm()

    def _arm(self) -> None:
        wait_ms = min(max(self._due_ms - time.monotonic() * 1000.0, 0.0), LONGEST_WAIT_MS)
        self._handle = self._loop.call_later(wait_ms / 1000.0, self._fire)

    def _fire(self) -> None:
        callback = self._callback
        if callback is None:
            return
        if time.monotonic() * 1000.0 < self._due_ms:
            self._arm()
            return
        self._callback = None
        callback()

    def cancel(self) -> None:
        """Cancel the call."""
        self._callback = None
        self._handle.cancel()


class SystemClock:
    """Time of this machine and randomness of its kernel; timers run on an event loop."""

    __slots__ = ("_loop", "_random")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Without `loop`, timers run on the loop that is running when they are created."""
        # A separate generator: other code in the process may seed or observe that of the module.
        self._random = random.Random()
        self._loop = loop

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary fixed point; never decreases."""
        return time.monotonic() * 1000.0

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop after at least `delay_ms`."""
        loop = self._loop or asyncio.get_running_loop()
        return _LoopTimer(loop, self.monotonic_ms() + delay_ms, callback)

    async def sleep_ms(self, delay_ms: float) -> None:
        """Suspend the calling task for at least `delay_ms`; it yields to the loop once even for 0."""
        due_ms = self.monotonic_ms() + delay_ms
        wait_ms = max(delay_ms, 0.0)
        while True:
            await asyncio.sleep(min(wait_ms, LONGEST_WAIT_MS) / 1000.0)
            wait_ms = due_ms - self.monotonic_ms()
            if wait_ms <= 0:
                return

    def random(self) -> float:
        """A number from [0, 1)."""
        return self._random.random()

    def token_bytes(self, length: int) -> bytes:
        """Unpredictable bytes for ids and nonces."""
        return secrets.token_bytes(length)


def _storage_error(action: str, path: str, error: OSError) -> StorageError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(
        f"cannot {action} {path}: {reason}",
        path=path,
        missing=error.errno == errno.ENOENT,
        full=error.errno in FULL_ERRORS,
    )


@contextlib.contextmanager
def _mapped(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _storage_error(action, path, error) from error


class SystemFile:
    """An open file that is closed with its last reference, so that a reader can keep using a file that the log
    dropped."""

    __slots__ = ("_descriptor", "_path")

    is_remote = False
    """Whether every call may wait for a server."""

    def __init__(self, path: str, descriptor: int) -> None:
        """Takes ownership of `descriptor`."""
        self._path = path
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        """The path that it was opened with, or that of the last `renamed_to`."""
        return self._path

    def size(self) -> int:
        """Length in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise _storage_error("measure", self._path, error) from error

    def pread(self, length: int, position: int) -> bytes:
        """Read at most `length` bytes from `position`; fewer only at the end of the file."""
        try:
            data = os.pread(self._descriptor, length, position)
            if len(data) == length or not data:
                return data
            pieces = [data]
            done = len(data)
            while done < length:
                piece = os.pread(self._descriptor, length - done, position + done)
                if not piece:
                    break
                pieces.append(piece)
                done += len(piece)
            return b"".join(pieces)
        except OSError as error:
            raise _storage_error("read", self._path, error) from error

    def pread_now(self, length: int, position: int) -> Buffer | None:
        """Read exactly `length` bytes from `position` if they are in the page cache; None if not, or if the file ends
        before. A file system that cannot tell reads them, and may block."""
        data = bytearray(length)
        try:
            return data if os.preadv(self._descriptor, (data,), position, os.RWF_NOWAIT) == length else None
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise _storage_error("read", self._path, error) from error
        found = self.pread(length, position)
        return found if len(found) == length else None

    def pread_into(self, buffer: bytearray, length: int, position: int) -> bool:
        """Read exactly `length` bytes into the start of `buffer` if they are in the page cache; see `pread_now`."""
        target = buffer if len(buffer) == length else memoryview(buffer)[:length]
        try:
            return os.preadv(self._descriptor, (target,), position, _NOWAIT) == length
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise _storage_error("read", self._path, error) from error
        found = self.pread(length, position)
        target[: len(found)] = found
        return len(found) == length

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers consecutively from `position`. Returns the number of bytes written."""
        try:
            if len(buffers) == 1:
                # An append to a log: a single buffer without a vector takes half the time, in the kernel as well.
                total = len(buffers[0])
                done = os.pwrite(self._descriptor, buffers[0], position)
            else:
                total = sum(map(len, buffers))
                done = os.pwritev(self._descriptor, buffers[:MOST_BUFFERS], position)
            if done != total:
                self._write_rest(buffers, done, position)
        except OSError as error:
            raise _storage_error("write", self._path, error) from error
        return total

    def _write_rest(self, buffers: Sequence[Buffer], done: int, position: int) -> None:
        skip = done
        for buffer in buffers:
            view = memoryview(buffer)
            if skip >= len(view):
                skip -= len(view)
                continue
            view = view[skip:]
            skip = 0
            while view:
                written = os.pwrite(self._descriptor, view, position + done)
                if written == 0:
                    raise OSError(errno.EIO, "nothing was written")
                done += written
                view = view[written:]

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros, to `size` bytes."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise _storage_error("truncate", self._path, error) from error

    def allocate(self, size: int) -> None:
        """Extend the file with zeros to at least `size` bytes and allocate the disk space for them."""
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            raise _storage_error("allocate", self._path, error) from error

    def sync(self) -> None:
        """Return when all bytes written before are durable (fdatasync). Blocks."""
        try:
            if self._descriptor < 0:
                # Unlike the other calls, fdatasync raises ValueError for a negative descriptor.
                raise OSError(errno.EBADF, "closed")
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise _storage_error("sync", self._path, error) from error

    def renamed_to(self, path: str) -> None:
        """Record that `Files.rename` moved this open file to `path`."""
        self._path = path

    def fileno(self) -> int | None:
        """The descriptor for `sendfile`; None if closed, because another file may have the number now."""
        return self._descriptor if self._descriptor >= 0 else None

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        """Close a descriptor that is still open: sealed segments drop their file and leave it to the last reader."""
        self.close()


class RemoteFile(SystemFile):
    """A file of a remote file system. The kernel cannot tell what a read would wait for, so nothing is in memory."""

    __slots__ = ()

    is_remote = True

    def pread_now(self, length: int, position: int) -> Buffer | None:
        """Return None, except for an empty read."""
        return None if length else super().pread_now(length, position)

    def pread_into(self, buffer: bytearray, length: int, position: int) -> bool:
        """Return False, except for an empty read."""
        return not length and super().pread_into(buffer, length, position)


class SystemFiles:
    """The operating system's file system."""

    __slots__ = ("_remote_devices",)

    def __init__(self, remote_devices: Iterable[int] = ()) -> None:
        """File systems other than those on `remote_devices` count as local until `remote_type` finds a remote one."""
        self._remote_devices: Final = set(remote_devices)

    def __reduce__(self) -> tuple[type[SystemFiles], tuple[tuple[int, ...]]]:
        """Worker processes get a copy. In compiled code, pickle cannot set final attributes by itself."""
        return SystemFiles, (tuple(self._remote_devices),)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open an existing file; with `create`, create it if it does not exist."""
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        with _mapped("open", path):
            descriptor = os.open(path, flags, 0o644)
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            os.close(descriptor)
            raise StorageError(f"cannot open {path}: it is a directory", path=path)
        return (RemoteFile if status.st_dev in self._remote_devices else SystemFile)(path, descriptor)

    def read(self, path: str) -> bytes:
        """Return the content. Raises `StorageError` if the file does not exist."""
        with _mapped("read", path), open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content, durably. After a crash the file has the old or the new content."""
        temporary = path + ".tmp"
        with _mapped("write", path):
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        """Whether a file or directory with this path exists."""
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        with _mapped("list", path):
            return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        return os.path.isdir(path)

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents if they do not exist."""
        with _mapped("make directory", path):
            os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory to `target` atomically, replacing a file there."""
        with _mapped("rename", source):
            os.rename(source, target)

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        with _mapped("remove", path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its contents if it exists."""
        with _mapped("remove", path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """Make renames, creations and removals in a directory durable. Blocks."""
        with _mapped("sync directory", path):
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def size(self, path: str) -> int:
        """Length of a file in bytes."""
        with _mapped("measure", path):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """Wall time in milliseconds of the last write to a file, or the value set by `set_modified_ms`."""
        with _mapped("measure", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        with _mapped("date", path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(available to this user, total) bytes of the file system that contains `path`."""
        with _mapped("measure", path):
            status = os.statvfs(path)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize

    def remote_type(self, path: str) -> str | None:
        """Return the type of the remote file system that contains a directory; None for a local or unknown one."""
        with _mapped("look at", path):
            device = os.stat(path).st_dev
        try:
            table = MOUNT_TABLE.read_bytes()
        except OSError as error:
            logger.debug("the mount table is not readable, so %s counts as local: %s", path, error)
            return None
        found = type_at(os.path.realpath(path), device_number(device), parse_mounts(os.fsdecode(table)))
        if found is None or not is_remote(found):
            return None
        self._remote_devices.add(device)
        return found

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock file and return a function to release it. Raises `StorageError` if it is held
        elsewhere.

        Two locks are taken: flock also excludes another broker in this process, and a POSIX record lock is the one
        that a Java broker takes, so that neither opens a directory that the other uses.
        """
        with _mapped("lock", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StorageError(f"cannot lock {path}: another process holds it", path=path, held=True) from error
            raise _storage_error("lock", path, error) from error
        return _Release(descriptor)


class _Release:
    """Releases a lock. Idempotent."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def report_termination(message: str, path: Path = TERMINATION_LOG) -> None:
    """Write why this process ends. Does nothing outside a container, where the file does not exist."""
    try:
        if path.exists():
            path.write_text(message[:MAX_TERMINATION_CHARACTERS], encoding="utf-8")
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error.strerror)
