"""Random elections over two or three replicas: logs that diverge become equal, and no committed record is truncated."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryCluster

TP: Final = TopicPartition("t", 0)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("isolated append"), st.integers(1, 3)),
        st.tuples(st.just("elect"), st.integers(1, 3)),
        st.tuples(st.just("elect silently"), st.integers(1, 3)),
        st.tuples(st.just("cut"), st.integers(1, 3)),
        st.tuples(st.just("heal"), st.just(0)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
        st.tuples(st.just("sleep"), st.sampled_from([1, 300, 1500, 12_000])),
    ),
    max_size=25,
)


class History:
    """A cluster, and the records that each broker knew to be committed: offset -> bytes."""

    def __init__(self, cluster: MemoryCluster, brokers: range, clock: VirtualClock) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.clock = clock
        self.leader = 1
        self.away: set[int] = set()
        self.committed = b""
        self._count = 0

    def check(self) -> None:
        """Check that all brokers have the same committed records, and that these never change."""
        for broker in self.cluster.brokers.values():
            log = broker.partition(TP).log
            below = log.read(0, max_bytes=1 << 30, max_offset=log.high_watermark, min_one_batch=True).load()
            longer, shorter = sorted((below, self.committed), key=len, reverse=True)
            assert longer.startswith(shorter)
            self.committed = longer

    async def step(self, kind: str, detail: int) -> None:
        if kind == "append":
            self._append(self.leader, detail)
        elif kind == "isolated append":
            # A replaced leader that does not know it continues to append: these log ends diverge.
            for broker_id, broker in self.cluster.brokers.items():
                if broker.partition(TP).is_leader:
                    self._append(broker_id, detail)
        elif kind == "elect":
            self._elect(detail, self.brokers)
        elif kind == "elect silently":
            self._elect(detail, [detail])
        elif kind == "cut":
            self.cluster.cut(detail)
            self.away.add(detail)
        elif kind == "heal":
            self._heal()
        elif kind == "restart" and detail in self.brokers:
            await self.cluster.brokers[detail].close(clean=False)
            await self.cluster.start_broker(detail)
            self.cluster.announce(TP, inform=(detail,))
        elif kind == "sleep":
            await self.clock.sleep_ms(detail)
        self.check()

    def _append(self, broker_id: int, count: int) -> None:
        self._count += 1
        values = [b"%d of %d" % (self._count, broker_id)] * count
        self.cluster.brokers[broker_id].append(TP, *values, acks=1)

    def _elect(self, leader: int, inform: range | list[int]) -> None:
        """Elect a member of the ISR, which does not change."""
        isr = self.cluster.isr(TP)
        if leader in isr:
            self.leader = leader
            self.cluster.elect(TP, leader=leader, isr=isr, inform=[each for each in inform if each not in self.away])

    def _heal(self) -> None:
        self.cluster.heal()
        self.away.clear()
        for broker_id in self.brokers:
            known = self.cluster.brokers[broker_id].partition(TP).leader_epoch
            if known < self.cluster.leader_epoch(TP):
                self.cluster.announce(TP, inform=(broker_id,))


async def play(steps: list[tuple[str, int]], count: int, version: int, directory: Path) -> None:
    clock = VirtualClock()
    brokers = range(1, count + 1)
    cluster = MemoryCluster(directory, clock, settings={"replica.lag.time.max.ms": "5000"}, fetch_version=version)
    try:
        for broker_id in brokers:
            await cluster.start_broker(broker_id)
        cluster.create(TP, brokers)
        history = History(cluster, brokers, clock)
        for kind, detail in steps:
            await history.step(kind, detail)
        await history.step("heal", 0)
        await history.step("append", 1)
        await history.step("sleep", 30_000)
        contents = {broker.content(TP) for broker in cluster.brokers.values()}
        assert len(contents) == 1
        assert set(cluster.isr(TP)) == set(brokers)
        assert contents == {history.committed}
        assert len({broker.partition(TP).log.latest_epoch for broker in cluster.brokers.values()}) == 1
    finally:
        cluster.heal()
        await cluster.close()


LED_WITHOUT_A_RECORD: Final = [("append", 3), ("elect silently", 2), ("elect", 1)]
"""An empty replica leads briefly: its epoch, which has no records, must not make its log diverge permanently."""


@settings(max_examples=30, deadline=None)
@example(steps=LED_WITHOUT_A_RECORD, count=2, version=17)
@given(steps=STEPS, count=st.sampled_from([2, 3]), version=st.sampled_from([17, 12, 11]))
def test_followers_truncate_exactly_where_they_diverge(steps: list[tuple[str, int]], count: int, version: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run_virtual(play(steps, count, version, Path(directory)))
