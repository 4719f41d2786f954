"""A plan depends only on its seed, and contains no faults that no cluster can survive."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BrokerConfig
from odradek_testkit.simulation.plan import (
    ACKED,
    SIDE,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    EndSession,
    Kind,
    LosePower,
    Plan,
    Reassign,
    Slow,
    Wipe,
    draw,
)

SEEDS = range(300)


def faults(plan: Plan) -> list[object]:
    return [fault for _, fault in plan.faults]


@given(st.integers(0, 1 << 63))
def test_equal_seeds_give_equal_plans(seed: int) -> None:
    assert draw(seed) == draw(seed)


def test_a_plan_does_not_depend_on_the_process() -> None:
    code = "from odradek_testkit.simulation.plan import draw; print(draw(77))"
    text = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert text == {f"{draw(77)}\n"}


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_that_is_given_is_drawn(kind: Kind) -> None:
    assert {draw(seed, kind).kind for seed in range(20)} == {kind}


def test_every_kind_fault_and_operation_is_drawn() -> None:
    plans = [draw(seed) for seed in SEEDS]
    assert {plan.kind for plan in plans} == set(Kind)
    assert {plan.brokers for plan in plans} == {3, 4, 5}
    assert {type(fault).__name__ for plan in plans for fault in faults(plan)} == {
        "Kill",
        "Stop",
        "LosePower",
        "Wipe",
        "Freeze",
        "EndSession",
        "Partition",
        "Slow",
        "Reset",
        "ZooKeeperOutage",
        "FailDisk",
    }
    assert {type(one).__name__ for plan in plans for _, one in plan.operations} == {
        "CreateTopic",
        "DeleteTopic",
        "AddPartitions",
        "SetTopicConfig",
        "Reassign",
        "CancelReassignment",
        "ElectPreferred",
    }


def test_every_plan_can_be_carried_out() -> None:
    for seed in SEEDS:
        plan = draw(seed)
        assert 20_000 <= plan.load_ms <= 40_000
        for timed in (plan.faults, plan.operations):
            assert list(timed) == sorted(timed, key=lambda pair: pair[0])
        config, warnings = BrokerConfig.parse({"broker.id": "0", "zookeeper.connect": "z:1", **plan.properties})
        assert not warnings
        assert config.unclean_leader_election_enable is (plan.kind is Kind.UNCLEAN)
        by_name = {topic.name: topic for topic in plan.topics}
        assert by_name[ACKED].acks == -1
        assert by_name[ACKED].replicas >= 3
        assert by_name[ACKED].configs["min.insync.replicas"] == "2"
        for _, one in plan.operations:
            if isinstance(one, Reassign):
                assert len(set(one.replicas)) == len(one.replicas)
                assert set(one.replicas) <= set(range(plan.brokers))


def test_side_topics_are_made_before_they_grow_and_go() -> None:
    for seed in SEEDS:
        made: Counter[str] = Counter()
        for _, one in draw(seed).operations:
            if isinstance(one, CreateTopic):
                made[one.topic.name] += 1
            elif isinstance(one, AddPartitions | DeleteTopic):
                assert made[one.name] == 1
                assert one.name.startswith(SIDE)
                made[one.name] -= isinstance(one, DeleteTopic)
        assert set(made.values()) <= {0, 1}


def test_crashes_lose_no_byte() -> None:
    for kind in (Kind.CRASHES, Kind.UNCLEAN):
        for seed in SEEDS:
            assert not any(isinstance(fault, LosePower | Wipe) for fault in faults(draw(seed, kind)))


def test_where_power_fails_anywhere_everything_is_synced_first() -> None:
    for seed in SEEDS:
        plan = draw(seed, Kind.SYNCED)
        assert not any(isinstance(fault, Wipe) for fault in faults(plan))
        assert plan.properties["log.flush.interval.messages"] == "1"
        assert all(topic.configs["flush.messages"] == "1" for topic in plan.topics)
    assert any(
        len(fault.brokers) == draw(seed, Kind.SYNCED).brokers
        for seed in SEEDS
        for fault in faults(draw(seed, Kind.SYNCED))
        if isinstance(fault, LosePower)
    )


def test_beside_a_loss_one_session_ends_at_most_and_messages_are_slow() -> None:
    for seed in SEEDS:
        plan = draw(seed, Kind.LOSSES)
        sessions = 1
        for fault in faults(plan):
            if isinstance(fault, LosePower | Wipe):
                assert isinstance(fault, Wipe) or len(fault.brokers) == 1
                sessions = 0
            elif isinstance(fault, EndSession):
                sessions += 1
                assert sessions == 1
            else:
                assert isinstance(fault, Slow)
                assert 4 * fault.extra_ms < min(
                    int(plan.properties["zookeeper.session.timeout.ms"]),
                    int(plan.properties["replica.lag.time.max.ms"]),
                )
        assert all(topic.replicas >= 3 for topic in plan.topics if topic.acks)
