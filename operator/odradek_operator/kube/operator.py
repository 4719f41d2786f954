"""The operator process: leases, watches, loops, probes and metrics, and an orderly shutdown.

It exits with 0 on request, and with another code if a part of it failed, so that Kubernetes restarts it. An operator
that loses a Lease stops its work in that namespace and stands by for it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable
from typing import Final

import kopf
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from odradek.base.errors import OdradekError
from odradek.metrics.http import HttpServer, Probe, metrics_route, probe_route
from odradek.metrics.process import ProcessSeries
from odradek_operator.kube import handlers
from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError, load_configuration
from odradek_operator.kube.api.object_cache import ObjectCache
from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.kube.cluster.cluster_loop import Shared
from odradek_operator.kube.cluster.exporter_reports import Reports
from odradek_operator.kube.cluster.kubernetes_events import Events
from odradek_operator.kube.lease import Timing
from odradek_operator.kube.manager import Manager
from odradek_operator.kube.operator_metrics import Leadership, Reconciliations
from odradek_operator.kube.operator_settings import OperatorSettings
from odradek_operator.kube.resource_metrics import MirrorMetrics, PipelineMetrics
from odradek_operator.kube.scopes import Alone, Leases

logger = logging.getLogger(__name__)

CRD_RETRY_SECONDS: Final = 2.0
_WATCHES: Final = "watches"


class OperatorStoppedError(OdradekError):
    """The operator process cannot continue."""


class Operator:
    """One operator process."""

    def __init__(self, settings: OperatorSettings) -> None:
        """Raises `KubernetesError` if no API server is configured."""
        self._settings = settings
        self._client = KubernetesClient(load_configuration(), writes_per_second=settings.writes_per_second)
        # Dashboards for the JMX exporter do not use `_created`.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._process = ProcessSeries(gc_name="jvm_gc_pause_seconds")
        self._registry.register(self._process)
        self._reports = Reports()
        self._stage = "waiting for the resources of odradek.dev/v1"
        shared = Shared(
            client=self._client,
            cache=ObjectCache(self._client),
            events=Events(self._client, instance=settings.identity),
            settings=settings,
            reconciliations=Reconciliations(self._registry, settings.namespaces),
            pipelines=PipelineMetrics(self._registry),
            mirrors=MirrorMetrics(self._registry),
            reports=self._reports,
        )
        # Leases use a separate connection, so that no other request delays a renewal.
        lease_seconds = Timing(duration=settings.lease_seconds).request
        self._lease_client = KubernetesClient(load_configuration(), timeout_seconds=lease_seconds)
        self._leases = Leases(self._lease_client, settings) if settings.leader_election else None
        self._scopes = self._leases or Alone(settings.namespaces)
        Leadership(self._registry, self._scopes.standing)
        self._manager = Manager(shared, self._scopes)
        self._server = HttpServer(
            host="0.0.0.0",
            port=settings.metrics_port,
            routes={
                "/metrics": metrics_route(self._registry),
                "/livez": probe_route(lambda: Probe(True, self._state())),
                # A standby is ready, too: an upgrade must not wait for the Leases.
                "/readyz": probe_route(lambda: Probe(True, self._state())),
                "/leader": probe_route(lambda: Probe(bool(self._scopes.standing().serving), self._state())),
            },
            setting="--metrics-port",
        )

    def _state(self) -> str:
        return f"{self._stage}\n{self._scopes.standing()}"

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. Raises `OperatorStoppedError` if a part failed."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        self._server.start()
        try:
            await self._until(stop, self._work())
        finally:
            await self._close()

    async def _until(self, stop: asyncio.Event, work: Awaitable[None]) -> None:
        """Run until a stop is requested. Raises the error of a part that failed."""
        task = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
        finally:
            for pending in (task, asked):
                pending.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)

    async def _work(self) -> None:
        await self._served()
        self._stage = "at work"
        parts = {
            asyncio.create_task(self._manager.run(), name="manager"),
            asyncio.create_task(self._watch(), name=_WATCHES),
        }
        if self._leases is not None:
            parts.add(asyncio.create_task(self._leases.run(self._manager), name="leases"))
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                await part
                if part.get_name() == _WATCHES:
                    return  # kopf handles SIGTERM itself and ends in order.
                raise OperatorStoppedError(
                    f"the task '{part.get_name()}' ended unexpectedly: the operator exits to be restarted"
                )
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _served(self) -> None:
        """Wait until the API server serves the custom resources: they may be installed after the operator."""
        logged = ""
        while True:
            try:
                for kind in (Kind.CLUSTER, Kind.TOPIC):
                    await self._client.list(kind, self._settings.namespaces[0] if self._settings.namespaces else None)
            except KubernetesError as error:
                if str(error) != logged:
                    logger.warning("waiting for the resources of odradek.dev/v1: %s", error)
                    logged = str(error)
                await asyncio.sleep(CRD_RETRY_SECONDS)
            else:
                return

    async def _watch(self) -> None:
        await kopf.operator(
            registry=handlers.registry(self._manager),
            settings=handlers.settings(),
            standalone=True,
            clusterwide=not self._settings.namespaces,
            namespaces=list(self._settings.namespaces),
            identity=kopf.Identity(self._settings.identity) if hasattr(kopf, "Identity") else None,
            stop_flag=asyncio.Event(),
        )

    async def _close(self) -> None:
        await self._reports.close()
        await self._server.close()
        self._process.close()
        self._client.close()
        self._lease_client.close()
