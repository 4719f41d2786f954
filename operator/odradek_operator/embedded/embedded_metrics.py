"""Serves the metrics of an embedded cluster other than those of brokers: operator, ZooKeeper and consumer lag.

Three `/metrics` endpoints have the series of the corresponding pods on Kubernetes. In the data folder,
`prometheus.yml` makes Prometheus scrape all processes with the labels by which the dashboards select. The targets are
in `prometheus-targets.json`, which Prometheus reads again when brokers were added or removed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from odradek.metrics.http import HttpServer, Probe, metrics_route, probe_route
from odradek.metrics.process import ProcessSeries
from odradek.zk.port import ZkSettings
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
from odradek_operator.objects import names, slots
from odradek_operator.objects.names import Component

logger = logging.getLogger(__name__)

PROMETHEUS_FILE: Final = "prometheus.yml"
TARGETS_FILE: Final = "prometheus-targets.json"
_SCRAPE_INTERVAL: Final = "10s"
_PORT_SETTING: Final = "--monitoring-port"
_STRIMZI: Final = "strimzi.io/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The processes whose metrics are collected here."""

    bootstrap: str
    zookeeper: str
    zookeeper_process: Callable[[], int | None]
    """Id of the ZooKeeper process; None if the cluster uses an external ensemble."""


class EmbeddedMetrics:
    """Call `start`, then `run` until it is cancelled, then `close`, which is idempotent."""

    def __init__(self, cluster: Cluster, ports: Ports, sources: Sources) -> None:
        """`ports` must have ports for monitoring. Nothing listens before `start`."""
        assert ports.monitoring is not None, "without ports there is nothing to serve"
        self._cluster = cluster
        self._ports = ports
        self._sources = sources
        # The JMX exporter, for which the dashboards were made, has no `_created` series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._process = ProcessSeries(gc_name="jvm_gc_pause_seconds")
        registry.register(self._process)
        self.reconciliations: Final = Reconciliations(registry, (cluster.namespace,))
        """Metrics of the reconciliations, which the watcher counts."""
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
            zookeeper=ZkSettings(connect=sources.zookeeper),
            host=LOOPBACK,
            port=ports.monitoring.exporter,
        )
        self._exporter = Exporter(place, settings)

    def start(self) -> None:
        """Listen. Raises `ConfigError` if a port is in use."""
        process = self._sources.zookeeper_process()
        if process is not None:
            assert self._ports.monitoring is not None, "the constructor has checked it"
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
        """Return the URL of `/metrics` of each process."""
        return {name: f"http://{LOOPBACK}:{port}/metrics" for name, port, _ in self._endpoints()}

    def _endpoints(self) -> list[tuple[str, int, Component | None]]:
        assert self._ports.monitoring is not None, "the constructor has checked it"
        monitoring = self._ports.monitoring
        found: list[tuple[str, int, Component | None]] = [("operator", monitoring.operator, None)]
        if self._sources.zookeeper_process() is not None:
            found.append(("zookeeper", monitoring.zookeeper, Component.ZOOKEEPER))
        return [*found, ("exporter", monitoring.exporter, Component.EXPORTER)]

    def write_prometheus_files(self, folder: Path, brokers: Iterable[int]) -> Path:
        """Write the configuration of Prometheus and its targets: these brokers and the processes that run here.

        Returns the path of the configuration. Raises `EmbeddedError`.
        """
        targets = json.dumps(list(self._targets(brokers)), indent=1)
        _replace(folder / TARGETS_FILE, targets)
        path = folder / PROMETHEUS_FILE
        config = {
            "global": {"scrape_interval": _SCRAPE_INTERVAL},
            "scrape_configs": [{"job_name": "odradek", "file_sd_configs": [{"files": [str(folder / TARGETS_FILE)]}]}],
        }
        text = yaml.safe_dump(config, sort_keys=False)
        _replace(path, f"# Written by odradek up at each start: prometheus --config.file={path}\n{text}")
        return path

    def _targets(self, brokers: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Yield the targets as Prometheus reads them. The label `job` is the pod, as with a PodMonitor."""
        name, brokers_of = self._cluster.name, self._cluster.brokers
        for broker in brokers:
            pod = names.broker_pod(name, brokers_of.pod_of(broker))
            container = slots.container(brokers_of.slot_of(broker))
            labels = {"job": pod, **_labels(self._cluster, pod, Component.KAFKA), "container": container}
            yield {"targets": [f"{LOOPBACK}:{self._ports.broker_metrics(broker)}"], "labels": labels}
        pods = []
        of_others = {Component.ZOOKEEPER: names.zookeeper_pod(name, 0), Component.EXPORTER: names.exporter(name)}
        for _, port, component in self._endpoints():
            if component is None:
                yield {
                    "targets": [f"{LOOPBACK}:{port}"],
                    "labels": {
                        "job": names.FIELD_MANAGER,
                        "namespace": self._cluster.namespace,
                        "kubernetes_pod_name": names.FIELD_MANAGER,
                    },
                }
            else:
                pods.append((port, of_others[component], component))
        for port, pod, component in pods:
            labels = {"job": pod, **_labels(self._cluster, pod, component)}
            yield {"targets": [f"{LOOPBACK}:{port}"], "labels": labels}


def _replace(path: Path, text: str) -> None:
    """Write a file in one step, because Prometheus may read it at any time. Raises `EmbeddedError`."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise EmbeddedError(system_error(f"{path} cannot be written", error)) from error


def _labels(cluster: Cluster, pod: str, component: Component) -> dict[str, str]:
    """Return the labels that the relabelling of the PodMonitor derives from a pod's labels on Kubernetes."""
    strimzi = {
        label.replace(".", "_").replace("/", "_"): value
        for label, value in names.pod_labels(cluster.name, component).items()
        if label.startswith(_STRIMZI)
    }
    return {**strimzi, "namespace": cluster.namespace, "pod": pod, "kubernetes_pod_name": pod, "node_name": "localhost"}
