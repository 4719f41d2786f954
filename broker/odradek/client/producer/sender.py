"""The producer's send loop: sends ready batches to their leaders and returns the results to the accumulator.

Invariants: at most `max_in_flight_requests_per_connection` requests per broker; whatever happens to
its request, every batch that was sent is acknowledged, failed or queued again.

One task sends ready batches whenever it is woken or the next batch is due; each request has its own task. A returned
batch waits for the retry backoff, but no longer than until its partition has a new leader (KIP-951). While the leader
may have changed, metadata is refreshed continuously.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from odradek.base.errors import (
    BY_CODE,
    ConcurrentTransactionsError,
    MessageTooLargeError,
    NetworkError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    OdradekError,
    ProtocolError,
    RequestTimedOutError,
    StateError,
    TransactionAbortableError,
    UnknownServerError,
    error_for,
)
from odradek.base.tasks import TaskOwner
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.client.cluster_client import ANY_VERSION, Cluster
from odradek.client.exchanges import BatchAnswer, PreparedBatch, exchange_produce
from odradek.client.metadata import ClusterView
from odradek.client.producer.accumulator import Accumulator, ProducerBatch
from odradek.client.producer.sequences import PartitionSequences, ProducerIdentity, Verdict, judge_plain
from odradek.client.producer.transaction_requests import FIRST_ADDITION_PAUSE_MS, Transactions
from odradek.protocol.messages.produce import InitProducerIdResponse

_NO_PRODUCER: Final = -1
_LEADER_STAYS: Final = (NotEnoughReplicasError, NotEnoughReplicasAfterAppendError)
"""Errors that concern the followers of a partition. Another leader would return the same error."""


class Sender:
    """The send loop of one producer."""

    def __init__(self, cluster: Cluster, accumulator: Accumulator, *, on_room: Callable[[], None]) -> None:
        """`on_room` is called after memory was freed."""
        self._cluster = cluster
        self._settings: Final = cluster.settings
        self._clock: Final = cluster.clock
        self._accumulator = accumulator
        self._on_room = on_room
        self._tasks = TaskOwner(self._broke)
        self._wakeup = asyncio.Event()
        self._requests: Counter[int] = Counter()
        self._sequences: dict[TopicPartition, PartitionSequences] = {}
        self._identity: ProducerIdentity | None = None
        self._identity_task: asyncio.Task[None] | None = None
        self._started = False
        self._failure: BaseException | None = None
        self.transactions: Final = (
            None
            if self._settings.transactional_id is None
            else Transactions(cluster, on_change=self._transaction_changed, on_failure=self._broke)
        )
        """The transactions of the producer; None without `transactional_id`."""
        if self._settings.idempotent:
            accumulator.window = self._window

    def _window(self, topic_partition: TopicPartition) -> int:
        """Return how many batches of a partition may be in flight: the lower of its window and the setting."""
        sequences = self._sequences.get(topic_partition)
        return min(self._settings.max_in_flight_requests_per_connection, sequences.window if sequences else 1)

    @property
    def requests_in_flight(self) -> int:
        """Number of produce requests without a response."""
        return self._requests.total()

    def start(self) -> None:
        """Start the loop."""
        if not self._started:
            self._started = True
            self._cluster.on_change.append(self._view_changed)
            self._tasks.spawn(self._run(), name="sender")

    def _view_changed(self, view: ClusterView) -> None:
        """Retry batches whose partition has a new leader at once; refresh metadata while others may get one."""
        in_doubt = False
        for batch in self._accumulator.returned():
            if view.leader_epoch(batch.topic_partition) > batch.leader_epoch:
                batch.retry_at_ms = 0.0
            else:
                in_doubt = in_doubt or batch.in_doubt
        if in_doubt:
            self._cluster.request_refresh()
        self.wake()

    def wake(self) -> None:
        """Make the loop check for ready batches now."""
        self._wakeup.set()

    def _transaction_changed(self) -> None:
        """Send to the partitions that the transaction has now. After an error, fail the waiting batches."""
        assert self.transactions is not None
        machine = self.transactions.machine
        if not machine.is_going_on:
            error = machine.failure or TransactionAbortableError("the transaction was aborted")
            for batch in self._accumulator.discard_waiting():
                self._give_up(batch, error)
            self._on_room()
        self.wake()

    async def close(self) -> None:
        """Stop. Batches without a response fail."""
        await self._tasks.close()
        if self.transactions is not None:
            await self.transactions.close()
        self._fail_everything(NetworkError("the producer was closed before the record was acknowledged"))

    def _fail_everything(self, error: OdradekError) -> None:
        for batch in self._accumulator.discard_waiting():
            batch.failed(error)
        for batch in self._accumulator.batches():
            self._accumulator.done(batch)
            batch.failed(error)

    def _broke(self, _task: str, error: BaseException) -> None:
        """Fail all batches, because a bug ended a task and no batch can be expected to complete."""
        self._failure = error
        self._fail_everything(
            UnknownServerError(f"the producer failed with an internal error and must be closed: {error!r}")
        )
        self._on_room()

    @property
    def failure(self) -> BaseException | None:
        """The bug that ended the sender, if any."""
        return self._failure

    # The loop

    async def _run(self) -> None:
        while self._failure is None:
            self._wakeup.clear()
            now_ms = self._clock.monotonic_ms()
            self._expire(now_ms)
            next_ms = self._dispatch(now_ms)
            await self._wait(next_ms, now_ms)

    async def _wait(self, next_ms: float | None, now_ms: float) -> None:
        expiry_ms = self._accumulator.next_expiry_ms()
        if expiry_ms is not None:
            next_ms = expiry_ms if next_ms is None else min(next_ms, expiry_ms)
        timer = None if next_ms is None else self._clock.call_later(max(0.0, next_ms - now_ms), self.wake)
        try:
            await self._wakeup.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _expire(self, now_ms: float) -> None:
        for batch in self._accumulator.expire(now_ms):
            self._give_up(
                batch, RequestTimedOutError(f"no acknowledgement after {self._settings.delivery_timeout_ms} ms")
            )
            self._on_room()

    def _dispatch(self, now_ms: float) -> float | None:
        """Send all ready batches. Return the time when the next batch is due, if any."""
        ready, next_ms = self._accumulator.ready(now_ms)
        if self.transactions is not None:
            ready = [partition for partition in ready if self.transactions.machine.may_send(partition)]
        if not ready or not self._has_identity():
            return next_ms
        by_leader: dict[int, list[TopicPartition]] = {}
        view = self._cluster.view
        for topic_partition in ready:
            leader = view.leader(topic_partition)
            if leader == NO_BROKER or leader not in view.nodes:
                self._cluster.request_refresh()
                self._fail_unusable(topic_partition.topic)
            elif self._requests[leader] < self._settings.max_in_flight_requests_per_connection:
                by_leader.setdefault(leader, []).append(topic_partition)
        for leader, partitions in by_leader.items():
            self._send_to(leader, partitions)
        return next_ms

    def _fail_unusable(self, topic: str) -> None:
        """Fail the batches of a topic with an error that a retry cannot fix, such as missing authorization."""
        view = self._cluster.view.topics.get(topic)
        cls = None if view is None else BY_CODE.get(view.error_code)
        if view is not None and cls is not None and not cls.retriable:
            for batch in self._accumulator.discard_topic(topic):
                self._give_up(batch, error_for(view.error_code, f"topic {topic} cannot be written"))

    def _send_to(self, leader: int, partitions: list[TopicPartition]) -> None:
        limit = self._settings.max_request_size
        waiting = list(reversed(partitions))
        while waiting and self._requests[leader] < self._settings.max_in_flight_requests_per_connection:
            batches: list[ProducerBatch] = []
            size = 0
            while waiting and (not batches or size + self._accumulator.head_bytes(waiting[-1]) <= limit):
                size += self._accumulator.head_bytes(waiting[-1])
                batches.append(self._accumulator.take(waiting.pop()))
            self._requests[leader] += 1
            prepared = [self._prepare(batch) for batch in batches]
            self._tasks.spawn(self._request(leader, prepared), name=f"produce to {leader}")

    def _prepare(self, batch: ProducerBatch) -> PreparedBatch:
        batch.leader_epoch = self._cluster.view.leader_epoch(batch.topic_partition)
        if self._settings.idempotent:
            sequences = self._sequences.setdefault(
                batch.topic_partition, PartitionSequences(is_transactional=self.transactions is not None)
            )
            if sequences.needs_identity and self._identity is not None:
                sequences.adopt(self._identity)
            sequences.number(batch)
        return PreparedBatch(batch, batch.numbers, batch.builder.build(batch.numbers))

    async def _request(self, leader: int, prepared: list[PreparedBatch]) -> None:
        answers: list[BatchAnswer] = []
        try:
            versions = ANY_VERSION if self.transactions is None else self.transactions.produce_versions
            answers = await exchange_produce(self._cluster, leader, prepared, versions)
        except ProtocolError as error:
            answers = [BatchAnswer(error.code, message=str(error)) for _ in prepared]
            if isinstance(error, StateError):
                self._cluster.request_refresh()
        finally:
            # Without responses the request was cancelled, and `close` fails the batches in flight.
            self._requests[leader] -= 1
            if self._failure is None:
                for item, answer in zip(prepared, answers, strict=False):
                    self._settle(item, answer)
            self._on_room()
            self.wake()

    # Responses

    def _settle(self, item: PreparedBatch, answer: BatchAnswer) -> None:
        batch = item.batch
        sequences = self._sequences.get(batch.topic_partition)
        if sequences is None or not self._settings.idempotent:
            verdict = judge_plain(answer.error_code)
        else:
            verdict = sequences.judge(batch, answer.error_code, item.numbers)
            if sequences.needs_identity:
                self._identity = None
        if verdict is Verdict.ACKNOWLEDGE:
            self._accumulator.done(batch)
            batch.acknowledged(answer.base_offset, answer.timestamp)
            return
        error = error_for(answer.error_code, _explanation(item, answer))
        now_ms = self._clock.monotonic_ms()
        late = now_ms >= batch.created_ms + self._settings.delivery_timeout_ms
        is_lost = self.transactions is not None and not self.transactions.machine.is_going_on
        if verdict is Verdict.FAIL or late or is_lost or batch.attempts > self._settings.retries:
            self._accumulator.done(batch)
            self._give_up(batch, error)
            return
        if isinstance(error, StateError):
            self._cluster.request_refresh()
        batch.in_doubt = isinstance(error, StateError) and not isinstance(error, _LEADER_STAYS)
        moved = self._cluster.view.leader_epoch(batch.topic_partition) > batch.leader_epoch
        self._cluster.metrics.count("record-retry", batch.record_count)
        pause_ms = 0.0 if moved else self._cluster.backoff.delay_ms(batch.attempts, self._clock.random())
        if isinstance(error, ConcurrentTransactionsError):
            pause_ms = min(pause_ms, FIRST_ADDITION_PAUSE_MS)
        self._accumulator.retry(batch, now_ms + pause_ms)

    def _give_up(self, batch: ProducerBatch, error: OdradekError) -> None:
        sequences = self._sequences.get(batch.topic_partition)
        if sequences is not None:
            sequences.settled(batch)
        self._cluster.metrics.count("record-error", batch.record_count)
        batch.failed(error)
        if self.transactions is not None:
            machine = self.transactions.machine
            was_going_on = machine.is_going_on
            machine.batch_failed(error, was_sent=batch.attempts > 0)
            if was_going_on and not machine.is_going_on:
                self._transaction_changed()

    # Idempotence

    def _has_identity(self) -> bool:
        if self.transactions is not None:
            if self._identity != self.transactions.machine.identity:
                # No batch has numbers now: the last transaction has ended.
                self._identity = self.transactions.machine.identity
                self._sequences.clear()
            return self._identity is not None
        if not self._settings.idempotent or self._identity is not None:
            return True
        if self._identity_task is None or self._identity_task.done():
            self._identity_task = self._tasks.spawn(self._fetch_identity(), name="producer id")
        return False

    async def _fetch_identity(self) -> None:
        message = {
            "transactional_id": None,
            "transaction_timeout_ms": 2**31 - 1,
            "producer_id": _NO_PRODUCER,
            "producer_epoch": -1,
        }
        failures = 0
        while self._identity is None:
            try:
                response = await self._cluster.ask_any(InitProducerIdResponse, message)
                if response.error_code:
                    raise error_for(response.error_code, "the broker assigned no producer id")
            except ProtocolError as error:
                if not error.retriable:
                    for batch in self._accumulator.discard_waiting():
                        self._give_up(batch, error)
                    self._on_room()
                    return
                failures += 1
                await self._clock.sleep_ms(self._cluster.backoff.delay_ms(failures, self._clock.random()))
            else:
                self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self.wake()


def _explanation(item: PreparedBatch, answer: BatchAnswer) -> str:
    if answer.error_code == MessageTooLargeError.code:
        text = f"the leader of {item.batch.topic_partition} rejected a batch of {len(item.data)} bytes"
        return f"{text}, which max.message.bytes of the topic does not allow. A lower batch.size makes smaller batches"
    return answer.message or f"the leader of {item.batch.topic_partition} rejected a batch"
