"""A collection: queries the brokers of a cluster with few requests, and updates the `Readings`.

`service` runs one collection at a time. Invariants: brokers are queried concurrently, but each with one request at a
time; a request covers thousands of partitions or a hundred groups; a broker that fails is skipped until the next
collection and does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from odradek.base.errors import OdradekError, ProtocolError
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_BROKER, NO_OFFSET, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.metadata import ClusterView
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse
from odradek.protocol.messages.fetch import ListOffsetsResponse
from odradek.protocol.messages.groups import DescribeGroupsResponse, ListGroupsResponse
from odradek.protocol.messages.log_dirs import DescribeLogDirsResponse
from odradek.protocol.messages.offsets import OffsetFetchResponse
from odradek_operator.exporter import requests
from odradek_operator.exporter.exporter_settings import ExporterSettings
from odradek_operator.exporter.lag import QUERIED_AGES
from odradek_operator.exporter.readings import Readings
from odradek_operator.exporter.requests import GROUPS_AT_ONCE, PARTITIONS_AT_ONCE, portions
from odradek_operator.exporter.snapshot import ExporterSnapshot

logger = logging.getLogger(__name__)


class Collection:
    """Queries the brokers repeatedly."""

    def __init__(self, cluster: Cluster, settings: ExporterSettings) -> None:
        """`cluster`: the client. The caller starts it before the first `once`, and closes it."""
        self._cluster: Final = cluster
        self._settings: Final = settings
        self._clock: Final = cluster.clock
        self.readings: Final = Readings(settings)
        self._turns: Final = asyncio.Semaphore(settings.brokers_at_once)
        self._sizes_due = self._now()
        self.failing: frozenset[int] = frozenset()
        """The brokers that did not answer all requests of the last collection."""
        self._limit_logged = False

    def _now(self) -> float:
        return self._clock.monotonic_ms() / 1000

    def current(self) -> ExporterSnapshot:
        """Return the current values, without expired ones."""
        self.readings.forget(self._now())
        return self.readings.snapshot(self._now())

    async def once(self) -> frozenset[int]:
        """Run one collection. Returns the brokers that did not answer all requests.

        Raises `ProtocolError` if no broker returns the metadata of the cluster.
        """
        view = await self._cluster.fresh_view(None)
        self.readings.set_cluster(view, self._now())
        led = self._led(view)
        with_sizes = self._now() >= self._sizes_due
        if with_sizes:
            self._sizes_due = self._now() + self._settings.sizes_interval
        answers = await asyncio.gather(*(self._broker(node, led.get(node, []), with_sizes) for node in view.nodes))
        failed = frozenset(node for node, answered in zip(view.nodes, answers, strict=True) if not answered)
        await self._seed(led, failed)
        self._log_recovered(failed)
        return failed

    def _led(self, view: ClusterView) -> dict[int, list[TopicPartition]]:
        """Return the observed partitions, by leader."""
        led: dict[int, list[TopicPartition]] = {}
        for name, topic in view.topics.items():
            if self._settings.topics.takes(name):
                for number, partition in topic.partitions.items():
                    if partition.leader != NO_BROKER:
                        led.setdefault(partition.leader, []).append(TopicPartition(name, number))
        return led

    async def _broker(self, node: int, led: list[TopicPartition], with_sizes: bool) -> bool:
        """Query one broker. Returns whether it answered all requests."""
        async with self._turns:
            try:
                await self._groups(node)
                # Ends are read after commits: an end that is older than a commit would hide lag.
                await self._offsets(node, led)
                if with_sizes and led:
                    response = await self._cluster.ask(node, DescribeLogDirsResponse, {"topics": None})
                    self.readings.sizes.put(requests.log_sizes(response, frozenset(led)), self._now())
            except ProtocolError as error:
                level = logging.DEBUG if node in self.failing else logging.WARNING
                logger.log(level, "broker %d: %s; its last values are used until they expire", node, error)
                return False
        return True

    async def _groups(self, node: int) -> None:
        listed = requests.listed_groups(await self._cluster.ask(node, ListGroupsResponse, {}))
        groups = self._bounded(group for group in listed if self._settings.groups.takes(group))
        self.readings.listed.put({node: frozenset(groups)}, self._now())
        for portion in portions((group for group in groups if not listed[group]), GROUPS_AT_ONCE):
            response = await self._cluster.ask(node, DescribeGroupsResponse, requests.describe_groups(portion))
            self.readings.members.put(requests.described_groups(response), self._now())
        for portion in portions((group for group in groups if listed[group]), GROUPS_AT_ONCE):
            message = requests.describe_consumer_groups(portion)
            described = await self._cluster.ask(node, ConsumerGroupDescribeResponse, message)
            self.readings.members.put(requests.described_consumer_groups(described), self._now())
        channel = await self._cluster.connection(node)
        takes_many = channel.pick(ApiKey.OFFSET_FETCH) >= requests.MANY_GROUPS_SINCE
        for portion in portions(groups, GROUPS_AT_ONCE if takes_many else 1):
            fetched = await self._cluster.ask(node, OffsetFetchResponse, requests.fetch_commits(portion))
            self.readings.commits.put(requests.fetched_commits(fetched, portion), self._now())

    def _bounded(self, groups: Iterable[str]) -> list[str]:
        ordered = sorted(groups)
        if len(ordered) > self._settings.max_groups and not self._limit_logged:
            self._limit_logged = True
            logger.warning(
                "broker with %d consumer groups: only the first %d are observed (--max-groups)",
                len(ordered),
                self._settings.max_groups,
            )
        return ordered[: self._settings.max_groups]

    async def _offsets(self, node: int, led: list[TopicPartition]) -> None:
        for portion in portions(led, PARTITIONS_AT_ONCE):
            self.readings.set_ends(await self._listed(node, portion, LATEST_TIMESTAMP), self._now())
            self.readings.starts.put(await self._listed(node, portion, EARLIEST_TIMESTAMP), self._now())

    async def _listed(self, node: int, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        message = requests.list_offsets(partitions, timestamp)
        return requests.listed_offsets(await self._cluster.ask(node, ListOffsetsResponse, message))

    async def _seed(self, led: dict[int, list[TopicPartition]], failed: frozenset[int]) -> None:
        """Query the offsets at earlier times, once for each partition, for groups whose commits are older than all
        samples."""
        wanted = self.readings.to_seed(self._now())
        if not wanted:
            return
        works = []
        for node, partitions in led.items():
            if node not in failed and (mine := [each for each in partitions if each in wanted]):
                works.append(self._seed_from(node, mine))
        await asyncio.gather(*works)

    async def _seed_from(self, node: int, partitions: list[TopicPartition]) -> None:
        now, wall_ms = self._now(), self._clock.wall_ms()
        seeds: dict[TopicPartition, list[tuple[int, float]]] = {partition: [] for partition in partitions}
        async with self._turns:
            try:
                for ago in reversed(QUERIED_AGES):
                    for portion in portions(partitions, PARTITIONS_AT_ONCE):
                        found = await self._listed(node, portion, int(wall_ms - ago * 1000))
                        for partition, offset in found.items():
                            end = self.readings.ends.get(partition, 0.0)
                            # No record is newer than this time, so the end was the same as now.
                            known = end if offset == NO_OFFSET else offset
                            if known is not None:
                                seeds[partition].append((known, now - ago))
            except OdradekError as error:
                logger.info("broker %d: the offsets of earlier times cannot be read: %s", node, error)
                return
        self.readings.seed(seeds)

    def _log_recovered(self, failed: frozenset[int]) -> None:
        for node in sorted(self.failing - failed):
            logger.info("broker %d answers again or was removed", node)
        self.failing = failed
