"""The replicas of this broker: appends and fetches with their purgatories, ISR changes, roles, checkpoints.

`server/data/produce_and_fetch` and the coordinators call `append` and `fetch`; each request is answered through
`respond`, exactly once and on the loop. Everything else goes to one of the parts: `roles` (LeaderAndIsr and
StopReplica), `deletion` (DeleteRecords), `log_dir_changes` (AlterReplicaLogDirs), `isr_changes`, `fetchers`, `mover`
and `quotas`. `partition` makes the decisions.

Invariants: an acks=all request is answered without an error only after the high watermark has passed its records, so
that every member of the ISR has them; an acks=1 request only after a flush that `flush.messages` requires.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import (
    InvalidRequiredAcksError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RefusedRecordsError,
    error_for,
)
from odradek.base.ports import Clock, Timer
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.cluster import MetadataCache
from odradek.log.flush import NO_LIMIT
from odradek.log.log_manager import LogManager
from odradek.log.lookups import LogLookups
from odradek.log.write_group import WriteGroup
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.replication.follower.fetch_loop import ConnectLeader
from odradek.replication.follower.fetchers import FetcherManager
from odradek.replication.high_watermarks import HighWatermarks
from odradek.replication.leader.awaited import SHORT_WAIT_MS, AwaitedFollowers
from odradek.replication.leader.cold_reads import COLD_WAIT_MS, ColdReads
from odradek.replication.leader.delayed_requests import DelayedFetch, DelayedProduce, FetchResponder, ProduceResponder
from odradek.replication.leader.delete_records import RecordDeletion
from odradek.replication.leader.isr_changes import IsrChanges
from odradek.replication.leader.plain_appends import PlainAppends
from odradek.replication.leader.queued_produce import DelayedWrites, QueuedProduce
from odradek.replication.leader.reader import SELECTORS, FollowerNotes, PartitionReader
from odradek.replication.moves.log_dir_changes import LogDirChanges
from odradek.replication.moves.mover import Cleaning, ReplicaMover
from odradek.replication.partition_table import HostedPartition, PartitionTable
from odradek.replication.quota import ReplicationQuotas
from odradek.replication.replica_requests import (
    AppendRequest,
    AppendResult,
    Fetchable,
    FetchParams,
    IsrWriter,
)
from odradek.replication.roles import ReplicaRoles
from odradek.replication.sessions.fetch_session import FetchSession
from odradek.replication.sessions.resting import RestingEntries
from odradek.timer.purgatory import DelayedOperation, Purgatory

LATE_TRANSACTION_MS: Final = 300_000
"""Time after `transaction.max.timeout.ms` in which Kafka expects the markers of a transaction."""
LEADER_ACKS: Final = 1
ALL_ACKS: Final = -1

logger = logging.getLogger(__name__)


def _unregistered() -> int:
    return NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPorts:
    """What the replicas of a broker use of its other parts and of other brokers."""

    isr_writer: IsrWriter
    cluster: MetadataCache
    topic_config: Callable[[str], TopicConfig]
    """Returns a topic's settings when its log is created."""
    connect: ConnectLeader
    """Opens a channel to a leader."""
    cleaning: Cleaning | None = None
    """Compaction, which is paused for logs that move."""
    broker_epoch: Callable[[], int] = _unregistered
    """Returns the current epoch of this broker's registration."""
    topic_stats: BrokerTopicStats = field(default_factory=BrokerTopicStats)
    """Counts replicated bytes."""


class ReplicaManager:
    """All replicas hosted by one broker. Everything runs on the event loop."""

    def __init__(self, log_manager: LogManager, clock: Clock, config: BrokerConfig, ports: ReplicaPorts) -> None:
        """Create the manager without replicas, and set `log_manager.on_flushed`."""
        self._clock: Final = clock
        self._config: Final = config
        self.table: Final = PartitionTable(ports.cluster)
        self.produce_purgatory: Final[Purgatory[DelayedOperation]] = Purgatory(
            clock, "Produce", purge_interval=config.producer_purgatory_purge_interval_requests
        )
        self.fetch_purgatory: Final[Purgatory[DelayedFetch]] = Purgatory(
            clock, "Fetch", purge_interval=config.fetch_purgatory_purge_interval_requests
        )
        self.resting: Final = RestingEntries()
        self._awaited: Final = AwaitedFollowers()
        self.quotas: Final = ReplicationQuotas(self.table, clock, config)
        selector = SELECTORS.get(config.replica_selector_class)
        self._cold: Final = ColdReads(LogLookups(log_manager.worker_of), self._check_fetches)
        self._reader: Final = PartitionReader(
            self.table, self.take_offline, cold=self._cold, selector=selector, quota=self.quotas.leader
        )
        self.isr_changes: Final = IsrChanges(clock, ports.isr_writer, self._in_sync_set_changed)
        self.fetchers: Final = FetcherManager(
            clock,
            config,
            connect=ports.connect,
            on_change=self.recheck,
            on_storage_failure=self.take_offline,
            quota=self.quotas.follower,
            broker_epoch=ports.broker_epoch,
            stats=ports.topic_stats,
        )
        self._marks: Final = HighWatermarks(self.table, log_manager)
        self.mover: Final = ReplicaMover(
            self.table,
            log_manager,
            clock,
            config,
            on_moved=self._replica_moved,
            on_log_start=self.recheck,
            cleaning=ports.cleaning,
        )
        self.roles: Final = ReplicaRoles(
            self.table,
            log_manager,
            clock,
            config,
            topic_config=ports.topic_config,
            fetchers=self.fetchers,
            marks=self._marks,
            on_change=self.recheck,
            on_lead=self._expect_followers,
            on_applied=self.mover.start,  # Continue a move that a shutdown interrupted.
        )
        self.log_dirs: Final = LogDirChanges(self.table, log_manager, self.mover)
        self.deletion: Final = RecordDeletion(
            self.table,
            clock,
            find=self.partition,
            future=log_manager.future,
            purge_interval=config.delete_records_purgatory_purge_interval_requests,
        )
        self.plain: Final = PlainAppends(self.table, clock, wake=self._wake, take_offline=self.take_offline)
        """Appends of small requests."""
        self._timers: dict[str, Timer] = {}
        self._is_closed = False
        log_manager.on_flushed = self._flushed

    # Start and stop

    def start(self) -> None:
        """Start the periodic work: ISR shrinking and high watermark checkpoints."""
        self._every("shrink", self._config.replica_lag_time_max_ms / 2, self.shrink_in_sync_sets)
        self._every("checkpoint", self._config.replica_high_watermark_checkpoint_interval_ms, self._marks.write_soon)

    async def close(self) -> None:
        """Stop fetching, answer all waiting requests, and write the high watermarks. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        await self.fetchers.close()
        await self.mover.close()
        await self.isr_changes.close()
        self.deletion.purgatory.close()
        self.produce_purgatory.close()
        self.fetch_purgatory.close()
        await self._cold.close()
        await self._marks.close()

    def _every(self, name: str, interval_ms: float, work: Callable[[], None]) -> None:
        def run() -> None:
            self._timers[name] = self._clock.call_later(interval_ms, run)
            work()

        self._timers[name] = self._clock.call_later(interval_ms, run)

    # Lookup

    @property
    def lookups(self) -> LogLookups:
        """Reads of logs that do not make the event loop wait for a disk."""
        return self._cold.lookups

    def partition(self, topic_partition: TopicPartition) -> HostedPartition:
        """Return a partition.

        Raises `KafkaStorageError`, `NotLeaderOrFollowerError` or `UnknownTopicOrPartitionError`.
        """
        partition = self.table.online.get(topic_partition)
        if partition is None:
            raise self.table.missing(topic_partition)(f"{topic_partition} is not available on this broker")
        return partition

    def leader(self, topic_partition: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> HostedPartition:
        """Return the partition if this broker leads it in the given epoch (-1: in any).

        Raises the errors of `partition`, and `NotLeaderOrFollowerError`, `FencedLeaderEpochError` or
        `UnknownLeaderEpochError`.
        """
        partition = self.partition(topic_partition)
        code = partition.leadership_error(current_leader_epoch, leader_only=True)
        if code:
            raise error_for(
                code, f"{topic_partition} is led by broker {partition.leader_id} in epoch {partition.leader_epoch}"
            )
        return partition

    # Data path

    def append(self, request: AppendRequest, respond: ProduceResponder) -> None:
        """Append to the leaders' logs.

        Answers acks=0 at once, acks=1 when the flushes are complete that `flush.messages` requires, acks=-1 when the
        ISRs have the records. After the timeout, what is not acknowledged fails.
        """
        acks = request.acks
        if not ALL_ACKS <= acks <= LEADER_ACKS:
            respond([AppendResult(tp, InvalidRequiredAcksError.code) for tp, _ in request.entries])
            return
        online = self.table.online
        results: list[AppendResult] = []
        appended: list[HostedPartition] = []
        is_durable = True
        queued: list[QueuedProduce] | None = None
        for topic_partition, records in request.entries:
            partition = online.get(topic_partition)
            if partition is None:
                result = AppendResult(topic_partition, self.table.missing(topic_partition).code)
            elif partition.log.write_queue is not None:
                queued = self._queue(partition, records, request, len(results), queued)
                result = queued[-1].result
            else:
                result = self._append(partition, records, request)
                if not result.error_code:
                    # Include duplicates: the producer retried because the high watermark did not rise; it may rise now.
                    appended.append(partition)
                    if partition.log.durable_limit != NO_LIMIT:
                        is_durable = False
            results.append(result)
        now_ms = self._clock.monotonic_ms()
        advanced = [partition.topic_partition for partition in appended if partition.advance(now_ms)]
        if queued is not None:
            self._await_writes(request, results, queued, respond)
        elif self._is_replicated(results) if acks == ALL_ACKS else is_durable or not acks:
            respond(results)
        else:
            self._delay(acks, request.timeout_ms, results, respond)
        self._wake(appended, advanced)

    def _wake(self, appended: Sequence[HostedPartition], advanced: Sequence[TopicPartition]) -> None:
        """Continue what waits for new records, or for a higher high watermark."""
        for partition in appended:
            self._check_fetches(partition.topic_partition)
        for topic_partition in advanced:
            self.produce_purgatory.check(topic_partition)

    def _delay(self, acks: int, timeout_ms: float, results: list[AppendResult], respond: ProduceResponder) -> None:
        """Answer a request when the flushes or the ISR allow it."""
        operation = DelayedProduce(timeout_ms, self.table, results, respond, waits_for_isr=acks == ALL_ACKS)
        self.produce_purgatory.try_complete_else_watch(operation, operation.keys())

    def _queue(
        self,
        partition: HostedPartition,
        records: memoryview,
        request: AppendRequest,
        place: int,
        queued: list[QueuedProduce] | None,
    ) -> list[QueuedProduce]:
        """Pass records to the queue of a slow directory. Returns the queued appends of the request, with this one."""
        one = QueuedProduce(
            partition, records, request, append=self._append, purgatory=self.produce_purgatory, place=place
        )
        one.submit()
        return [one] if queued is None else [*queued, one]

    def _await_writes(
        self,
        request: AppendRequest,
        results: list[AppendResult],
        queued: Sequence[QueuedProduce],
        respond: ProduceResponder,
    ) -> None:
        """Acknowledge a request when slow directories have written its records."""
        acks, deadline_ms = request.acks, self._clock.monotonic_ms() + request.timeout_ms

        def written() -> None:
            if acks:
                self._delay(acks, deadline_ms - self._clock.monotonic_ms(), results, respond)
            else:
                respond(results)

        waiting = DelayedWrites(request.timeout_ms, self.table, results, queued, written)
        self.produce_purgatory.try_complete_else_watch(waiting, waiting.keys())

    def fetch(
        self,
        params: FetchParams,
        entries: Sequence[Fetchable],
        respond: FetchResponder,
        *,
        session: FetchSession | None = None,
    ) -> None:
        """Read the entries. Answers at once if there is enough data, an error or no wait time; else waits for more.

        `session`: that of an incremental request, to which the entries belong; its resting entries may join meanwhile.
        """
        notes = None
        now_ms = 0.0
        if params.replica_id >= 0:
            now_ms = self._clock.monotonic_ms()
            follower = params.replica_id
            notes = FollowerNotes(follower, now_ms, params.replica_epoch, may_join=self.table.may_join(follower))
            if session is not None:
                session.noted_ms = now_ms
        elif params.max_bytes > self._config.fetch_max_bytes:
            limit = self._config.fetch_max_bytes
            # Limit the minimum too: more than the maximum would never be available.
            params = params._replace(max_bytes=limit, min_bytes=min(params.min_bytes, limit))
        if session is not None:
            params = self._in_session(session, params)
        outcome = self._reader.read(params, entries, notes)
        if outcome.cold and not outcome.size_bytes:
            # Whatever the lookups find is returned at once.
            params = params._replace(max_wait_ms=max(params.max_wait_ms, COLD_WAIT_MS), min_bytes=1)
        if notes is not None and self._awaited.fetched(params.replica_id, entries, now_ms):
            params = params._replace(max_wait_ms=min(params.max_wait_ms, SHORT_WAIT_MS))
        if (
            outcome.is_urgent
            or outcome.size_bytes >= params.min_bytes
            or params.max_wait_ms <= 0
            or (not entries and (session is None or not session.rests))
        ):
            respond(outcome.results)
        else:
            operation = DelayedFetch(params, entries, self._reader, respond, session=session)
            done = self.fetch_purgatory.try_complete_else_watch(
                operation, operation.wait_for(self.table.online.get, outcome.cold)
            )
            if notes is not None and not done:
                self._awaited.park(params.replica_id, operation)
        if notes is not None:
            self._act_upon(notes, entries)

    def _in_session(self, session: FetchSession, params: FetchParams) -> FetchParams:
        """Let entries of the session rest. Answers a request that this one has overtaken."""
        if session.overtakes:
            self.fetch_purgatory.check(session)
        return params._replace(may_rest=True)

    def _act_upon(self, notes: FollowerNotes, entries: Sequence[Fetchable]) -> None:
        """Complete what a follower's fetch has unblocked."""
        for partition, proposal in notes.proposals:
            self.isr_changes.start(partition, proposal)
        for partition in notes.advanced:
            self.recheck(partition.topic_partition)
        if self.deletion.purgatory.watched:
            # The fetch also contains the follower's log start offsets.
            for entry in entries:
                self.deletion.purgatory.check(entry.topic_partition)

    def _expect_followers(self, partition: HostedPartition) -> None:
        """Make the followers fetch a partition soon whose first records wait for them."""
        followers = [member for member in partition.in_sync.committed if member != self._config.broker_id]
        waiting = self._awaited.expect(
            partition.topic_partition, partition.leader_epoch, followers, self._clock.monotonic_ms()
        )
        for fetch in waiting:
            fetch.complete()

    def recheck(self, topic_partition: TopicPartition) -> None:
        """Complete operations that wait for an offset, role or epoch of the partition; one of these has changed."""
        self.produce_purgatory.check(topic_partition)
        self._check_fetches(topic_partition)
        self.deletion.purgatory.check(topic_partition)

    def _check_fetches(self, topic_partition: TopicPartition) -> None:
        for waiting in self.resting.changed(topic_partition):
            self.fetch_purgatory.check(waiting)
            # If this does not complete the fetch, it must also wait for the partition: the entry no longer rests.
            self.fetch_purgatory.watch_too(waiting, topic_partition)
        self.fetch_purgatory.check(topic_partition)

    def _append(
        self,
        partition: HostedPartition,
        records: memoryview,
        request: AppendRequest,
        group: WriteGroup | None = None,
    ) -> AppendResult:
        """Append to the log, or to a group of appends that a thread writes."""
        topic_partition = partition.topic_partition
        if not partition.is_leader:
            return AppendResult(
                topic_partition,
                NotLeaderOrFollowerError.code,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
            )
        if request.acks == ALL_ACKS and partition.is_under_min_isr:
            return AppendResult(
                topic_partition,
                NotEnoughReplicasError.code,
                error_message=(
                    f"the ISR {list(partition.in_sync.committed)} is smaller than "
                    f"min.insync.replicas={partition.min_in_sync}"
                ),
            )
        try:
            info = partition.log.append_as_leader(
                records,
                leader_epoch=partition.leader_epoch,
                origin=request.origin,
                zstd_allowed=request.zstd_allowed,
                any_format=request.any_format,
                group=group,
                guard=request.guards.get(topic_partition) if request.needs_guards else None,
                needs_guard=request.needs_guards,
            )
        except ProtocolError as error:
            if partition.log.is_offline:
                self.take_offline(topic_partition)
            return AppendResult(
                topic_partition,
                error.code,
                log_start_offset=partition.log.log_start_offset,
                error_message=str(error),
                record_errors=error.record_errors if isinstance(error, RefusedRecordsError) else (),
                size_bytes=len(records),
                fault=error.fault if isinstance(error, RefusedRecordsError) else None,
            )
        first_offset, last_offset, count, _, _, append_time_ms, start_offset, _, is_duplicate, converted = info
        return AppendResult(
            topic_partition,
            first_offset=first_offset,
            last_offset=last_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=start_offset,
            record_count=0 if is_duplicate else count,
            size_bytes=len(records),
            converted=converted,
        )

    def _is_replicated(self, results: list[AppendResult]) -> bool:
        """Whether each append has failed or is already replicated to the ISR, whose minimum size was checked before."""
        online = self.table.online
        return all(
            result.error_code or result.last_offset < online[result.topic_partition].log.high_watermark
            for result in results
        )

    def _replica_moved(self, topic_partition: TopicPartition) -> None:
        self._marks.moved()
        self._flushed(topic_partition)

    def _flushed(self, topic_partition: TopicPartition) -> None:
        """Continue what waits for a flush or a write: the high watermark, requests, or the fetch loop."""
        partition = self.table.online.get(topic_partition)
        if partition is None:
            return
        if partition.is_leader:
            partition.advance(self._clock.monotonic_ms())
        self.fetchers.flushed(topic_partition)
        self.recheck(topic_partition)

    # In-sync replicas

    def shrink_in_sync_sets(self) -> None:
        """Propose that lagging followers leave the ISR; runs every half of `replica.lag.time.max.ms`."""
        now_ms = self._clock.monotonic_ms()
        for partition in self.table.leaders():
            lagging = partition.lagging(now_ms)
            if lagging:
                logger.info(
                    "%s: replicas %s lag: proposing to remove them from the ISR", partition.topic_partition, lagging
                )
                self.isr_changes.start(partition, partition.propose_shrinking(lagging))

    def _in_sync_set_changed(self, partition: HostedPartition) -> None:
        if partition.is_leader:
            partition.advance(self._clock.monotonic_ms())
        self.recheck(partition.topic_partition)

    # Failures

    def take_offline(self, topic_partition: TopicPartition) -> None:
        """Take a partition whose log failed offline; it gets no role until a restart with a working directory."""
        self.roles.take_offline(topic_partition)

    def directory_failed(self, path: str, topic_partitions: Iterable[TopicPartition]) -> None:
        """Take the partitions of a failed log directory offline. Usable as `LogManager.on_directory_failure`."""
        logger.error("log directory %s failed; its partitions go offline", path)
        for topic_partition in sorted(topic_partitions):
            self.take_offline(topic_partition)

    # Counts, for metrics

    def counts(self) -> ReplicaCounts:
        """Return the numbers of replicas by state."""
        leaders = self.table.leaders()
        return ReplicaCounts(
            partitions=len(self.table.online) + len(self.table.offline),
            leaders=len(leaders),
            offline=len(self.table.offline),
            under_replicated=sum(partition.is_under_replicated for partition in leaders),
            under_min_isr=sum(partition.is_under_min_isr for partition in leaders),
            at_min_isr=sum(len(partition.in_sync.committed) == partition.min_in_sync for partition in leaders),
            reassigning=sum(bool(partition.adding_replicas or partition.removing_replicas) for partition in leaders),
            isr_shrinks=self.isr_changes.shrinks,
            isr_expands=self.isr_changes.expands,
        )

    def producer_count(self) -> int:
        """Return the number of known producers, summed over the online replicas."""
        return sum(partition.log.producer_count for partition in self.table.online.values())

    def late_transaction_count(self, max_timeout_ms: int) -> int:
        """Return the number of led partitions with a transaction that its coordinator should have ended long ago.

        `max_timeout_ms`: `transaction.max.timeout.ms`, after which a coordinator aborts every transaction.
        """
        oldest_ms = self._clock.wall_ms() - max_timeout_ms - LATE_TRANSACTION_MS
        return sum(0 < partition.log.oldest_transaction_ms() < oldest_ms for partition in self.table.leaders())


class ReplicaCounts(NamedTuple):
    """Numbers of replicas; the last two count events since the start."""

    partitions: int
    leaders: int
    offline: int
    under_replicated: int
    under_min_isr: int
    at_min_isr: int
    reassigning: int
    isr_shrinks: int
    isr_expands: int
