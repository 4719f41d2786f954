"""The high watermark under random appends, fetches, ISR changes and answers never falls and is never too high."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.types import TopicPartition
from odradek.log.flush import NO_LIMIT
from odradek.replication.partition import IsrProposal, LeaderAndIsrState, Partition

CONFIG = TopicConfig.of(
    BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "localhost:2181", "log.dirs": "/nowhere"})[0],
    {"min.insync.replicas": "2"},
)
REPLICAS = (1, 2, 3, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("fetch"), st.sampled_from(REPLICAS[1:]), st.integers(0, 6)),
        st.tuples(st.just("restart"), st.sampled_from(REPLICAS[1:]), st.integers(0, 6)),
        st.tuples(st.just("shrink"), st.just(0), st.just(0)),
        st.tuples(st.just("answer"), st.sampled_from([0, 0, 0, 107, 95]), st.just(0)),
        st.tuples(st.just("elect"), st.integers(0, 15), st.just(0)),
        st.tuples(st.just("time"), st.integers(1, 1500), st.just(0)),
    ),
    max_size=60,
)


@dataclass
class Log:
    log_end_offset: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    first_unstable_offset: int | None = None
    durable_limit: int = NO_LIMIT
    config: TopicConfig = CONFIG


def reign(epoch: int, isr: tuple[int, ...], partition_epoch: int) -> LeaderAndIsrState:
    return LeaderAndIsrState(
        controller_epoch=1,
        leader=1,
        leader_epoch=epoch,
        isr=isr,
        replicas=REPLICAS,
        partition_epoch=partition_epoch,
    )


@given(steps=STEPS)
def test_the_high_watermark_never_falls_and_never_passes_a_member_of_the_maximal_isr(
    steps: list[tuple[str, int, int]],
) -> None:
    log = Log()
    partition = Partition(TopicPartition("t", 0), log, local_id=1, lag_max_ms=1000.0)
    partition.become_leader(reign(1, REPLICAS, 1), now_ms=0.0)
    now_ms = 0.0
    pending: list[IsrProposal] = []
    for kind, first, second in steps:
        before = log.high_watermark
        if kind == "append":
            log.log_end_offset += first
        elif kind in ("fetch", "restart"):
            replica = partition.remote_replica(first)
            assert replica is not None
            known = max(replica.log_end_offset, 0)
            offset = min(known + second, log.log_end_offset) if kind == "fetch" else max(0, known - second)
            replica.fetched(offset, 0, now_ms, log.log_end_offset)
            if partition.should_expand(replica):
                assert offset >= log.high_watermark
                pending.append(partition.propose_expansion(first))
        elif kind == "shrink":
            lagging = partition.lagging(now_ms)
            assert 1 not in lagging
            if lagging:
                pending.append(partition.propose_shrinking(lagging))
        elif kind == "answer" and pending:
            proposal = pending.pop(0)
            if first:
                partition.refuse(proposal, first)
            elif partition.is_current(proposal):
                assert partition.accept(
                    proposal,
                    leader_epoch=proposal.leader_epoch,
                    isr=proposal.isr,
                    partition_epoch=proposal.partition_epoch + 1,
                )
        elif kind == "elect":
            isr = (1, *(broker for broker in REPLICAS[1:] if first >> (broker - 2) & 1))
            partition.become_leader(reign(partition.leader_epoch + 1, isr, partition.partition_epoch + 1), now_ms)
        elif kind == "time":
            now_ms += first
        rose = partition.advance(now_ms)
        assert rose == (log.high_watermark > before)
        assert before <= log.high_watermark <= log.log_end_offset
        if rose:
            ends = [
                replica.log_end_offset
                for broker in partition.in_sync.maximal
                if (replica := partition.remote_replica(broker)) is not None
            ]
            assert log.high_watermark <= min(ends, default=log.log_end_offset)
            assert len(partition.in_sync.committed) >= 2
