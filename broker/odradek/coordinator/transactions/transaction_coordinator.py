"""The transaction coordinator of a broker: finds the partition of a transactional id and runs requests on its shard.

`server/transactions` calls the request methods, which raise errors of `base.errors`; `replication` calls `on_leader`
and `on_follower`. The hash of a transactional id determines its partition of `__transaction_state`, whose leader serves
the id after it has replayed the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, TypeVar

from odradek.base.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    PolicyViolationError,
)
from odradek.base.ports import Clock, Timer
from odradek.base.topic_rules import partition_for
from odradek.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from odradek.coordinator.coordinator_ports import RecordLog, Respond, Runtime
from odradek.coordinator.producer_ids import ProducerIds
from odradek.coordinator.transactions.transaction_shard import TransactionShard
from odradek.coordinator.transactions.transaction_values import (
    EPOCH_BUMPS_SINCE,
    EndRequest,
    InitRequest,
    Markers,
    ProducerIdAndEpoch,
    Transaction,
    TransactionLevel,
    TransactionListing,
    TransactionSettings,
    TransactionState,
    oldest_level,
)

Result = TypeVar("Result")

STATE_NAMES = frozenset(state.text for state in TransactionState)


class TransactionList(NamedTuple):
    """The result of ListTransactions."""

    listings: list[TransactionListing]
    unknown_states: list[str]


class TransactionCoordinator:
    """Handles the requests of all transactional ids that this broker coordinates."""

    def __init__(
        self,
        *,
        settings: TransactionSettings,
        clock: Clock,
        runtime: Runtime[TransactionShard],
        producer_ids: ProducerIds,
        markers: Markers,
        partition_count: Callable[[], int],
        level: TransactionLevel = oldest_level,
    ) -> None:
        """`partition_count` returns the number of partitions of `__transaction_state`, or the configured number before
        the topic exists. `level`: that of `transaction.version`, read for each request."""
        self._level = level
        self._settings = settings
        self._clock = clock
        self._runtime = runtime
        self._producer_ids = producer_ids
        self._markers = markers
        self._partition_count = partition_count
        self._timers: dict[str, Timer] = {}
        self._is_closed = False

    @property
    def waiting_completions(self) -> int:
        """Number of transactions whose last record could not be appended and is tried again, for metrics."""
        return sum(shard.retry_count for shard in self._runtime.shards())

    @property
    def prepared_count(self) -> int:
        """Number of prepared transactions that wait for their end, for metrics."""
        return sum(1 for shard in self._runtime.shards() for _ in shard.prepared())

    @property
    def oldest_prepared_ms(self) -> int:
        """Time since the start of the oldest prepared transaction; 0 if there is none. For metrics."""
        started = [each.started_ms for shard in self._runtime.shards() for each in shard.prepared()]
        return max(0, self._clock.wall_ms() - min(started)) if started else 0

    # Lifecycle

    def start(self) -> None:
        """Start to abort transactions that have timed out, and to remove expired ids."""
        self._every("abort", self._settings.abort_interval_ms, TransactionShard.abort_timed_out)
        self._every("expire", self._settings.expiration_interval_ms, TransactionShard.expire)

    def _every(self, name: str, interval_ms: float, work: Callable[[TransactionShard], None]) -> None:
        def run() -> None:
            self._timers[name] = self._clock.call_later(interval_ms, run)
            for shard in self._runtime.shards():
                work(shard)

        self._timers[name] = self._clock.call_later(interval_ms, run)

    async def close(self) -> None:
        """Stop. Waiting requests get an error that makes clients look up the coordinator again. Idempotent."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._runtime.close()

    def on_leader(self, topic_partition: TopicPartition, epoch: int) -> None:
        """Load a partition of `__transaction_state` that this broker leads now. Ignores other topics."""
        if topic_partition.topic == TRANSACTION_STATE_TOPIC:
            self._runtime.load(topic_partition, epoch, self._make_shard)

    def on_follower(self, topic_partition: TopicPartition) -> None:
        """Drop the ids of a partition that this broker no longer leads or no longer has."""
        if topic_partition.topic == TRANSACTION_STATE_TOPIC:
            self._runtime.unload(topic_partition)

    def _make_shard(self, log: RecordLog) -> TransactionShard:
        return TransactionShard(
            settings=self._settings, clock=self._clock, log=log, markers=self._markers, level=self._level
        )

    # The partition of an id

    def partition_for(self, transactional_id: str) -> TopicPartition:
        """Return the partition of `__transaction_state` whose leader coordinates the id."""
        return TopicPartition(TRANSACTION_STATE_TOPIC, partition_for(transactional_id, self._partition_count()))

    def _checked(self, transactional_id: str) -> TopicPartition:
        if not transactional_id:
            raise InvalidRequestError("The transactional id is empty.")
        if self._is_closed:
            raise CoordinatorNotAvailableError("The broker is stopping.")
        return self.partition_for(transactional_id)

    async def _call(
        self, transactional_id: str, operation: Callable[[TransactionShard, Respond[Result]], None]
    ) -> Result:
        return await self._runtime.call(self._checked(transactional_id), operation)

    # Requests

    async def init_producer_id(self, request: InitRequest) -> ProducerIdAndEpoch:
        """Handle InitProducerId with a transactional id.

        Raises `InvalidTransactionTimeoutError`, `ConcurrentTransactionsError`, `ProducerFencedError` and the errors of
        coordinators. A prepared transaction is not ended: it is a concurrent one.
        """
        partition = self._checked(request.transactional_id)
        if not 0 < request.timeout_ms <= self._settings.max_timeout_ms:
            raise InvalidTransactionTimeoutError(
                f"The transaction timeout of {request.timeout_ms} ms is not between 1 and "
                f"{self._settings.max_timeout_ms} ms (transaction.max.timeout.ms)."
            )
        new_id = None
        if self._runtime.shard(partition).needs_new_id(request):
            allocated = await self._producer_ids.next()
            # Meanwhile, another request may have changed the state.
            new_id = allocated if self._runtime.shard(partition).needs_new_id(request) else None
        return await self._runtime.call(
            partition, lambda shard, respond: shard.init_producer_id(request, new_id, respond)
        )

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        """Handle AddPartitionsToTxn. Returns when the partitions are part of the transaction."""
        await self._add(transactional_id, producer, partitions, client_version=0)

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        client_version: int,
    ) -> None:
        def add(shard: TransactionShard, respond: Respond[None]) -> None:
            shard.add_partitions(transactional_id, producer, partitions, respond, client_version=client_version)

        await self._call(transactional_id, add)

    async def add_written(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Add the partitions to which a producer of transaction version 2 writes (KIP-890). Return an error code for
        each of them, when they are part of the transaction.

        Below level 2, the end of a transaction does not fence late writes, so they must not open one: the partitions
        are only verified. This happens while a broker does not know the new level yet, and after a downgrade.
        """
        level = self._level()
        if level < EPOCH_BUMPS_SINCE:
            return self.verify(transactional_id, producer, partitions)
        await self._add(transactional_id, producer, partitions, client_version=EPOCH_BUMPS_SINCE)
        return dict.fromkeys(partitions, 0)

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Handle AddPartitionsToTxn that only verifies. Returns an error code per partition (KIP-890)."""
        shard = self._runtime.shard(self._checked(transactional_id))
        return shard.verify(transactional_id, producer, partitions)

    async def prepare(self, transactional_id: str, producer: ProducerIdAndEpoch) -> None:
        """Handle PrepareTxn. Returns when the log has the prepared transaction, which has no timeout any more.

        Raises `PolicyViolationError` if `prepared.transactions.enable` is false, and the errors of `end`.
        """
        if not self._settings.prepares:
            raise PolicyViolationError("Transactions cannot be prepared: prepared.transactions.enable is false.")

        def prepare(shard: TransactionShard, respond: Respond[None]) -> None:
            shard.prepare(transactional_id, producer, respond)

        await self._call(transactional_id, prepare)

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool, client_version: int = 0
    ) -> ProducerIdAndEpoch:
        """Handle EndTxn. Returns the producer id and epoch for the next transaction when the decision is committed.

        `client_version`: the transaction version of the client. From 2 on, and if the cluster has finalized that level,
        the epoch is raised, or the producer gets another id.
        """
        request = EndRequest(producer=producer, is_commit=is_commit, client_version=client_version, level=self._level())
        partition = self._checked(transactional_id)
        next_id = None
        if self._runtime.shard(partition).needs_next_id(transactional_id, request):
            allocated = await self._producer_ids.next()
            # Meanwhile, another request may have changed the state.
            needed = self._runtime.shard(partition).needs_next_id(transactional_id, request)
            next_id = allocated if needed else None

        def end(shard: TransactionShard, respond: Respond[ProducerIdAndEpoch]) -> None:
            shard.end(transactional_id, request, next_id, respond)

        return await self._runtime.call(partition, end)

    # Views

    async def describe(self, transactional_id: str) -> Transaction:
        """Handle DescribeTransactions for one id. Raises `TransactionalIdNotFoundError`."""
        return self._runtime.shard(self._checked(transactional_id)).describe(transactional_id)

    async def list(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), longer_than_ms: int = -1
    ) -> TransactionList:
        """Handle ListTransactions: the ids of this broker with these states and producer ids. Empty means all.

        Raises `CoordinatorLoadInProgressError` while a partition is loading.
        """
        if self._is_closed:
            raise CoordinatorNotAvailableError("The broker is stopping.")
        if self._runtime.is_loading:
            raise CoordinatorLoadInProgressError("Partitions of __transaction_state are being loaded.")
        wanted_states, wanted_ids = list(states), frozenset(producer_ids)
        known = frozenset(wanted_states) & STATE_NAMES
        found: list[TransactionListing] = []
        if known or not wanted_states:
            for shard in self._runtime.shards():
                found += shard.listings(known, wanted_ids, longer_than_ms)
        return TransactionList(found, [name for name in wanted_states if name not in STATE_NAMES])
