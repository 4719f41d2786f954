"""Requests to brokers that have started and get no metadata, because the controller sends none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.base.errors import NONE, BrokerNotAvailableError, NetworkError
from odradek.network.channel import Channel, ChannelTimeouts
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.testing.waiting import wait_until
from odradek.zk.layout import CONTROLLER, ControllerRegistration
from odradek_testkit.broker_process import OdradekBroker

pytestmark = pytest.mark.java

NOBODY = 99
"""The id of a controller that does not exist."""

DESCRIBE_CLUSTER: Message = {"include_cluster_authorized_operations": False}
METADATA: Message = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}

LONG_MS = 120_000
REFUSALS = 50
"""With the default of three seconds, so many refused requests one after the other would take longer than `LONG_MS`."""


@pytest.fixture
def ensemble(odradek_zookeeper: str) -> Iterator[tuple[str, KazooClient]]:
    """A chroot in which a controller without a broker is active, and a client that can end it."""
    client = KazooClient(odradek_zookeeper)
    client.start()
    root = f"/{uuid4().hex}"
    client.create(f"{root}{CONTROLLER}", ControllerRegistration(broker_id=NOBODY).encode(), makepath=True)
    client.chroot = root
    yield f"{odradek_zookeeper}{root}", client
    client.stop()
    client.close()


@pytest.fixture
def launch(ensemble: tuple[str, KazooClient], tmp_path: Path) -> Iterator[Callable[[int, int], OdradekBroker]]:
    """Start a broker with an id and a setting, and wait until it accepts connections."""
    brokers = []

    def build(broker_id: int, wait_ms: int) -> OdradekBroker:
        properties = {"initial.metadata.wait.max.ms": str(wait_ms)}
        directory = tmp_path / str(broker_id)
        broker = OdradekBroker(directory, zookeeper=ensemble[0], properties=properties, broker_id=broker_id)
        brokers.append(broker)
        broker.launch()
        wait_until(lambda: "serves clients" in broker.log(), what="the listener")
        return broker

    yield build
    for broker in brokers:
        broker.stop(kill=True)


async def ask(port: int, api_key: ApiKey, message: Message) -> Any:
    """Return the response to a request on a connection of its own."""
    channel = await Channel.open("127.0.0.1", port, timeouts=ChannelTimeouts(request_ms=2 * LONG_MS))
    try:
        await channel.negotiate()
        return await channel.ask(api_key, channel.pick(api_key), message)
    finally:
        await channel.close()


def test_each_broker_waits_for_the_metadata_as_long_as_its_setting_allows(
    launch: Callable[[int, int], OdradekBroker], ensemble: tuple[str, KazooClient]
) -> None:
    impatient, patient = launch(0, 1), launch(1, LONG_MS)

    async def main() -> None:
        waiting = asyncio.ensure_future(ask(patient.port, ApiKey.DESCRIBE_CLUSTER, DESCRIBE_CLUSTER))
        for _ in range(REFUSALS):
            answer = await ask(impatient.port, ApiKey.DESCRIBE_CLUSTER, DESCRIBE_CLUSTER)
            assert answer.error_code == BrokerNotAvailableError.code
        with pytest.raises(NetworkError, match="closed"):
            await ask(impatient.port, ApiKey.METADATA, METADATA)
        assert not waiting.done()
        # One of the two brokers becomes the controller.
        await asyncio.to_thread(ensemble[1].delete, CONTROLLER)
        answer = await waiting
        assert answer.error_code == NONE
        assert answer.brokers

    asyncio.run(main())
