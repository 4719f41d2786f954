"""Runs the measurements of `odradek perf` with the client library."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.cli.perf.meter import Meter, Pace
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import RawFetch, SendResult
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.records.formats import iterate_entries

_POLL_MS: Final = 500.0
GROUP_RECORDS: Final = 200
"""Records that are sent with one call if the throughput is not limited."""
_GROUPS_IN_FLIGHT: Final = 100
"""Groups that are not acknowledged yet, at most. More would only wait in the buffer of the producer."""

Report = Callable[[Meter], None]
"""Gets the meter while a run is in progress."""


class MeasurementError(OdradekError):
    """A measurement did not end as it should."""


async def produce(
    settings: ClientSettings, topic: str, *, records: int, payload: bytes, rate: float | None, report: Report
) -> Meter:
    """Send records with the same value, and measure the time until each is acknowledged.

    With `rate`, at most so many records are sent per second, one by one. Otherwise they are sent in groups of
    `GROUP_RECORDS`, and a record is acknowledged with the last one of its group. Raises the first error of a record.
    """
    async with Producer(settings) as producer:
        await producer.partitions_for(topic)
        load = _Load(producer, topic, payload)
        pace = None if rate is None else Pace(rate, time.monotonic())
        left = records
        while left and not load.failures:
            if pace is not None and (wait := pace.next(time.monotonic())):
                await asyncio.sleep(wait)
            count = min(left, GROUP_RECORDS if pace is None else 1)
            await load.send(count)
            left -= count
            report(load.meter)
        await producer.flush()
        if load.failures:
            raise load.failures[0]
        return load.meter


class _Load:
    """Sends records and measures their latencies."""

    def __init__(self, producer: Producer, topic: str, payload: bytes) -> None:
        self._producer = producer
        self._topic = topic
        self._payload = payload
        self._room = asyncio.Semaphore(_GROUPS_IN_FLIGHT)
        self.meter = Meter(time.monotonic())
        self.failures: list[BaseException] = []

    async def send(self, count: int) -> None:
        """Send a group of records. Waits while too many groups are not acknowledged."""
        await self._room.acquire()
        group = [(None, self._payload, time.time_ns() // 1_000_000)] * count
        sent = time.monotonic()
        delivered = await self._producer.send_many(self._topic, group)
        delivered.add_done_callback(partial(self._done, sent))

    def _done(self, sent: float, future: asyncio.Future[SendResult]) -> None:
        self._room.release()
        error = future.exception()
        if error is not None:
            self.failures.append(error)
            return
        now, count = time.monotonic(), future.result().records
        self.meter.latencies.add((now - sent) * 1000, count)
        self.meter.add(count, count * len(self._payload), now)


async def consume(settings: ClientSettings, topic: str, *, records: int, idle_ms: float, report: Report) -> Meter:
    """Read all partitions from the first offset, as whole batches, until so many records were read.

    Ends earlier if no records arrive for `idle_ms`. Records are counted by the headers of their batches, and bytes as
    they are in the log: compressed batches stay compressed. With `group_id`, the consumer joins the group.
    """
    async with Consumer(settings) as consumer:
        if settings.group_id is None:
            consumer.assign(await _partitions(settings, topic))
        else:
            consumer.subscribe([topic])
        meter = Meter(time.monotonic())
        last = time.monotonic()
        while meter.records < records:
            fetched = await consumer.getmany_raw(timeout_ms=min(_POLL_MS, idle_ms))
            now = time.monotonic()
            for fetch in fetched:
                meter.add(*_counted(fetch), now)
                last = now
            report(meter)
            if (now - last) * 1000 >= idle_ms:
                break
        return meter


async def _partitions(settings: ClientSettings, topic: str) -> list[TopicPartition]:
    async with Admin(settings) as admin:
        described = (await admin.describe_topics([topic]))[topic]
    return [TopicPartition(topic, part.partition) for part in described.partitions]


def _counted(fetch: RawFetch) -> tuple[int, int]:
    """Return the number of records in a fetch, without those below the requested offset, and its bytes."""
    count = 0
    for _, header in iterate_entries(fetch.records):
        if header.is_control:
            continue
        # Only the first batch can begin below the requested offset. Without compaction, offsets have no gaps.
        below = max(0, fetch.fetch_offset - header.base_offset)
        count += max(0, header.record_count - below)
    return count, len(fetch.records)


async def round_trips(
    producer_settings: ClientSettings,
    consumer_settings: ClientSettings,
    topic: str,
    *,
    records: int,
    payload: bytes,
    timeout_ms: float,
    report: Report,
) -> Meter:
    """Send one record after the other, and measure the time until a consumer has it.

    Raises `MeasurementError` if a record does not arrive within `timeout_ms`.
    """
    async with _reader(consumer_settings, topic) as consumer, Producer(producer_settings) as producer:
        await producer.partitions_for(topic)
        meter = Meter(time.monotonic())
        for number in range(records):
            value = b"%016x" % number + payload
            sent = time.monotonic()
            written = await producer.send_and_wait(topic, value)
            name = TopicPartition(topic, written.partition)
            await _arrival(consumer, name, written.offset, sent + timeout_ms / 1000)
            now = time.monotonic()
            meter.latencies.add((now - sent) * 1000)
            meter.add(1, len(value), now)
            report(meter)
        return meter


@asynccontextmanager
async def _reader(settings: ClientSettings, topic: str) -> AsyncIterator[Consumer]:
    """Yield a consumer at the ends of all partitions."""
    async with Consumer(settings) as consumer:
        partitions = await _partitions(settings, topic)
        consumer.assign(partitions)
        for name, offset in (await consumer.end_offsets(partitions)).items():
            consumer.seek(name, offset)
        yield consumer


async def _arrival(consumer: Consumer, name: TopicPartition, offset: int, deadline: float) -> None:
    """Return when the consumer has the record at an offset."""
    while True:
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0:
            raise MeasurementError(f"the record at offset {offset} of {name} did not arrive in time: see --timeout")
        for records in (await consumer.getmany(timeout_ms=min(_POLL_MS, left_ms))).values():
            if any(record.offset >= offset and record.partition == name.partition for record in records):
                return
