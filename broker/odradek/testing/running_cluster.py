"""A real cluster for tests: the embedded cluster of `odradek up`, in the test's folder and on unused ports.

A `RunningCluster` has the addresses, and methods to stop and kill brokers. The fixtures of `testing/plugin` create it.
Its event loop runs in its own thread, so that all kinds of tests can use it; all methods block. `logs` returns the logs
of the processes for the report of a failed test.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import yaml

from odradek.base.errors import OdradekError

if TYPE_CHECKING:
    from odradek_operator.embedded.embedded_cluster import EmbeddedCluster
    from odradek_operator.embedded.progress import Event

_T = TypeVar("_T")
CLUSTER_NAME: Final = "test"
_CALL_SECONDS: Final = 180.0
_LOG_TAIL_BYTES: Final = 20_000
_SLOT_IDS: Final = 1_000
"""Distance between the ids of two brokers of a group."""


class ClusterError(OdradekError):
    """The cluster could not be started, or a request of a test failed."""


def manifests(
    *,
    brokers: int,
    topics: Mapping[str, Mapping[str, Any]],
    config: Mapping[str, object],
    zookeeper: str | None,
    volumes: int = 1,
    racks: Sequence[str] = (),
    per_pod: int = 1,
) -> str:
    """Return the YAML of a cluster and its topics. The value of a topic is its spec without the name of the cluster."""
    spec: dict[str, Any] = {"brokers": {"replicas": brokers, "config": dict(config)}}
    if per_pod > 1:
        spec["brokers"]["perPod"] = per_pod
    if volumes > 1:
        spec["brokers"]["storage"] = {"volumes": [{"id": number, "size": "1Gi"} for number in range(volumes)]}
    if racks:
        spec["brokers"]["rack"] = {"names": list(racks)}
    if zookeeper is not None:
        spec["zookeeper"] = {"connect": zookeeper}
    documents = [_resource("Cluster", CLUSTER_NAME, spec)]
    documents += [
        _resource("Topic", name, {"deletion": "Delete", **topic, "cluster": CLUSTER_NAME})
        for name, topic in topics.items()
    ]
    return yaml.safe_dump_all(documents)


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "odradek.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


class RunningCluster:
    """A cluster of broker processes. Call `start` first. `close` ends all processes and is idempotent."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        topics: Mapping[str, Mapping[str, Any]] | None = None,
        config: Mapping[str, object] | None = None,
        zookeeper: str | None = None,
        restart: bool = False,
        volumes: int = 1,
        racks: Sequence[str] = (),
        monitoring: bool = False,
        per_pod: int = 1,
        slots: int = 1,
    ) -> None:
        """`topics` maps names to specs, such as `{"t": {"partitions": 3, "replicas": 2}}`. `config` has broker
        properties.

        `volumes` is the number of log directories of each broker. The brokers are in `racks` in turn. With `zookeeper`,
        the cluster uses that ensemble instead of starting one. With `restart`, brokers that exit are restarted. With
        `monitoring`, the operator, ZooKeeper and the exporter serve metrics. `start` starts the processes. Each of the
        `brokers` is a group of `per_pod` brokers, which have the ids N, N + 1000 and so on.
        `slots`: for how many brokers in each group ports are free, if the test adds brokers later.
        """
        self.directory: Final = directory
        self._manifest = directory / "manifests" / "cluster.yaml"
        self._brokers = brokers
        self._config = dict(config or {})
        self._external_zookeeper = zookeeper
        self._restart = restart
        self._volumes = volumes
        self._racks = tuple(racks)
        self._monitoring = monitoring
        self._per_pod = per_pod
        self._slots = max(per_pod, slots)
        self.events: list[Event] = []
        """All events of the cluster, in order."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._cluster: EmbeddedCluster | None = None
        self.write_topics(topics or {})

    def write_topics(self, topics: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the Topic resources. A running cluster applies them."""
        text = manifests(
            brokers=self._brokers,
            topics=topics,
            config=self._config,
            zookeeper=self._external_zookeeper,
            volumes=self._volumes,
            racks=self._racks,
            per_pod=self._per_pod,
        )
        self._manifest.parent.mkdir(parents=True, exist_ok=True)
        self._manifest.write_text(text, encoding="utf-8")

    def start(self) -> None:
        """Start the cluster. Returns when it is ready. Raises `ClusterError` with the reason."""
        from odradek.testing.free_ports import free_ports
        from odradek_operator.embedded.embedded_cluster import EmbeddedCluster, Options
        from odradek_operator.embedded.layout import MonitoringPorts, Ports
        from odradek_operator.embedded.manifests import Manifests

        zookeeper, *free = free_ports(4 + 2 * self._brokers, slots=self._slots)
        monitoring = MonitoringPorts(*free[:3]) if self._monitoring else None
        brokers, metrics = free[3 : 3 + self._brokers], free[3 + self._brokers :]
        ports = Ports(zookeeper=zookeeper, brokers=tuple(brokers), metrics=tuple(metrics), monitoring=monitoring)
        options = Options(
            data=self.directory / "data", ports=ports, synchronous=False, grace_seconds=10, restart=self._restart
        )
        files = Manifests([self._manifest])
        self._cluster = EmbeddedCluster(files, files.load(), options, self.events.append)
        self._loop = asyncio.new_event_loop()
        # Children end with the thread that started them, so it lives until `close`.
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._thread.start()
        try:
            self._call(self._cluster.start())
        except OdradekError as error:
            logs = self.logs()
            self.close()
            raise ClusterError(f"{error}\n{logs}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the cluster cleanly."""
        cluster, loop, thread = self._cluster, self._loop, self._thread
        if cluster is None or loop is None or thread is None or loop.is_closed():
            return
        try:
            self._call(cluster.stop())
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_CALL_SECONDS)
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        assert self._loop is not None, "not started"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_SECONDS)

    def _on_loop(self, function: Callable[[], _T]) -> _T:
        """Run a function in the cluster's thread. Child processes must be started there."""
        assert self._loop is not None, "not started"
        answer: Future[_T] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)
                if not isinstance(error, Exception):
                    raise

        self._loop.call_soon_threadsafe(run)
        return answer.result(_CALL_SECONDS)

    @property
    def _running(self) -> EmbeddedCluster:
        assert self._cluster is not None, "not started"
        return self._cluster

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, `host:port,…`."""
        return self._running.bootstrap

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's connect string."""
        return self._running.zookeeper

    @property
    def metrics_urls(self) -> list[str]:
        """URLs of `/metrics` of each broker, by id."""
        return self._running.metrics_urls

    @property
    def monitoring_urls(self) -> dict[str, str]:
        """URLs of `/metrics` of operator, ZooKeeper and exporter; empty without `monitoring`."""
        return self._running.monitoring_urls

    @property
    def broker_ids(self) -> list[int]:
        """Ids of all brokers, running or not."""
        return [number + _SLOT_IDS * slot for slot in range(self._per_pod) for number in range(self._brokers)]

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the started processes of running brokers. They may be the parents of the brokers."""
        return self._running.brokers.pids

    @property
    def broker_pids(self) -> dict[int, int]:
        """Process ids of the brokers, without their parents."""
        return {number: next(iter(_children(pid)), pid) for number, pid in self.pids.items()}

    def address(self, broker_id: int) -> tuple[str, int]:
        """Host and port of one broker."""
        index = self._running.brokers.ids.index(broker_id)
        host, _, port = self.bootstrap.split(",")[index].rpartition(":")
        return host, int(port)

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL to a broker and its parent, as if its machine failed. It stays down until `start_broker`."""
        self._on_loop(lambda: self._running.brokers.kill(broker_id))

    def crash(self, broker_id: int) -> None:
        """Send SIGKILL to the broker process only. Its parent ends the broker's ZooKeeper session and exits."""
        os.kill(self.broker_pids[broker_id], signal.SIGKILL)

    def stop_broker(self, broker_id: int) -> None:
        """Send SIGTERM, as in a rolling restart. Returns when the process has ended."""
        self._call(self._running.brokers.stop(broker_id, self._running.options.grace_seconds))

    def start_broker(self, broker_id: int, *, wait: bool = True) -> None:
        """Start a broker that was killed or stopped. With `wait`, returns when all running brokers are ready."""
        self._on_loop(lambda: self._running.brokers.start(broker_id))
        if wait:
            self._call(self._running.brokers.wait_until_ready(_CALL_SECONDS))

    def pause(self, broker_id: int) -> None:
        """Send SIGSTOP: the broker does not respond, but its connections stay open."""
        self._signal_all(broker_id, signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """Send SIGCONT after `pause`."""
        self._signal_all(broker_id, signal.SIGCONT)

    def _signal_all(self, broker_id: int, number: signal.Signals) -> None:
        """Signal the parent first. Otherwise it would treat the paused child as hanging."""
        pid = self.pids[broker_id]
        for each in (pid, *_children(pid)):
            os.kill(each, number)

    def logs(self, broker_ids: Iterable[int] | None = None) -> str:
        """Return the end of each process's log, for the report of a failed test."""
        wanted = None if broker_ids is None else set(broker_ids)
        paths = {
            f"broker {number}": path
            for number, path in self._running.brokers.log_paths().items()
            if wanted is None or number in wanted
        }
        if wanted is None:
            paths["zookeeper"] = self.directory / "data" / "zookeeper" / "zookeeper.log"
        return "\n".join(f"--- {name}: {path}\n{_tail(path)}" for name, path in paths.items() if path.exists())


def _children(pid: int) -> list[int]:
    """Return the children of a process, oldest first."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def _tail(path: Path) -> str:
    return path.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")
