"""The metrics of clients: samples in virtual time, what producers and consumers record, and the export."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from odradek.base.errors import MessageTooLargeError, NotEnoughReplicasError
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.client.telemetry.client_metrics import ClientMetrics
from odradek.client.telemetry.prometheus_collector import ClientCollector
from odradek.protocol.apis import ApiKey
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", auto_offset_reset="earliest", batch_size=300)


def test_averages_and_rates_cover_the_last_two_windows() -> None:
    async def main() -> None:
        metrics = ClientMetrics(VirtualClock())
        metrics.declare(["record-send"], ["batch-size"])
        assert metrics.read()["record-send-rate"] == 0
        assert math.isnan(metrics.read()["batch-size-avg"])
        metrics.count("record-send", 60)
        metrics.measure("batch-size", 10)
        assert metrics.read()["record-send-rate"] == pytest.approx(2)
        await asyncio.sleep(30)
        metrics.count("record-send", 30)
        metrics.measure("batch-size", 20)
        found = metrics.read()
        assert (found["batch-size-avg"], found["batch-size-max"]) == (15, 20)
        assert found["record-send-rate"] == pytest.approx(3)
        await asyncio.sleep(30)
        found = metrics.read()
        assert (found["batch-size-avg"], found["record-send-total"]) == (20, 90)
        assert found["record-send-rate"] == pytest.approx(1)
        await asyncio.sleep(90)
        found = metrics.read()
        assert math.isnan(found["batch-size-max"])
        assert (found["record-send-rate"], found["record-send-total"]) == (0, 90)
        metrics.count("unknown")
        metrics.measure("unknown", 1)
        assert "unknown-total" not in metrics.read()

    run_virtual(main())


def test_a_producer_counts_records_retries_and_errors(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with Producer(SETTINGS, clock=VirtualClock(), connect=cluster.connect) as producer:
            before = producer.metrics()
            assert (before["record-send-total"], before["connection-count"]) == (0, 1)
            cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=NotEnoughReplicasError.code))
            await producer.send_and_wait("t", b"0")
            cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=MessageTooLargeError.code))
            with pytest.raises(MessageTooLargeError):
                await producer.send_and_wait("t", b"1")
            found = producer.metrics()
            assert found.keys() == before.keys()
            assert (found["record-send-total"], found["record-retry-total"], found["record-error-total"]) == (3, 1, 1)
            assert found["request-latency-avg"] == pytest.approx(1, abs=0.5)
            assert found["records-per-request-avg"] == 1
            assert found["byte-total"] == pytest.approx(3 * found["batch-size-avg"])
            assert (found["requests-in-flight"], found["buffer-available-bytes"]) == (0, SETTINGS.buffer_memory)

    run_virtual(main())


def test_a_consumer_counts_records_and_knows_its_lag(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    cluster.answers[ApiKey.OFFSET_COMMIT] = lambda request: {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 0}]}]
    }

    async def main() -> None:
        clock = VirtualClock()
        async with Producer(SETTINGS, clock=clock, connect=cluster.connect) as producer:
            await producer.send_many("t", [(None, b"%d" % number, 1) for number in range(10)])
        settings = SETTINGS.replace(group_id="g", enable_auto_commit=False)
        async with Consumer(settings, clock=clock, connect=cluster.connect) as consumer:
            assert math.isnan(consumer.metrics()["records-lag-max"])
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 0)
            assert len((await consumer.getmany(timeout_ms=1_000, max_records=4))[TopicPartition("t", 0)]) == 4
            await consumer.commit()
            found = consumer.metrics()
            assert (found["records-consumed-total"], found["records-lag-max"], found["assigned-partitions"]) == (
                4,
                6,
                1,
            )
            assert found["commit-total"] == 1
            assert found["commit-latency-avg"] == pytest.approx(1, abs=0.5)
            assert found["fetch-total"] >= 1
            assert found["bytes-consumed-total"] > 10
            assert found["records-per-poll-max"] == 4

    run_virtual(main())


def test_the_guide_has_every_metric(fakes: Any) -> None:
    guide = (Path(__file__).parents[5] / "docs/python.md").read_text(encoding="utf-8")

    async def main() -> None:
        cluster = fakes.cluster({})
        producer = Producer(SETTINGS, clock=VirtualClock(), connect=cluster.connect)
        consumer = Consumer(SETTINGS, clock=VirtualClock(), connect=cluster.connect)
        for name in (*producer.metrics(), *consumer.metrics()):
            assert re.search(rf"`{re.sub('-(total|rate|avg|max)$', '', name)}(-max|-avg|-total)?`", guide), name

    run_virtual(main())


def test_the_collector_exports_the_metrics_of_each_client(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with (
            Producer(SETTINGS, clock=VirtualClock(), connect=cluster.connect) as producer,
            Admin(SETTINGS, clock=VirtualClock(), connect=cluster.connect) as admin,
        ):
            await producer.send_and_wait("t", b"0")
            await admin.list_topics()
            registry = CollectorRegistry()
            registry.register(ClientCollector({"orders": producer, "tools": admin}))
            text = generate_latest(registry).decode()
        assert 'odradek_client_record_send_total{client="orders"} 1.0' in text
        assert 'odradek_client_request_total{client="tools"} 2.0' in text
        assert "# TYPE odradek_client_request_latency_avg gauge" in text
        assert "NaN" not in text

    run_virtual(main())
