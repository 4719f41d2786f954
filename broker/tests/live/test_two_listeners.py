"""Brokers with one listener for clients and one for brokers: accepted requests, and restarts with another address."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.base.errors import ClusterAuthorizationFailedError
from odradek.network.channel import Channel
from odradek.protocol.apis import ApiKey
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker

pytestmark = pytest.mark.java

Make = Callable[[int], tuple[OdradekBroker, int]]


@pytest.fixture
def make(odradek_zookeeper: str, tmp_path: Path) -> Iterator[Make]:
    """Create a broker with an id on new ports, and its metrics port. If it is created again, it has the same data."""
    root, brokers = f"{odradek_zookeeper}/{uuid4().hex}", []

    def build(broker_id: int) -> tuple[OdradekBroker, int]:
        client, between, metrics = free_ports(3)
        properties = {
            "listeners": f"CLIENTS://127.0.0.1:{client},BETWEEN://127.0.0.1:{between}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BETWEEN:PLAINTEXT",
            "inter.broker.listener.name": "BETWEEN",
            "zookeeper.session.timeout.ms": "6000",
            "metrics.port": str(metrics),
        }
        directory = tmp_path / str(broker_id)
        broker = OdradekBroker(directory, zookeeper=root, properties=properties, broker_id=broker_id, port=client)
        brokers.append(broker)
        return broker, metrics

    yield build
    for broker in brokers:
        broker.stop(kill=True)


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def produce(port: int) -> bool:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "acks": "all", "log_level": 0})
    errors: list[object] = []
    for number in range(20):
        producer.produce("t", str(number), on_delivery=lambda error, _: errors.append(error) if error else None)
    return producer.flush(30) == 0 and not errors


def leaders(admin: AdminClient) -> set[int]:
    return {part.leader for part in admin.list_topics("t", timeout=5).topics["t"].partitions.values()}


async def code_of_update(port: int) -> int:
    channel = await Channel.open("127.0.0.1", port, client_id="stranger")
    try:
        await channel.negotiate()
        sender = {"controller_id": 0, "controller_epoch": 2**31 - 1, "broker_epoch": -1}
        request = {**sender, "topic_states": [], "live_brokers": []}
        answer = await channel.ask(ApiKey.UPDATE_METADATA, channel.pick(ApiKey.UPDATE_METADATA), request)
        return int(answer.error_code)
    finally:
        await channel.close()


def test_requests_between_brokers_use_the_inter_broker_listener_only(make: Make) -> None:
    (first, _), (second, _) = make(0), make(1)
    first.start()
    second.start()
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{first.port}", "log_level": 0})
    wait_until(lambda: len(admin.list_topics(timeout=5).brokers) == 2, what="both brokers")
    admin.create_topics([NewTopic("t", 2, 2)])["t"].result(30)
    assert produce(first.port)
    assert asyncio.run(code_of_update(first.port)) == ClusterAuthorizationFailedError.code
    second.stop()
    wait_until(lambda: leaders(admin) == {0}, what="the leadership of the remaining broker")
    assert produce(first.port)


def test_a_broker_with_another_address_waits_for_the_session_of_its_previous_run(make: Make) -> None:
    broker, _ = make(0)
    broker.start()
    broker.stop(kill=True)
    again, metrics = make(0)
    seen: set[tuple[int, int]] = set()

    def has_started() -> bool:
        seen.add((status(metrics, "/livez"), status(metrics, "/readyz")))
        return (200, 200) in seen

    again.launch()
    wait_until(has_started, what="the start with the same id")
    assert (200, 503) in seen
    assert not again.errors()
