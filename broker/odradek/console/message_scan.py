"""Searches the messages of a topic with limits: time, records, bytes and results.

A search reads each partition from its start to the end that the partition had at the beginning. It needs no group and
commits nothing. If it is cancelled, because the browser went away, its connections are closed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.base.errors import ConfigError, UnknownTopicOrPartitionError
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import ConsumerRecord
from odradek.client.settings import ClientSettings
from odradek.console.console_settings import ScanLimits
from odradek.console.message_query import MessageQuery, Start
from odradek.console.shown_bytes import ShownRecord, shown_record

_POLL_MS: Final = 250
_POLL_RECORDS: Final = 200
"""Records between two looks at the clock. Other requests of the console are served in between."""
_FETCH_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """The messages that a search has found, and how far it has come."""

    records: list[ShownRecord]
    scanned: int
    """Number of scanned records."""
    scanned_bytes: int
    stopped: str
    """Why the search ended: `end`, `results`, `records`, `bytes` or `time`."""
    positions: dict[int, int] = field(default_factory=dict)
    """Offset of each partition with unread records at which another search continues; empty at the end of the log."""


class MessageScan:
    """One search. Call `run` once."""

    def __init__(self, topic: str, partitions: Sequence[int], query: MessageQuery, limits: ScanLimits) -> None:
        """`partitions`: all of the topic. Nothing is read before `run`."""
        self._topic = topic
        self._numbers = partitions
        self._query = query
        self._limits = limits
        self._next: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._found: list[tuple[tuple[int, int, int], ShownRecord]] = []
        """A heap for `NEWEST`, whose first entry is the oldest; else a list in the order in which they were read."""
        self._scanned = 0
        self._scanned_bytes = 0

    async def run(self, settings: ClientSettings, clock: Clock) -> ScanResult:
        """Search with a user's settings. Raises `OdradekError`."""
        deadline_ms = clock.monotonic_ms() + self._limits.time_ms
        isolation = "read_committed" if self._query.is_committed else "read_uncommitted"
        reading = settings.replace(
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=isolation,
            fetch_max_bytes=_FETCH_BYTES,
            max_poll_records=_POLL_RECORDS,
        )
        async with Consumer(reading) as consumer:
            partitions = self._partitions()
            await self._choose_ranges(consumer, partitions)
            consumer.assign(self._open())
            for partition in self._open():
                consumer.seek(partition, self._next[partition])
            stopped = await self._read(consumer, clock, deadline_ms)
        return self._result(stopped)

    def _partitions(self) -> list[TopicPartition]:
        known = [TopicPartition(self._topic, number) for number in self._numbers]
        if self._query.partition is None:
            return known
        wanted = TopicPartition(self._topic, self._query.partition)
        if wanted not in known:
            raise UnknownTopicOrPartitionError(f"topic {self._topic} has no partition {self._query.partition}")
        return [wanted]

    async def _choose_ranges(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Choose the first offset of each partition, and the offset after the last one."""
        query = self._query
        begins = await consumer.beginning_offsets(partitions)
        self._ends = await consumer.end_offsets(partitions)
        starts: Mapping[TopicPartition, int] = begins
        if query.start is Start.NEWEST:
            window = max(1, self._limits.records // len(partitions)) if query.has_filter else query.limit
            starts = {partition: self._ends[partition] - window for partition in partitions}
        elif query.start is Start.OFFSET:
            if query.partition is None and len(partitions) > 1:
                raise ConfigError("partition is missing: choose one for a search that begins at an offset")
            starts = dict.fromkeys(partitions, query.offset)
        elif query.start is Start.TIME:
            times = await consumer.offsets_for_times(dict.fromkeys(partitions, query.time_ms))
            starts = {
                partition: self._ends[partition] if (found := times[partition]) is None else found.offset
                for partition in partitions
            }
        elif query.start is Start.POSITIONS:
            starts = {
                partition: query.positions.get(partition.partition, self._ends[partition]) for partition in partitions
            }
        self._next = {partition: max(starts[partition], begins[partition]) for partition in partitions}

    def _open(self) -> list[TopicPartition]:
        """Return the partitions that are not read to their end."""
        return [partition for partition, offset in self._next.items() if offset < self._ends[partition]]

    async def _read(self, consumer: Consumer, clock: Clock, deadline_ms: float) -> str:
        """Read until a limit is reached, and return which."""
        while self._open():
            left_ms = deadline_ms - clock.monotonic_ms()
            if left_ms <= 0:
                return "time"
            taken = await consumer.getmany(timeout_ms=min(_POLL_MS, left_ms), max_records=_POLL_RECORDS)
            for partition, records in taken.items():
                stopped = self._take(partition, records)
                if stopped is not None:
                    return stopped
            for partition in self._open():
                # Positions also move past records that are not returned, such as markers of transactions.
                if partition not in taken:
                    self._next[partition] = max(self._next[partition], await consumer.position(partition))
            consumer.pause(*(consumer.assignment() - set(self._open())))
            await asyncio.sleep(0)
        return "end"

    def _take(self, partition: TopicPartition, records: Iterable[ConsumerRecord]) -> str | None:
        """Compare records with the filters. Return the limit that was reached, if any."""
        for record in records:
            if record.offset >= self._ends[partition]:
                self._next[partition] = self._ends[partition]
                return None
            self._next[partition] = record.offset + 1
            self._scanned += 1
            self._scanned_bytes += len(record.key or b"") + len(record.value or b"")
            if self._query.matches(record):
                self._keep(record)
            if self._query.start is not Start.NEWEST and len(self._found) >= self._query.limit:
                return "results" if self._open() else None
            if self._scanned_bytes >= self._limits.size_bytes:
                return "bytes" if self._open() else None
            if self._scanned >= self._limits.records:
                return "records" if self._open() else None
        return None

    def _keep(self, record: ConsumerRecord) -> None:
        entry = ((record.timestamp, record.partition, record.offset), shown_record(record))
        if self._query.start is not Start.NEWEST:
            self._found.append(entry)
        elif len(self._found) < self._query.limit:
            heapq.heappush(self._found, entry)
        elif entry[0] > self._found[0][0]:
            heapq.heapreplace(self._found, entry)

    def _result(self, stopped: str) -> ScanResult:
        entries = self._found
        if self._query.start is Start.NEWEST:
            entries = sorted(entries, key=lambda entry: entry[0], reverse=True)
        return ScanResult(
            records=[shown for _, shown in entries],
            scanned=self._scanned,
            scanned_bytes=self._scanned_bytes,
            stopped=stopped,
            positions={partition.partition: self._next[partition] for partition in self._open()},
        )


async def read_record(settings: ClientSettings, place: TopicPartition, offset: int, clock: Clock) -> ConsumerRecord:
    """Return one record. Raises `UnknownTopicOrPartitionError` if no record has this offset."""
    deadline_ms = clock.monotonic_ms() + settings.default_api_timeout_ms
    reading = settings.replace(auto_offset_reset="none", enable_auto_commit=False, fetch_max_bytes=_FETCH_BYTES)
    missing = UnknownTopicOrPartitionError(
        f"{place} has no record with the offset {offset}: it was deleted, or does not exist yet"
    )
    async with Consumer(reading) as consumer:
        begin = (await consumer.beginning_offsets([place]))[place]
        end = (await consumer.end_offsets([place]))[place]
        if not begin <= offset < end:
            raise missing
        consumer.assign([place])
        consumer.seek(place, offset)
        while (left_ms := deadline_ms - clock.monotonic_ms()) > 0:
            taken = await consumer.getmany(timeout_ms=min(_POLL_MS, left_ms), max_records=1)
            for record in taken.get(place, ()):
                if record.offset != offset:
                    raise missing
                return record
            if await consumer.position(place) > offset:
                raise missing
    raise missing
