"""What a consumer knows of each partition that it reads: position, buffered bytes, the log's ends, troubles.

In: assignments, seeks, fetch answers. Out: what to fetch next, records and bytes in order. Called by `fetcher`.
Invariants: records of a partition come out in the order of their offsets and never twice unless somebody seeks; what
was fetched before a seek or a new assignment is never seen after it.

Theory of operation. A partition without a position waits for one (`reset` names the timestamp to look up). With one it
may be fetched while less than `BUFFERED_FETCHES` answers wait for the application: so one is read while the next is on
its way. `epoch` counts seeks; an answer that was asked for under another epoch is dropped. `fetches` counts fetches: a
leader that stands still may answer when the next one has long been asked for the same, so only the last fetch counts.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Container, Iterator
from typing import Final

from odradek.base.errors import CorruptMessageError, InvalidRecordError, ProtocolError
from odradek.base.types import NO_BROKER, NO_OFFSET, TopicPartition
from odradek.client.consumer.fetched import iterate_records
from odradek.client.models import RawFetch
from odradek.records.record import Record

BUFFERED_FETCHES: Final = 2


class PartitionState:
    """One partition of a consumer."""

    __slots__ = (
        "_buffered",
        "_pending",
        "_pending_end",
        "_stream",
        "epoch",
        "error",
        "fetch_offset",
        "fetches",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "not_before_ms",
        "paused",
        "position",
        "read_replica",
        "read_replica_until_ms",
        "reset_timestamp",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        """Without a position."""
        self.topic_partition = topic_partition
        self.position: int | None = None
        """The next offset that the application gets."""
        self.fetch_offset: int | None = None
        """The next offset to ask the broker for."""
        self.reset_timestamp: int | None = None
        """A timestamp whose offset is to become the position."""
        self.epoch = 0
        self.fetches = 0
        self.paused = False
        self.error: ProtocolError | None = None
        """To be raised when the application next asks for records."""
        self.not_before_ms = 0.0
        self.high_watermark = NO_OFFSET
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.read_replica = NO_BROKER
        """A follower that the leader told to read from (KIP-392)."""
        self.read_replica_until_ms = 0.0
        """When the leader is to be asked again."""
        self._buffered: deque[RawFetch] = deque()
        self._stream: Iterator[tuple[list[Record], int]] | None = None
        self._pending: list[Record] = []
        self._pending_end = 0

    def seek(self, offset: int) -> None:
        """Go on at `offset`."""
        self._forget()
        self.position = self.fetch_offset = offset

    def await_reset(self, timestamp: int) -> None:
        """Have no position until that of `timestamp` was looked up."""
        self._forget()
        self.position = self.fetch_offset = None
        self.reset_timestamp = timestamp

    def prefer(self, broker_id: int, until_ms: float) -> None:
        """Read from this broker, for a while."""
        self.read_replica, self.read_replica_until_ms = broker_id, until_ms

    def source(self, now_ms: float, nodes: Container[int], leader: int) -> int:
        """The broker to read from: the preferred one while that holds and lives, else the leader."""
        if self.read_replica not in nodes or now_ms >= self.read_replica_until_ms:
            self.read_replica = NO_BROKER
            return leader
        return self.read_replica

    def _forget(self) -> None:
        self.epoch += 1
        self.error = None
        self.reset_timestamp = None
        self.not_before_ms = 0.0
        self._buffered.clear()
        self._stream = None
        self._pending = []

    # ------------------------------------------------------------------------------------------------ in

    def wants_data(self, now_ms: float) -> bool:
        """Whether it should be fetched now."""
        return (
            not self.paused
            and self.fetch_offset is not None
            and self.error is None
            and self.not_before_ms <= now_ms
            and len(self._buffered) < BUFFERED_FETCHES
        )

    def take_in(self, fetch: RawFetch) -> None:
        """An answer to a fetch at `fetch_offset`."""
        self.high_watermark = fetch.high_watermark
        self.last_stable_offset = fetch.last_stable_offset
        self.log_start_offset = fetch.log_start_offset
        if len(fetch.records):
            self._buffered.append(fetch)
            self.fetch_offset = fetch.next_offset

    @property
    def buffered_bytes(self) -> int:
        """Memory that waits for the application."""
        return sum(len(fetch.records) for fetch in self._buffered)

    # ------------------------------------------------------------------------------------------------ out

    @property
    def has_data(self) -> bool:
        """Whether something may be taken out."""
        return not self.paused and bool(self._buffered or self._pending)

    def take_records(self, limit: int, *, check_crcs: bool) -> list[Record]:
        """At most `limit` records; the position moves behind them.

        Unsound bytes become `error` and the position stays before them: they are fetched and refused again and again,
        until somebody seeks, as skipping them would lose what they were.
        """
        taken: list[Record] = []
        while limit > 0 and (self._pending or self._next_batch(check_crcs)):
            if limit >= len(self._pending):
                taken += self._pending
                limit -= len(self._pending)
                self._pending = []
                self.position = self._pending_end
            else:
                taken += self._pending[:limit]
                del self._pending[:limit]
                limit = 0
                self.position = taken[-1].offset + 1
        return taken

    def _next_batch(self, check_crcs: bool) -> bool:
        """Decode until a batch has records; False when nothing is left."""
        while self._buffered:
            if self._stream is None:
                self._stream = iterate_records(self._buffered[0], check_crcs=check_crcs)
            try:
                for records, end in self._stream:
                    if records:
                        self._pending, self._pending_end = records, end
                        return True
                    self.position = end
            except (CorruptMessageError, InvalidRecordError) as error:
                self.seek(self.position or 0)
                self.error = error
                return False
            self._stream = None
            self._buffered.popleft()
        return False

    def take_fetch(self) -> RawFetch | None:
        """A whole answer as it is, from the position on."""
        if not self._buffered or self.position is None:
            return None
        self._stream = None
        self._pending = []
        fetch = self._buffered.popleft()
        position, self.position = self.position, fetch.next_offset
        if position == fetch.fetch_offset:
            return fetch
        return dataclasses.replace(fetch, fetch_offset=position)

    def lag(self, *, read_committed: bool) -> int | None:
        """Records between the position and the end that may be read; None while either is unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if self.position is None or end == NO_OFFSET:
            return None
        return max(0, end - self.position)
