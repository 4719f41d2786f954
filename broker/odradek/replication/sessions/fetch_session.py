"""Incremental fetch sessions on the broker (KIP-227): the broker remembers what a client fetches between requests.

`server/data/produce_and_fetch` passes a decoded Fetch request to `FetchSessions.open` and gets a `FetchContext`. The
context lists the partitions to read and, given their results, selects what the response contains: everything in a full
response, and in an incremental one only partitions with records, changed offsets or errors.

An entry of a session is awake or resting. Entries that are awake are read for each request. An entry whose read
returned nothing rests (`RestingEntries`) until its partition changes or the client changes the entry. If a change
occurs while a request waits, it wakes the entry, and the entry joins that request.

Invariants: the epoch of a session increases with each request, so that repeated and lost requests are detected; at most
`slots` sessions exist; a partition that returned records moves to the end of the session's order, so that no partition
starves when responses are full; resting entries do not change the responses. An incremental request costs one step for
each changed or awake entry, and a comparison for each resting one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
)
from odradek.base.ports import Clock
from odradek.base.types import NO_BROKER, NO_EPOCH, NO_OFFSET, ZERO_UUID, TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.protocol.fetch_sessions import EPOCH_MAX, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch
from odradek.protocol.hotpath import FetchEntry, FetchRequest
from odradek.replication.replica_requests import FetchResult
from odradek.replication.sessions.resting import Rest, RestingEntries

EVICTION_MS: Final = 120_000
"""A session that was unused for this long may always be evicted (Kafka's constant)."""


PartitionKey = tuple[str | int, int]

Denied = Callable[[Iterable[str]], frozenset[str]]
"""Returns those of the topics that the client may not read."""


class FetchPartition:
    """The requested state of one partition and, within a session, the last offsets sent. Implements `Fetchable`."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log",
        "log_start_offset",
        "max_bytes",
        "rank",
        "rest",
        "session",
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
        """`topic` is empty if the request has only the topic id."""
        self.topic_partition = TopicPartition(topic, partition)
        self.topic_id: Final = topic_id
        self.key: Final = _key(topic, topic_id, partition)
        """Identifies the partition within a session."""
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.told_mark = self.told_stable_offset = self.told_log_start_offset = NO_OFFSET
        self.session: FetchSession | None = None
        self.rank = 0
        """Position in the session's order."""
        self.rest: Rest | None = None
        self.log: PartitionLog | None = None
        """The partition's log while the entry rests."""

    @classmethod
    def of(cls, entry: FetchEntry) -> FetchPartition:
        """Create it from an entry of a request."""
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

    def ask(self, newer: FetchEntry) -> None:
        """Update the entry from a later request of the session."""
        if newer.current_leader_epoch != self.current_leader_epoch:
            # A follower drops responses in flight when the epoch changes: send the offsets again.
            self.told_mark = NO_OFFSET
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def tell(self, result: FetchResult) -> bool:
        """Whether an incremental response has to include the result, given the last one sent; remembers the result."""
        mark, stable, start = result.high_watermark, result.last_stable_offset, result.log_start_offset
        if result.error_code or result.preferred_read_replica != NO_BROKER or result.diverging_epoch is not None:
            # A client that gets an error, or has to truncate, ignores the offsets: send them again afterwards.
            self.told_mark = NO_OFFSET
            return True
        is_news = (
            result.records is not None
            or mark != self.told_mark
            or stable != self.told_stable_offset
            or start != self.told_log_start_offset
        )
        self.told_mark, self.told_stable_offset, self.told_log_start_offset = mark, stable, start
        return is_news

    def wake(self) -> Hashable | None:
        """Wake a resting entry. Returns the session if one of its requests waits."""
        assert self.session is not None
        return self.session.woke(self)


def _key(topic: str | None, topic_id: UUID | None, number: int) -> PartitionKey:
    """Return the key of a partition: topic id (as a number, which hashes in C) or name, and partition number."""
    return (topic_id.int if topic_id is not None and topic_id != ZERO_UUID else topic or "", number)


class FetchAnswer(NamedTuple):
    """The content of the response."""

    error_code: int
    session_id: int
    partitions: list[tuple[FetchPartition, FetchResult]]


class FetchSession:
    """The fetch session of one client."""

    __slots__ = (
        "_awake",
        "_is_stale",
        "_reader",
        "_reading",
        "_resting",
        "_sleepers",
        "_top",
        "_unreadable",
        "_woken",
        "created_ms",
        "epoch",
        "is_privileged",
        "last_used_ms",
        "noted_ms",
        "overtakes",
        "partitions",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: Iterable[FetchPartition],
        *,
        now_ms: float,
        resting: RestingEntries | None = None,
    ) -> None:
        """Create a session after its first, full request. Without `resting` every entry is read for each request."""
        self.session_id: Final = session_id
        self.partitions: Final[dict[PartitionKey, FetchPartition]] = {}
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms: Final = now_ms
        self.last_used_ms = now_ms
        self.noted_ms = now_ms
        """Arrival time of the follower's last fetch, which counts as a fetch of all resting entries."""
        self.is_privileged = False
        self.overtakes = False
        """Whether an earlier request still waited when the last one began. It can only be answered with an error."""
        self.uses_topic_ids = False
        self._resting: Final = resting
        self._awake: Final[dict[PartitionKey, FetchPartition]] = {}
        self._sleepers: Final[dict[FetchPartition, None]] = {}
        self._woken: list[tuple[FetchPartition, Rest]] = []
        self._reading: list[FetchPartition] | None = None
        self._reader: object = None
        self._is_stale = False
        self._top = 0
        self._unreadable: Container[str] = NAMELESS
        for partition in partitions:
            self._add(partition)

    def worth(self) -> tuple[bool, int, int]:
        """Return the sort key for eviction: consumers before followers, small before large sessions."""
        return (self.is_privileged, len(self.partitions), self.session_id)

    def update(self, request: FetchRequest) -> None:
        """Add, change and remove partitions as the request specifies."""
        partitions = self.partitions
        for entry in request.entries:
            known = partitions.get(_key(entry.topic, entry.topic_id, entry.partition))
            if known is None:
                self._add(FetchPartition.of(entry))
            else:
                self._rouse(known)
                known.ask(entry)
        for topic, topic_id, number in request.forgotten:
            gone = partitions.pop(_key(topic, topic_id, number), None)
            if gone is not None:
                self._rouse(gone)
                del self._awake[gone.key]

    def _add(self, partition: FetchPartition) -> None:
        partition.session = self
        self._to_the_end(partition)
        self.partitions[partition.key] = self._awake[partition.key] = partition

    def _to_the_end(self, partition: FetchPartition) -> None:
        self._top += 1
        partition.rank = self._top

    # Rest

    @property
    def rests(self) -> bool:
        """Whether any entry rests, and so may wake while a request waits."""
        return bool(self._sleepers)

    def begin(
        self, reader: object, topic_name: Callable[[UUID], str | None], denied: Denied | None = None
    ) -> list[FetchPartition]:
        """Return the entries to read for a request, in order; all of them if `reader` differs from the last request.

        `reader` changes with the rules of access, so entries that rest were allowed by the current ones.
        """
        if reader != self._reader:
            self._reader = reader
            self.rouse_all()
        else:
            self._look_at_starts()
        _resolve(self._awake.values(), topic_name)
        self._woken.clear()
        self._is_stale = False
        self.overtakes = self._reading is not None
        self._unreadable = NAMELESS if denied is None else _unreadable(self._awake.values(), denied)
        self._reading = self._readable()
        return self._reading

    def _readable(self) -> list[FetchPartition]:
        return [entry for entry in self._in_order() if entry.topic_partition.topic not in self._unreadable]

    def _in_order(self) -> list[FetchPartition]:
        return sorted(self._awake.values(), key=_rank)

    def unread(self) -> list[FetchPartition]:
        """Return the entries that `begin` left out. They are answered without a read."""
        return [entry for entry in self._in_order() if entry.topic_partition.topic in self._unreadable]

    def is_overtaken(self, entries: object) -> bool:
        """Whether a later request has begun since `begin` returned `entries`."""
        return entries is not self._reading

    def woken(self) -> list[tuple[FetchPartition, Rest]]:
        """Return the entries that woke since the last call, or since the last request began, and their old state."""
        woken, self._woken = self._woken, []
        return woken

    def refresh(self, entries: object) -> None:
        """Add the entries that woke since `begin` returned `entries`; does nothing if a later request has begun."""
        if entries is self._reading and self._reading is not None:
            self._look_at_starts()
            if self._is_stale:
                self._reading[:] = self._readable()

    def close(self, told: Sequence[tuple[FetchPartition, FetchResult]]) -> None:
        """End the request: entries with records move to the end of the order, unchanged entries rest."""
        self._reading = None
        resting = self._resting
        for entry, result in told:
            if entry.session is not self or entry.rest is not None:
                continue
            if result.records is not None:
                self._to_the_end(entry)
            elif resting is not None and result.idle is not None and entry.key in self._awake:
                entry.rest, entry.log = result.idle, result.idle.partition.log
                del self._awake[entry.key]
                self._sleepers[entry] = None
                resting.put(entry)

    def woke(self, entry: FetchPartition) -> Hashable | None:
        """Wake an entry that `RestingEntries` has removed. Returns the session if one of its requests waits."""
        rest = entry.rest
        assert rest is not None
        entry.rest = entry.log = None
        self._sleepers.pop(entry, None)
        self._awake[entry.key] = entry
        replica = rest.replica
        if replica is not None and rest.partition.leader_epoch == rest.leader_epoch:
            # Each fetch of the session while the entry rested confirmed that the follower was at the end.
            replica.fetched(entry.fetch_offset, entry.log_start_offset, self.noted_ms, entry.fetch_offset)
        if self._reading is None:
            return None
        self._is_stale = True
        self._woken.append((entry, rest))
        return self

    def _rouse(self, entry: FetchPartition) -> None:
        if entry.rest is not None:
            assert self._resting is not None
            self._resting.take(entry)
            self.woke(entry)

    def rouse_all(self) -> None:
        """Wake all entries: at the end of the session, or if its reader has changed."""
        for entry in list(self._sleepers):
            self._rouse(entry)

    def _look_at_starts(self) -> None:
        moved = [one for one in self._sleepers if one.log.log_start_offset != one.told_log_start_offset]  # type: ignore[union-attr]
        for entry in moved:
            self._rouse(entry)


def _rank(entry: FetchPartition) -> int:
    return entry.rank


_UNKNOWN: Final = FetchResult(UnknownTopicIdError.code)
_DENIED: Final = FetchResult(TopicAuthorizationFailedError.code)


class FetchContext:
    """One Fetch request from start to response. `entries` have to be read in this order.

    With an `error_code` there is nothing to read, and `finish(())` returns the response.
    """

    __slots__ = ("_finish", "_unread", "entries", "error_code", "session")

    def __init__(
        self,
        entries: list[FetchPartition],
        finish: Callable[[list[tuple[FetchPartition, FetchResult]]], FetchAnswer],
        *,
        unread: Sequence[FetchPartition] = (),
        error_code: int = 0,
        session: FetchSession | None = None,
    ) -> None:
        """`unread`: entries with an unknown topic id, and those that the client may not read.

        `session`: that of an incremental request; more `entries` may wake while the request waits.
        """
        self.entries: Final = entries
        self._unread: Final = unread
        self._finish: Final = finish
        self.error_code: Final = error_code
        self.session: Final = session

    def finish(self, results: Sequence[FetchResult]) -> FetchAnswer:
        """Return the response, given one result for each of `entries` in the same order. Call it once."""
        told = list(zip(self.entries, results, strict=True))
        told += [(entry, _DENIED if entry.topic_partition.topic else _UNKNOWN) for entry in self._unread]
        return self._finish(told)

    def throttled(self) -> FetchAnswer:
        """Return the response without any partition, for a client that is above its quota (KIP-219).

        Call it instead of `finish`. The session still has what the client wants; a full request creates none.
        """
        if self.session is None:
            return FetchAnswer(self.error_code, NO_SESSION, [])
        return self._finish([])


class FetchSessions:
    """The fetch sessions of this broker. `evictions` counts the evicted ones."""

    def __init__(self, clock: Clock, slots: int, resting: RestingEntries | None = None) -> None:
        """`slots`: `max.incremental.fetch.session.cache.slots`; with 0 every fetch is a full one.

        `resting` belongs to the replica manager that reads; without it every entry is read for each request.
        """
        self._resting: Final = resting
        self._clock: Final = clock
        self._slots: Final = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Number of partitions in all sessions; for metrics."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self,
        request: FetchRequest,
        topic_name: Callable[[UUID], str | None],
        *,
        uses_topic_ids: bool,
        denied: Denied | None = None,
        rules: object = None,
    ) -> FetchContext:
        """Begin a fetch. `topic_name` resolves topic ids; an unknown id may become known later.

        `uses_topic_ids`: the request's version is 13 or later. Consumers' sessions are evicted before followers'.
        `denied`: which topics the client may not read; None if it may read all. `rules`: what that depends on, an
        object that another one replaces when it changes.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(request.session_id)  # a full request ends the session that it names
            if request.session_epoch == FINAL_EPOCH:
                return _sessionless(request, topic_name, denied)
            return _full(
                request,
                topic_name,
                denied,
                lambda told: self._finish_full(told, request.replica_id >= 0, uses_topic_ids),
            )
        session = self._sessions.get(request.session_id)
        if session is None:
            return _failed(FetchSessionIdNotFoundError.code)
        if session.epoch != request.session_epoch:
            return _failed(InvalidFetchSessionEpochError.code)
        if session.uses_topic_ids is not uses_topic_ids:
            return _failed(FetchSessionTopicIdError.code)
        session.update(request)
        if not session.partitions:
            self._end(session.session_id)
            return _sessionless(request, topic_name, denied)
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        session.epoch = expected = next_epoch(session.epoch)
        reader = (request.replica_id, request.replica_epoch, request.isolation_level, request.rack_id, rules)
        return FetchContext(
            session.begin(reader, topic_name, denied),
            lambda told: _finish_incremental(session, expected, told),
            unread=session.unread(),
            session=session,
        )

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.rouse_all()

    def _finish_full(
        self, told: list[tuple[FetchPartition, FetchResult]], is_privileged: bool, uses_topic_ids: bool
    ) -> FetchAnswer:
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots and not self._evict_for(is_privileged, len(told), now_ms):
            return FetchAnswer(0, NO_SESSION, told)
        for entry, result in told:
            entry.tell(result)
        entries = (entry for entry, _ in told)
        session = FetchSession(self._new_id(), entries, now_ms=now_ms, resting=self._resting)
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
        """Evict a session for a new one, if possible. Returns whether there is space now.

        Stale sessions go first, then the least valuable one that may be evicted. A consumer's session may always be
        evicted for a follower's; otherwise a session is safe for its first two minutes.
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
        self._end(victim.session_id)
        self.evictions += 1
        return True


def _resolve(entries: Iterable[FetchPartition], topic_name: Callable[[UUID], str | None]) -> None:
    """Set the topic name of the entries whose topic id has become known."""
    for entry in entries:
        if not entry.topic_partition.topic:
            name = topic_name(entry.topic_id)
            if name is not None:
                entry.topic_partition = TopicPartition(name, entry.topic_partition.partition)


NAMELESS: Final[frozenset[str]] = frozenset({""})
"""The topic of entries whose topic id is unknown."""


def _unreadable(entries: Iterable[FetchPartition], denied: Denied) -> Container[str]:
    """Return the topics of entries that are not read."""
    topics = {entry.topic_partition.topic for entry in entries} - NAMELESS
    return NAMELESS.union(denied(topics))


def _full(
    request: FetchRequest,
    topic_name: Callable[[UUID], str | None],
    denied: Denied | None,
    finish: Callable[[list[tuple[FetchPartition, FetchResult]]], FetchAnswer],
) -> FetchContext:
    entries = [FetchPartition.of(entry) for entry in request.entries]
    _resolve(entries, topic_name)
    left_out = NAMELESS if denied is None else _unreadable(entries, denied)
    unread = [entry for entry in entries if entry.topic_partition.topic in left_out]
    return FetchContext(
        [entry for entry in entries if entry.topic_partition.topic not in left_out], finish, unread=unread
    )


def _sessionless(
    request: FetchRequest, topic_name: Callable[[UUID], str | None], denied: Denied | None
) -> FetchContext:
    return _full(request, topic_name, denied, lambda told: FetchAnswer(0, NO_SESSION, told))


def _failed(code: int) -> FetchContext:
    return FetchContext([], lambda _: FetchAnswer(code, NO_SESSION, []), error_code=code)


def _finish_incremental(
    session: FetchSession, expected_epoch: int, told: list[tuple[FetchPartition, FetchResult]]
) -> FetchAnswer:
    if session.epoch != expected_epoch:
        # Another request of the session arrived while this one waited: the client has repeated it.
        return FetchAnswer(InvalidFetchSessionEpochError.code, session.session_id, [])
    news = [pair for pair in told if pair[0].tell(pair[1])]
    session.close(told)
    return FetchAnswer(0, session.session_id, news)
