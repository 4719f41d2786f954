"""A whole broker with a small `queued.max.request.bytes`: large requests wait for memory, small ones do not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from odradek import BlockingClient, ClientSettings, NewTopic
from odradek.network.channel import Channel
from odradek.network.request_memory import RequestMemory
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import encode_request
from odradek.testing.in_process import InProcessBroker
from odradek.testing.waiting import wait_until

LIMIT_BYTES: Final = 400_000
RECORD_BYTES: Final = 150_000
PRODUCERS: Final = 8


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    config = {"queued.max.request.bytes": LIMIT_BYTES, "socket.request.max.bytes": LIMIT_BYTES}
    broker = InProcessBroker(tmp_path, config)
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


def memory_of(broker: InProcessBroker) -> RequestMemory:
    assert broker._broker is not None
    memory = broker._broker._listeners.request_memory
    assert memory is not None
    return memory


def begin_request(bootstrap: str) -> socket.socket:
    """Send the beginning of a request that is almost as large as the limit."""
    host, _, port = bootstrap.partition(":")
    connection = socket.create_connection((host, int(port)))
    records = {"name": "t", "partition_data": [{"index": 0, "records": bytes(LIMIT_BYTES - 1_000)}]}
    message = {"transactional_id": None, "acks": 1, "timeout_ms": 1, "topic_data": [records]}
    connection.sendall(encode_request(ApiKey.PRODUCE, 3, 1, "slow", message)[:1_000])
    return connection


async def ask_versions(bootstrap: str) -> int:
    """Return the number of APIs that the broker announces on a new connection."""
    host, _, port = bootstrap.partition(":")
    channel = await Channel.open(host, int(port))
    try:
        return len(await channel.negotiate())
    finally:
        await channel.close()


def test_producers_wait_for_memory_and_all_records_are_acknowledged(broker: InProcessBroker) -> None:
    memory = memory_of(broker)
    settings = ClientSettings.of(broker.bootstrap, batch_size=1, acks="all")
    with ExitStack() as stack:
        clients = [stack.enter_context(BlockingClient(settings)) for _ in range(PRODUCERS)]
        with clients[0].admin as admin:
            admin.create_topics([NewTopic(name="t", partitions=1)])
        slow = [begin_request(broker.bootstrap) for _ in range(2)]
        for connection in slow:
            stack.callback(connection.close)
        wait_until(
            lambda: memory.used_bytes > LIMIT_BYTES, what="two requests that use more than the limit", seconds=60
        )

        producers = [stack.enter_context(client.producer()) for client in clients]
        sent = [producer.send("t", bytes(RECORD_BYTES)) for _ in range(3) for producer in producers]
        wait_until(lambda: memory.waiting == PRODUCERS, what="producers that wait for memory", seconds=60)
        assert asyncio.run(ask_versions(broker.bootstrap)) > 20
        assert not any(future.done() for future in sent)

        for connection in slow:
            connection.close()
        assert sorted(future.result(60).offset for future in sent) == list(range(3 * PRODUCERS))
        # A client has its answer a moment before the broker releases the memory of the request.
        wait_until(lambda: (memory.used_bytes, memory.waiting) == (0, 0), what="the release of the memory", seconds=60)
        assert memory.depleted_ms > 0
