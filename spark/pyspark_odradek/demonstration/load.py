"""Events into the topic, and what the topic then holds.

Events enter; acknowledged records leave. `demo` calls it. Invariant: `load` returns only after every event was
acknowledged by all in-sync replicas; the producer is idempotent, so a retried batch is there once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from odradek.base.errors import OdradekError, UnknownTopicOrPartitionError
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import SendResult
from odradek.client.settings import ClientSettings
from pyspark_odradek.demonstration.flights import Event

_CHUNK: Final = 4096
_UNDER_WAY: Final = 16
"""Chunks that may be unacknowledged; more would only wait in the producer's memory."""

_POLL_SECONDS: Final = 0.2


class TopicError(OdradekError):
    """The topic did not become ready."""


def settings(bootstrap: str) -> ClientSettings:
    """A producer that loses nothing and doubles nothing."""
    return ClientSettings.of(
        bootstrap,
        client_id="odradek-demo",
        acks="all",
        enable_idempotence=True,
        compression_type="lz4",
        linger_ms=20,
        batch_size=128 * 1024,
        buffer_memory=64 << 20,
    )


def wait_for_topic(client: BlockingClient, topic: str, *, timeout_seconds: float) -> int:
    """Wait until every partition has a leader and all its replicas; the number of partitions."""
    deadline = time.monotonic() + timeout_seconds
    state = "it does not exist"
    while time.monotonic() < deadline:
        try:
            described = client.admin.describe_topics([topic]).get(topic)
        except UnknownTopicOrPartitionError:
            described = None
        if described is not None and described.partitions:
            waiting = [
                part for part in described.partitions if part.leader == NO_BROKER or len(part.isr) < len(part.replicas)
            ]
            if not waiting:
                return len(described.partitions)
            state = f"{len(waiting)} of its {len(described.partitions)} partitions lack replicas"
        time.sleep(_POLL_SECONDS)
    raise TopicError(f"topic {topic} was not ready within {timeout_seconds:.0f} s: {state}")


def load(client: BlockingClient, topic: str, events: Sequence[Event], show: Callable[[int], None]) -> int:
    """Send all events in their order; `show` hears how many are acknowledged. Returns their number."""
    acknowledged = 0
    under_way: deque[Future[SendResult]] = deque()
    with client.producer() as producer:
        for start in range(0, len(events), _CHUNK):
            under_way.append(producer.send_many(topic, events[start : start + _CHUNK]))
            while under_way and (len(under_way) > _UNDER_WAY or under_way[0].done()):
                acknowledged += under_way.popleft().result().records
                show(acknowledged)
        producer.flush()
        for sent in under_way:
            acknowledged += sent.result().records
            show(acknowledged)
    return acknowledged


def count_records(client: BlockingClient, topic: str) -> int:
    """Offsets that the topic holds; with no compaction and no transaction that is its records."""
    partitions = [TopicPartition(topic, number) for number in client.partitions(topic)]
    first, following = client.earliest_offsets(partitions), client.latest_offsets(partitions)
    return sum(following[partition] - first[partition] for partition in partitions)
