"""The state of each partition of a consumer: position, buffered fetches, offsets of the log, errors.

`fetcher` uses it to decide what to fetch, and takes records and bytes from it. Invariants: records of a partition are
returned in the order of their offsets and never twice without a seek; data fetched before a seek or a new assignment is
never returned after it.

A partition without a position waits for one (`reset_timestamp` is the timestamp to look up). With a position it can be
fetched while fewer than `BUFFERED_FETCHES` responses are buffered: one is read while the next is fetched. `epoch`
counts seeks; a response requested under another epoch is dropped. `fetches` counts fetches: a slow leader may answer
when the same range has been requested from another broker, so only the response to the last fetch is used.
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
from odradek.records.v2.record import Record

BUFFERED_FETCHES: Final = 2


class PartitionFetchState:
    """The state of one partition."""

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
        """The position is unknown at first."""
        self.topic_partition = topic_partition
        self.position: int | None = None
        """The next offset for the application."""
        self.fetch_offset: int | None = None
        """The next offset to fetch."""
        self.reset_timestamp: int | None = None
        """A timestamp whose offset becomes the position."""
        self.epoch = 0
        self.fetches = 0
        self.paused = False
        self.error: ProtocolError | None = None
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
        self._stream: Iterator[tuple[list[Record], int]] | None = None
        self._pending: list[Record] = []
        self._pending_end = 0

    def seek(self, offset: int) -> None:
        """Continue at `offset`."""
        self._forget()
        self.position = self.fetch_offset = offset

    def await_reset(self, timestamp: int) -> None:
        """Drop the position until the offset for `timestamp` has been looked up."""
        self._forget()
        self.position = self.fetch_offset = None
        self.reset_timestamp = timestamp

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

    @property
    def buffered_bytes(self) -> int:
        """Size of the buffered responses."""
        return sum(len(fetch.records) for fetch in self._buffered)

    # Records

    @property
    def has_data(self) -> bool:
        """Whether records or an error can be taken."""
        return not self.paused and bool(self._buffered or self._pending)

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
        return taken

    def _next_batch(self, check_crcs: bool) -> bool:
        """Decode batches until one has visible records. Return False if no batch is left."""
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
        """Return a buffered response without decoding it, and move the position past it."""
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
        """Number of records from the position to the last readable one; None if either is unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if self.position is None or end == NO_OFFSET:
            return None
        return max(0, end - self.position)
