"""Producing: Java's ProducerPerformance, without a limit or with a fixed rate, and many connections at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final, Self

from comparison import java_tools
from comparison.clients import calling
from comparison.figures import Figures
from comparison.processes import MEGABYTE
from comparison.waiting import pause
from comparison.wire import Address, Connection
from comparison.workloads.base import Bench, Workload, at_least, topic_of, topics_of

_TOPIC: Final = "load"
_ACKS: Final = {"1": 1, "all": -1}
"""Values in a Produce request."""
_ROUND_ROBIN: Final = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce(Workload):
    """ProducerPerformance with a new topic."""

    records: int
    record_bytes: int
    acks: str = "1"
    replicas: int = 1
    partitions: int = 6
    batch_bytes: int = 128 * 1024
    linger_ms: int = 5
    buffer_bytes: int = 64 << 20
    """Buffer memory of the client: with one record per batch, each needs far more memory than its bytes."""
    rate: int = -1
    """Records per second; -1 for no limit."""
    every_partition: bool = False
    """Send each record to the next partition, instead of each batch."""
    idle_connections: int = 0
    """Number of additional idle connections."""

    def scaled(self, scale: float) -> Self:
        return replace(self, records=at_least(2_000, self.records * scale))

    def prepare(self, bench: Bench) -> None:
        for _ in range(self.idle_connections):
            bench.until_end.enter_context(idle_connection(bench.system.first))

    def before(self, bench: Bench, number: int) -> None:
        os.sync()  # Otherwise the dirty pages of the last run would be written, and throttled, during this one.
        bench.system.create_topic(topic_of(number), self.partitions, replicas=self.replicas)

    def run(self, bench: Bench, number: int) -> Figures:
        settings = {
            "bootstrap.servers": bench.system.client_bootstrap,
            **bench.system.client_security,
            "acks": self.acks,
            "linger.ms": str(self.linger_ms),
            "batch.size": str(self.batch_bytes),
            "buffer.memory": str(self.buffer_bytes),
        }
        if self.every_partition:
            settings["partitioner.class"] = _ROUND_ROBIN
        figures = java_tools.produce(
            bench.jars,
            topic_of(number),
            settings,
            records=self.records,
            record_bytes=self.record_bytes,
            rate=self.rate,
            timeout=bench.timeout,
        )
        sizes = {"records": float(self.records), "megabytes": self.records * self.record_bytes / MEGABYTE}
        if self.rate < 0:
            return {**figures, **sizes}
        return {**sizes, **{name: value for name, value in figures.items() if not name.endswith("_per_s")}}

    def after(self, bench: Bench, number: int) -> None:
        bench.system.delete_topic(topic_of(number))


def idle_connection(address: Address) -> Connection:
    """Open a connection that sends one request and is then idle."""
    connection = Connection(address)
    connection.metadata([])
    return connection


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceBusy(Workload):
    """Many connections, each with a few requests of one record in flight."""

    requests: int
    connections: int
    window: int
    record_bytes: int
    partitions: int = 6
    replicas: int = 1
    acks: str = "1"
    keep_topics: bool = False
    """All runs use the same topics: thousands of partitions take longer to create and delete than a run."""

    def scaled(self, scale: float) -> Self:
        return replace(self, requests=at_least(10 * self.connections, self.requests * scale))

    def prepare(self, bench: Bench) -> None:
        if self.keep_topics:
            for name, size in topics_of(_TOPIC, self.partitions).items():
                bench.system.create_topic(name, size, replicas=self.replicas)

    def before(self, bench: Bench, number: int) -> None:
        os.sync()  # As in `Produce`.
        if not self.keep_topics:
            bench.system.create_topic(topic_of(number), self.partitions, replicas=self.replicas)

    def run(self, bench: Bench, number: int) -> Figures:
        host, port = bench.system.first
        wanted = {
            "host": host,
            "port": port,
            "topics": [*topics_of(_TOPIC, self.partitions)] if self.keep_topics else [topic_of(number)],
            "acks": _ACKS[self.acks],
            "requests": self.requests,
            "connections": self.connections,
            "window": self.window,
            "record_bytes": self.record_bytes,
        }
        return calling.run("busy", wanted, timeout=bench.timeout)

    def after(self, bench: Bench, number: int) -> None:
        if not self.keep_topics:
            bench.system.delete_topic(topic_of(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd(Workload):
    """EndToEndLatency: sends, acknowledges and consumes one record after the other."""

    records: int
    record_bytes: int
    acks: str
    replicas: int = 1

    def scaled(self, scale: float) -> Self:
        return replace(self, records=at_least(500, self.records * scale))

    def before(self, bench: Bench, number: int) -> None:
        bench.system.create_topic(topic_of(number), 1, replicas=self.replicas)

    def run(self, bench: Bench, number: int) -> Figures:
        return java_tools.end_to_end(
            bench.jars,
            bench.system.bootstrap,
            topic_of(number),
            records=self.records,
            acks=self.acks,
            record_bytes=self.record_bytes,
            timeout=bench.timeout,
        )

    def after(self, bench: Bench, number: int) -> None:
        bench.system.delete_topic(topic_of(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(Workload):
    """An idle time with existing partitions and connections."""

    seconds: float
    partitions: int = 0
    connections: int = 0

    def prepare(self, bench: Bench) -> None:
        if self.partitions:
            bench.system.create_topic("idle", self.partitions)
        for _ in range(self.connections):
            bench.until_end.enter_context(idle_connection(bench.system.first))

    def run(self, bench: Bench, number: int) -> Figures:
        pause(self.seconds)
        bench.system.check()
        return {}
