"""Sends the events to the topic and counts its records.

Invariant: `load` returns after all in-sync replicas have acknowledged every event. The producer is idempotent, so
retries cause no duplicates.
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
from odradek_demo.flights import Event

_CHUNK: Final = 4096
_IN_FLIGHT: Final = 16
"""Maximum number of unacknowledged chunks; more would only wait in the buffer of the producer."""

_POLL_SECONDS: Final = 0.2


class TopicError(OdradekError):
    """The topic did not become ready."""


def settings(bootstrap: str) -> ClientSettings:
    """Return settings of a producer that neither loses nor duplicates records."""
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
    """Wait until every partition has a leader and all replicas in sync. Returns the number of partitions."""
    deadline = time.monotonic() + timeout_seconds
    state = "the topic does not exist"
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
            state = f"{len(waiting)} of {len(described.partitions)} partitions have replicas that are not in sync"
        time.sleep(_POLL_SECONDS)
    raise TopicError(f"topic {topic} was not ready within {timeout_seconds:.0f} s: {state}")


def load(client: BlockingClient, topic: str, events: Sequence[Event], show: Callable[[int], None]) -> int:
    """Send all events in order; call `show` with the number acknowledged so far. Returns the total."""
    acknowledged = 0
    in_flight: deque[Future[SendResult]] = deque()
    with client.producer() as producer:
        for start in range(0, len(events), _CHUNK):
            in_flight.append(producer.send_many(topic, events[start : start + _CHUNK]))
            while in_flight and (len(in_flight) > _IN_FLIGHT or in_flight[0].done()):
                acknowledged += in_flight.popleft().result().records
                show(acknowledged)
        producer.flush()
        for sent in in_flight:
            acknowledged += sent.result().records
            show(acknowledged)
    return acknowledged


def count_records(client: BlockingClient, topic: str) -> int:
    """Return the number of offsets in the topic, which equals the records without compaction and transactions."""
    partitions = [TopicPartition(topic, number) for number in client.partitions(topic)]
    first, following = client.earliest_offsets(partitions), client.latest_offsets(partitions)
    return sum(following[partition] - first[partition] for partition in partitions)
