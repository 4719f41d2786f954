"""What a broker needs of the machine it runs on, in one place: time, files, addresses, threads, processes, ZooKeeper.

`Broker` is given a `System` and asks nothing else of the outside, so that a whole cluster runs in virtual time when all
of it is simulated (`odradek_testkit.simulation`). `system` makes the real one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from odradek.base.ports import Clock, Files, RunBlocking, Workers
from odradek.base.system import SystemClock, SystemFiles
from odradek.base.workers import ProcessWorkers
from odradek.network.listener import bind_socket
from odradek.zk.client import KazooZkClient
from odradek.zk.port import ZkClient, ZkSettings


class SessionClient(ZkClient, Protocol):
    """A ZooKeeper client that is started once, and whose session another process may end."""

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """Id and password of the session while there is one."""
        ...

    async def start(self) -> None:
        """Connect. Raises a `ZkError` or `ConfigError` when there is no session in time."""
        ...


class WorkerPool(Workers, Protocol):
    """Worker processes that their owner ends."""

    def grow(self, count: int) -> None:
        """Allow at most `count` processes, if those are more than now."""
        ...

    async def close(self) -> None:
        """End all of them; idempotent."""
        ...


class ZooKeeperMaker(Protocol):
    """Makes an unconnected client; `on_latency` is told the milliseconds of each request."""

    def __call__(self, settings: ZkSettings, *, on_latency: Callable[[float], None]) -> SessionClient:
        """Raises `ConfigError` for settings that cannot be understood."""
        ...


class WorkersMaker(Protocol):
    """Makes a pool of at most `count` processes, `niceness` above the broker's; none is started yet."""

    def __call__(self, count: int, *, niceness: int = 0) -> WorkerPool:
        """Called on the event loop."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The machine, as a broker sees it."""

    clock: Clock
    files: Files
    zookeeper: ZooKeeperMaker
    workers: WorkersMaker
    bind: Callable[[str, int], Awaitable[socket.socket]]
    """Takes an address for a listener; `OSError` when it cannot be had."""
    run_blocking: RunBlocking
    """Runs what waits for a disk, off the event loop."""


def system() -> System:
    """The real one; called on the event loop that everything will run on."""
    return System(
        clock=SystemClock(),
        files=SystemFiles(),
        zookeeper=KazooZkClient,
        workers=ProcessWorkers,
        bind=bind_socket,
        run_blocking=asyncio.to_thread,
    )
