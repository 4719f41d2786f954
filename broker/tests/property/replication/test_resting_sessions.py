"""Fetch sessions with resting entries give the same answers, at the same time, as sessions that read everything."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.protocol.hotpath import FetchEntry, FetchRequest, ForgottenPartition
from odradek.replication.replica_requests import FetchParams
from odradek.replication.sessions.fetch_session import FetchAnswer, FetchSessions
from odradek_testkit.batches import iterate
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import TOPIC_ID, MemoryBroker, MemoryCluster

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
LEADER, FOLLOWER, CONSUMER = 1, 2, -1
OUT_OF_RANGE = 1

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3)),
        st.tuples(st.just("fetch"), st.sampled_from([0, 300])),
        st.tuples(st.just("sleep"), st.sampled_from([1, 100, 400, 6000])),
        st.tuples(st.just("reign"), st.integers(0, 3)),
        st.tuples(st.just("start"), st.integers(0, 3)),
        st.tuples(st.just("offline"), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.integers(0, 3)),
        st.tuples(st.just("repeat"), st.integers(0, 3)),
    ),
    max_size=40,
)


Row = tuple[Any, ...]


@dataclass
class Client:
    """A reader's state of each partition, (offset, leader epoch), and the requests that follow from it."""

    replica_id: int
    wanted: dict[int, tuple[int, int]] = field(default_factory=lambda: dict.fromkeys(range(4), (0, 0)))
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    epoch: int = 0

    def request(self, wait_ms: int) -> FetchRequest:
        entries = [
            FetchEntry(None, TOPIC_ID, number, epoch, offset, -1, 0, 1 << 20)
            for number, (offset, epoch) in self.wanted.items()
            if not self.epoch or self.sent.get(number) != (offset, epoch)
        ]
        gone = [number for number in self.sent if number not in self.wanted] if self.epoch else []
        forgotten = [ForgottenPartition(None, TOPIC_ID, number) for number in gone]
        self.sent = dict(self.wanted)
        return FetchRequest(
            wait_ms, 1, 200, entries, replica_id=self.replica_id, session_epoch=self.epoch, forgotten=forgotten
        )


class Side:
    """A broker with or without resting entries."""

    def __init__(self, broker: MemoryBroker, clock: VirtualClock, *, rests: bool) -> None:
        self.broker = broker
        self.sessions = FetchSessions(clock, 3, broker.replicas.resting if rests else None)
        self.session_id = 0
        self.answers: list[tuple[int, list[Row]]] = []

    def fetch(self, request: FetchRequest) -> None:
        request = replace(request, session_id=self.session_id)
        context = self.sessions.open(request, lambda _: "t", uses_topic_ids=True)
        if context.error_code:
            self.note(context.finish([]))
            return
        params = FetchParams(request.max_wait_ms, 1, request.max_bytes, request.replica_id, leader_only=False)
        self.broker.replicas.fetch(
            params, context.entries, lambda results: self.note(context.finish(results)), session=context.session
        )

    def note(self, answer: FetchAnswer) -> None:
        rows: list[Row] = []
        for entry, result in answer.partitions:
            records = b"" if result.records is None else result.records.load()
            rows.append((entry.topic_partition.partition, result[:4], records, result.diverging_epoch))
        self.session_id = answer.session_id
        self.answers.append((answer.error_code, rows))

    def state(self) -> list[Row]:
        """Return the state of the followers, after waking resting entries, which updates the times of followers."""
        found: list[Row] = []
        for tp in PARTITIONS:
            self.broker.replicas.recheck(tp)
            partition = self.broker.replicas.table.online.get(tp)
            if partition is not None:
                remote = partition.remote_replica(FOLLOWER)
                times = None if remote is None else (remote.last_caught_up_ms, remote.last_fetch_ms)
                found.append((tp, partition.log.log_end_offset, partition.high_watermark, partition.in_sync, times))
        return found


class Pair:
    """Applies the same operations to both brokers, whose answers must be equal."""

    def __init__(self, clusters: list[MemoryCluster], sides: list[Side], replica_id: int) -> None:
        self.clusters = clusters
        self.sides = sides
        self.client = Client(replica_id)
        self.waiting = 0
        self.leader_epochs = [0, 0, 0, 0]

    async def step(self, kind: str, detail: int, clock: VirtualClock) -> None:
        if kind == "sleep":
            await clock.sleep_ms(detail)
        elif kind == "fetch":
            if not self.waiting:
                self._send(self.client.request(detail))
        elif kind == "repeat":
            if self.waiting and self.client.epoch:
                self.client.epoch += 1
                self._send(
                    FetchRequest(0, 1, 200, [], replica_id=self.client.replica_id, session_epoch=self.client.epoch)
                )
        elif kind == "forget":
            if self.client.wanted.pop(detail, None) is None:
                self.client.wanted[detail] = (0, self.leader_epochs[detail])
        else:
            self._change(kind, PARTITIONS[detail])
        self.compare()

    def _change(self, kind: str, tp: TopicPartition) -> None:
        if tp not in self.sides[0].broker.replicas.table.online:
            return
        for cluster, side in zip(self.clusters, self.sides, strict=True):
            log = side.broker.partition(tp).log
            if kind == "append":
                side.broker.append(tp, b"value", acks=1)
            elif kind == "reign":
                cluster.elect(tp, LEADER, isr=(LEADER, FOLLOWER), inform=(LEADER,))
            elif kind == "start":
                log.increment_log_start_offset(log.high_watermark)  # retention is not reported to sessions
            elif kind == "offline":
                side.broker.replicas.take_offline(tp)
        if kind == "reign":
            self.leader_epochs[tp.partition] += 1
            if tp.partition in self.client.wanted:
                self.client.wanted[tp.partition] = (
                    self.client.wanted[tp.partition][0],
                    self.leader_epochs[tp.partition],
                )

    def _send(self, request: FetchRequest) -> None:
        self.waiting += 1
        for side in self.sides:
            side.fetch(request)

    def compare(self) -> None:
        plain, resting = self.sides[0].answers, self.sides[1].answers
        assert plain == resting
        for error_code, rows in plain:
            self.waiting -= 1
            self.client.epoch = 0 if error_code or not self.sides[0].session_id else self.client.epoch + 1
            for number, (code, _, _, start), records, _ in rows:
                if number in self.client.wanted:
                    self._go_on(number, code, start, records)
        plain.clear()
        resting.clear()

    def _go_on(self, number: int, code: int, start: int, records: bytes) -> None:
        offset, epoch = self.client.wanted[number]
        for _, header in iterate(records):
            offset = header.next_offset
        if code == OUT_OF_RANGE:
            offset = self.sides[0].broker.partition(PARTITIONS[number]).log.log_start_offset
        self.client.wanted[number] = (offset, epoch)


async def play(steps: list[tuple[str, int]], replica_id: int, directory: Path) -> None:
    clock = VirtualClock()
    clusters: list[MemoryCluster] = []
    sides: list[Side] = []
    try:
        for name in ("plain", "resting"):
            cluster = MemoryCluster(directory / name, clock, settings={"replica.lag.time.max.ms": "5000"})
            clusters.append(cluster)
            broker = await cluster.start_broker(LEADER)
            for tp in PARTITIONS:
                cluster.create(tp, (LEADER, FOLLOWER), inform=(LEADER,))
            sides.append(Side(broker, clock, rests=name == "resting"))
        pair = Pair(clusters, sides, replica_id)
        for kind, detail in [("fetch", 0), *steps]:
            await pair.step(kind, detail, clock)
        await clock.sleep_ms(1000)
        pair.compare()
        assert sides[0].state() == sides[1].state()
        pair.compare()
    finally:
        for cluster in clusters:
            await cluster.close()


WOKEN_TWICE = [("fetch", 0), ("fetch", 300), ("append", 0), ("reign", 0)]
"""The first change wakes an entry but gives no data; the second one must still complete the waiting request."""

OVERTAKEN = [("fetch", 0), ("fetch", 300), ("repeat", 0), ("append", 0)]
"""A request that waits is overtaken by another one of its session, after which all entries rest."""


@settings(max_examples=60, deadline=None)
@example(steps=OVERTAKEN, replica_id=FOLLOWER)
@example(steps=WOKEN_TWICE, replica_id=CONSUMER)
@given(steps=STEPS, replica_id=st.sampled_from([CONSUMER, FOLLOWER]))
def test_resting_changes_no_answer(steps: list[tuple[str, int]], replica_id: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run_virtual(play(steps, replica_id, Path(directory)))


def test_an_idle_session_reads_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        cluster = MemoryCluster(tmp_path, clock)
        broker = await cluster.start_broker(LEADER)
        try:
            for tp in PARTITIONS:
                cluster.create(tp, (LEADER, FOLLOWER), inform=(LEADER,))
            side = Side(broker, clock, rests=True)
            client = Client(FOLLOWER)
            for epoch in range(3):
                client.epoch = epoch
                side.fetch(client.request(0))
            assert len(broker.replicas.resting) == len(PARTITIONS)
            await broker.append(PARTITIONS[2], b"value", acks=1)
            assert len(broker.replicas.resting) == len(PARTITIONS) - 1
            client.epoch = 3
            side.fetch(client.request(0))
            assert [row[0] for row in side.answers[-1][1]] == [2]
            client.epoch = 0
            side.fetch(client.request(0))
            assert len(broker.replicas.resting) == 0  # a full request ends the session
        finally:
            await cluster.close()

    run_virtual(main())


def test_a_changed_log_start_is_returned_although_it_wakes_no_entry(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        cluster = MemoryCluster(tmp_path, clock)
        broker = await cluster.start_broker(LEADER)
        try:
            for tp in PARTITIONS:
                cluster.create(tp, (LEADER,))
                await broker.append(tp, b"value")
            side = Side(broker, clock, rests=True)
            client = Client(CONSUMER, wanted=dict.fromkeys(range(4), (1, 0)))
            for epoch in range(3):
                client.epoch = epoch
                side.fetch(client.request(300 if epoch == 2 else 0))
            assert len(broker.replicas.resting) == len(PARTITIONS)
            side.answers.clear()
            broker.partition(PARTITIONS[1]).log.increment_log_start_offset(1)
            await clock.sleep_ms(301)  # while the request waited
            broker.partition(PARTITIONS[3]).log.increment_log_start_offset(1)
            client.epoch = 3
            side.fetch(client.request(0))  # between two requests
            assert [[(row[0], row[1][3]) for row in rows] for _, rows in side.answers] == [[(1, 1)], [(3, 1)]]
        finally:
            await cluster.close()

    run_virtual(main())
