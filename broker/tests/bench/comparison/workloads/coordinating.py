"""The coordinators: transactions, heartbeats of many groups, the rebalance of a large group, the load of offsets."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from comparison.clients import calling
from comparison.figures import Figures
from comparison.waiting import TooLateError, pause
from comparison.wire import Connection
from comparison.workloads.base import Bench, Workload, at_least, topic_of
from odradek.protocol.apis import ApiKey

TOPIC: Final = "grouped"
_FETCH_VERSION: Final = 5
_PROBE_SECONDS: Final = 0.01
_PROBE_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions(Workload):
    """Several producers commit small transactions, each one after the other."""

    producers: int
    transactions: int
    """Transactions of each producer."""
    records: int
    """Records of a transaction."""
    record_bytes: int
    partitions: int
    replicas: int = 1

    def scaled(self, scale: float) -> Self:
        return replace(self, transactions=at_least(20, self.transactions * scale))

    def before(self, bench: Bench, number: int) -> None:
        bench.system.create_topic(topic_of(number), self.partitions, replicas=self.replicas)

    def run(self, bench: Bench, number: int) -> Figures:
        wanted = {
            "bootstrap": bench.system.bootstrap,
            "topic": topic_of(number),
            "partitions": self.partitions,
            "producers": self.producers,
            "transactions": self.transactions,
            "records": self.records,
            "record_bytes": self.record_bytes,
        }
        return calling.run("transactions", wanted, timeout=bench.timeout)

    def after(self, bench: Bench, number: int) -> None:
        bench.system.delete_topic(topic_of(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeartbeats(Workload):
    """Members of many groups send heartbeats, each once in every interval."""

    groups: int
    members: int
    """Members of each group."""
    interval_s: float
    seconds: float
    connections: int

    def scaled(self, scale: float) -> Self:
        return replace(self, groups=at_least(100, self.groups * scale))

    def prepare(self, bench: Bench) -> None:
        bench.system.create_topic(TOPIC, self.members)
        wanted = {
            **_first(bench),
            "topic": TOPIC,
            "groups": self.groups,
            "members": self.members,
            "at_once": self.connections // self.members,
            "file": str(self._file(bench)),
        }
        calling.run("many_groups", wanted, timeout=bench.timeout)

    def run(self, bench: Bench, number: int) -> Figures:
        wanted = {
            **_first(bench),
            "file": str(self._file(bench)),
            "connections": self.connections,
            "interval_s": self.interval_s,
            "seconds": self.seconds,
        }
        return calling.run("heartbeats", wanted, timeout=bench.timeout)

    @staticmethod
    def _file(bench: Bench) -> Path:
        return bench.system.log_folders[0].with_name("members.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeGroup(Workload):
    """One group with many members rebalances."""

    members: int
    partitions: int

    def scaled(self, scale: float) -> Self:
        return replace(self, members=at_least(20, self.members * scale))

    def prepare(self, bench: Bench) -> None:
        bench.system.create_topic(TOPIC, self.partitions)

    def run(self, bench: Bench, number: int) -> Figures:
        wanted = {
            **_first(bench),
            "topic": TOPIC,
            "partitions": self.partitions,
            "group": topic_of(number),
            "members": self.members,
        }
        return calling.run("large_group", wanted, timeout=bench.timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOffsets(Workload):
    """A broker starts and loads the committed offsets of many groups."""

    groups: int
    partitions: int
    """Committed offsets of each group."""

    def scaled(self, scale: float) -> Self:
        return replace(self, groups=at_least(20, self.groups * scale))

    def prepare(self, bench: Bench) -> None:
        bench.system.create_topic(TOPIC, self.partitions)
        wanted = {**_first(bench), "topic": TOPIC, "partitions": self.partitions, "groups": self.groups}
        calling.run("offset_commits", wanted, timeout=bench.timeout)

    def before(self, bench: Bench, number: int) -> None:
        bench.system.stop_brokers()

    def run(self, bench: Bench, number: int) -> Figures:
        began = time.monotonic()
        bench.system.start_brokers()
        figures: dict[str, float] = {}
        left = [f"group-{number}" for number in range(self.groups)]
        while left:
            if time.monotonic() - began > bench.timeout:
                raise TooLateError(f"{len(left)} of {self.groups} groups are not loaded within {bench.timeout:g} s")
            bench.system.check()
            try:
                with Connection(bench.system.first, timeout_seconds=_PROBE_TIMEOUT_SECONDS) as connection:
                    connection.metadata([])
                    figures.setdefault("metadata_s", time.monotonic() - began)
                    while left:
                        if self._is_loaded(connection, left[-1]):
                            left.pop()
                        else:
                            pause(_PROBE_SECONDS)
            except OSError:
                pause(_PROBE_SECONDS)
        loaded_s = time.monotonic() - began
        return {"loaded_s": loaded_s, "load_s": loaded_s - figures["metadata_s"]}

    @staticmethod
    def _is_loaded(connection: Connection, group: str) -> bool:
        message = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
        response = connection.ask(ApiKey.OFFSET_FETCH, _FETCH_VERSION, message)
        rows = [row for topic in response.topics for row in topic.partitions]
        return not response.error_code and all(row.committed_offset >= 0 for row in rows)


def _first(bench: Bench) -> dict[str, Any]:
    return {"host": bench.system.first.host, "port": bench.system.first.port}
