"""The series of an embedded cluster that no broker serves: operator, ZooKeeper and consumer lag.

Enters: a Cluster, ports, where ZooKeeper and the brokers are. Leaves: three `/metrics` endpoints under the names that
the pods of a cluster on Kubernetes serve, and `prometheus.yml` in the data folder, which scrapes all of them with the
labels that the dashboards select by. Called by `cluster`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from odradek.metrics.http import HttpServer, Probe, metrics_route, probe_route
from odradek.metrics.process import ProcessSeries
from odradek_operator.crds import Cluster
from odradek_operator.embedded.child import system_error
from odradek_operator.embedded.layout import Ports
from odradek_operator.embedded.ports import LOOPBACK
from odradek_operator.ensemble.member_metrics import Member
from odradek_operator.errors import EmbeddedError
from odradek_operator.exporter.exporter_command import client_settings
from odradek_operator.exporter.exporter_settings import ExporterSettings
from odradek_operator.exporter.service import Exporter, Place
from odradek_operator.kube.operator_metrics import Reconciliations
from odradek_operator.objects import names
from odradek_operator.objects.names import Component

logger = logging.getLogger(__name__)

PROMETHEUS_FILE: Final = "prometheus.yml"
_SCRAPE_INTERVAL: Final = "10s"
_PORT_SETTING: Final = "--monitoring-port"
_STRIMZI: Final = "strimzi.io/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is monitored."""

    bootstrap: str
    zookeeper: str
    zookeeper_process: Callable[[], int | None]
    """Id of the ZooKeeper process; None where the cluster uses another ensemble."""


class EmbeddedMetrics:
    """`start`, then `run` until it is cancelled, then `close`, which is idempotent."""

    def __init__(self, cluster: Cluster, ports: Ports, sources: Sources) -> None:
        """`ports` must name ports for monitoring. Nothing listens before `start`."""
        assert ports.monitoring is not None, "without ports there is nothing to serve"
        self._cluster = cluster
        self._ports = ports
        self._sources = sources
        # Dashboards made for the JMX exporter know no `_created`.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._process = ProcessSeries(gc_name="jvm_gc_pause_seconds")
        registry.register(self._process)
        self.reconciliations: Final = Reconciliations(registry, (cluster.namespace,))
        """Counted by the watcher."""
        routes = {
            "/metrics": metrics_route(registry),
            "/livez": probe_route(lambda: Probe(True, "odradek up is running")),
        }
        self._servers = [
            HttpServer(host=LOOPBACK, port=ports.monitoring.operator, routes=routes, setting=_PORT_SETTING)
        ]
        settings = ExporterSettings()
        place = Place(
            client=client_settings(sources.bootstrap, settings),
            zookeeper=sources.zookeeper,
            host=LOOPBACK,
            port=ports.monitoring.exporter,
        )
        self._exporter = Exporter(place, settings)

    def start(self) -> None:
        """Listen and write `prometheus.yml`. Raises `ConfigError` for a port that is taken."""
        process = self._sources.zookeeper_process()
        if process is not None:
            assert self._ports.monitoring is not None, "checked at the beginning"
            member = Member(process_id=process, client_port=self._ports.zookeeper, server_id=1, members=1)
            self._servers.append(
                HttpServer(
                    host=LOOPBACK,
                    port=self._ports.monitoring.zookeeper,
                    routes=member.routes(),
                    setting=_PORT_SETTING,
                )
            )
        for server in self._servers:
            server.start()
        self._exporter.start()

    async def run(self) -> None:
        """Collect lag and sizes until cancelled."""
        await self._exporter.run()

    async def close(self) -> None:
        """Stop listening."""
        self._process.close()
        for server in self._servers:
            await server.close()
        await self._exporter.close()

    def urls(self) -> dict[str, str]:
        """`/metrics` by what it tells about."""
        return {name: f"http://{LOOPBACK}:{port}/metrics" for name, port, _ in self._endpoints()}

    def _endpoints(self) -> list[tuple[str, int, Component | None]]:
        assert self._ports.monitoring is not None, "checked at the beginning"
        monitoring = self._ports.monitoring
        found: list[tuple[str, int, Component | None]] = [("operator", monitoring.operator, None)]
        if self._sources.zookeeper_process() is not None:
            found.append(("zookeeper", monitoring.zookeeper, Component.ZOOKEEPER))
        return [*found, ("exporter", monitoring.exporter, Component.EXPORTER)]

    def write_prometheus_file(self, folder: Path) -> Path:
        """Write the configuration that scrapes the whole cluster. Raises `EmbeddedError`."""
        name = self._cluster.name
        pods = [
            (port, names.broker_pod(name, number), Component.KAFKA) for number, port in enumerate(self._ports.metrics)
        ]
        endpoints = {Component.ZOOKEEPER: names.zookeeper_pod(name, 0), Component.EXPORTER: names.exporter(name)}
        pods += [(port, endpoints[component], component) for _, port, component in self._endpoints() if component]
        jobs: list[dict[str, Any]] = [
            {"job_name": pod, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"], "labels": labels}]}
            for port, pod, component in pods
            for labels in [_labels(self._cluster, pod, component)]
        ]
        operator = {"namespace": self._cluster.namespace, "kubernetes_pod_name": names.FIELD_MANAGER}
        targets = [f"{LOOPBACK}:{port}" for _, port, component in self._endpoints() if component is None]
        jobs.append({"job_name": names.FIELD_MANAGER, "static_configs": [{"targets": targets, "labels": operator}]})
        path = folder / PROMETHEUS_FILE
        text = yaml.safe_dump(
            {"global": {"scrape_interval": _SCRAPE_INTERVAL}, "scrape_configs": jobs}, sort_keys=False
        )
        try:
            path.write_text(f"# Written by odradek up at each start: prometheus --config.file={path}\n{text}")
        except OSError as error:
            raise EmbeddedError(system_error(f"{path} cannot be written", error)) from error
        return path


def _labels(cluster: Cluster, pod: str, component: Component) -> dict[str, str]:
    """The labels that the relabelling of the PodMonitor makes of a pod's labels on Kubernetes."""
    strimzi = {
        label.replace(".", "_").replace("/", "_"): value
        for label, value in names.pod_labels(cluster.name, component).items()
        if label.startswith(_STRIMZI)
    }
    return {**strimzi, "namespace": cluster.namespace, "pod": pod, "kubernetes_pod_name": pod, "node_name": "localhost"}
