"""Sending of records: what is passed to the producer, the rate, and the counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.cli.records.record_input import OutgoingRecord
from odradek.cli.records.sending import RecordSender, SendOptions, Summary
from odradek.client.models import BatchMetadata, RecordMetadata, SendResult
from odradek_testkit.loop import run_virtual


class RecordingProducer:
    """Keeps what it is asked to send, with the time, and acknowledges it at once."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.times: list[float] = []

    async def send_many(self, topic: str, records: list[Any], *, partition: int | None) -> asyncio.Future[SendResult]:
        loop = asyncio.get_running_loop()
        self.sent += [(*record, partition, ()) for record in records]
        self.times += [loop.time()] * len(records)
        done: asyncio.Future[SendResult] = loop.create_future()
        done.set_result(SendResult(len(records), (BatchMetadata(topic, 0, 0, len(records), -1),)))
        return done

    async def send(self, topic: str, value: bytes | None, **given: Any) -> asyncio.Future[RecordMetadata]:
        loop = asyncio.get_running_loop()
        self.sent.append((given["key"], value, given["timestamp_ms"], given["partition"], given["headers"]))
        self.times.append(loop.time())
        done: asyncio.Future[RecordMetadata] = loop.create_future()
        done.set_result(RecordMetadata(topic, given["partition"] or 0, len(self.sent) - 1, -1))
        return done

    async def flush(self) -> None:
        """Do nothing: all is acknowledged."""


def sent(records: list[OutgoingRecord], **options: Any) -> tuple[RecordingProducer, Summary]:
    producer = RecordingProducer()

    async def work() -> Summary:
        sender = RecordSender(producer, SendOptions(topic="t", **options))  # type: ignore[arg-type]
        await sender.send(records)
        return await sender.finish()

    return producer, run_virtual(work())


def test_options_complete_the_records() -> None:
    records = [
        OutgoingRecord(None, b"a"),
        OutgoingRecord(b"k", b"b", (("own", b"1"),), timestamp_ms=7, partition=4),
    ]
    producer, summary = sent(records, key=b"all", headers=(("h", b"x"),), timestamp_ms=5)
    assert producer.sent == [
        (b"all", b"a", 5, None, (("h", b"x"),)),
        (b"k", b"b", 7, 4, (("own", b"1"), ("h", b"x"))),
    ]
    assert summary.records == 2
    assert sent(records, partition=1)[0].sent[1][3] == 1


def test_records_without_headers_are_sent_together() -> None:
    producer, summary = sent([OutgoingRecord(b"k", None), OutgoingRecord(None, b"b", (), 7)], timestamp_ms=5)
    assert producer.sent == [(b"k", None, 5, None, ()), (None, b"b", 7, None, ())]
    assert summary.value("t", 0)["partitions"] == {"0": {"first_offset": 0, "last_offset": 1}}


@pytest.mark.parametrize(("rate", "seconds"), [(10.0, 9.9), (100.0, 0.95), (0.5, 198.0)])
def test_a_rate_spreads_the_records_over_time(rate: float, seconds: float) -> None:
    producer, summary = sent([OutgoingRecord(None, b"v")] * 100, rate=rate)
    assert summary.records == 100
    assert producer.times[-1] - producer.times[0] == pytest.approx(seconds)
    assert sent([], rate=rate)[1].records == 0


def test_a_summary_counts_what_was_acknowledged() -> None:
    summary = Summary()
    summary.bytes = 12
    summary.add(SendResult(5, (BatchMetadata("t", 0, 10, 2, -1), BatchMetadata("t", 3, 7, 3, -1))))
    summary.add(SendResult(1, (BatchMetadata("t", 0, 12, 1, -1),)))
    summary.add(RecordMetadata("t", 3, 10, -1))
    # With acks=0, the offset is unknown.
    summary.add(RecordMetadata("t", 5, -1, -1))
    assert summary.value("t", 0.12345) == {
        "topic": "t",
        "records": 8,
        "bytes": 12,
        "seconds": 0.123,
        "partitions": {"0": {"first_offset": 10, "last_offset": 12}, "3": {"first_offset": 7, "last_offset": 10}},
    }
