"""Decisions about one partition, without a log: roles, offsets, acknowledgement, ISR changes, truncation."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.types import TopicPartition
from odradek.log.flush import NO_LIMIT
from odradek.replication.isr import FailedProposal, Phase
from odradek.replication.partition import (
    BARRED_MS,
    EpochEnd,
    LeaderAndIsrState,
    Partition,
    RemoteReplica,
    Role,
    Truncation,
    is_diverging,
    truncation_target,
)

TP = TopicPartition("t", 0)
LAG_MS = 1000.0
INELIGIBLE_REPLICA = 107


def topic_config(min_in_sync: int = 1) -> TopicConfig:
    broker, _ = BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "localhost:2181", "log.dirs": "/nowhere"})
    return TopicConfig.of(broker, {"min.insync.replicas": str(min_in_sync)})


@dataclass
class Log:
    """A log that consists only of its offsets."""

    log_end_offset: int = 10
    log_start_offset: int = 0
    high_watermark: int = 0
    first_unstable_offset: int | None = None
    durable_limit: int = NO_LIMIT
    config: TopicConfig = field(default_factory=topic_config)


def state(
    leader: int = 1,
    epoch: int = 5,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    partition_epoch: int = 7,
) -> LeaderAndIsrState:
    return LeaderAndIsrState(
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        replicas=replicas,
        partition_epoch=partition_epoch,
    )


def leader(log: Log, **changes: object) -> Partition[Log]:
    partition = Partition(TP, log, local_id=1, lag_max_ms=LAG_MS)
    partition.become_leader(state(**changes), now_ms=0.0)  # type: ignore[arg-type]
    return partition


def fetched(partition: Partition[Log], broker_id: int, offset: int, now_ms: float = 0.0) -> RemoteReplica:
    replica = partition.remote_replica(broker_id)
    assert replica is not None
    replica.fetched(offset, 0, now_ms, partition.log.log_end_offset)
    return replica


# Roles


def test_a_new_leader_knows_nothing_of_its_followers() -> None:
    partition = leader(Log(log_end_offset=10))
    assert partition.role is Role.LEADER
    assert partition.leader_epoch_start_offset == 10
    replica = partition.remote_replica(2)
    assert replica is not None
    assert replica.log_end_offset == -1
    assert not partition.advance(0.0)


def test_a_new_epoch_of_the_same_leader_keeps_what_it_knows() -> None:
    partition = leader(Log())
    fetched(partition, 2, 8)
    assert not partition.become_leader(state(epoch=6), now_ms=50.0)
    replica = partition.remote_replica(2)
    assert replica is not None
    assert replica.log_end_offset == 8
    assert partition.leader_epoch == 6


def test_a_follower_has_no_in_sync_set_and_no_followers() -> None:
    partition = leader(Log())
    assert partition.become_follower(state(leader=2, epoch=6))
    assert partition.role is Role.FOLLOWER
    assert partition.remote_replica(2) is None
    assert partition.in_sync.committed == ()
    assert partition.lagging(1e9) == ()
    assert not partition.become_follower(state(leader=2, epoch=7))


@pytest.mark.parametrize(
    ("role_leader", "epoch", "leader_only", "code"),
    [
        (1, -1, True, 0),
        (1, 5, True, 0),
        (1, 4, True, 74),
        (1, 6, True, 75),
        (2, -1, True, 6),
        (2, 5, True, 6),
        (2, 5, False, 0),
        (2, 4, False, 74),
        (2, 4, True, 74),
    ],
)
def test_checks_of_the_requesting_replica(role_leader: int, epoch: int, leader_only: bool, code: int) -> None:
    partition = Partition(TP, Log(), local_id=1, lag_max_ms=LAG_MS)
    if role_leader == 1:
        partition.become_leader(state(), now_ms=0.0)
    else:
        partition.become_follower(state(leader=2))
    assert partition.leadership_error(epoch, leader_only) == code


# Offsets


def test_a_single_replica_commits_at_once() -> None:
    partition = leader(Log(log_end_offset=10), isr=(1,), replicas=(1,))
    assert partition.advance(0.0)
    assert partition.high_watermark == 10
    assert not partition.advance(0.0)


def test_the_high_watermark_is_the_smallest_log_end_of_the_isr() -> None:
    partition = leader(Log(log_end_offset=10))
    fetched(partition, 2, 9)
    assert not partition.advance(0.0)
    fetched(partition, 3, 6)
    assert partition.advance(0.0)
    assert partition.high_watermark == 6
    fetched(partition, 3, 4)  # it restarted with fewer records
    assert not partition.advance(0.0)
    assert partition.high_watermark == 6


def test_replicas_out_of_sync_do_not_delay_the_high_watermark() -> None:
    partition = leader(Log(log_end_offset=10), isr=(1, 2))
    fetched(partition, 2, 9)
    assert partition.advance(0.0)
    assert partition.high_watermark == 9


def test_the_high_watermark_waits_for_a_replica_that_may_join() -> None:
    log = Log(log_end_offset=10)
    partition = leader(log, isr=(1, 2))
    fetched(partition, 3, 10, now_ms=100.0)
    log.log_end_offset = 20
    fetched(partition, 2, 20, now_ms=200.0)
    assert partition.advance(200.0)
    assert partition.high_watermark == 10
    assert partition.advance(100.0 + LAG_MS + 1)
    assert partition.high_watermark == 20


def test_the_high_watermark_does_not_wait_for_a_dead_broker() -> None:
    """The replica had caught up when it stopped, and will not fetch again."""
    log = Log(log_end_offset=10)
    alive = {2, 3}
    partition = Partition(TP, log, local_id=1, lag_max_ms=LAG_MS, may_join=alive.__contains__)
    partition.become_leader(state(isr=(1, 2)), 0.0)
    fetched(partition, 3, 10, now_ms=100.0)
    log.log_end_offset = 20
    fetched(partition, 2, 20, now_ms=200.0)
    alive.discard(3)
    assert partition.advance(200.0)
    assert partition.high_watermark == 20


def refused(partition: Partition[Log], now_ms: float) -> RemoteReplica:
    """Broker 3, which has caught up and whose proposal was refused."""
    replica = fetched(partition, 3, partition.log.log_end_offset, now_ms=now_ms)
    proposal = partition.propose_expansion(3)
    assert partition.refuse(proposal, INELIGIBLE_REPLICA) is FailedProposal.REVERT
    return replica


def test_a_replica_that_was_refused_is_not_waited_for() -> None:
    """A broker that shuts down is refused, continues to fetch briefly, and stops."""
    log = Log(log_end_offset=10)
    partition = leader(log, isr=(1, 2))
    refused(partition, 100.0)
    fetched(partition, 3, 10, now_ms=110.0)
    log.log_end_offset = 20
    fetched(partition, 2, 20, now_ms=120.0)
    assert partition.advance(120.0)
    assert partition.high_watermark == 20


def test_a_refused_replica_is_proposed_again_after_increasing_delays() -> None:
    partition = Partition(TP, Log(log_end_offset=10), local_id=1, lag_max_ms=10 * BARRED_MS)
    partition.become_leader(state(isr=(1, 2)), 0.0)
    now_ms = 100.0
    for rest_ms in (BARRED_MS, 2 * BARRED_MS, 4 * BARRED_MS):
        refused(partition, now_ms)
        assert not partition.should_expand(fetched(partition, 3, 10, now_ms=now_ms + rest_ms - 1))
        assert partition.should_expand(fetched(partition, 3, 10, now_ms=now_ms + rest_ms))
        now_ms += rest_ms


def test_a_restarted_broker_may_be_proposed_again() -> None:
    partition = leader(Log(log_end_offset=10), isr=(1, 2))
    replica = refused(partition, 100.0)
    replica.live(7)
    assert partition.should_expand(fetched(partition, 3, 10, now_ms=110.0))
    refused(partition, 120.0)
    for same_life in (7, -1):
        replica.live(same_life)
        assert not partition.should_expand(fetched(partition, 3, 10, now_ms=130.0))


def test_refused_replicas_may_be_proposed_in_a_new_leader_epoch() -> None:
    partition = leader(Log(log_end_offset=10), isr=(1, 2))
    fetched(partition, 3, 10, now_ms=100.0)
    partition.refuse(partition.propose_expansion(3), INELIGIBLE_REPLICA)
    partition.become_leader(state(epoch=6, isr=(1, 2), partition_epoch=8), 110.0)
    assert partition.should_expand(fetched(partition, 3, 10, now_ms=120.0))


def test_the_high_watermark_waits_for_a_pending_expansion() -> None:
    log = Log(log_end_offset=10, high_watermark=8)
    partition = leader(log, isr=(1, 2))
    fetched(partition, 3, 10, now_ms=0.0)
    partition.propose_expansion(3)
    log.log_end_offset = 20
    fetched(partition, 2, 20)
    assert partition.advance(1e9)
    assert partition.high_watermark == 10


def test_a_pending_shrink_does_not_raise_the_high_watermark() -> None:
    partition = leader(Log(log_end_offset=10))
    fetched(partition, 2, 10)
    fetched(partition, 3, 4)
    proposal = partition.propose_shrinking((3,))
    partition.advance(1e9)
    assert partition.high_watermark == 4
    assert partition.accept(proposal, leader_epoch=5, isr=(1, 2), partition_epoch=8)
    partition.advance(1e9)
    assert partition.high_watermark == 10


def test_below_the_minimum_the_high_watermark_does_not_rise() -> None:
    partition = leader(Log(config=topic_config(2)), isr=(1,))
    assert partition.is_under_min_isr
    assert not partition.advance(1e9)


def test_the_minimum_is_never_above_the_number_of_replicas() -> None:
    partition = leader(Log(config=topic_config(3)), isr=(1, 2), replicas=(1, 2))
    assert partition.min_in_sync == 2
    assert not partition.is_under_min_isr


@pytest.mark.parametrize(("unstable", "stable"), [(None, 8), (3, 3), (8, 8), (9, 8)])
def test_the_last_stable_offset(unstable: int | None, stable: int) -> None:
    assert leader(Log(high_watermark=8, first_unstable_offset=unstable)).last_stable_offset == stable


@pytest.mark.parametrize(("reported", "mark"), [(5, 5), (50, 10), (0, 2)])
def test_the_high_watermark_of_a_follower_stays_within_its_log(reported: int, mark: int) -> None:
    partition = Partition(TP, Log(log_start_offset=2, high_watermark=3), local_id=1, lag_max_ms=LAG_MS)
    partition.become_follower(state(leader=2))
    assert partition.follow(reported)
    assert partition.high_watermark == mark
    assert not partition.follow(reported)


# Acknowledgement


def test_acknowledgement_waits_for_the_high_watermark() -> None:
    log = Log(high_watermark=4, config=topic_config(2))
    partition = leader(log)
    assert partition.acknowledged(5) is None
    assert partition.acknowledged(4) == 0


def test_acknowledgement_after_the_set_shrank_below_the_minimum() -> None:
    log = Log(high_watermark=4, config=topic_config(2))
    assert leader(log, isr=(1,)).acknowledged(4) == 20


def test_only_the_leader_acknowledges() -> None:
    partition = leader(Log())
    partition.become_follower(state(leader=2, epoch=6))
    assert partition.acknowledged(0) == 6


# ISR changes


def test_caught_up_by_the_end_of_the_previous_fetch() -> None:
    replica = RemoteReplica(2)
    replica.reset(is_in_sync=True, now_ms=0.0)
    replica.fetched(10, 0, 100.0, 20)
    assert replica.last_caught_up_ms == 0.0
    replica.fetched(20, 0, 200.0, 30)  # the log end at time 100
    assert replica.last_caught_up_ms == 100.0
    replica.fetched(29, 0, 300.0, 40)
    assert replica.last_caught_up_ms == 100.0
    replica.fetched(50, 0, 400.0, 50)
    assert replica.last_caught_up_ms == 400.0


def test_lagging_members() -> None:
    log = Log(log_end_offset=10)
    partition = leader(log)
    fetched(partition, 2, 10, now_ms=0.0)
    fetched(partition, 3, 9, now_ms=500.0)
    assert partition.lagging(LAG_MS) == ()
    assert partition.lagging(LAG_MS + 1) == (3,)  # 2 is at the end
    log.log_end_offset = 11
    assert partition.lagging(LAG_MS + 1) == (2, 3)
    partition.propose_shrinking((3,))
    assert partition.lagging(LAG_MS + 1) == ()


def test_who_may_join() -> None:
    log = Log(log_end_offset=10, high_watermark=4)
    partition = leader(log, isr=(1, 2))
    assert not partition.should_expand(fetched(partition, 2, 10))
    assert not partition.should_expand(fetched(partition, 3, 9))  # not yet in this leader's epoch
    assert partition.should_expand(fetched(partition, 3, 10))
    log.high_watermark = log.log_end_offset = 12
    assert not partition.should_expand(fetched(partition, 3, 11))  # lacks committed records


def test_an_expansion_is_proposed_once_and_committed() -> None:
    partition = leader(Log(), isr=(1, 2))
    replica = fetched(partition, 3, 10)
    proposal = partition.propose_expansion(3)
    assert proposal == (TP, 5, (1, 2, 3), 7)
    assert not partition.should_expand(replica)
    assert partition.accept(proposal, leader_epoch=5, isr=(1, 2, 3), partition_epoch=8)
    assert partition.in_sync.committed == (1, 2, 3)
    assert partition.partition_epoch == 8
    assert not partition.accept(proposal, leader_epoch=5, isr=(1, 2, 3), partition_epoch=8)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(6, 8), (4, 8), (5, 6)])
def test_answers_of_another_time_are_ignored(leader_epoch: int, partition_epoch: int) -> None:
    partition = leader(Log(), isr=(1, 2))
    proposal = partition.propose_expansion(3)
    assert not partition.accept(proposal, leader_epoch=leader_epoch, isr=(1, 2, 3), partition_epoch=partition_epoch)
    assert partition.in_sync.phase is Phase.EXPANDING


def test_a_new_leader_epoch_supersedes_a_proposal() -> None:
    partition = leader(Log(), isr=(1, 2))
    proposal = partition.propose_expansion(3)
    partition.become_leader(state(epoch=6, isr=(1, 2), partition_epoch=8), now_ms=0.0)
    assert not partition.is_current(proposal)
    assert partition.refuse(proposal, 55) is FailedProposal.WAIT
    assert partition.in_sync.committed == (1, 2)


@pytest.mark.parametrize(
    ("code", "refusal", "pending"), [(107, FailedProposal.REVERT, False), (95, FailedProposal.WAIT, True)]
)
def test_refusals(code: int, refusal: FailedProposal, pending: bool) -> None:
    partition = leader(Log(), isr=(1, 2))
    proposal = partition.propose_expansion(3)
    assert partition.refuse(proposal, code) is refusal
    assert partition.in_sync.is_pending is pending


# Truncation


@pytest.mark.parametrize(
    ("reported", "local", "expected"),
    [
        # the leader does not know the epoch: truncate to the high watermark
        (EpochEnd(-1, -1), EpochEnd(3, 9), Truncation(4, True)),
        # same epoch; the leader's or the follower's end is smaller
        (EpochEnd(3, 7), EpochEnd(3, 9), Truncation(7, True)),
        (EpochEnd(3, 12), EpochEnd(3, 9), Truncation(9, True)),
        (EpochEnd(3, 50), EpochEnd(3, 40), Truncation(10, True)),
        # the follower lacks the epoch: truncate after its next older one, and ask again
        (EpochEnd(3, 7), EpochEnd(2, 5), Truncation(5, False)),
        # no epochs at all
        (EpochEnd(-1, 7), EpochEnd(3, 9), Truncation(7, True)),
        (EpochEnd(3, 7), EpochEnd(-1, -1), Truncation(7, True)),
    ],
)
def test_where_logs_diverge(reported: EpochEnd, local: EpochEnd, expected: Truncation) -> None:
    assert truncation_target(reported, local, log_end_offset=10, high_watermark=4) == expected


@pytest.mark.parametrize(
    ("epoch", "offset", "end", "diverges"),
    [
        (3, 7, EpochEnd(3, 7), False),
        (3, 7, EpochEnd(3, 9), False),
        (3, 8, EpochEnd(3, 7), True),
        (3, 5, EpochEnd(2, 7), True),
    ],
)
def test_divergence(epoch: int, offset: int, end: EpochEnd, diverges: bool) -> None:
    assert is_diverging(epoch, offset, end) is diverges
