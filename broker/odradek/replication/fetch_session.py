"""Incremental fetch sessions, the broker's side (KIP-227): what a client fetches is remembered between requests.

A decoded Fetch request enters `FetchSessions.open`; a `FetchContext` leaves. It names the partitions to read and,
given their results, says what has to be told: everything in a full response, and in an incremental one only partitions
with records, changed marks or errors. `server/data` calls.

Invariants: a session's epoch rises with each request, so that a repeated or lost request is noticed; at most `slots`
sessions exist; a partition that gave records goes to the end of the session's order, so that none starves when the
response is full. Cost of an incremental request: one step for each changed entry plus a short loop over the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    UnknownTopicIdError,
)
from odradek.base.ports import Clock
from odradek.base.types import NO_EPOCH, NO_OFFSET, ZERO_UUID, TopicPartition
from odradek.protocol.hotpath import FetchEntry, FetchRequest
from odradek.replication.requests import FetchResult

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
EVICTION_MS: Final = 120_000
"""A session unused for this long may be evicted by anyone (Kafka's constant)."""


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one of `epoch`; 0 comes once, at the start."""
    if epoch < INITIAL_EPOCH:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class FetchPartition:
    """What is asked of one partition, and inside a session what was last told about it. Satisfies `Fetchable`."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "told_log_start_offset",
        "told_mark",
        "told_stable_offset",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        *,
        topic_id: UUID = ZERO_UUID,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        """`topic` is empty when the request names the topic by its id only."""
        self.topic_partition = TopicPartition(topic, partition)
        self.topic_id: Final = topic_id
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.told_mark = self.told_stable_offset = self.told_log_start_offset = NO_OFFSET

    @classmethod
    def of(cls, entry: FetchEntry) -> FetchPartition:
        """From the entry of a request."""
        return cls(
            entry.topic or "",
            entry.partition,
            entry.fetch_offset,
            entry.max_bytes,
            topic_id=entry.topic_id or ZERO_UUID,
            current_leader_epoch=entry.current_leader_epoch,
            last_fetched_epoch=entry.last_fetched_epoch,
            log_start_offset=entry.log_start_offset,
        )

    @property
    def key(self) -> PartitionKey:
        """What tells the partitions of a session apart."""
        topic, number = self.topic_partition
        return _key(topic, self.topic_id, number)

    def ask(self, newer: FetchEntry) -> None:
        """Take over what a later request of the session asks."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def tell(self, result: FetchResult) -> bool:
        """Whether an incremental response must carry the result, given what was told before; remembers it."""
        mark, stable, start = result.high_watermark, result.last_stable_offset, result.log_start_offset
        if result.error_code:
            self.told_mark = NO_OFFSET  # so that the marks are told again when the error has gone
            return True
        is_news = (
            result.records is not None
            or mark != self.told_mark
            or stable != self.told_stable_offset
            or start != self.told_log_start_offset
            or result.diverging_epoch is not None
        )
        self.told_mark, self.told_stable_offset, self.told_log_start_offset = mark, stable, start
        return is_news


PartitionKey = tuple[str | int, int]


def _key(topic: str | None, topic_id: UUID | None, number: int) -> PartitionKey:
    """Topic id (as a number: it hashes in C) or name, and partition number."""
    return (topic_id.int if topic_id is not None and topic_id != ZERO_UUID else topic or "", number)


class FetchAnswer(NamedTuple):
    """What the response carries."""

    error_code: int
    session_id: int
    partitions: list[tuple[FetchPartition, FetchResult]]


class FetchSession:
    """One client's memory. `partitions` stand in the order in which they are read."""

    __slots__ = ("created_ms", "epoch", "is_privileged", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, partitions: Iterable[FetchPartition], *, now_ms: float) -> None:
        """A session as its first, full request leaves it."""
        self.session_id: Final = session_id
        self.partitions: Final = {partition.key: partition for partition in partitions}
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms: Final = now_ms
        self.last_used_ms = now_ms
        self.is_privileged = False
        self.uses_topic_ids = False

    def worth(self) -> tuple[bool, int, int]:
        """Order of eviction: consumers before followers, small before large."""
        return (self.is_privileged, len(self.partitions), self.session_id)

    def update(self, request: FetchRequest) -> None:
        """Add, change and forget partitions."""
        partitions = self.partitions
        for entry in request.entries:
            key = _key(entry.topic, entry.topic_id, entry.partition)
            known = partitions.get(key)
            if known is None:
                partitions[key] = FetchPartition.of(entry)
            else:
                known.ask(entry)
        for topic, topic_id, number in request.forgotten:
            partitions.pop(_key(topic, topic_id, number), None)


class FetchContext:
    """One Fetch request between its start and its answer. `entries` are to be read, in this order.

    With an `error_code` there is nothing to read; `finish(())` gives the answer.
    """

    __slots__ = ("_finish", "_unknown", "entries", "error_code")

    def __init__(
        self,
        entries: Iterable[FetchPartition],
        finish: Callable[[list[tuple[FetchPartition, FetchResult]]], FetchAnswer],
        *,
        error_code: int = 0,
    ) -> None:
        """Entries whose topic id nobody knows are answered without reading."""
        self.entries: Final[list[FetchPartition]] = []
        self._unknown: Final[list[FetchPartition]] = []
        for entry in entries:
            (self.entries if entry.topic_partition.topic else self._unknown).append(entry)
        self._finish: Final = finish
        self.error_code: Final = error_code

    def finish(self, results: Sequence[FetchResult]) -> FetchAnswer:
        """The answer, from one result for each of `entries` in the same order. To be called once."""
        told = list(zip(self.entries, results, strict=True))
        told += [(entry, FetchResult(UnknownTopicIdError.code)) for entry in self._unknown]
        return self._finish(told)


class FetchSessions:
    """The sessions of this broker. `evictions` counts the evicted ones."""

    def __init__(self, clock: Clock, slots: int) -> None:
        """`slots`: `max.incremental.fetch.session.cache.slots`; with 0 every fetch is a full one."""
        self._clock: Final = clock
        self._slots: Final = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions of all sessions; for metrics."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self, request: FetchRequest, topic_name: Callable[[UUID], str | None], *, uses_topic_ids: bool
    ) -> FetchContext:
        """Begin a fetch. `topic_name` resolves topic ids; an id that it does not know may become known later.

        `uses_topic_ids`: the request's version is 13 or later. Followers' sessions are worth more than consumers'.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)  # a full request ends the session that it names
            if request.session_epoch == FINAL_EPOCH:
                return _sessionless(request, topic_name)
            entries = _resolved(map(FetchPartition.of, request.entries), topic_name)
            return FetchContext(entries, lambda told: self._finish_full(told, request.replica_id >= 0, uses_topic_ids))
        session = self._sessions.get(request.session_id)
        if session is None:
            return _failed(FetchSessionIdNotFoundError.code)
        if session.epoch != request.session_epoch:
            return _failed(InvalidFetchSessionEpochError.code)
        if session.uses_topic_ids is not uses_topic_ids:
            return _failed(FetchSessionTopicIdError.code)
        session.update(request)
        if not session.partitions:
            del self._sessions[session.session_id]
            return _sessionless(request, topic_name)
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        session.epoch = expected = next_epoch(session.epoch)
        entries = _resolved(session.partitions.values(), topic_name)
        return FetchContext(entries, lambda told: _finish_incremental(session, expected, told))

    def _finish_full(
        self, told: list[tuple[FetchPartition, FetchResult]], is_privileged: bool, uses_topic_ids: bool
    ) -> FetchAnswer:
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots and not self._evict_for(is_privileged, len(told), now_ms):
            return FetchAnswer(0, NO_SESSION, told)
        for entry, result in told:
            entry.tell(result)
        session = FetchSession(self._new_id(), (entry for entry, _ in told), now_ms=now_ms)
        session.is_privileged = is_privileged
        session.uses_topic_ids = uses_topic_ids
        self._sessions[session.session_id] = session
        return FetchAnswer(0, session.session_id, told)

    def _new_id(self) -> int:
        while True:
            session_id = 1 + int(self._clock.random() * (EPOCH_MAX - 1))
            if session_id not in self._sessions:
                return session_id

    def _evict_for(self, is_privileged: bool, size: int, now_ms: float) -> bool:
        """Make room for a new session, if one is worth less: stale ones first, then the least of the evictable.

        Consumers' sessions yield to followers at any age; otherwise a session is safe for its first two minutes.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        victim: FetchSession | None = oldest
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            victim = min(
                (
                    session
                    for session in self._sessions.values()
                    if (is_privileged and not session.is_privileged) or now_ms - session.created_ms > EVICTION_MS
                ),
                key=FetchSession.worth,
                default=None,
            )
            if victim is None or (is_privileged, size, 0) < victim.worth():
                return False
        assert victim is not None
        del self._sessions[victim.session_id]
        self.evictions += 1
        return True


def _resolved(entries: Iterable[FetchPartition], topic_name: Callable[[UUID], str | None]) -> Iterator[FetchPartition]:
    """The entries, with their topic's name where it has become known."""
    for entry in entries:
        if not entry.topic_partition.topic:
            name = topic_name(entry.topic_id)
            if name is not None:
                entry.topic_partition = TopicPartition(name, entry.topic_partition.partition)
        yield entry


def _sessionless(request: FetchRequest, topic_name: Callable[[UUID], str | None]) -> FetchContext:
    entries = _resolved(map(FetchPartition.of, request.entries), topic_name)
    return FetchContext(entries, lambda told: FetchAnswer(0, NO_SESSION, told))


def _failed(code: int) -> FetchContext:
    return FetchContext((), lambda _: FetchAnswer(code, NO_SESSION, []), error_code=code)


def _finish_incremental(
    session: FetchSession, expected_epoch: int, told: list[tuple[FetchPartition, FetchResult]]
) -> FetchAnswer:
    if session.epoch != expected_epoch:
        # Another request of the session came in while this one waited: a repetition.
        return FetchAnswer(InvalidFetchSessionEpochError.code, session.session_id, [])
    news = [pair for pair in told if pair[0].tell(pair[1])]
    partitions = session.partitions
    for entry, result in news:
        key = entry.key
        if result.records is not None and partitions.pop(key, None) is not None:
            partitions[key] = entry
    return FetchAnswer(0, session.session_id, news)
