"""A mirror of two sources, Apache Kafka and Odradek, while brokers of all three clusters and the mirror are killed.

Every record arrives once and in order. Meanwhile, groups move to the target: they skip no record, and read at most one
batch again. `ODRADEK_MIRROR_SECONDS` makes the test longer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from odradek.base.system_ports import SystemClock
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import NewTopic
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.clients.mirror_runs import MirrorLoad, MirrorRun, copied_at_least
from odradek_testkit.interop.apache import ApacheBroker, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(3600)]

TOPIC: Final = "orders"
PARTITIONS: Final = 3
BATCH: Final = 50
"""Maximum number of records that the load writes to a partition at once."""
SECONDS: Final = float(os.environ.get("ODRADEK_MIRROR_SECONDS", "0"))
WAIT_SECONDS: Final = 240
LOAD_ROUNDS: Final = 20 if SECONDS else 6
"""Rounds of the load during each kill."""
READ_BY_GROUP: Final = 100 if SECONDS else 50
"""Records of each partition that a group reads before it moves, and after it."""

_LOG: Final = logging.getLogger(__name__)


def properties(replicas: int) -> dict[str, str]:
    """Return properties of brokers with short timeouts, and this number of replicas for each topic."""
    return {
        "zookeeper.session.timeout.ms": "6000",
        "default.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }


class KilledCluster:
    """A cluster whose brokers the test kills, one at a time."""

    def __init__(self, name: str, brokers: Sequence[ApacheBroker | OdradekBroker]) -> None:
        self.name: Final = name
        self.brokers: Final = brokers
        self.bootstrap: Final = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)

    async def start(self) -> None:
        """Start the brokers, and wait until all are registered."""
        for broker in self.brokers:
            await asyncio.to_thread(broker.start)
        async with Admin(self.bootstrap) as admin, asyncio.timeout(WAIT_SECONDS):
            while len((await admin.describe_cluster()).brokers) < len(self.brokers):
                pass

    async def create_topic(self) -> None:
        """Create the topic of the load."""
        async with Admin(self.bootstrap) as admin:
            topic = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=len(self.brokers))
            await admin.create_topics([topic])

    async def until_in_sync(self) -> None:
        """Wait until all replicas of all topics are in sync."""
        async with Admin(self.bootstrap) as admin, asyncio.timeout(WAIT_SECONDS):
            while True:
                topics = await admin.describe_topics(await admin.list_topics(internal=True))
                partitions = [each for topic in topics.values() for each in topic.partitions]
                if all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in partitions):
                    return

    async def kill(self, number: int) -> None:
        """Kill a broker."""
        await asyncio.to_thread(self.brokers[number].stop, kill=True)

    async def start_again(self, number: int) -> None:
        """Start a broker that was killed.

        Apache Kafka does not start while its former session in ZooKeeper exists, so this waits for the end of it.
        """
        broker = self.brokers[number]
        if isinstance(broker, ApacheBroker):
            async with Admin(self.bootstrap) as admin, asyncio.timeout(WAIT_SECONDS):
                while number in {each.node_id for each in (await admin.describe_cluster()).brokers}:
                    pass
        await asyncio.to_thread(broker.start)

    def stop(self) -> None:
        """Kill all brokers."""
        for broker in self.brokers:
            broker.stop(kill=True)


class Mirrors:
    """Two processes of one mirror."""

    def __init__(self, directory: Path, document: dict[str, object]) -> None:
        self._directory = directory
        self._document = document
        self._runs: dict[str, MirrorRun] = {}

    async def start(self, name: str) -> None:
        """Start a process."""
        self._runs[name] = MirrorRun(self._directory / name, self._document, instance=name)

    async def kill(self, name: str) -> None:
        """Kill a process."""
        await asyncio.to_thread(self._runs[name].kill)

    def stop(self) -> list[int]:
        """End both in order. Returns their exit codes."""
        return [run.stop() for run in self._runs.values()]

    def kill_all(self) -> None:
        """Kill both."""
        for run in self._runs.values():
            run.kill()


class CopyReader:
    """Reads the copies all the time, and fails at the first record that is missing, repeated or out of order."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self.partitions: Final = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
        self.offsets: Final[dict[TopicPartition, list[int]]] = {partition: [] for partition in self.partitions}
        """The offset of each record, whose value is its place in the list."""
        self._positions: dict[TopicPartition, int] = {}
        self._news = asyncio.Condition()

    async def run(self) -> None:
        """Read until cancelled."""
        for topic in self._topics:
            await copied_at_least(self._bootstrap, topic, PARTITIONS, 1)
        async with Consumer(
            self._bootstrap,
            *self._topics,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
        ) as consumer:
            while True:
                for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                    known = self.offsets[partition]
                    for record in records:
                        assert int(record.value) == len(known), (
                            f"{partition}: {record.value!r} follows {len(known) - 1}"
                        )
                        known.append(record.offset)
                self._positions = {partition: await consumer.position(partition) for partition in self.partitions}
                async with self._news:
                    self._news.notify_all()

    async def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition that depends on what was read."""
        try:
            async with asyncio.timeout(WAIT_SECONDS), self._news:
                await self._news.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"timed out while waiting for {what}: {self.counts()}") from None

    async def until_end(self) -> None:
        """Wait until it has read everything that is committed now."""
        async with Consumer(self._bootstrap, isolation_level="read_committed") as consumer:
            ends = await consumer.end_offsets(self.partitions)
        await self.wait_for(lambda: all(self._positions[each] >= end for each, end in ends.items()), f"the end {ends}")

    async def changed(self) -> None:
        """Wait for the next read."""
        async with asyncio.timeout(WAIT_SECONDS), self._news:
            await self._news.wait()

    def counts(self) -> dict[TopicPartition, int]:
        """Return the number of records of each partition."""
        return {partition: len(offsets) for partition, offsets in self.offsets.items()}

    def has(self, wanted: dict[TopicPartition, int]) -> bool:
        """Whether it has read at least these numbers of records."""
        return all(len(self.offsets[partition]) >= number for partition, number in wanted.items())


class MovingGroup:
    """A group with one member, which commits what it has read after each batch."""

    def __init__(self, name: str, source: KilledCluster, target: str, copies: CopyReader) -> None:
        self.name: Final = name
        self._source = source
        self._target = target
        self._copies = copies
        self._copy = copy_of(source)
        self.following: dict[int, int] = {}
        """The number of the record that follows in each partition."""

    async def move(self) -> int:
        """Read in the source, then in the target. Returns the largest number of records of a partition that the group
        has read again."""
        await self._read(self._source.bootstrap, TOPIC, "latest")
        stopped_at = dict(self.following)
        await self._await_translation()
        again = await self._read(self._target, self._copy, "none")
        assert max(again.values()) <= BATCH, f"{self.name}: {again} records were read again after {stopped_at}"
        return max(again.values())

    async def _read(self, bootstrap: str, topic: str, reset: str) -> dict[int, int]:
        """Read and commit records under load. Returns how many were read before of each partition."""
        found: Counter[int] = Counter()
        again: dict[int, int] = {}
        async with Consumer(
            bootstrap,
            topic,
            group_id=self.name,
            auto_offset_reset=reset,
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
        ) as consumer:
            while len(found) < PARTITIONS or min(found.values()) < READ_BY_GROUP:
                for (_, partition), records in (await consumer.getmany(timeout_ms=500)).items():
                    first = int(records[0].value)
                    if partition not in found:
                        known = self.following.get(partition, first)
                        assert first <= known, f"{self.name} skips {known} to {first - 1} of {topic}-{partition}"
                        again[partition] = known - first
                    else:
                        assert first == self.following[partition], (self.name, topic, partition, first)
                    numbers = [int(record.value) for record in records]
                    assert numbers == list(range(first, first + len(records))), (self.name, numbers)
                    self.following[partition] = first + len(records)
                    found[partition] += len(records)
                await consumer.commit()
        return again

    async def _await_translation(self) -> None:
        """Wait until the mirror has committed where the group continues, at most one batch back."""
        wanted = {TopicPartition(self._copy, partition): number for partition, number in self.following.items()}
        await self._copies.wait_for(lambda: self._copies.has(wanted), f"the copies of what {self.name} has read")
        back: dict[TopicPartition, int] = {}
        async with Admin(self._target) as admin:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    while len(back) < PARTITIONS or max(back.values()) > BATCH:
                        await self._copies.changed()
                        committed = await admin.group_offsets(self.name)
                        back = {
                            partition: wanted[partition] - bisect_left(self._copies.offsets[partition], each.offset)
                            for partition, each in committed.items()
                        }
            except TimeoutError:
                raise AssertionError(f"{self.name} continues too early in the target: {back} records back") from None


def copy_of(source: KilledCluster) -> str:
    """Return the name of the copy of the load's topic."""
    return f"{source.name}.{TOPIC}"


@contextmanager
def three_clusters(
    request: pytest.FixtureRequest, directory: Path, ensemble: str
) -> Iterator[tuple[KilledCluster, KilledCluster, KilledCluster]]:
    """Make two sources and a target. They are started by the test, and end with the block."""
    folder = jars("3.9.1", Path(request.config.rootpath) / ".interop")
    chroot = f"{ensemble}/{uuid4().hex[:8]}"

    def ours(name: str, brokers: int) -> KilledCluster:
        own = {"zookeeper": f"{chroot}-{name}", "properties": properties(brokers)}
        return KilledCluster(
            name,
            [OdradekBroker(directory / name / str(each), broker_id=each, **own) for each in range(brokers)],
        )

    kafka = KilledCluster(
        "kafka",
        [
            ApacheBroker(
                folder,
                directory / "kafka" / str(number),
                broker_id=number,
                zookeeper=f"{chroot}-kafka",
                properties=properties(2),
                heap="384m",
            )
            for number in range(2)
        ],
    )
    clusters = (kafka, ours("odradek", 2), ours("target", 3))
    try:
        yield clusters
    finally:
        for cluster in clusters:
            cluster.stop()


def configuration(sources: Sequence[KilledCluster], target: KilledCluster) -> dict[str, object]:
    """Return the configuration of the mirror."""
    return {
        "name": "killed",
        "target": {"bootstrapServers": target.bootstrap, "properties": {"session.timeout.ms": 6000}},
        "sources": [
            {
                "name": source.name,
                "bootstrapServers": source.bootstrap,
                "topics": {"include": [TOPIC]},
                "groups": {"include": ["moving-.*"]},
            }
            for source in sources
        ],
        "refreshSeconds": 1,
        "groupsSeconds": 1,
    }


class Play:
    """Kills under load until the time is over and groups of both sources have moved."""

    def __init__(self, clusters: Sequence[KilledCluster], mirrors: Mirrors) -> None:
        *self.sources, self.target = clusters
        self.mirrors: Final = mirrors
        self.loads: Final = {
            copy_of(source): MirrorLoad(source.bootstrap, TOPIC, PARTITIONS) for source in self.sources
        }
        self.copies: Final = CopyReader(self.target.bootstrap, list(self.loads))
        self.kills: Final[Counter[str]] = Counter()
        self.moves: Final[list[int]] = []
        """How many records each group has read again."""
        self._chance: Final = random.Random(1)
        self._clock: Final = SystemClock()
        self._end_ms: Final = self._clock.monotonic_ms() + 1000 * SECONDS

    def written(self) -> dict[TopicPartition, int]:
        """Return how many records were written to each partition of the sources, by partition of the target."""
        return {
            TopicPartition(topic, number): written
            for topic, load in self.loads.items()
            for number, written in enumerate(load.counts)
        }

    async def run(self) -> None:
        """Kill and move."""
        kinds = [*self.sources, self.mirrors, self.target]
        async with asyncio.TaskGroup() as tasks:
            moves = tasks.create_task(self._move_groups())
            for number, kind in enumerate(cycle(kinds)):
                if moves.done() and number >= len(kinds) and self._is_over:
                    return
                await self._disturb(kind)

    @property
    def _is_over(self) -> bool:
        return self._clock.monotonic_ms() >= self._end_ms

    async def _move_groups(self) -> None:
        for number in count():
            if number >= len(self.sources) and self._is_over:
                return
            source = self.sources[number % len(self.sources)]
            group = MovingGroup(f"moving-{number}", source, self.target.bootstrap, self.copies)
            self.moves.append(await group.move())
            _LOG.info("%s has moved from %s, %d records back", group.name, source.name, self.moves[-1])

    async def _disturb(self, kind: KilledCluster | Mirrors) -> None:
        """Kill something while records are written. Start it again at once, or when others have taken over."""
        before, what = self.written(), "a mirror" if isinstance(kind, Mirrors) else f"a broker of {kind.name}"
        async with asyncio.TaskGroup() as tasks, self._killed(kind) as start:
            writes = [tasks.create_task(load.write(LOAD_ROUNDS)) for load in self.loads.values()]
            if others_take_over := self._chance.random() < 0.5:
                await asyncio.wait(writes)
                before = self.written()
                await self.copies.wait_for(lambda: self.copies.has(before), f"the copies without {what}")
            await start()
        await self.copies.wait_for(lambda: self.copies.has(before), f"the copies after the return of {what}")
        copied = sum(self.copies.counts().values())
        _LOG.info("kills: %s, others took over: %s, copied: %d", dict(self.kills), others_take_over, copied)

    @asynccontextmanager
    async def _killed(self, kind: KilledCluster | Mirrors) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Kill a broker or a process of the mirror. Yields a function that starts it again."""
        if isinstance(kind, Mirrors):
            name = self._chance.choice("ab")
            await kind.kill(name)
            self.kills["mirror"] += 1
            yield lambda: kind.start(name)
        else:
            await kind.until_in_sync()
            number = self._chance.randrange(len(kind.brokers))
            await kind.kill(number)
            self.kills[kind.name] += 1
            yield lambda: kind.start_again(number)


async def test_every_record_arrives_once_and_groups_move(
    tmp_path: Path, request: pytest.FixtureRequest, odradek_zookeeper: str
) -> None:
    with three_clusters(request, tmp_path, odradek_zookeeper) as clusters:
        *sources, target = clusters
        await asyncio.gather(*(cluster.start() for cluster in clusters))
        await asyncio.gather(*(source.create_topic() for source in sources))
        mirrors = Mirrors(tmp_path / "mirrors", configuration(sources, target))
        play = Play(clusters, mirrors)
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(play.copies.run())
                for name in "ab":
                    await mirrors.start(name)
                await asyncio.gather(*(load.write(1) for load in play.loads.values()))
                await play.run()
                await play.copies.wait_for(lambda: play.copies.has(play.written()), "all copies")
                assert await asyncio.to_thread(mirrors.stop) == [0, 0]
                await play.copies.until_end()
                reading.cancel()
        finally:
            mirrors.kill_all()
        assert play.copies.counts() == play.written()
        _LOG.info("written: %d, kills: %s, moves: %s", sum(play.written().values()), dict(play.kills), play.moves)
