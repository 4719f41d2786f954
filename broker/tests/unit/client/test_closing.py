"""The time limits of flush and close, with an in-memory cluster in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.base.errors import (
    ConfigError,
    CoordinatorLoadInProgressError,
    NetworkError,
    RequestTimedOutError,
)
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", group_id="g")


def producer_of(cluster: Any) -> Producer:
    return Producer(SETTINGS, clock=VirtualClock(), connect=cluster.connect)


def test_flush_raises_after_its_time_limit_and_the_records_are_sent_all_the_same(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with producer_of(cluster) as producer:
            await producer.send_and_wait("t", b"0")
            cluster.held = asyncio.Event()
            sent = await producer.send("t", b"1")
            with pytest.raises(RequestTimedOutError, match="after 50 ms"):
                await producer.flush(timeout_ms=50)
            with pytest.raises(ConfigError, match="timeout_ms=-1"):
                await producer.flush(timeout_ms=-1)
            cluster.held.set()
            await producer.flush(timeout_ms=1_000)
            assert sent.result().offset == 1
            await producer.flush(timeout_ms=0)

    run_virtual(main())


@pytest.mark.parametrize("timeout_ms", [0, 50])
def test_close_fails_what_is_not_acknowledged_in_time(fakes: Any, timeout_ms: float) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        producer = producer_of(cluster)
        await producer.start()
        await producer.send_and_wait("t", b"0")
        cluster.held = asyncio.Event()
        sent = await producer.send("t", b"1")
        flushed = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        await producer.close(timeout_ms=timeout_ms)
        with pytest.raises(NetworkError, match="closed before the record was acknowledged"):
            await sent
        await flushed
        await producer.close(timeout_ms=timeout_ms)

    run_virtual(main())
    assert cluster.open_links == 0


def test_a_consumer_that_cannot_leave_its_group_is_closed_in_time(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    cluster.answers[ApiKey.OFFSET_COMMIT] = lambda request: {
        "topics": [
            {"name": "t", "partitions": [{"partition_index": 0, "error_code": CoordinatorLoadInProgressError.code}]}
        ]
    }

    async def main() -> None:
        consumer = Consumer(SETTINGS, clock=VirtualClock(), connect=cluster.connect)
        await consumer.start()
        loop = asyncio.get_running_loop()
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        before = loop.time()
        await consumer.close(timeout_ms=500)
        assert loop.time() - before == pytest.approx(0.5, abs=0.1)

    run_virtual(main())
    assert cluster.open_links == 0


def admin_of(cluster: Any) -> Admin:
    return Admin(SETTINGS, clock=VirtualClock(), connect=cluster.connect)


def test_an_admin_client_waits_for_its_calls_and_refuses_new_ones(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        admin = admin_of(cluster)
        await admin.start()
        cluster.held = asyncio.Event()
        listed = asyncio.ensure_future(admin.list_topics())
        await asyncio.sleep(0.01)
        closed = asyncio.ensure_future(admin.close())
        await asyncio.sleep(0.01)
        with pytest.raises(NetworkError, match="the client is closed"):
            await admin.list_topics()
        assert not closed.done()
        cluster.held.set()
        assert await listed == ["t"]
        await closed
        await admin.close()

    run_virtual(main())
    assert cluster.open_links == 0


def test_calls_of_an_admin_client_fail_when_it_is_closed_in_time(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    cluster.answers[ApiKey.DESCRIBE_CLUSTER] = lambda request: {
        "error_code": RequestTimedOutError.code,
        "cluster_id": "fake",
        "controller_id": 1,
        "brokers": [],
    }

    async def main() -> None:
        admin = admin_of(cluster)
        await admin.start()
        described = asyncio.ensure_future(admin.describe_cluster())
        await asyncio.sleep(0.01)
        await admin.close(timeout_ms=300)
        with pytest.raises(RequestTimedOutError, match="closed before the call ended"):
            await described

    run_virtual(main())
    assert cluster.open_links == 0
