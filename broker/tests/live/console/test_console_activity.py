"""The console while a broker hangs: a reassignment that cannot continue, then a broker that is down, then neither."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from odradek import Admin, NewTopic, Producer, TopicPartition
from odradek.console.console_server import ConsoleServer
from odradek.console.console_settings import ConsoleSettings
from odradek.testing.plugin import ClusterFactory

pytestmark = [pytest.mark.java, pytest.mark.slow]


async def until(url: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Load the activity until it fulfils the condition."""
    async with aiohttp.ClientSession() as http, asyncio.timeout(120):
        while True:
            async with http.get(f"{url}api/activity") as response:
                found = await response.json()
                # While a broker hangs, a request may fail.
                if response.status == 200 and condition(found):
                    return dict(found)
                assert response.status in (200, 503), found


async def test_a_reassignment_and_a_broker_that_is_down(odradek_cluster_factory: ClusterFactory) -> None:
    cluster = odradek_cluster_factory(brokers=3)
    place = TopicPartition("orders", 0)
    server = ConsoleServer(ConsoleSettings(properties={"bootstrap.servers": cluster.bootstrap}, port=0))
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        controller = (await admin.describe_cluster()).controller_id
        one, hanging = [broker for broker in (0, 1, 2) if broker != controller]
        await admin.create_topics([NewTopic(name="orders", assignments=((one,),))])
        await producer.send_and_wait("orders", b"x" * 1000)
        await server.start()
        try:
            cluster.pause(hanging)
            await admin.alter_partition_reassignments({place: [one, hanging]})
            moving = await until(server.url, lambda found: bool(found["reassignments"]))
            (row,) = moving["reassignments"]
            assert (row["topic"], row["partition"], row["adding"]) == ("orders", 0, [hanging])
            assert row["in_sync"] == [one]
            assert row["percent"] in (0, None)

            down = await until(server.url, lambda found: bool(found["missing_brokers"]))
            assert down["missing_brokers"] == [hanging]
            assert ("orders", [hanging]) in [(each["topic"], each["missing"]) for each in down["out_of_sync"]]
            cluster.resume(hanging)
            parts = ("reassignments", "missing_brokers", "out_of_sync")
            await until(server.url, lambda found: all(found[part] == [] for part in parts))
        finally:
            await server.close()
