"""A whole cluster on one machine: ZooKeeper, brokers, and the operator core over them, as child processes and a loop.

Enters: manifests and where things go (`Options`). Leaves: a running cluster. Called by `odradek up` and by the test
kit. Order: ZooKeeper, brokers, reconcile loop; stopped in the reverse order. Whatever goes wrong is an `EmbeddedError`
of one sentence, and nothing is left running; children even end when this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from odradek.zk.client import KazooZkClient
from odradek.zk.port import ZkError, ZkSettings
from odradek_operator.crds import Cluster, Resources
from odradek_operator.embedded.broker_processes import BrokerProcesses
from odradek_operator.embedded.child import system_error
from odradek_operator.embedded.embedded_metrics import EmbeddedMetrics, Sources
from odradek_operator.embedded.layout import Ports, left_out
from odradek_operator.embedded.ledger import Ledger
from odradek_operator.embedded.manifests import Manifests, only_cluster
from odradek_operator.embedded.ports import LOOPBACK, check_ports
from odradek_operator.embedded.progress import Event, ProgressKind, Report
from odradek_operator.embedded.watcher import Watcher
from odradek_operator.embedded.zookeeper_process import ZooKeeperServer
from odradek_operator.errors import EmbeddedError

MINIMUM_FREE_BYTES: Final = 256 << 20
"""Less room than this on the data folder's disk is called full before anything is started."""

START_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.05
_ZOOKEEPER_SESSION_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where an embedded cluster lives."""

    data: Path
    ports: Ports
    zookeeper_jars: Path | None = None
    synchronous: bool = True
    """Whether ZooKeeper syncs each write to the disk; tests do without."""
    grace_seconds: float = 15.0
    """For each broker, from SIGTERM to SIGKILL."""
    restart: bool = True
    """Whether a broker that ends by itself is started again."""


class EmbeddedCluster:
    """One cluster. Everything is called from the event loop and the thread in which `start` ran."""

    def __init__(self, manifests: Manifests, resources: Resources, options: Options, report: Report) -> None:
        """`resources` are what `manifests` gave. Raises `EmbeddedError` unless there is exactly one Cluster."""
        self.cluster: Final[Cluster] = only_cluster(resources)
        self.options: Final = options
        self._manifests = manifests
        self._resources = resources
        self._report = report
        self._data = options.data.absolute()
        self._lock: IO[str] | None = None
        connect = self.cluster.zookeeper.connect
        self._server = (
            ZooKeeperServer(
                self._data / "zookeeper",
                options.ports.zookeeper,
                jars=options.zookeeper_jars,
                synchronous=options.synchronous,
            )
            if connect is None
            else None
        )
        self.zookeeper: Final = f"{LOOPBACK}:{options.ports.zookeeper}" if connect is None else connect
        self.brokers: Final = BrokerProcesses(
            self.cluster, data=self._data, ports=options.ports, zookeeper=self.zookeeper, report=report
        )
        self._monitoring = self._make_monitoring()
        self._zk: KazooZkClient | None = None
        self._watcher: Watcher | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _make_monitoring(self) -> EmbeddedMetrics | None:
        ports, server = self.options.ports, self._server
        if ports.monitoring is None:
            return None
        sources = Sources(
            bootstrap=ports.bootstrap,
            zookeeper=self.zookeeper,
            zookeeper_process=lambda: None if server is None else server.child.pid,
        )
        return EmbeddedMetrics(self.cluster, ports, sources)

    @property
    def bootstrap(self) -> str:
        """What clients are given, `host:port,…`."""
        return self.options.ports.bootstrap

    @property
    def metrics_urls(self) -> list[str]:
        """`/metrics` of each broker."""
        return [f"http://{LOOPBACK}:{port}/metrics" for port in self.options.ports.metrics]

    @property
    def monitoring_urls(self) -> dict[str, str]:
        """`/metrics` of operator, ZooKeeper and exporter, by these names; empty where they are not served."""
        return {} if self._monitoring is None else self._monitoring.urls()

    async def start(self, timeout_seconds: float = START_SECONDS) -> None:
        """Start everything and return when every broker is ready and every topic is there and in sync.

        Raises `EmbeddedError`; then nothing is left running.
        """
        began = time.monotonic()
        try:
            self._check_surroundings()
            for sentence in left_out(self.cluster):
                self._report(Event(ProgressKind.NOTICE, f"cluster {self.cluster.name}", sentence))
            await self._start_zookeeper(timeout_seconds)
            self.brokers.prepare()
            self.brokers.start_all()
            await self.brokers.wait_until_ready(timeout_seconds)
            self._zk = KazooZkClient(ZkSettings(connect=self.zookeeper, session_timeout_ms=_ZOOKEEPER_SESSION_MS))
            await self._zk.start()
            ledger = Ledger(self._data / "resources.json")
            self._watcher = Watcher(self._zk, self._manifests, self._resources, ledger=ledger, report=self._report)
            if self._monitoring is not None:
                self._monitoring.start()
                self._watcher.count_in(self._monitoring.reconciliations)
            await self._watcher.wait_until_ready(timeout_seconds)
        except ZkError as error:
            await self.stop()
            raise EmbeddedError(f"ZooKeeper at {self.zookeeper} does not serve: {error}.") from error
        except BaseException:
            await self.stop()
            raise
        self._tasks.append(asyncio.create_task(self._watcher.run(), name="watcher"))
        if self.options.restart:
            self._tasks.append(asyncio.create_task(self.brokers.supervise(), name="brokers"))
        details: dict[str, object] = {}
        if self._monitoring is not None:
            self._tasks.append(asyncio.create_task(self._monitoring.run(), name="monitoring"))
            prometheus = self._monitoring.write_prometheus_file(self._data)
            details = {"monitoring": self._monitoring.urls(), "prometheus": str(prometheus)}
            message = f"all series are scraped by: prometheus --config.file={prometheus}"
            self._report(Event(ProgressKind.PROCESS, "metrics", message, details))
        self._report(
            Event(
                ProgressKind.READY,
                "ready",
                f"bootstrap {self.bootstrap} zookeeper {self.zookeeper}",
                {
                    "bootstrap": self.bootstrap,
                    "zookeeper": self.zookeeper,
                    "metrics": self.metrics_urls,
                    "brokers": self.brokers.pids,
                    "seconds": round(time.monotonic() - began, 3),
                    **details,
                },
            )
        )

    async def serve(self, stop: Callable[[], Awaitable[object]]) -> None:
        """Run until `stop()` returns; raises what ended a loop of ours, which is a bug."""
        stopper = asyncio.ensure_future(stop())
        try:
            done, _ = await asyncio.wait([stopper, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            stopper.cancel()

    async def stop(self) -> None:
        """Stop everything in the reverse order. Idempotent; what was started is ended even when this is cancelled."""
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
            if self._monitoring is not None:
                await self._monitoring.close()
            if self._zk is not None:
                await self._zk.close()
            await self.brokers.stop_all(self.options.grace_seconds)
            await self._stop_zookeeper()
        finally:
            self.brokers.kill_all()
            if self._server is not None:
                self._server.stop()
            self._unlock()

    async def _stop_zookeeper(self) -> None:
        if self._server is not None and self._server.running:
            await asyncio.to_thread(self._server.stop)
            self._report(Event(ProgressKind.PROCESS, "zookeeper", "stopped"))

    async def _start_zookeeper(self, timeout_seconds: float) -> None:
        if self._server is None:
            return
        self._server.start()
        self._report(Event(ProgressKind.PROCESS, "zookeeper", "started", {"pid": self._server.child.pid}))
        await asyncio.to_thread(self._server.wait_until_ready, timeout_seconds)
        self._report(Event(ProgressKind.PROCESS, "zookeeper", "ready"))

    def _check_surroundings(self) -> None:
        """Everything that can be known to go wrong before anything is started."""
        try:
            self._data.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._data).free
        except OSError as error:
            raise EmbeddedError(system_error(f"The data folder {self._data} cannot be made", error)) from error
        if free < MINIMUM_FREE_BYTES:
            raise EmbeddedError(
                f"The disk is full: {free >> 20} MiB are free where {self._data} is, "
                f"{MINIMUM_FREE_BYTES >> 20} MiB are needed; make room, or choose another place with --data-dir."
            )
        self._take_lock()
        check_ports(self.options.ports.uses(own_zookeeper=self._server is not None))

    def _take_lock(self) -> None:
        path = self._data / "lock"
        try:
            lock = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise EmbeddedError(system_error(f"{path} cannot be written", error)) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            raise EmbeddedError(
                f"The data folder {self._data} is in use by process {holder}: "
                "stop that, or name another with --data-dir."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _unlock(self) -> None:
        if self._lock is not None:
            with contextlib.closing(self._lock):
                self._lock = None
