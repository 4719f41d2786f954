"""Two brokers in the test process, and a mirror between them.

`MirroredClusters.copying` runs the copying part of a mirror, with a plan that the test makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from odradek.base.system_ports import SystemClock
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import ConsumerRecord, NewTopic
from odradek.mirror.copier_group import CopierGroup
from odradek.mirror.mirror_config import MirrorConfig
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.mm2_records import offset_syncs_topic
from odradek.mirror.offset_translation import OffsetRun, runs_with
from odradek.mirror.owned_partitions import OwnedPartition
from odradek.testing.in_process import InProcessBroker
from odradek.testing.waiting import wait_until


@dataclass
class NotedPairs:
    """Notes what the copier reports."""

    pairs: dict[CopiedPartition, list[tuple[int, int]]] = field(default_factory=dict)
    forgotten: list[CopiedPartition] = field(default_factory=list)
    interrupted: list[CopiedPartition] = field(default_factory=list)
    resumed: list[tuple[CopiedPartition, Sequence[OffsetRun]]] = field(default_factory=list)
    runs: dict[CopiedPartition, list[OffsetRun]] = field(default_factory=dict)
    """What was copied of each partition since it started, as if nothing were written."""
    leading: set[str] = field(default_factory=set)
    """The sources that the process leads."""

    def lead(self, source: str, is_leading: bool) -> None:
        """Note that the process begins or ends to lead a source."""
        (self.leading.add if is_leading else self.leading.remove)(source)

    def copied(self, partition: CopiedPartition, source_offset: int, target_offset: int) -> None:
        """Note a pair."""
        self.pairs.setdefault(partition, []).append((source_offset, target_offset))
        runs = self.runs.setdefault(partition, [])
        runs[-1:] = runs_with(runs[-1] if runs else None, source_offset, target_offset)

    def interrupt(self, partition: CopiedPartition) -> None:
        """Note an unknown offset."""
        self.interrupted.append(partition)
        self.runs.pop(partition, None)

    def forget(self, partition: CopiedPartition) -> None:
        """Note the end of a partition."""
        self.forgotten.append(partition)

    def resume(self, partition: CopiedPartition, runs: Sequence[OffsetRun]) -> None:
        """Note the start of a partition."""
        self.resumed.append((partition, runs))
        self.runs.pop(partition, None)

    def unacknowledged(self, partition: CopiedPartition) -> Sequence[OffsetRun]:
        """Return what was copied since the start, without the last run."""
        return self.runs.get(partition, ())[:-1]

    def growing(self, partition: CopiedPartition) -> OffsetRun | None:
        """Return the last run."""
        return next(reversed(self.runs.get(partition, ())), None)


@dataclass
class MirroredClusters:
    """A source and a target with one broker each."""

    source: InProcessBroker
    target: InProcessBroker

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic in both clusters. `configs` are those in the source, with _ instead of dots."""
        new = tuple((name.replace("_", "."), value) for name, value in configs.items())
        for broker, settings in ((self.source, new), (self.target, ())):
            async with Admin(broker.bootstrap) as admin:
                names = await admin.list_topics()
                topics = [NewTopic(name=topic, partitions=partitions, replication_factor=1, configs=settings)]
                if broker is self.target and offset_syncs_topic("east") not in names:
                    topics.append(NewTopic(name=offset_syncs_topic("east"), partitions=1, replication_factor=1))
                await admin.create_topics(topics)

    async def plan(self, *topics: str) -> frozenset[CopiedPartition]:
        """Return all partitions of topics, to be copied to the same names."""
        async with Admin(self.source.bootstrap) as admin:
            found = await admin.describe_topics(topics)
        return frozenset(
            CopiedPartition("east", topic.name, partition.partition, topic.topic_id, topic.name)
            for topic in found.values()
            for partition in topic.partitions
        )

    def config(self, others: Sequence[Mapping[str, Any]] = (), **source: Any) -> MirrorConfig:
        """Return the configuration of a mirror. `source` has more fields of the source, `others` are more sources."""
        east = {"name": "east", "bootstrapServers": self.source.bootstrap, "topics": {"include": [".*"]}, **source}
        document = {"name": "test", "target": {"bootstrapServers": self.target.bootstrap}, "sources": [east, *others]}
        return MirrorConfig.parse(yaml.safe_dump(document), "test")

    @asynccontextmanager
    async def copying(
        self, plan: frozenset[CopiedPartition], *, instance: str = "a", is_static: bool = True, **source: Any
    ) -> AsyncIterator[tuple[CopierGroup, NotedPairs]]:
        """Run a mirror in the block, and end it in order."""
        noted = NotedPairs()
        copiers = CopierGroup(
            self.config(**source),
            instance=instance,
            is_static=is_static,
            clock=SystemClock(),
            listeners={"east": noted},
            on_leading=noted.lead,
        )
        copiers.set_plan("east", plan)
        task = asyncio.create_task(copiers.run())
        try:
            yield copiers, noted
        finally:
            copiers.stop()
            await task
        assert not noted.leading

    async def read(
        self, topic: str, count: int, partitions: int = 1, *, broker: InProcessBroker | None = None
    ) -> dict[int, list[ConsumerRecord]]:
        """Return the committed records of a topic by partition, when there are `count`. By default, of the target."""
        found: dict[int, list[ConsumerRecord]] = {number: [] for number in range(partitions)}
        settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "fetch_max_wait_ms": 50}
        async with Consumer((broker or self.target).bootstrap, topic, **settings) as consumer:  # type: ignore[arg-type]
            async with asyncio.timeout(120):
                while sum(map(len, found.values())) < count:
                    for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                        found[partition.partition] += records
        return found


@contextmanager
def mirrored_clusters(directory: Path) -> Iterator[MirroredClusters]:
    """Start two clusters of one broker each."""
    brokers = [InProcessBroker(directory / name) for name in ("source", "target")]
    try:
        for broker in brokers:
            broker.start()
        yield MirroredClusters(*brokers)
    finally:
        for broker in brokers:
            broker.close()


async def until_true(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition while the loop runs."""
    await asyncio.to_thread(wait_until, condition, what=what)


async def owned_of(copiers: CopierGroup, topic: str) -> OwnedPartition:
    """Return partition 0 of a topic of the source as soon as the process has it."""
    await until_true(lambda: any(each.partition.topic == topic for each in copiers.owned), f"partition 0 of {topic}")
    return next(each for each in copiers.owned if each.partition.topic == topic)
