"""Sends the markers that end transactions to the leaders of their partitions (WriteTxnMarkers), until all have them.

`transaction_shard` gives each decided transaction to `send`. The metadata name the leaders. Markers for partitions that
this broker leads go to the `MarkerWriter`, all others wait in the queue of their broker: one request per broker is in
progress, and everything that waits goes into the next one. What fails is tried again after a backoff, with the leaders
of that time.

Invariants: each partition of a marker that is not written yet is in exactly one place: a queue, a request in progress
or a pause. `done` is called once, and not after the sending was stopped. A partition counts as written without a marker
only if ZooKeeper says that it does not exist: the metadata of a broker that has just started may be incomplete.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from odradek.base.errors import BrokerNotAvailableError, OdradekError, ProtocolError
from odradek.base.ports import Clock, Timer
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.coordinator.broker_links import BrokerLinks
from odradek.coordinator.transactions.sender_requests import (
    MarkerVerdict,
    marker_codes,
    marker_verdict,
    markers_message,
)
from odradek.coordinator.transactions.transaction_values import MarkerOutcome, MarkerWriter, TransactionMarker
from odradek.protocol.keys import ApiKey
from odradek.protocol.release_versions import highest_version

logger = logging.getLogger(__name__)

PARTITIONS_PER_REQUEST: Final = 1_000
"""Number of partitions after which no further marker goes into a request. A broker appends all markers of a request
before it does anything else, and a thousand appends take some tens of milliseconds. The partitions of one marker are
not divided."""

RETRY_MS: Final = 50.0
RETRY_MAX_MS: Final = 1_000.0
"""Time before a partition is tried again: it doubles with each attempt of the marker."""

SLOW_RETRY_MS: Final = 10_000.0
"""Time before another attempt after an error that a retry is not expected to solve."""

MISSING: Final = -1
"""The code of a partition that a response does not contain: UNKNOWN_SERVER_ERROR."""

AssignedPartitions = Callable[[str], Awaitable[Collection[int]]]
"""Reads the numbers of a topic's partitions from ZooKeeper; empty if the topic does not exist. Raises `OdradekError` if
ZooKeeper does not answer."""


class _Queue:
    """Markers that wait for the same broker, or for the same topic to be looked up."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: Final[OrderedDict[_Sending, list[TopicPartition]]] = OrderedDict()

    def add(self, sending: _Sending, partition: TopicPartition) -> None:
        partitions = self.waiting.get(sending)
        if partitions is None:
            self.waiting[sending] = [partition]
            sending.queues.add(self)
        else:
            partitions.append(partition)

    def put_back(self, part: _Part) -> None:
        for partition in part.partitions:
            self.add(part.sending, partition)

    def pop(self) -> _Part:
        sending, partitions = self.waiting.popitem(last=False)
        sending.queues.discard(self)
        return _Part(sending, partitions)

    def pop_all(self) -> Iterator[_Part]:
        while self.waiting:
            yield self.pop()


class _Pause:
    """Partitions of one marker that wait for another attempt."""

    __slots__ = ("has_no_leader", "partitions", "timer")

    def __init__(self, partitions: Sequence[TopicPartition], *, has_no_leader: bool) -> None:
        self.partitions: Final = partitions
        self.has_no_leader: Final = has_no_leader
        self.timer: Timer | None = None


class _Sending:
    """One marker until all its partitions have it."""

    __slots__ = ("attempts", "done", "is_over", "marker", "pauses", "queues", "remaining")

    def __init__(self, marker: TransactionMarker, done: Callable[[MarkerOutcome], None]) -> None:
        self.marker: Final = marker
        self.done: Final = done
        self.remaining: Final = set(marker.partitions)
        self.attempts = 0
        """Number of pauses, which determines the length of the next one."""
        self.queues: Final[set[_Queue]] = set()
        self.pauses: Final[set[_Pause]] = set()
        self.is_over = False


class _Part(NamedTuple):
    """A marker, and those of its partitions that are in the same queue or request."""

    sending: _Sending
    partitions: Sequence[TopicPartition]


class MarkerSender:
    """Implements `Markers`."""

    def __init__(
        self,
        *,
        broker_id: int,
        cluster: MetadataCache,
        links: BrokerLinks,
        writer: MarkerWriter,
        assigned_partitions: AssignedPartitions,
        clock: Clock,
        protocol: str,
    ) -> None:
        """`broker_id`: id of this broker. `links`: channels that nothing else uses; the caller closes them.

        `protocol`: the `inter.broker.protocol.version`, which limits the version of WriteTxnMarkers.
        """
        self._broker_id: Final = broker_id
        self._cluster: Final = cluster
        self._links: Final = links
        self._writer: Final = writer
        self._assigned_partitions: Final = assigned_partitions
        self._clock: Final = clock
        self._highest_version: Final = highest_version(ApiKey.WRITE_TXN_MARKERS, protocol)
        self._sendings: Final[set[_Sending]] = set()
        self._destinations: Final[dict[int, _Queue]] = {}
        """Queues by broker id. A queue exists while its task runs."""
        self._lookups: Final[dict[str, _Queue]] = {}
        """Queues by topic. A queue exists while its task runs."""
        self._reported: Final[set[tuple[int, object]]] = set()
        """Brokers and their unexpected errors since their last response without one."""
        self._tasks: Final = TaskOwner()
        self._paused = 0
        self._without_leader = 0
        self._retries = 0
        self._is_closed = False

    # Metrics

    @property
    def pending_count(self) -> int:
        """Number of markers that are not written to all their partitions yet."""
        return len(self._sendings)

    @property
    def paused_count(self) -> int:
        """Number of pauses between two attempts to write a marker."""
        return self._paused

    @property
    def unknown_destination_count(self) -> int:
        """Number of markers that wait for the leader of a partition: Kafka's `UnknownDestinationQueueSize`."""
        return self._without_leader

    @property
    def retry_count(self) -> int:
        """Number of repeated attempts since the start."""
        return self._retries

    # The port

    def send(self, marker: TransactionMarker, done: Callable[[MarkerOutcome], None]) -> Callable[[], None]:
        """Send a marker to all its partitions, again and again until all of them have it. Then call `done`, once.

        `done` is not called before this method returns. Returns a function that stops the sending: `done` is not called
        afterwards. After `close`, nothing is sent and `done` is never called.
        """
        sending = _Sending(marker, done)
        if not self._is_closed:
            self._sendings.add(sending)
            if marker.partitions:
                self._route(sending, marker.partitions)
            else:
                self._pause(sending, (), delay_ms=0)
        return partial(self._end, sending)

    async def close(self) -> None:
        """Stop all sending. `done` is not called for what is not written. Idempotent."""
        self._is_closed = True
        for sending in list(self._sendings):
            self._end(sending)
        await self._tasks.close()

    # Routing

    def _route(self, sending: _Sending, partitions: Iterable[TopicPartition]) -> None:
        """Put each partition into the queue of its leader."""
        image = self._cluster.image
        without_leader = []
        for partition in partitions:
            state = image.partition(partition)
            if state is None:
                self._lookup(partition.topic).add(sending, partition)
            elif state.leader == self._broker_id or self._links.reaches(state.leader):
                self._destination(state.leader).add(sending, partition)
            else:
                without_leader.append(partition)
        if without_leader:
            self._pause(sending, without_leader, has_no_leader=True)

    def _destination(self, broker_id: int) -> _Queue:
        queue = self._destinations.get(broker_id)
        if queue is None:
            queue = self._destinations[broker_id] = _Queue()
            self._tasks.spawn(self._drain(broker_id, queue), name=f"markers-to-broker-{broker_id}")
        return queue

    def _lookup(self, topic: str) -> _Queue:
        queue = self._lookups.get(topic)
        if queue is None:
            queue = self._lookups[topic] = _Queue()
            self._tasks.spawn(self._look_up(topic, queue), name=f"find-partitions-of-{topic}")
        return queue

    def _pause(
        self,
        sending: _Sending,
        partitions: Sequence[TopicPartition],
        *,
        delay_ms: float | None = None,
        has_no_leader: bool = False,
    ) -> None:
        """Try these partitions again after `delay_ms`, or after the backoff of the marker."""
        if sending.is_over:
            return
        if delay_ms is None:
            delay_ms = min(RETRY_MS * 2 ** min(sending.attempts, 10), RETRY_MAX_MS)
            sending.attempts += 1
        pause = _Pause(partitions, has_no_leader=has_no_leader)
        sending.pauses.add(pause)
        self._paused += 1
        self._without_leader += has_no_leader
        pause.timer = self._clock.call_later(delay_ms, partial(self._resume, sending, pause))

    def _resume(self, sending: _Sending, pause: _Pause) -> None:
        self._end_pause(sending, pause)
        if sending.remaining:
            self._retries += 1
            self._route(sending, pause.partitions)
        else:
            self._finish(sending, MarkerOutcome.WRITTEN)

    def _end_pause(self, sending: _Sending, pause: _Pause) -> None:
        sending.pauses.discard(pause)
        self._paused -= 1
        self._without_leader -= pause.has_no_leader

    # Requests

    async def _drain(self, broker_id: int, queue: _Queue) -> None:
        try:
            while batch := self._take(broker_id, queue):
                if broker_id == self._broker_id:
                    # Appends here need no batching, and a partition that waits for its ISR does not delay the others.
                    self._tasks.spawn(self._deliver(broker_id, batch), name="write-markers")
                    await asyncio.sleep(0)
                else:
                    await self._deliver(broker_id, batch)
        finally:
            del self._destinations[broker_id]

    def _take(self, broker_id: int, queue: _Queue) -> list[_Part]:
        """Remove the markers of the next request from the queue. Partitions with another leader by now go there."""
        batch: dict[int, _Part] = {}
        postponed: list[_Part] = []
        size = 0
        while queue.waiting and size < PARTITIONS_PER_REQUEST:
            part = queue.pop()
            producer_id = part.sending.marker.producer_id
            if producer_id in batch:
                # A response has its markers by producer id.
                postponed.append(part)
                continue
            moved = [partition for partition in part.partitions if self._leader(partition) != broker_id]
            if moved:
                self._route(part.sending, moved)
                part = part._replace(partitions=[each for each in part.partitions if self._leader(each) == broker_id])
            if part.partitions:
                batch[producer_id] = part
                size += len(part.partitions)
        for part in postponed:
            queue.put_back(part)
        return list(batch.values())

    def _leader(self, partition: TopicPartition) -> int | None:
        state = self._cluster.image.partition(partition)
        return None if state is None else state.leader

    async def _deliver(self, broker_id: int, batch: Sequence[_Part]) -> None:
        """Write the markers of one request, and handle the answer for each partition."""
        markers = [part.sending.marker._replace(partitions=tuple(part.partitions)) for part in batch]
        try:
            if broker_id == self._broker_id:
                codes = await self._writer.write(markers)
            else:
                response = await self._links.ask(
                    broker_id,
                    ApiKey.WRITE_TXN_MARKERS,
                    lambda _version: markers_message(markers),
                    at_most=self._highest_version,
                )
                by_producer = marker_codes(response)
                codes = [by_producer.get(marker.producer_id, {}) for marker in markers]
            answered = list(zip(batch, codes, strict=True))
        except OdradekError as error:
            if _is_transient(error):
                logger.debug("broker %d has not answered WriteTxnMarkers: %s", broker_id, error)
                for sending, partitions in batch:
                    self._pause(sending, partitions)
                return
            self._report(broker_id, type(error), str(error))
        except Exception:
            # A bug. The markers must be written nevertheless: transactions without them block their readers.
            logger.exception("%d markers could not be sent to broker %d", len(batch), broker_id)
        else:
            results = [self._settle(broker_id, part, part_codes) for part, part_codes in answered]
            if all(results):
                self._reported.difference_update([item for item in self._reported if item[0] == broker_id])
            return
        for sending, partitions in batch:
            self._pause(sending, partitions, delay_ms=SLOW_RETRY_MS)

    def _settle(self, broker_id: int, part: _Part, codes: Mapping[TopicPartition, int]) -> bool:
        """Handle the error codes of one marker. Returns whether they are all expected ones."""
        sending = part.sending
        if sending.is_over:
            return True
        retry: list[TopicPartition] = []
        unexpected: list[TopicPartition] = []
        for partition in part.partitions:
            code = codes.get(partition, MISSING)
            verdict = marker_verdict(code)
            if verdict is MarkerVerdict.WRITTEN:
                sending.remaining.discard(partition)
            elif verdict is MarkerVerdict.RETRY:
                retry.append(partition)
            elif verdict is MarkerVerdict.FENCED:
                logger.info("%s has a later marker (error code %d) than %s", partition, code, sending.marker)
                self._finish(sending, MarkerOutcome.FENCED)
                return True
            else:
                unexpected.append(partition)
                self._report(broker_id, code, f"{partition} refused a marker with error code {code}")
        if retry:
            self._pause(sending, retry)
        if unexpected:
            self._pause(sending, unexpected, delay_ms=SLOW_RETRY_MS)
        if not sending.remaining:
            self._finish(sending, MarkerOutcome.WRITTEN)
        return not unexpected

    def _report(self, broker_id: int, kind: object, text: str) -> None:
        """Log an unexpected error, once until the broker has responded without one."""
        if (broker_id, kind) not in self._reported:
            self._reported.add((broker_id, kind))
            logger.error(
                "markers cannot be written on broker %d, the coordinator repeats them every %d s: %s",
                broker_id,
                SLOW_RETRY_MS // 1000,
                text,
            )

    # Partitions that are not in the metadata

    async def _look_up(self, topic: str, queue: _Queue) -> None:
        try:
            # A marker that arrives during a read needs another one, because its partition may be newer than the read.
            while parts := list(queue.pop_all()):
                existing = await self._existing(topic)
                for part in parts:
                    self._settle_unknown(part, existing)
        finally:
            del self._lookups[topic]

    async def _existing(self, topic: str) -> Collection[int] | None:
        """Return the partitions of a topic in ZooKeeper; None if ZooKeeper does not answer."""
        try:
            return await self._assigned_partitions(topic)
        except OdradekError as error:
            logger.warning("the coordinator does not know whether the topic %s exists: %s", topic, error)
        except Exception:
            # A bug. The markers wait for the next lookup: none may count as written without an answer.
            logger.exception("the coordinator does not know whether the topic %s exists", topic)
        return None

    def _settle_unknown(self, part: _Part, existing: Collection[int] | None) -> None:
        sending, partitions = part
        if sending.is_over:
            return
        gone = set() if existing is None else {each for each in partitions if each.partition not in existing}
        if gone:
            logger.info("partitions %s do not exist any more and need no marker", ", ".join(sorted(map(str, gone))))
            sending.remaining.difference_update(gone)
        rest = [partition for partition in partitions if partition not in gone]
        if rest:
            self._pause(sending, rest, has_no_leader=True)
        elif not sending.remaining:
            self._finish(sending, MarkerOutcome.WRITTEN)

    # End

    def _finish(self, sending: _Sending, outcome: MarkerOutcome) -> None:
        self._end(sending)
        try:
            sending.done(outcome)
        except Exception:
            # A bug of the state machine of one partition must not stop the markers of all others.
            logger.exception("the end of the marker %s could not be handled", sending.marker)

    def _end(self, sending: _Sending) -> None:
        """Remove a marker from all queues. A request in progress continues, and its answer is ignored."""
        if sending.is_over:
            return
        sending.is_over = True
        self._sendings.discard(sending)
        for queue in sending.queues:
            del queue.waiting[sending]
        sending.queues.clear()
        for pause in list(sending.pauses):
            assert pause.timer is not None, "a pause has a timer"
            pause.timer.cancel()
            self._end_pause(sending, pause)


def _is_transient(error: OdradekError) -> bool:
    """Whether another attempt after the backoff may succeed."""
    if isinstance(error, BrokerNotAvailableError):
        return True
    return isinstance(error, ProtocolError) and marker_verdict(error.code) is MarkerVerdict.RETRY
