"""Incremental fetch sessions on the follower (KIP-227): send only what has changed since the last request.

A fetcher passes its partitions to `LeaderSession.next` and gets the session's part of the next Fetch request; it
reports the outcome with `answered` or `failed`. The session itself is that of `protocol/fetch_sessions`. Invariant: a
new `Followed` gets the partition's offsets again. The leader sends offsets only once, and a response for an earlier
`Followed` was ignored: without new records they would never come again. Therefore such a partition is removed from the
session, and the next request adds it again. One request adds a limited number of partitions to the session; the next
ones add the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.types import ZERO_UUID
from odradek.log.flush import NO_LIMIT
from odradek.protocol.fetch_sessions import NO_SESSION, FetchSessionHandler
from odradek.protocol.hotpath import FetchEntry, ForgottenPartition
from odradek.replication.partition_table import HostedPartition

TopicKey = tuple[str | UUID, int]

MOST_ADDED: Final = 1_000
"""Maximum partitions added by one request: thousands at once would block the event loops of both sides for long."""

FIRST_REST_MS: Final = 20.0
"""Short, because the controller updates all replicas at once: a leader without its role will soon have it."""


class Followed:
    """A partition that a fetcher follows in one leader epoch: each new epoch creates a new object."""

    __slots__ = (
        "awaits_flush",
        "awaits_write",
        "lag",
        "leader_epoch",
        "needs_epoch_check",
        "partition",
        "rest_ms",
        "resume_ms",
        "topic_id",
    )

    def __init__(self, partition: HostedPartition) -> None:
        """Follow from the end of the local log."""
        self.awaits_write = False
        """Whether its last records wait until a slow directory has written them."""
        self.partition: Final = partition
        self.check_flush()
        self.leader_epoch: Final = partition.leader_epoch
        self.topic_id: Final = partition.log.topic_id or ZERO_UUID
        self.resume_ms = -inf
        """Monotonic time before which it is not fetched, after an error. `inf`: not before the next leader epoch."""
        self.rest_ms = FIRST_REST_MS
        """Next delay after the leader answered that it is not leader yet; doubled each time."""
        self.needs_epoch_check = True
        """Used only for leaders whose fetch responses have no diverging epoch (below version 12)."""
        self.lag: int | None = None
        """Records behind the leader's high watermark at the last fetch; None before the first."""

    def check_flush(self) -> None:
        """Update `awaits_flush` after an append, a truncation, a flush or a write of a slow directory."""
        log = self.partition.log
        self.awaits_flush = self.awaits_write or log.durable_limit != NO_LIMIT or log.writing is not None
        """Whether it is not fetched now: a fetch would report records that wait for the disk, or its response would
        truncate the log during a write."""

    @property
    def is_current(self) -> bool:
        """Whether the leader epoch is still current."""
        return self.partition.leader_epoch == self.leader_epoch

    def key(self, *, by_id: bool) -> TopicKey:
        """Return the key of the partition in a session."""
        topic, number = self.partition.topic_partition
        return (self.topic_id if by_id else topic), number

    def entry(self, max_bytes: int, *, by_id: bool) -> FetchEntry:
        """Return the current fetch entry."""
        log = self.partition.log
        topic, number = self.partition.topic_partition
        return FetchEntry(
            None if by_id else topic,
            self.topic_id if by_id else None,
            number,
            self.leader_epoch,
            log.log_end_offset,
            log.latest_epoch,
            log.log_start_offset,
            max_bytes,
        )


class SessionStep(NamedTuple):
    """The session's part of one Fetch request."""

    session_id: int
    epoch: int
    entries: list[FetchEntry]
    forgotten: list[ForgottenPartition]
    is_complete: bool = True
    """Whether the leader's session contains all partitions after this request."""


class LeaderSession:
    """The session with one leader over one connection."""

    __slots__ = ("_by_id", "_holders", "_is_refused", "_max_bytes", "_session")

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` per partition: `replica.fetch.max.bytes`."""
        self._max_bytes: Final = max_bytes
        self._session = FetchSessionHandler[TopicKey, FetchEntry]()
        self._holders: dict[TopicKey, Followed] = {}
        """The `Followed` for which each entry of the session was sent."""
        self._by_id = False
        self._is_refused = False
        """Whether the leader keeps no session for us: then every request has to list all partitions."""

    def next(self, followed: Iterable[Followed], *, by_id: bool) -> SessionStep:
        """Return the part of the next request. `by_id`: all topic ids are known and the version supports them."""
        if by_id is not self._by_id:
            self._by_id = by_id
            self._session.failed()  # a session uses either names or ids; a full request ends the old one
        everything = list(followed)
        step = self._added(everything)
        if step is None:
            self._session.failed()  # nothing of the session would remain: a full request replaces it at once
            step = self._added(everything)
        assert step is not None
        return step

    def _added(self, followed: Sequence[Followed]) -> SessionStep | None:
        """Return the part of the next request; None if it would only remove partitions that have to be added again."""
        by_id, holders = self._by_id, {} if self._session.is_full else self._holders
        room = inf if self._is_refused else MOST_ADDED
        wanted: dict[TopicKey, FetchEntry] = {}
        wanting: dict[TopicKey, Followed] = {}
        is_complete, added_again = True, 0
        for one in followed:
            key = one.key(by_id=by_id)
            holder = holders.get(key)
            if holder is not one:
                added_again += holder is not None
                if holder is not None or not room:
                    is_complete = False
                    continue
                room -= 1
            wanted[key] = one.entry(self._max_bytes, by_id=by_id)
            wanting[key] = one
        if added_again and not holders.keys() & wanting.keys():
            return None
        self._holders = wanting
        request = self._session.next_request(wanted)
        forgotten = [
            ForgottenPartition(entry.topic, entry.topic_id, entry.partition) for entry in request.forgotten.values()
        ]
        return SessionStep(request.session_id, request.epoch, list(request.changed.values()), forgotten, is_complete)

    def answered(self, error_code: int, session_id: int) -> None:
        """Handle an answer of the leader: continue the session, begin a new one, or continue without one."""
        self._session.answered(error_code, session_id)
        if not error_code:
            self._is_refused = session_id == NO_SESSION

    def failed(self) -> None:
        """Begin a new session after a failed request: the state of the leader's session is unknown."""
        self._session.failed()
