"""Sends the records of `odradek produce` and counts what was acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.client.models import RecordMetadata, SendResult

if TYPE_CHECKING:
    from odradek.cli.records.record_input import Headers, OutgoingRecord
    from odradek.client.producer.producer import Producer

_MAX_WAITING: Final = 10_000
"""Maximum number of unacknowledged sends. The producer also limits their memory."""
_PORTIONS_PER_SECOND: Final = 20
"""With a rate, the records of a second are sent in this many portions."""


@dataclass(slots=True)
class Summary:
    """Counts of sent records."""

    records: int = 0
    bytes: int = 0
    """Size of the input."""
    first_offsets: dict[int, int] = field(default_factory=dict)
    last_offsets: dict[int, int] = field(default_factory=dict)

    def add(self, delivered: SendResult | RecordMetadata) -> None:
        """Count acknowledged records. Offsets are unknown with acks=0."""
        if isinstance(delivered, RecordMetadata):
            self.records += 1
            self._range(delivered.partition, delivered.offset, delivered.offset)
            return
        self.records += delivered.records
        for batch in delivered.batches:
            self._range(batch.partition, batch.base_offset, batch.base_offset + batch.record_count - 1)

    def _range(self, partition: int, first: int, last: int) -> None:
        if first >= 0:
            self.first_offsets[partition] = min(first, self.first_offsets.get(partition, first))
            self.last_offsets[partition] = max(last, self.last_offsets.get(partition, last))

    def value(self, topic: str, seconds: float) -> dict[str, object]:
        """Return the counts for JSON."""
        return {
            "topic": topic,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(seconds, 3),
            "partitions": {
                str(partition): {"first_offset": self.first_offsets[partition], "last_offset": last}
                for partition, last in sorted(self.last_offsets.items())
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """What applies to all records of the command."""

    topic: str
    partition: int | None = None
    """Precedes that of a record; None: that of the record, else the partitioner chooses."""
    key: bytes | None = None
    """Key of records that have none."""
    headers: Headers = ()
    """Headers in addition to those of each record."""
    timestamp_ms: int | None = None
    """Timestamp of records that have none; None: the present time."""
    rate: float | None = None
    """Maximum number of records per second; None: no limit."""


class RecordSender:
    """Sends records in their order. Call `finish` at the end."""

    def __init__(self, producer: Producer, options: SendOptions) -> None:
        """Create a sender; the producer is started and closed by the caller."""
        self.summary: Final = Summary()
        self._producer: Final = producer
        self._options: Final = options
        self._waiting: deque[asyncio.Future[SendResult] | asyncio.Future[RecordMetadata]] = deque()
        self._began: float | None = None
        self._sent = 0

    async def send(self, records: Sequence[OutgoingRecord]) -> None:
        """Buffer records. Waits if too many are unacknowledged, or for the rate. Raises the errors of the producer."""
        for portion in self._portions(records):
            await self._wait_for_rate(len(portion))
            if self._options.headers or any(record.headers or record.partition is not None for record in portion):
                for record in portion:
                    await self._send_one(record)
            else:
                await self._send_many(portion)

    async def finish(self) -> Summary:
        """Send everything, wait for all acknowledgements and return the counts. Raises the errors of the producer."""
        await self._producer.flush()
        await self._count(0)
        return self.summary

    def _portions(self, records: Sequence[OutgoingRecord]) -> Iterator[Sequence[OutgoingRecord]]:
        rate = self._options.rate
        size = len(records) if rate is None else max(1, int(rate / _PORTIONS_PER_SECOND))
        return (records[start : start + size] for start in range(0, len(records), size)) if records else iter(())

    async def _wait_for_rate(self, count: int) -> None:
        """Wait until as much time has passed since the first record as the records before this one need."""
        rate = self._options.rate
        if rate is not None:
            loop_time = asyncio.get_running_loop().time
            if self._began is None:
                self._began = loop_time()
            due = self._began + self._sent / rate
            if due > loop_time():
                await asyncio.sleep(due - loop_time())
            self._sent += count

    async def _send_many(self, records: Sequence[OutgoingRecord]) -> None:
        options = self._options
        now = time.time_ns() // 1_000_000 if options.timestamp_ms is None else options.timestamp_ms
        bulk = [
            (
                options.key if record.key is None else record.key,
                record.value,
                now if record.timestamp_ms is None else record.timestamp_ms,
            )
            for record in records
        ]
        await self._await_room(await self._producer.send_many(options.topic, bulk, partition=options.partition))

    async def _send_one(self, record: OutgoingRecord) -> None:
        options = self._options
        delivered = await self._producer.send(
            options.topic,
            record.value,
            key=options.key if record.key is None else record.key,
            partition=record.partition if options.partition is None else options.partition,
            timestamp_ms=options.timestamp_ms if record.timestamp_ms is None else record.timestamp_ms,
            headers=(*record.headers, *options.headers),
        )
        await self._await_room(delivered)

    async def _await_room(self, delivered: asyncio.Future[SendResult] | asyncio.Future[RecordMetadata]) -> None:
        self._waiting.append(delivered)
        await self._count(_MAX_WAITING)

    async def _count(self, most: int) -> None:
        """Count acknowledged sends from the first one on, and wait until at most `most` are not."""
        while self._waiting and (self._waiting[0].done() or len(self._waiting) > most):
            self.summary.add(await self._waiting.popleft())
