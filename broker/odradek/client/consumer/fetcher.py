"""The consumer's fetch loop: fetches from the leaders and buffers the responses by partition.

`consumer` uses it. Invariants: one fetch at a time per broker; fetching stops when about twice `fetch_max_bytes` are
buffered; a response is used only if the partition was not moved, nor fetched from another broker, meanwhile.

One task checks all partitions whenever it is woken; each fetch has its own task. `positions`
finds and checks the positions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.base.errors import (
    NONE,
    CorruptMessageError,
    InconsistentTopicIdError,
    MessageTooLargeError,
    OdradekError,
    OffsetOutOfRangeError,
    ProtocolError,
    StateError,
    UnknownTopicIdError,
    error_for,
)
from odradek.base.tasks import TaskOwner
from odradek.base.types import NO_BROKER, NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.fetch_state import PartitionFetchState
from odradek.client.consumer.fetched import raw_fetch
from odradek.client.consumer.positions import Positions, ReadCommitted
from odradek.client.exchanges import exchange_fetch
from odradek.client.models import RawFetch
from odradek.protocol.fetch_sessions import FetchSessionHandler, SessionRequest
from odradek.protocol.hotpath import FetchedPartition, FetchEntry, FetchRequest, ForgottenPartition
from odradek.records.v2.record import Record

_PURPOSE: Final = "fetch"


class _PartitionRequest(NamedTuple):
    """The requested range of one partition, and the leader epoch of the record before it."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    max_bytes: int


_Session = FetchSessionHandler[TopicPartition, _PartitionRequest]


class Fetcher:
    """Fetches the assigned partitions of one consumer."""

    def __init__(self, cluster: Cluster) -> None:
        """The owner of `cluster` starts and closes it."""
        self._cluster = cluster
        self._settings: Final = cluster.settings
        self._clock: Final = cluster.clock
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        self._sessions: dict[int, _Session] = {}
        self._fetching: set[int] = set()
        self._tasks = TaskOwner(self._broke)
        self._positions: Final = Positions(cluster, self._tasks, on_news=self._notify)
        self._failure: BaseException | None = None
        self._wakeup = asyncio.Event()
        self._arrival = asyncio.Event()
        self._started = False

    def start(self) -> None:
        """Start the loop."""
        if not self._started:
            self._started = True
            self._cluster.on_change.append(lambda view: self.wake())
            self._tasks.spawn(self._run(), name="fetcher")

    async def close(self) -> None:
        """Stop fetching and drop the buffers."""
        await self._tasks.close()
        self._states.clear()
        self._arrival.set()

    def _broke(self, _task: str, error: BaseException) -> None:
        """Note an exception that ended a task because of a bug. The next call raises it."""
        self._failure = error
        self._arrival.set()

    def _notify(self) -> None:
        self._arrival.set()
        self.wake()

    def wake(self) -> None:
        """Make the loop check all partitions now."""
        self._wakeup.set()

    # Assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assigned partitions; those that stay assigned keep their positions and buffers."""
        self._states = {
            partition: self._states.get(partition) or PartitionFetchState(partition) for partition in partitions
        }
        self._cluster.follow({partition.topic for partition in self._states})
        self.wake()

    @property
    def states(self) -> dict[TopicPartition, PartitionFetchState]:
        """Every assigned partition. Call `wake` after changing one."""
        return self._states

    async def find_positions(self, committed: ReadCommitted) -> None:
        """Find positions for partitions without one. Raises `OffsetOutOfRangeError`; see `Positions.find`."""
        await self._positions.find(self._states, committed)

    # Records

    def take_records(self, partitions: set[TopicPartition], limit: int) -> dict[TopicPartition, list[Record]]:
        """Return at most `limit` records of these partitions, in fair rotation. Raises the error of a partition
        once."""
        self._check()
        taken: dict[TopicPartition, list[Record]] = {}
        for state in list(self._states.values()):
            if state.topic_partition not in partitions:
                continue
            records: list[Record] = []
            if limit > 0 and state.has_data:
                records = state.take_records(limit, check_crcs=self._settings.check_crcs)
            self._raise_error(state, hold=bool(taken or records))
            if not records:
                continue
            taken[state.topic_partition] = records
            limit -= len(records)
            # Partitions that returned records come last in the next call.
            self._states[state.topic_partition] = self._states.pop(state.topic_partition)
        self.wake()
        return taken

    def take_fetches(self, partitions: set[TopicPartition]) -> list[RawFetch]:
        """Return one whole response of each of these partitions that has one. Raises the error of a partition once."""
        self._check()
        taken: list[RawFetch] = []
        for state in list(self._states.values()):
            if state.topic_partition in partitions:
                self._raise_error(state, hold=bool(taken))
                fetch = state.take_fetch() if state.has_data else None
                if fetch is not None:
                    taken.append(fetch)
        self.wake()
        return taken

    def _check(self) -> None:
        if self._failure is not None:
            raise RuntimeError("the consumer failed with an internal error and must be closed") from self._failure

    def _raise_error(self, state: PartitionFetchState, *, hold: bool) -> None:
        # If there are records, raise the error in the next call, so that they are not lost.
        if state.error is not None and not state.has_data and not hold:
            error, state.error = state.error, None
            raise error

    def has_news(self, partitions: set[TopicPartition]) -> bool:
        """Whether taking from these partitions would return records or raise an error."""
        return self._failure is not None or any(
            state.topic_partition in partitions and (state.has_data or state.error is not None)
            for state in self._states.values()
        )

    async def wait(self, timeout_ms: float) -> None:
        """Return when data has arrived, or after `timeout_ms`."""
        self._arrival.clear()
        timer = self._clock.call_later(timeout_ms, self._arrival.set)
        try:
            await self._arrival.wait()
        finally:
            timer.cancel()

    def interrupt(self) -> None:
        """Make `wait` return now."""
        self._arrival.set()

    # The loop

    async def _run(self) -> None:
        while self._failure is None:
            self._wakeup.clear()
            now_ms = self._clock.monotonic_ms()
            self._positions.look_after(self._states)
            for node, states in self._wanted(now_ms).items():
                self._fetching.add(node)
                self._tasks.spawn(self._fetch(node, states), name=f"fetch from {node}")
            await self._wait_for_wake(now_ms)

    async def _wait_for_wake(self, now_ms: float) -> None:
        pauses = [state.not_before_ms - now_ms for state in self._states.values() if state.not_before_ms > now_ms]
        timer = self._clock.call_later(min(pauses), self.wake) if pauses else None
        try:
            await self._wakeup.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _wanted(self, now_ms: float) -> dict[int, list[PartitionFetchState]]:
        """Return the partitions to fetch by broker, without brokers that have a fetch in flight."""
        wanted: dict[int, list[PartitionFetchState]] = {}
        if sum(state.buffered_bytes for state in self._states.values()) >= 2 * self._settings.fetch_max_bytes:
            return wanted
        view = self._cluster.view
        for state in self._states.values():
            if not state.wants_data(now_ms):
                continue
            node = state.source(now_ms, view.nodes, view.leader(state.topic_partition))
            if node == NO_BROKER or node not in view.nodes:
                self._cluster.request_refresh()
                self._pause(state, now_ms)
            elif node not in self._fetching:
                wanted.setdefault(node, []).append(state)
        return wanted

    def _pause(self, state: PartitionFetchState, now_ms: float) -> None:
        state.not_before_ms = now_ms + self._cluster.backoff.delay_ms(1, self._clock.random())

    async def _fetch(self, node: int, states: list[PartitionFetchState]) -> None:
        session = self._sessions.setdefault(node, _Session())
        for state in states:
            state.fetches += 1
        asked = {s.topic_partition: (s, (s.epoch, s.fetches), s.fetch_offset or 0) for s in states}
        try:
            request = self._request(
                session.next_request({s.topic_partition: self._partition_request(s) for s in states})
            )
            timeout_ms = self._settings.request_timeout_ms + self._settings.fetch_max_wait_ms
            response = await exchange_fetch(self._cluster, node, request, purpose=_PURPOSE, timeout_ms=timeout_ms)
            session.answered(response.error_code, response.session_id)
            if response.error_code:
                return
            for answer in response.partitions:
                known = asked.get(TopicPartition(answer.topic or "", answer.partition))
                if known is not None and (known[0].epoch, known[0].fetches) == known[1]:
                    self._take_in(known[0], known[2], answer, session)
        except OdradekError as error:
            session.failed()
            if not isinstance(error, ProtocolError) or not error.retriable:
                self._fail_all(states, error)
            self._cluster.request_refresh()
            for state in states:
                state.read_replica = NO_BROKER
                self._pause(state, self._clock.monotonic_ms())
        except asyncio.CancelledError:
            session.failed()
            raise
        finally:
            self._fetching.discard(node)
            self._notify()

    @staticmethod
    def _fail_all(states: list[PartitionFetchState], error: OdradekError) -> None:
        for state in states:
            if isinstance(error, ProtocolError):
                state.error = error

    def _partition_request(self, state: PartitionFetchState) -> _PartitionRequest:
        # A follower that lags behind would take a later position for one that diverges from its log.
        last_fetched_epoch = state.fetch_epoch if state.read_replica == NO_BROKER else NO_EPOCH
        return _PartitionRequest(
            state.fetch_offset or 0,
            last_fetched_epoch,
            self._cluster.view.leader_epoch(state.topic_partition),
            self._settings.max_partition_fetch_bytes,
        )

    def _request(self, session: SessionRequest[TopicPartition, _PartitionRequest]) -> FetchRequest:
        topics = self._cluster.view.topics
        entries = [
            FetchEntry(
                topic=partition.topic,
                topic_id=topics[partition.topic].topic_id if partition.topic in topics else None,
                partition=partition.partition,
                current_leader_epoch=wanted.leader_epoch,
                fetch_offset=wanted.fetch_offset,
                last_fetched_epoch=wanted.last_fetched_epoch,
                log_start_offset=NO_OFFSET,
                max_bytes=wanted.max_bytes,
            )
            for partition, wanted in sorted(session.changed.items())
        ]
        forgotten = [
            ForgottenPartition(topic, topics[topic].topic_id if topic in topics else None, number)
            for topic, number in sorted(session.forgotten)
        ]
        settings = self._settings
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            entries=entries,
            isolation_level=int(settings.read_committed),
            session_id=session.session_id,
            session_epoch=session.epoch,
            forgotten=forgotten,
            rack_id=settings.client_rack,
        )

    # Responses

    def _take_in(self, state: PartitionFetchState, offset: int, answer: FetchedPartition, session: _Session) -> None:
        if answer.error_code != NONE:
            if answer.current_leader is not None:
                self._cluster.note_leader(state.topic_partition, *answer.current_leader)
            self._refused(state, error_for(answer.error_code, f"{state.topic_partition} at {offset}"), session)
            return
        if answer.preferred_read_replica != NO_BROKER:
            until_ms = self._clock.monotonic_ms() + self._settings.metadata_max_age_ms
            state.prefer(answer.preferred_read_replica, until_ms)
            return
        if answer.diverging_epoch is not None:
            self._positions.truncated(state, *answer.diverging_epoch)
            return
        try:
            state.take_in(raw_fetch(state.topic_partition, offset, answer))
        except (CorruptMessageError, MessageTooLargeError) as error:
            state.error = error

    def _refused(self, state: PartitionFetchState, error: ProtocolError, session: _Session) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            if state.read_replica != NO_BROKER:
                # The follower may be behind the leader and lack data that the leader returned before.
                state.read_replica = NO_BROKER
                return
            self._positions.reset(state, error)
            return
        state.read_replica = NO_BROKER
        if not error.retriable:
            state.error = error
            return
        if isinstance(error, UnknownTopicIdError | InconsistentTopicIdError):
            # The session still has the old id of the topic.
            session.failed()
        if isinstance(error, StateError):
            self._cluster.request_refresh()
        self._pause(state, self._clock.monotonic_ms())
