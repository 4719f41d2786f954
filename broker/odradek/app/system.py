"""The environment of a broker: time, files, addresses, threads, processes and ZooKeeper.

`Broker` gets a `System` and uses nothing else, so a whole cluster can run in virtual time with simulated parts
(`odradek_testkit.simulation`). `system` returns the real one.
"""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from odradek.base.disk_threads import DaemonThreads
from odradek.base.ports import Clock, DiskThreadsMaker, Files, Workers
from odradek.base.system_ports import SystemClock, SystemFiles
from odradek.base.workers import ProcessWorkers
from odradek.network.listener import bind_socket
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import ZkClient, ZkSettings


class SessionClient(ZkClient, Protocol):
    """A ZooKeeper client that is started once and whose session another process can end."""

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """Id and password of the session, if there is one."""
        ...

    async def start(self) -> None:
        """Connect. Raises `ZkError` or `ConfigError` if there is no session in time."""
        ...


class WorkerPool(Workers, Protocol):
    """A pool of worker processes."""

    def grow(self, count: int) -> None:
        """Raise the maximum number of processes to `count`."""
        ...

    async def close(self) -> None:
        """End all processes. Idempotent."""
        ...


class ZooKeeperMaker(Protocol):
    """Creates an unconnected client. `on_latency` is called with the milliseconds of each request."""

    def __call__(self, settings: ZkSettings, *, on_latency: Callable[[float], None]) -> SessionClient:
        """Create an unconnected client. Raises `ConfigError` for invalid settings."""
        ...


class WorkersMaker(Protocol):
    """Creates a pool of at most `count` processes, with a nice value `niceness` above the broker's. Starts none yet."""

    def __call__(self, count: int, *, niceness: int = 0) -> WorkerPool:
        """Create a pool. Must be called on the event loop."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The environment of a broker."""

    clock: Clock
    files: Files
    zookeeper: ZooKeeperMaker
    workers: WorkersMaker
    bind: Callable[[str, int], Awaitable[socket.socket]]
    """Binds an address for a listener. Raises `OSError`."""
    disk_threads: DiskThreadsMaker
    """Creates the threads for blocking calls on a log directory."""
    max_open_files: int = 4096
    """Maximum number of file descriptors of the process."""


def system() -> System:
    """Return the real system. Must be called on the event loop of the broker."""
    return System(
        clock=SystemClock(),
        files=SystemFiles(),
        zookeeper=KazooZkClient,
        workers=ProcessWorkers,
        bind=bind_socket,
        disk_threads=DaemonThreads,
        max_open_files=_max_open_files(),
    )


def _max_open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
