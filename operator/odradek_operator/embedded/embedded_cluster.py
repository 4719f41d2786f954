"""A cluster on one machine: ZooKeeper and brokers as child processes, and a loop that reconciles them.

`odradek up` and the test kit use it. It starts ZooKeeper, the brokers and the loop, and stops them in the reverse
order. Every failure is an `EmbeddedError` whose message says what to do, and leaves no process running. Child processes
end even if this process is killed.
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

from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import ZkError, ZkSettings
from odradek_operator.crds import Cluster, Resources
from odradek_operator.embedded.broker_processes import BrokerProcesses
from odradek_operator.embedded.child import system_error
from odradek_operator.embedded.cluster_reconciler import ClusterReconciler
from odradek_operator.embedded.embedded_metrics import EmbeddedMetrics, Sources
from odradek_operator.embedded.embedded_users import EmbeddedUsers
from odradek_operator.embedded.layout import Ports, Site, secrets_directory, served_listeners
from odradek_operator.embedded.ledger import Ledger
from odradek_operator.embedded.manifests import Manifests, only_cluster
from odradek_operator.embedded.ports import LOOPBACK, check_ports
from odradek_operator.embedded.progress import Event, ProgressKind, Report
from odradek_operator.embedded.secret_files import SecretFiles
from odradek_operator.embedded.size_record import SizeRecord
from odradek_operator.embedded.watcher import Watcher
from odradek_operator.embedded.zookeeper_process import ZooKeeperServer
from odradek_operator.errors import EmbeddedError
from odradek_operator.objects import names
from odradek_operator.objects.listener_security import protocol
from odradek_operator.topics.zookeeper_reader import read_snapshot

MINIMUM_FREE_BYTES: Final = 256 << 20
"""With less free space on the disk of the data folder, nothing is started."""

START_SECONDS: Final = 120.0
_ZOOKEEPER_SESSION_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where an embedded cluster runs, and how its processes are treated."""

    data: Path
    ports: Ports
    zookeeper_jars: Path | None = None
    synchronous: bool = True
    """Whether ZooKeeper syncs each write to the disk, which tests do not need."""
    grace_seconds: float = 15.0
    """Seconds from SIGTERM to SIGKILL, for each broker."""
    restart: bool = True
    """Whether a broker that ends by itself is started again."""


class EmbeddedCluster:
    """One cluster. All methods must be called from the event loop and the thread in which `start` ran."""

    def __init__(self, manifests: Manifests, resources: Resources, options: Options, report: Report) -> None:
        """`resources`: those read from `manifests`. Raises `EmbeddedError` unless there is exactly one Cluster."""
        self._cluster: Final[Cluster] = only_cluster(resources)
        self.options: Final = options
        self._manifests = manifests
        self._resources = resources
        self._report = report
        self._data = options.data.absolute()
        self._lock: IO[str] | None = None
        connect = self._cluster.zookeeper.connect
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
            Site(data=self._data, ports=options.ports, zookeeper=self.zookeeper),
            report,
            restart=options.restart,
            grace_seconds=options.grace_seconds,
        )
        self._monitoring = self._make_monitoring()
        self._zk: KazooZkClient | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _make_monitoring(self) -> EmbeddedMetrics | None:
        ports, server = self.options.ports, self._server
        if ports.monitoring is None:
            return None
        sources = Sources(
            bootstrap=ports.bootstrap(self._cluster.brokers.ids()),
            zookeeper=self.zookeeper,
            zookeeper_process=lambda: None if server is None else server.child.pid,
        )
        return EmbeddedMetrics(self._cluster, ports, sources)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers for clients, `host:port,...`."""
        return self.options.ports.bootstrap(self._ids)

    @property
    def _ids(self) -> list[int]:
        return self.brokers.ids or sorted(self._cluster.brokers.ids())

    @property
    def metrics_urls(self) -> list[str]:
        """URLs of `/metrics` of each broker."""
        ports = self.options.ports
        return [f"http://{LOOPBACK}:{ports.broker_metrics(broker)}/metrics" for broker in self._ids]

    @property
    def monitoring_urls(self) -> dict[str, str]:
        """URLs of `/metrics` of `operator`, `zookeeper` and `exporter`; empty if they serve none."""
        return {} if self._monitoring is None else self._monitoring.urls()

    async def start(self, timeout_seconds: float = START_SECONDS) -> None:
        """Start everything. Returns when every broker is ready, and every topic exists and is in sync.

        Raises `EmbeddedError`; then nothing is left running.
        """
        began = time.monotonic()
        try:
            self._check_surroundings()
            await self._start_zookeeper(timeout_seconds)
            self._zk = KazooZkClient(ZkSettings(connect=self.zookeeper, session_timeout_ms=_ZOOKEEPER_SESSION_MS))
            await self._zk.start()
            await self._start_brokers(self._zk, timeout_seconds)
        except ZkError as error:
            await self.stop()
            raise EmbeddedError(f"ZooKeeper at {self.zookeeper} does not serve: {error}.") from error
        except BaseException:
            await self.stop()
            raise
        details: dict[str, object] = {}
        if self._monitoring is not None:
            self._tasks.append(asyncio.create_task(self._monitoring.run(), name="monitoring"))
            prometheus = self._monitoring.write_prometheus_files(self._data, self.brokers.ids)
            details = {"monitoring": self._monitoring.urls(), "prometheus": str(prometheus)}
            message = f"to scrape all series, run: prometheus --config.file={prometheus}"
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

    async def _start_brokers(self, zk: KazooZkClient, timeout_seconds: float) -> None:
        """Start the brokers and the loops that follow the manifests and the processes."""
        record = SizeRecord(self._data)
        ports = self.options.ports
        secrets = SecretFiles(Path(secrets_directory(self._data)))
        reconciler = ClusterReconciler(
            self.brokers, ports, record, self._report, secrets=secrets, changed=self._brokers_changed
        )
        watcher = Watcher(
            zk,
            self._manifests,
            self._resources,
            ledger=Ledger(self._data / "resources.json"),
            reconciler=reconciler,
            users=EmbeddedUsers(secrets),
            report=self._report,
        )
        await reconciler.prepare(zk, self._cluster, await read_snapshot(zk, None))
        for broker in self.brokers.ids:
            self.brokers.start(broker)
        await self.brokers.wait_until_ready(timeout_seconds)
        if self._monitoring is not None:
            self._monitoring.start()
            watcher.count_in(self._monitoring.reconciliations)
        await watcher.wait_until_ready(timeout_seconds)
        self._tell_listeners(reconciler)
        self._tasks.append(asyncio.create_task(watcher.run(), name="watcher"))
        self._tasks.append(asyncio.create_task(self.brokers.supervise(), name="brokers"))

    def _tell_listeners(self, reconciler: ClusterReconciler) -> None:
        """Report where the secured listeners are, and that the other one is open."""
        secured = {one.name: one for one in reconciler.listeners(self._cluster).further if not one.plain}
        folder = secrets_directory(self._data)
        for name, address in reconciler.addresses(self._cluster).items():
            if (listener := secured.get(name)) is not None:
                trust = f"; clients trust {folder / names.cluster_ca_cert(self._cluster.name)}" if listener.tls else ""
                message = f"{address} {protocol(listener)}{trust}"
                self._report(Event(ProgressKind.PROCESS, f"listener {name}", message, {"addresses": address}))
        if secured:
            message = (
                f"at {self.bootstrap} every process of this machine may do everything without a login: the brokers "
                "reach each other there"
            )
            self._report(Event(ProgressKind.PROCESS, "security", message))

    def _brokers_changed(self) -> None:
        if self._monitoring is not None:
            self._monitoring.write_prometheus_files(self._data, self.brokers.ids)

    async def serve(self, stop: Callable[[], Awaitable[object]]) -> None:
        """Run until `stop()` returns. Raises the exception of a loop that failed, which is a bug."""
        stopper = asyncio.ensure_future(stop())
        try:
            done, _ = await asyncio.wait([stopper, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            stopper.cancel()

    async def stop(self) -> None:
        """Stop everything in the reverse order. Idempotent. All processes end even if this is cancelled."""
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
        """Check everything that can be checked before the first process starts."""
        try:
            self._data.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._data).free
        except OSError as error:
            raise EmbeddedError(system_error(f"The data folder {self._data} cannot be created", error)) from error
        if free < MINIMUM_FREE_BYTES:
            raise EmbeddedError(
                f"The disk is full: {free >> 20} MiB are free where {self._data} is, "
                f"{MINIMUM_FREE_BYTES >> 20} MiB are needed; free space, or choose another place with --data-dir."
            )
        self._take_lock()
        ids = sorted(self._cluster.brokers.ids())
        uses = self.options.ports.uses(ids, own_zookeeper=self._server is not None)
        listeners = served_listeners(self._cluster, uses, brokers=ids)
        check_ports([*uses, *(use for broker in ids for use in listeners.uses_of_broker(broker))])

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
