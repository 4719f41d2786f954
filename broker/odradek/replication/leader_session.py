"""Incremental fetch sessions, the follower's side (KIP-227): say only what has changed since the last request.

What a fetcher follows enters `LeaderSession.next`; the session's part of the next Fetch request leaves. The outcome of
each request comes back through `answered` or `failed`. Invariants: a partition's `sent` entry is what the leader
remembers of it, or the next request is a full one; whoever follows a partition has it told anew. The leader tells marks
once, and an answer that came for a former `Followed` was passed over: without more records they would never come
again. So the partition is forgotten and added by the request after. A request adds a bounded number of partitions to
the session; the next ones add the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.errors import FetchSessionIdNotFoundError
from odradek.base.types import ZERO_UUID
from odradek.protocol.hotpath import FetchEntry, ForgottenPartition
from odradek.replication.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from odradek.replication.table import HostedPartition

TopicKey = tuple[str | UUID, int]

MOST_ADDED: Final = 1_000
"""Partitions that one request adds: thousands at once would hold the event loops of both sides for long."""

FIRST_REST_MS: Final = 20.0
"""The controller tells all replicas at once: a leader that does not know of its role yet will in a moment."""


class Followed:
    """A partition that a fetcher follows, in one reign of its leader: a new reign makes a new object."""

    __slots__ = ("lag", "leader_epoch", "needs_epoch_check", "partition", "rest_ms", "resume_ms", "topic_id")

    def __init__(self, partition: HostedPartition) -> None:
        """Follow from the end of the local log."""
        self.partition: Final = partition
        self.leader_epoch: Final = partition.leader_epoch
        self.topic_id: Final = partition.log.topic_id or ZERO_UUID
        self.resume_ms = -inf
        """Not fetched before this monotonic time: it had an error. `inf`: not until the next reign."""
        self.rest_ms = FIRST_REST_MS
        """Next rest after the leader has answered that it does not lead yet; doubled with each."""
        self.needs_epoch_check = True
        """Only for leaders that do not tell divergence in a fetch (below version 12)."""
        self.lag: int | None = None
        """Records behind the leader's high watermark, as of the last fetch; None before the first."""

    @property
    def is_current(self) -> bool:
        """Whether the reign goes on."""
        return self.partition.leader_epoch == self.leader_epoch

    def key(self, *, by_id: bool) -> TopicKey:
        """What a session knows the partition by."""
        topic, number = self.partition.topic_partition
        return (self.topic_id if by_id else topic), number

    def entry(self, max_bytes: int, *, by_id: bool) -> FetchEntry:
        """What to ask for now."""
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
    """Whether the leader knows of every partition with this request."""


class LeaderSession:
    """The session with one leader over one connection."""

    __slots__ = ("_by_id", "_epoch", "_holders", "_is_refused", "_max_bytes", "_sent", "_session_id")

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` of each partition: `replica.fetch.max.bytes`."""
        self._max_bytes: Final = max_bytes
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._sent: dict[TopicKey, FetchEntry] = {}
        self._holders: dict[TopicKey, Followed] = {}
        """For whom each entry of `_sent` was sent."""
        self._by_id = False
        self._is_refused = False
        """Whether the leader keeps no session for us: then every request must name every partition."""

    def next(self, followed: Iterable[Followed], *, by_id: bool) -> SessionStep:
        """The next request's part. `by_id`: every partition has a topic id and the version can carry it."""
        if by_id is not self._by_id:
            self._by_id = by_id
            self._epoch = INITIAL_EPOCH  # a session keeps to names or to ids; a full request ends the old one
        everything = list(followed)
        step = self._added(everything)
        if step is None:
            self._epoch = INITIAL_EPOCH  # nothing of the session would stay: a full request ends it, and adds at once
            step = self._added(everything)
        assert step is not None
        return step

    def _added(self, followed: Sequence[Followed]) -> SessionStep | None:
        """The next request's part; None if it would forget all that is wanted, to add it with the request after."""
        by_id, is_full = self._by_id, self._epoch == INITIAL_EPOCH
        sent, holders = ({}, {}) if is_full else (self._sent, self._holders)
        room = inf if self._is_refused else MOST_ADDED
        wanted: dict[TopicKey, FetchEntry] = {}
        wanting: dict[TopicKey, Followed] = {}
        is_complete, anew = True, 0
        for one in followed:
            key = one.key(by_id=by_id)
            holder = holders.get(key)
            if holder is not one:
                anew += holder is not None
                if holder is not None or not room:
                    is_complete = False
                    continue
                room -= 1
            wanted[key] = one.entry(self._max_bytes, by_id=by_id)
            wanting[key] = one
        if anew and not holders.keys() & wanting.keys():
            return None
        self._sent, self._holders = wanted, wanting
        changed = [entry for key, entry in wanted.items() if sent.get(key) != entry]
        forgotten = [
            ForgottenPartition(entry.topic, entry.topic_id, entry.partition)
            for key, entry in sent.items()
            if key not in wanted
        ]
        return SessionStep(self._session_id, self._epoch, changed, forgotten, is_complete)

    def answered(self, error_code: int, session_id: int) -> None:
        """The leader answered: go on with the session, begin a new one, or do without."""
        if error_code == FetchSessionIdNotFoundError.code:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif error_code:
            self._epoch = INITIAL_EPOCH  # the full request names the session, which ends it there
        elif session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
            self._is_refused = True
        else:
            self._is_refused = False
            self._session_id = session_id
            self._epoch = next_epoch(self._epoch)

    def failed(self) -> None:
        """No answer came, so nobody knows what the leader remembers: start anew."""
        self._epoch = INITIAL_EPOCH
