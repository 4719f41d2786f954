"""Consuming: Java's ConsumerPerformance and librdkafka, from memory and from disk; consumers in different segments; an
old consumer and producer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Self

from comparison import java_tools, loading, page_cache
from comparison.clients import calling
from comparison.figures import Figures
from comparison.workloads.base import Bench, Workload, at_least, topic_of

TOPIC: Final = "full"
COLD_SHARE: Final = 0.05
"""Maximum fraction of a cold log in memory, because the kernel reads ahead again."""


class Reader(Enum):
    """The client that reads."""

    JAVA = "java"
    LIBRDKAFKA = "librdkafka"
    OLD = "old"
    """A client with Fetch 3, for which the broker down-converts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume(Workload):
    """One consumer reads all records from the beginning."""

    reader: Reader
    records: int
    record_bytes: int
    batch_records: int
    """Number of records in each batch."""
    partitions: int = 6
    cold: bool = False
    """Whether the log is evicted from the page cache before each run."""

    def scaled(self, scale: float) -> Self:
        return replace(self, records=at_least(20_000, self.records * scale))

    def prepare(self, bench: Bench) -> None:
        bench.system.create_topic(TOPIC, self.partitions)
        loading.fill(
            bench.system.first,
            TOPIC,
            self.partitions,
            records=self.records,
            record_bytes=self.record_bytes,
            batch_records=self.batch_records,
        )

    def before(self, bench: Bench, number: int) -> None:
        if not self.cold:
            return
        files = page_cache.log_files(bench.system.log_folders)
        page_cache.drop(files)
        share = page_cache.cached_share(files)
        if share > COLD_SHARE:
            raise RuntimeError(f"{share:.0%} of the log are still in the page cache")

    def run(self, bench: Bench, number: int) -> Figures:
        system, host_port = bench.system, bench.system.first
        if self.reader is Reader.JAVA:
            return java_tools.consume(
                bench.jars,
                system.client_bootstrap,
                TOPIC,
                security=system.client_security,
                group=topic_of(number),
                records=self.records,
                timeout=bench.timeout,
            )
        wanted = {
            "bootstrap": system.client_bootstrap,
            "authority": system.client_security.get("ssl.truststore.location"),
            "host": host_port.host,
            "port": host_port.port,
            "topic": TOPIC,
            "partitions": self.partitions,
            "records": self.records,
        }
        client = "librdkafka" if self.reader is Reader.LIBRDKAFKA else "old_consumer"
        return calling.run(client, wanted, timeout=bench.timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeBehind(Workload):
    """Two consumers of one partition read the first and the third quarter of its log in turn, with small fetches.

    The log must have at least four segments; then the consumers are always in different ones, and none is in the last.
    """

    records: int
    record_bytes: int
    batch_records: int
    fetch_bytes: int
    least_records: int
    """Number of records that fill four segments."""

    def scaled(self, scale: float) -> Self:
        return replace(self, records=at_least(self.least_records, self.records * scale))

    def prepare(self, bench: Bench) -> None:
        bench.system.create_topic(TOPIC, 1)
        loading.fill(
            bench.system.first,
            TOPIC,
            1,
            records=self.records,
            record_bytes=self.record_bytes,
            batch_records=self.batch_records,
        )

    def run(self, bench: Bench, number: int) -> Figures:
        quarter = self.records // 4 // self.batch_records * self.batch_records
        wanted = {
            "host": bench.system.first.host,
            "port": bench.system.first.port,
            "topic": TOPIC,
            "offsets": [0, 2 * quarter],
            "records": quarter,
            "fetch_bytes": self.fetch_bytes,
        }
        return calling.run("readers_behind", wanted, timeout=bench.timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOld(Workload):
    """Produce 2 with message sets of format 1, which the broker up-converts."""

    records: int
    record_bytes: int
    records_per_request: int
    partitions: int = 6

    def scaled(self, scale: float) -> Self:
        return replace(self, records=at_least(20 * self.records_per_request, self.records * scale))

    def before(self, bench: Bench, number: int) -> None:
        bench.system.create_topic(topic_of(number), self.partitions)

    def run(self, bench: Bench, number: int) -> Figures:
        host, port = bench.system.first
        wanted = {
            "host": host,
            "port": port,
            "topic": topic_of(number),
            "partitions": self.partitions,
            "records": self.records,
            "record_bytes": self.record_bytes,
            "records_per_request": self.records_per_request,
        }
        return calling.run("old_producer", wanted, timeout=bench.timeout)

    def after(self, bench: Bench, number: int) -> None:
        bench.system.delete_topic(topic_of(number))
