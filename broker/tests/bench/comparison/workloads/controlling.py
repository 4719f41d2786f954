"""The control plane with thousands of partitions: death of the controller, metadata of all topics, topic creation."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, Self

from comparison.batches import batch
from comparison.controller_watch import ControllerWatch
from comparison.figures import Figures, latency_figures
from comparison.systems import System
from comparison.waiting import TooLateError, pause, wait_until
from comparison.wire import (
    Connection,
    Partition,
    metadata_frame,
    partitions_of,
    produce_frame,
    produce_result,
)
from comparison.workloads.base import Bench, Workload, at_least, topic_of, topics_of
from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey

_PREFERRED: Final = 0
_ELECT_VERSION: Final = 2
_PROBE_SECONDS: Final = 0.02
_PROBE_TIMEOUT_SECONDS: Final = 30.0
_FORGETTING_SECONDS: Final = 61.0
"""ext4 without a journal does not reuse the inodes of files that were deleted in the last minute, and scans them for
every new file."""

State = Mapping[TopicPartition, Partition]


def spread(partitions: list[TopicPartition], count: int) -> list[TopicPartition]:
    """Return at most `count` elements, evenly spread over the list."""
    step = max(1, len(partitions) // count)
    return partitions[::step][:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFailover(Workload):
    """Kill the controller with SIGKILL, and measure the time until all partitions that it led have new leaders.

    Between the runs it is restarted and catches up, and the preferred leaders are elected.
    """

    partitions: int
    replicas: int
    produced: int = 20
    """Number of partitions of the victim to which a record is sent with acks=all."""

    def scaled(self, scale: float) -> Self:
        return replace(self, partitions=at_least(30, self.partitions * scale))

    def prepare(self, bench: Bench) -> None:
        for name, size in topics_of("many", self.partitions).items():
            bench.system.create_topic(name, size, replicas=self.replicas)

    def before(self, bench: Bench, number: int) -> None:
        system = bench.system

        def healthy() -> bool:
            state = state_of(system, 0)
            return len(state) == self.partitions and all(len(one.in_sync) == self.replicas for one in state.values())

        def balanced() -> bool:
            return all(one.leader == one.replicas[0] for one in state_of(system, 0).values())

        wait_until(healthy, f"{system.name}: all in sync", timeout_seconds=bench.timeout, every_seconds=0.5)
        _elect_preferred(system)
        wait_until(balanced, f"{system.name}: preferred leaders", timeout_seconds=bench.timeout, every_seconds=0.5)

    def run(self, bench: Bench, number: int) -> Figures:
        system = bench.system
        with ControllerWatch(system.zookeeper.connect) as watch:
            victim = watch.controller
            if victim is None:
                raise RuntimeError(f"{system.name} has no controller")
            state = state_of(system, victim)
            lost = sorted(partition for partition, one in state.items() if one.leader == victim)
            outage = _Outage(system, victim, spread(lost, self.produced))
            began = time.monotonic()
            system.crash(victim)
            try:
                while not (outage.is_over and watch.elected(victim)):
                    if time.monotonic() - began > bench.timeout:
                        raise TooLateError(f"{system.name}: failover: not within {bench.timeout:g} s")
                    outage.look(began)
                    pause(_PROBE_SECONDS)
            finally:
                outage.close()
        detected, elected = watch.detected(victim), watch.elected(victim)
        if detected is None or elected is None:
            raise RuntimeError(f"{system.name}: ZooKeeper did not report the failover")
        return {
            **outage.figures,
            "detected_s": detected - began,
            "elected_s": elected - detected,
            "propagated_s": outage.figures["leaders_s"] - (elected - began),
        }

    def after(self, bench: Bench, number: int) -> None:
        bench.system.revive(bench.timeout)


class _Outage:
    """Observes the failover as a client of the remaining brokers until it is complete."""

    def __init__(self, system: System, victim: int, waiting: list[TopicPartition]) -> None:
        """`waiting` are the partitions to which a record is sent."""
        self._open = ExitStack()
        self._victim = victim
        self._connections = {
            number: self._open.enter_context(Connection(address, timeout_seconds=_PROBE_TIMEOUT_SECONDS))
            for number, address in enumerate(system.addresses)
            if number != victim
        }
        self._unaware = set(self._connections)
        self._waiting = dict.fromkeys(waiting)
        self._records = batch(b"x", 1, timestamp_ms=int(time.time() * 1000))
        self.figures: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether every remaining broker knows a leader of every partition, and every record is acknowledged."""
        return not self._unaware and not self._waiting

    def look(self, began: float) -> None:
        """Request metadata of each broker that does not know all leaders yet, and send records to known leaders."""
        frame = metadata_frame()
        for number in sorted(self._unaware) or list(self._connections)[:1]:
            state = partitions_of(self._connections[number].call(frame))
            if all(one.leader not in (self._victim, -1) for one in state.values()):
                self._unaware.discard(number)
                if not self._unaware:
                    self.figures.setdefault("leaders_s", time.monotonic() - began)
            if self._waiting:
                self._send(state)
                if not self._waiting:
                    self.figures["acknowledged_s"] = time.monotonic() - began

    def _send(self, state: State) -> None:
        """Send a record to each waiting partition with a live leader."""
        under_way: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in self._waiting:
            leader = state[partition].leader
            if leader in self._connections:
                under_way[leader].append(partition)
        for leader, partitions in under_way.items():
            connection = self._connections[leader]
            for partition in partitions:
                connection.send(produce_frame(partition, self._records, acks=-1))
            for partition in partitions:
                code, _ = produce_result(connection.receive(), partition.topic)
                if not code:
                    del self._waiting[partition]

    def close(self) -> None:
        """Close the connections."""
        self._open.close()


def state_of(system: System, broker: int) -> dict[TopicPartition, Partition]:
    """Return every partition as one broker knows it."""
    with Connection(system.addresses[broker], timeout_seconds=_PROBE_TIMEOUT_SECONDS) as connection:
        return partitions_of(connection.call(metadata_frame()))


def _elect_preferred(system: System) -> None:
    with Connection(system.first) as connection:
        controller = connection.metadata([]).controller_id
    message = {"election_type": _PREFERRED, "topic_partitions": None, "timeout_ms": 60_000}
    with Connection(system.addresses[controller], timeout_seconds=90) as connection:
        connection.ask(ApiKey.ELECT_LEADERS, _ELECT_VERSION, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAllMetadata(Workload):
    """Repeated metadata requests for all topics over one connection, each after the creation of a topic."""

    partitions: int
    requests: int = 20

    def scaled(self, scale: float) -> Self:
        return replace(self, partitions=at_least(30, self.partitions * scale))

    def prepare(self, bench: Bench) -> None:
        for name, size in topics_of("many", self.partitions).items():
            bench.system.create_topic(name, size)

    def before(self, bench: Bench, number: int) -> None:
        bench.system.create_topic(topic_of(number), 1)

    def run(self, bench: Bench, number: int) -> Figures:
        frame = metadata_frame()
        taken_ms = []
        with Connection(bench.system.first) as connection:
            for _ in range(self.requests):
                began = time.perf_counter()
                answer = connection.call(frame)
                taken_ms.append((time.perf_counter() - began) * 1000)
        if len(partitions_of(answer)) < self.partitions:
            raise RuntimeError(f"{bench.system.name} does not return all {self.partitions} partitions")
        return {**latency_figures(taken_ms), "first_ms": taken_ms[0]}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(Workload):
    """Creation of topics with thousands of partitions, until every broker knows all leaders."""

    partitions: int

    def scaled(self, scale: float) -> Self:
        return replace(self, partitions=at_least(30, self.partitions * scale))

    def prepare(self, bench: Bench) -> None:
        """Wait until the file system no longer scans the inodes that an earlier scenario has deleted."""
        os.sync()
        pause(_FORGETTING_SECONDS)

    def run(self, bench: Bench, number: int) -> Figures:
        """Keep the topics: recently deleted files make the next run slower on some file systems."""
        began = time.monotonic()
        for name, size in topics_of(topic_of(number), self.partitions).items():
            bench.system.create_topic(name, size)
        return {"leaders_s": time.monotonic() - began}
