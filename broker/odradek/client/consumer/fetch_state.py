"""The state of each partition of a consumer: position, buffered fetches, offsets of the log, errors.

`fetcher` uses it to decide what to fetch, and takes records and bytes from it. Invariants: records of a partition are
returned in the order of their offsets and never twice without a seek; data fetched before a seek or a new assignment is
never returned after it.

A partition without a position waits for one (`reset_timestamp` is the timestamp to look up). With a position it can be
fetched while fewer than `BUFFERED_FETCHES` responses are buffered: one is read while the next is fetched. `epoch`
counts seeks; a response requested under another epoch is dropped. `fetches` counts fetches: a slow leader may answer
when the same range has been requested from another broker, so only the response to the last fetch is used.

With each position, the leader epoch of the record before it is kept (KIP-320). When the partition has another leader,
`positions` asks it where that epoch ends in its log. Until then nothing is fetched or returned.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Container, Iterator
from typing import Final

from odradek.base.errors import CorruptMessageError, InvalidRecordError, OdradekError
from odradek.base.types import NO_BROKER, NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.client.consumer.fetched import iterate_batches
from odradek.client.models import RawFetch
from odradek.records.v2.record import Record

BUFFERED_FETCHES: Final = 2


class PartitionFetchState:
    """The state of one partition."""

    __slots__ = (
        "_buffered",
        "_leader_epoch",
        "_pending",
        "_pending_end",
        "_pending_epoch",
        "_stream",
        "epoch",
        "error",
        "fetch_epoch",
        "fetch_offset",
        "fetches",
        "high_watermark",
        "is_unvalidated",
        "last_stable_offset",
        "log_start_offset",
        "not_before_ms",
        "paused",
        "position",
        "position_epoch",
        "read_replica",
        "read_replica_until_ms",
        "reset_timestamp",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        """The position is unknown at first."""
        self.topic_partition = topic_partition
        self.position: int | None = None
        """The next offset for the application."""
        self.fetch_offset: int | None = None
        """The next offset to fetch."""
        self.position_epoch = NO_EPOCH
        """Leader epoch of the last record before the position; -1 if unknown."""
        self.fetch_epoch = NO_EPOCH
        """Leader epoch of the last record before `fetch_offset`; -1 if unknown."""
        self.is_unvalidated = False
        """Whether the leader must be asked first if its log contains the records before the position."""
        self.reset_timestamp: int | None = None
        """A timestamp whose offset becomes the position."""
        self.epoch = 0
        self.fetches = 0
        self.paused = False
        self.error: OdradekError | None = None
        """Raised when the application next requests records."""
        self.not_before_ms = 0.0
        self.high_watermark = NO_OFFSET
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.read_replica = NO_BROKER
        """The follower that the leader chose for reads (KIP-392)."""
        self.read_replica_until_ms = 0.0
        """When to fetch from the leader again."""
        self._buffered: deque[RawFetch] = deque()
        self._stream: Iterator[tuple[list[Record], int, int]] | None = None
        self._pending: list[Record] = []
        self._pending_end = 0
        self._pending_epoch = NO_EPOCH
        self._leader_epoch = NO_EPOCH

    def seek(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Continue at `offset`. `leader_epoch` is that of the record before it, -1 if unknown."""
        self._forget()
        self.position = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = leader_epoch

    def rewind(self, offset: int, leader_epoch: int) -> None:
        """Continue at an offset that the leader has confirmed."""
        met = self._leader_epoch
        self.seek(offset, leader_epoch)
        self._leader_epoch = met

    def await_reset(self, timestamp: int) -> None:
        """Drop the position until the offset for `timestamp` has been looked up."""
        self._forget()
        self.position = self.fetch_offset = None
        self.reset_timestamp = timestamp

    @property
    def is_lost(self) -> bool:
        """Whether there is no position and no way to find one."""
        return self.position is None and self.reset_timestamp is None and self.error is None

    def meet_leader(self, leader_epoch: int) -> None:
        """Note the leader epoch of the metadata. If it has changed, the position becomes unvalidated."""
        if leader_epoch in (NO_EPOCH, self._leader_epoch) or self.fetch_offset is None:
            return
        self._leader_epoch = leader_epoch
        if self.fetch_epoch != NO_EPOCH:
            self.is_unvalidated = True
            # A response of the former leader can contain records that the new one lacks.
            self.fetches += 1

    def prefer(self, broker_id: int, until_ms: float) -> None:
        """Read from this broker until `until_ms` of the monotonic clock."""
        self.read_replica, self.read_replica_until_ms = broker_id, until_ms

    def source(self, now_ms: float, nodes: Container[int], leader: int) -> int:
        """Return the broker to read from: the preferred replica while it is valid and alive, else the leader."""
        if self.read_replica not in nodes or now_ms >= self.read_replica_until_ms:
            self.read_replica = NO_BROKER
            return leader
        return self.read_replica

    def _forget(self) -> None:
        self.epoch += 1
        self.error = None
        self.reset_timestamp = None
        self.not_before_ms = 0.0
        self.is_unvalidated = False
        self._leader_epoch = NO_EPOCH
        self._buffered.clear()
        self._stream = None
        self._pending = []

    # Fetches

    def wants_data(self, now_ms: float) -> bool:
        """Whether the partition should be fetched now."""
        return (
            not self.paused
            and self.fetch_offset is not None
            and self.error is None
            and not self.is_unvalidated
            and self.not_before_ms <= now_ms
            and len(self._buffered) < BUFFERED_FETCHES
        )

    def take_in(self, fetch: RawFetch) -> None:
        """Buffer the response to a fetch at `fetch_offset`."""
        self.high_watermark = fetch.high_watermark
        self.last_stable_offset = fetch.last_stable_offset
        self.log_start_offset = fetch.log_start_offset
        if len(fetch.records):
            self._buffered.append(fetch)
            self.fetch_offset = fetch.next_offset
            self.fetch_epoch = fetch.leader_epoch

    @property
    def buffered_bytes(self) -> int:
        """Size of the buffered responses."""
        return sum(len(fetch.records) for fetch in self._buffered)

    # Records

    @property
    def has_data(self) -> bool:
        """Whether records or an error can be taken."""
        return not self.paused and not self.is_unvalidated and bool(self._buffered or self._pending)

    def take_records(self, limit: int, *, check_crcs: bool) -> list[Record]:
        """Return at most `limit` records and move the position past them.

        Corrupt bytes set `error`, and the position stays before them: each fetch fails until the application seeks,
        because skipping them would lose records silently.
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
            self.position_epoch = self._pending_epoch
        return taken

    def _next_batch(self, check_crcs: bool) -> bool:
        """Decode batches until one has visible records. Return False if no batch is left."""
        while self._buffered:
            if self._stream is None:
                self._stream = iterate_batches(self._buffered[0], check_crcs=check_crcs)
            try:
                for records, end, leader_epoch in self._stream:
                    if records:
                        self._pending, self._pending_end, self._pending_epoch = records, end, leader_epoch
                        return True
                    self.position, self.position_epoch = end, leader_epoch
            except (CorruptMessageError, InvalidRecordError) as error:
                self.seek(self.position or 0, self.position_epoch)
                self.error = error
                return False
            self._stream = None
            self._buffered.popleft()
        return False

    def take_fetch(self) -> RawFetch | None:
        """Return a buffered response without decoding it, and move the position past it."""
        if not self._buffered or self.position is None:
            return None
        self._stream = None
        self._pending = []
        fetch = self._buffered.popleft()
        position, self.position = self.position, fetch.next_offset
        self.position_epoch = fetch.leader_epoch
        if position == fetch.fetch_offset:
            return fetch
        return dataclasses.replace(fetch, fetch_offset=position)

    def lag(self, *, read_committed: bool) -> int | None:
        """Number of records from the position to the last readable one; None if either is unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if self.position is None or end == NO_OFFSET:
            return None
        return max(0, end - self.position)
