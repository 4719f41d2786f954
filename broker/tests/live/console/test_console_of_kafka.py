"""The console shows a cluster of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.console.console_server import ConsoleServer
from odradek.console.console_settings import ConsoleSettings
from odradek_testkit.interop.apache import KraftBroker, jars

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.slow]

PROPERTIES = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(params=["3.9.1", "4.1.0"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of a broker of each version."""
    folder = jars(request.param, Path(request.config.rootpath) / ".interop")
    broker = KraftBroker(folder, tmp_path, properties=PROPERTIES, heap="384m")
    broker.start()
    try:
        yield f"127.0.0.1:{broker.port}"
    finally:
        broker.stop()


async def test_every_page_shows_apache_kafka(kafka: str) -> None:
    server = ConsoleServer(ConsoleSettings(properties={"bootstrap.servers": kafka}, port=0))
    async with Admin(kafka) as admin, Producer(kafka) as producer:
        await admin.create_topics([NewTopic(name="orders", partitions=1, replication_factor=1)])
        await producer.send_and_wait("orders", b'{"id": 7}')
        await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
    await server.start()
    try:
        async with aiohttp.ClientSession(server.url) as http, Consumer(kafka, "orders", group_id="billing") as consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)

            async def ask(path: str) -> dict[str, object]:
                async with http.get(path) as page:
                    assert page.status == 200, await page.text()
                async with http.get(f"/api{'/overview' if path == '/' else path}") as response:
                    found = await response.json()
                    assert response.status == 200 and found.get("notes", []) == [], found
                    return dict(found)

            for path in ("/", "/brokers", "/brokers/1", "/topics", "/groups", "/activity"):
                await ask(path)
            (partition,) = (await ask("/topics/orders"))["partitions"]  # type: ignore[misc]
            assert (partition["leader"], partition["end_offset"]) == (1, 1)
            (record,) = (await ask("/topics/orders/messages?path=$.id&equals=7"))["records"]  # type: ignore[misc]
            assert record["value"]["text"] == '{"id": 7}'
            group = await ask("/group?id=billing")
            assert (group["state"], len(group["members"])) == ("Stable", 1)  # type: ignore[arg-type]
    finally:
        await server.close()
