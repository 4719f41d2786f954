"""A marker sender with memory brokers that write what it sends, for unit and property tests."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.base.errors import NotLeaderOrFollowerError, OdradekError
from odradek.base.types import TopicPartition
from odradek.coordinator.broker_links import BrokerLinks
from odradek.coordinator.transactions.marker_sender import MarkerSender
from odradek.coordinator.transactions.transaction_values import MarkerOutcome, TransactionMarker
from odradek.protocol.codec import Message
from odradek.protocol.messages.transactions import WriteTxnMarkersRequest
from odradek_testkit.loop import VirtualClock
from odradek_testkit.senders.peer_brokers import LISTENER, PeerBrokers

HERE: Final = 0
"""The broker of the sender."""


class Written(NamedTuple):
    """One request that a broker has received: the markers with their partitions."""

    broker_id: int
    markers: tuple[TransactionMarker, ...]


class MarkerBench:
    """A sender on broker 0. Brokers 0, 1 and 2 write the markers of partitions that they lead."""

    def __init__(self, protocol: str = "3.9") -> None:
        """Must be called on a running virtual loop. `protocol`: the `inter.broker.protocol.version` of broker 0."""
        self.clock: Final = VirtualClock()
        self.brokers: Final = PeerBrokers(self._answer)
        self.links: Final = BrokerLinks(
            cluster=self.brokers.cluster,
            listener=LISTENER,
            connect=self.brokers.connect,
            clock=self.clock,
            timeout_ms=30_000,
        )
        self.sender: Final = MarkerSender(
            broker_id=HERE,
            cluster=self.brokers.cluster,
            links=self.links,
            writer=self,
            assigned_partitions=self._assigned_partitions,
            clock=self.clock,
            protocol=protocol,
        )
        self.leaders: dict[TopicPartition, int] = {}
        """The brokers that lead partitions, which the metadata may not have yet."""
        self.assigned: defaultdict[str, set[int]] = defaultdict(set)
        """Partitions in ZooKeeper by topic."""
        self.zookeeper_failures: list[Exception] = []
        self.lookups: list[str] = []
        self.looking_up: Final = asyncio.Event()
        self.codes: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        """Error codes of the next answers for a partition, before it is written."""
        self.failures: defaultdict[int, list[Exception]] = defaultdict(list)
        """Errors of the next requests to a broker."""
        self.gates: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        """A broker waits with its answers until its event is set."""
        self.answers: Callable[[Message], Message] = lambda answer: answer
        self.requests: list[Written] = []
        self.versions: list[int] = []
        """Versions of the requests to the other brokers."""
        self.written: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        """Producer ids whose marker a partition has."""
        self.outcomes: defaultdict[int, list[MarkerOutcome]] = defaultdict(list)
        """Calls of `done` by producer id."""
        for broker_id in range(3):
            self.gates[broker_id].set()
        self.brokers.announce({0: 9000, 1: 9001, 2: 9002})

    def lead(self, broker_id: int, *partitions: TopicPartition) -> None:
        """Make a broker the leader of partitions, in the metadata, too."""
        for partition in partitions:
            self.leaders[partition] = broker_id
            self.assigned[partition.topic].add(partition.partition)
        self.brokers.lead(dict.fromkeys(partitions, broker_id))

    def delete(self, topic: str) -> None:
        """Remove a topic from ZooKeeper, from its leaders, and from the metadata."""
        partitions = [partition for partition in self.leaders if partition.topic == topic]
        for partition in partitions:
            del self.leaders[partition]
        self.assigned.pop(topic, None)
        self.brokers.forget(*partitions)

    def send(self, producer_id: int, *partitions: TopicPartition) -> Callable[[], None]:
        """Send a marker."""
        marker = TransactionMarker(producer_id, 5, True, 7, partitions)
        return self.sender.send(marker, self.outcomes[producer_id].append)

    async def settled(self) -> None:
        """Return when no marker is pending."""
        while self.sender.pending_count:
            await self.clock.sleep_ms(10)

    async def close(self) -> None:
        """Close sender and channels, and check that nothing is left."""
        await self.sender.close()
        await self.links.close()
        assert not self.sender.pending_count
        assert not self.sender.paused_count
        assert not self.sender.unknown_destination_count

    async def write(self, markers: Sequence[TransactionMarker]) -> list[Mapping[TopicPartition, int]]:
        """Implement `MarkerWriter` for broker 0."""
        return await self._write(HERE, markers)

    async def _write(self, broker_id: int, markers: Sequence[TransactionMarker]) -> list[Mapping[TopicPartition, int]]:
        self.requests.append(Written(broker_id, tuple(markers)))
        await self.gates[broker_id].wait()
        if self.failures[broker_id]:
            raise self.failures[broker_id].pop(0)
        return [
            {partition: self._append(broker_id, marker.producer_id, partition) for partition in marker.partitions}
            for marker in markers
        ]

    def _append(self, broker_id: int, producer_id: int, partition: TopicPartition) -> int:
        if self.leaders.get(partition) != broker_id:
            return NotLeaderOrFollowerError.code
        if self.codes[partition]:
            return self.codes[partition].pop(0)
        self.written[partition].add(producer_id)
        return 0

    async def _answer(self, broker_id: int, version: int, request: WriteTxnMarkersRequest) -> Message:
        self.versions.append(version)
        markers = [
            TransactionMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                tuple(TopicPartition(topic.name, each) for topic in marker.topics for each in topic.partition_indexes),
            )
            for marker in request.markers
        ]
        codes = await self._write(broker_id, markers)
        return self.answers(
            {
                "markers": [
                    {
                        "producer_id": marker.producer_id,
                        "topics": [
                            {
                                "name": partition.topic,
                                "partitions": [{"partition_index": partition.partition, "error_code": code}],
                            }
                            for partition, code in found.items()
                        ],
                    }
                    for marker, found in zip(markers, codes, strict=True)
                ]
            }
        )

    async def _assigned_partitions(self, topic: str) -> Collection[int]:
        self.lookups.append(topic)
        self.looking_up.set()
        await asyncio.sleep(0)
        if self.zookeeper_failures:
            raise self.zookeeper_failures.pop(0)
        return self.assigned.get(topic, frozenset())


class ZooKeeperDownError(OdradekError):
    """ZooKeeper does not answer."""
