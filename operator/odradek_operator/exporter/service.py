"""The exporter process: collects periodically and serves the results over HTTP.

The paths are /metrics, /topics, /livez and /readyz. Invariants: collections never overlap; an HTTP response never waits
for a broker; after a failure, the last values are served until they expire; a failure of ZooKeeper only affects the
values that come from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from odradek.base.errors import OdradekError
from odradek.base.ports import Clock
from odradek.base.system_ports import SystemClock
from odradek.client.cluster_client import Cluster
from odradek.client.settings import ClientSettings
from odradek.metrics.http import HttpRequest, HttpResponse, HttpServer, json_answer, probe_route
from odradek.metrics.process import ProcessSeries
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import ZkSettings
from odradek_operator.exporter import report, series
from odradek_operator.exporter.collection import Collection
from odradek_operator.exporter.exporter_settings import ExporterSettings
from odradek_operator.exporter.health import Health
from odradek_operator.exporter.snapshot import ExporterSnapshot
from odradek_operator.exporter.zookeeper_groups import read_commits

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Addresses of brokers and ZooKeeper, and of the exporter's listener."""

    client: ClientSettings
    zookeeper: ZkSettings | None = None
    """Settings for the ensemble from which offsets of old consumers are read; None to read none."""
    host: str = "0.0.0.0"
    port: int = 9404


@dataclass(slots=True)
class _Result:
    """The result of the last collection, and its Prometheus text, which is rendered on demand."""

    snapshot: ExporterSnapshot = field(default_factory=ExporterSnapshot)
    text: bytes | None = None


class Exporter:
    """The exporter of one cluster. Call `start`, then `run` until it is cancelled, then `close`, which is
    idempotent."""

    def __init__(self, place: Place, settings: ExporterSettings, *, clock: Clock | None = None) -> None:
        """`clock`: only tests set it."""
        self._place: Final = place
        self._settings: Final = settings
        self._clock: Final = clock or SystemClock()
        self._result = _Result()
        self._collection: Collection | None = None
        self.health: Final = Health(settings, self._now)
        self._process: Final = ProcessSeries()
        self._registry: Final = CollectorRegistry()
        self._registry.register(self.health)
        self._registry.register(self._process)
        ProcessCollector(registry=self._registry)
        self._http: Final = HttpServer(
            host=place.host,
            port=place.port,
            routes={
                "/metrics": self._metrics,
                "/topics": self._topics,
                "/livez": probe_route(self.health.live),
                "/readyz": probe_route(self.health.ready),
            },
            setting="port",
        )

    @property
    def port(self) -> int:
        """The port on which the exporter listens."""
        return self._http.port

    def _now(self) -> float:
        return self._clock.monotonic_ms() / 1000

    def start(self) -> None:
        """Start to listen. Raises `ConfigError` if the port is in use."""
        self._http.start()

    async def close(self) -> None:
        """Stop listening."""
        self._process.close()
        await self._http.close()

    async def run(self) -> None:
        """Collect until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_brokers(), name="collections")
            if self._place.zookeeper is not None:
                group.create_task(self._run_zookeeper(self._place.zookeeper), name="zookeeper-offsets")

    # Brokers

    async def _run_brokers(self) -> None:
        while True:
            cluster = Cluster(self._place.client, clock=self._clock)
            try:
                # A client whose start failed cannot be started again, so each attempt creates a new one.
                if await self._once("the first metadata request", cluster.start):
                    self._collection = Collection(cluster, self._settings)
                    await self._every(self._settings.interval, self._collect)
            finally:
                await cluster.close()
            await self._clock.sleep_ms(self._settings.interval * 1000)

    async def _collect(self) -> None:
        began = self._now()
        collection = self._collection
        assert collection is not None, "the client is started before the first collection"
        if await self._once("a collection", collection.once):
            self.health.succeeded(self._now() - began, failed_brokers=len(collection.failing))
        self._result = _Result(collection.current())

    async def _once(self, what: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Run `work`, and return whether it succeeded within `stale_after`. Failures are logged and reported to
        `health`."""
        try:
            async with asyncio.timeout(self._settings.stale_after):
                await work()
        except (OdradekError, TimeoutError) as error:
            reason = str(error) or f"it took longer than {self._settings.stale_after:.0f} s"
            logger.warning("%s failed: %s", what, reason)
            self.health.failed(reason)
            return False
        return True

    async def _every(self, interval: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` repeatedly, `interval` seconds from start to start, or at once if the last run took longer."""
        while True:
            began = self._now()
            await work()
            await self._clock.sleep_ms(max(0.0, began + interval - self._now()) * 1000)

    # ZooKeeper

    async def _run_zookeeper(self, reached: ZkSettings) -> None:
        while True:
            zk = KazooZkClient(reached)
            try:
                await zk.start()
                await self._every(self._settings.sizes_interval, partial(self._read_zookeeper, zk))
            except OdradekError as error:
                logger.warning("the offsets in ZooKeeper cannot be read: %s; retrying", error)
            finally:
                await zk.close()
            await self._clock.sleep_ms(self._settings.sizes_interval * 1000)

    async def _read_zookeeper(self, zk: KazooZkClient) -> None:
        commits = await read_commits(zk, self._settings)
        if self._collection is not None:
            self._collection.readings.set_zookeeper_commits(commits, self._now())

    # Responses

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        result = self._result
        if result.text is None:
            # Rendering takes half a second for 10,000 partitions, so it runs in a thread.
            result.text = await asyncio.to_thread(series.render, result.snapshot)
        return HttpResponse(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, result.text + generate_latest(self._registry))

    def _topics(self, request: HttpRequest) -> HttpResponse:
        found = report.report_of(self._result.snapshot, groups_per_topic=self._settings.groups_per_topic)
        return json_answer(report.encode(found))
