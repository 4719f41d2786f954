"""The transaction coordinator in memory: a shard on a manual clock, whose appends and markers the test ends.

`TransactionLab` acts as the producers, without threads, tasks or sockets. A request returns a `Reply` that is set when
the coordinator answers. `lab.log.settle` commits the appended records, `lab.markers.end` ends the markers of a
transaction, and `reload` moves the partition to another coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from odradek.base.types import TopicPartition
from odradek.coordinator.transactions.transaction_shard import TransactionShard
from odradek.coordinator.transactions.transaction_values import (
    EndRequest,
    InitRequest,
    MarkerOutcome,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMarker,
    TransactionSettings,
)
from odradek_testkit.groups import MemoryLog, Reply
from odradek_testkit.loop import ManualClock

TRANSACTION_SETTINGS: Final = TransactionSettings(
    max_timeout_ms=900_000, id_expiration_ms=604_800_000, abort_interval_ms=10_000, expiration_interval_ms=3_600_000
)
TIMEOUT_MS: Final = 60_000
EVENTS: Final = (TopicPartition("events", 0), TopicPartition("events", 1))


class ManualMarkers:
    """A `Markers` whose markers the test ends."""

    def __init__(self) -> None:
        """Without markers."""
        self.waiting: dict[TransactionMarker, Callable[[MarkerOutcome], None]] = {}
        self.sent: list[TransactionMarker] = []
        """All markers, in the order in which they were sent for the first time by each coordinator."""

    def send(self, marker: TransactionMarker, done: Callable[[MarkerOutcome], None]) -> Callable[[], None]:
        """Remember the marker."""
        assert marker not in self.waiting, marker
        self.waiting[marker] = done
        self.sent.append(marker)
        return lambda: self._stop(marker)

    def _stop(self, marker: TransactionMarker) -> None:
        del self.waiting[marker]

    def end(self, outcome: MarkerOutcome = MarkerOutcome.WRITTEN) -> TransactionMarker:
        """End the oldest marker and return it."""
        marker = next(iter(self.waiting))
        self.waiting.pop(marker)(outcome)
        return marker


@dataclass
class TransactionLab:
    """One shard and the producers that send requests to it."""

    settings: TransactionSettings = TRANSACTION_SETTINGS
    clock: ManualClock = field(default_factory=ManualClock)
    log: MemoryLog = field(default_factory=MemoryLog)
    markers: ManualMarkers = field(default_factory=ManualMarkers)
    next_id: int = 1000
    level: int = 0
    """Finalized level of `transaction.version`."""

    def __post_init__(self) -> None:
        """Start with an empty partition."""
        self.shard = self.load()
        self.shard.on_loaded()

    def load(self) -> TransactionShard:
        """Return a new shard with the state of the log; the current shard does not change."""
        shard = TransactionShard(
            settings=self.settings,
            clock=self.clock,
            log=self.log,
            markers=self.markers,
            level=lambda: self.level,
        )
        for records in self.log.record_sets:
            for _ in shard.replay(records):
                pass
        return shard

    def reload(self) -> None:
        """Move the partition to another coordinator, with the next epoch."""
        self.shard.on_unloaded()
        self.log.leader_epoch += 1
        self.shard = self.load()
        self.shard.on_loaded()

    def init(
        self, transactional_id: str = "tx", *, expected: ProducerIdAndEpoch | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> Reply[ProducerIdAndEpoch]:
        """InitProducerId, with a new id if one is needed."""
        request = InitRequest(transactional_id=transactional_id, timeout_ms=timeout_ms, expected=expected)
        new_id = None
        if self.shard.needs_new_id(request):
            new_id, self.next_id = self.next_id, self.next_id + 1
        reply: Reply[ProducerIdAndEpoch] = Reply()
        self.shard.init_producer_id(request, new_id, reply)
        return reply

    def add(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = EVENTS,
        transactional_id: str = "tx",
        *,
        client_version: int = 0,
    ) -> Reply[None]:
        """AddPartitionsToTxn."""
        reply: Reply[None] = Reply()
        self.shard.add_partitions(transactional_id, producer, partitions, reply, client_version=client_version)
        return reply

    def prepare(self, producer: ProducerIdAndEpoch, transactional_id: str = "tx") -> Reply[None]:
        """PrepareTxn."""
        reply: Reply[None] = Reply()
        self.shard.prepare(transactional_id, producer, reply)
        return reply

    def end(
        self,
        producer: ProducerIdAndEpoch,
        transactional_id: str = "tx",
        *,
        is_commit: bool = True,
        client_version: int = 0,
    ) -> Reply[ProducerIdAndEpoch]:
        """EndTxn, with a new id if one is needed."""
        request = EndRequest(producer=producer, is_commit=is_commit, client_version=client_version, level=self.level)
        next_id = None
        if self.shard.needs_next_id(transactional_id, request):
            next_id, self.next_id = self.next_id, self.next_id + 1
        reply: Reply[ProducerIdAndEpoch] = Reply()
        self.shard.end(transactional_id, request, next_id, reply)
        return reply

    def state(self, transactional_id: str = "tx") -> Transaction:
        """The committed state of an id."""
        return self.shard.describe(transactional_id)

    # Whole steps, whose records are committed at once

    def producer(self, transactional_id: str = "tx") -> ProducerIdAndEpoch:
        """Return a new producer."""
        reply = self.init(transactional_id)
        self.log.settle()
        return reply.value

    def begin(self, partitions: Iterable[TopicPartition] = EVENTS) -> ProducerIdAndEpoch:
        """Return a new producer with an open transaction."""
        producer = self.producer()
        self.add(producer, list(partitions))
        self.log.settle()
        return producer

    def begin_prepared(self) -> ProducerIdAndEpoch:
        """Return a new producer with a prepared transaction."""
        producer = self.begin()
        self.prepare(producer)
        self.log.settle()
        return producer
