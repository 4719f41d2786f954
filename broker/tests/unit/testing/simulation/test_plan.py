"""A plan depends only on its seed, and contains no faults that no cluster can survive."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BrokerConfig
from odradek_testkit.simulation import plan as plan_module
from odradek_testkit.simulation.directory_plan import (
    ColdFiles,
    DirectoryPlan,
    SlowDirectory,
    StallDirectory,
    draw_directories,
)
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
from odradek_testkit.simulation.transactions.transaction_plan import COPIES, TransactionPlan

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
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
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
        "SlowDirectory",
        "StallDirectory",
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
        # There are five attempts to create this topic again; those after the first success are refused.
        again = made.pop(f"{SIDE}-again", None)
        assert again in (None, 5)
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


def directories(seed: int) -> DirectoryPlan:
    return draw_directories(seed, brokers=3, load_ms=30_000, may_stall=True)


def test_directories_do_not_change_the_other_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    with_directories = [draw(seed) for seed in SEEDS]
    monkeypatch.setattr(plan_module, "draw_directories", lambda seed, **_: DirectoryPlan())
    without = [draw(seed) for seed in SEEDS]
    changed = [pair for pair in zip(with_directories, without, strict=True) if pair[0] != pair[1]]
    assert len(SEEDS) / 5 < len(changed) < len(SEEDS) / 2
    for one, other in changed:
        assert one.directories == 2
        assert (one.kind, one.brokers, one.producers, one.consumers, one.load_ms) == (
            other.kind,
            other.brokers,
            other.producers,
            other.consumers,
            other.load_ms,
        )
        assert one.properties.items() >= other.properties.items()
        assert all(operation in one.operations for operation in other.operations)
        assert all(fault in one.faults for fault in other.faults)


def test_cold_files_change_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cold_files = [draw(seed) for seed in SEEDS]
    monkeypatch.setattr(plan_module, "draw_cold_files", lambda seed, **_: ColdFiles())
    without = [draw(seed) for seed in SEEDS]
    changed = [pair for pair in zip(with_cold_files, without, strict=True) if pair[0] != pair[1]]
    assert len(SEEDS) / 6 < len(changed) < len(SEEDS) / 3
    for one, other in changed:
        properties = {**other.properties, "log.index.cache.bytes": one.properties["log.index.cache.bytes"]}
        assert one == replace(other, cold_share=one.cold_share, long_reads=one.long_reads, properties=properties)
    assert {one.long_reads for one, _ in changed} == {False, True}
    assert len({one.cold_share for one, _ in changed}) == 3


def test_some_clusters_finalize_transaction_version_2() -> None:
    newer, older = ([draw(seed, new_epochs=wanted) for seed in SEEDS] for wanted in (True, False))
    assert not any(plan.transactions.raises_epochs for plan in older)
    share = sum(plan.transactions.raises_epochs for plan in newer) / sum(
        plan.transactions.writers > 0 for plan in newer
    )
    assert 0.25 < share < 0.75
    for after, before in zip(newer, older, strict=True):
        version = {"transaction.version": "2"} if after.transactions.raises_epochs else {}
        assert dict(before.properties) | version == dict(after.properties)
        assert before.faults == after.faults


def test_transactions_change_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with_transactions = [draw(seed) for seed in SEEDS]
    monkeypatch.setattr(plan_module, "draw_transactions", lambda seed, newer: TransactionPlan())
    without = [draw(seed) for seed in SEEDS]
    changed = [pair for pair in zip(with_transactions, without, strict=True) if pair[0] != pair[1]]
    assert len(SEEDS) / 3 < len(changed) < len(SEEDS) / 2
    for one, other in changed:
        topics = tuple(topic for topic in one.topics if topic.name != COPIES)
        properties = {name: value for name, value in one.properties.items() if not name.startswith("transaction")}
        nothing = TransactionPlan()
        assert replace(one, topics=topics, properties=properties, transactions=nothing) == other
        assert one.transactions.writers
        assert one.transactions.copies == (topics != one.topics)
        assert 5_000 <= one.transactions.timeout_ms <= 20_000
    preparing = [one.transactions.preparers > 0 for one, _ in changed]
    assert 0.2 < sum(preparing) / len(preparing) < 0.4


def test_no_read_takes_long_in_a_plan_with_losses() -> None:
    assert not any(draw(seed, Kind.LOSSES).long_reads for seed in SEEDS)


def test_directories_are_drawn_in_all_forms() -> None:
    plans = [directories(seed) for seed in SEEDS]
    stalls = [
        (fault.for_ms, int(plan.properties["log.dir.stall.timeout.ms"]))
        for plan in plans
        for _, fault in plan.faults
        if isinstance(fault, StallDirectory)
    ]
    assert {plan.count for plan in plans} == {1, 2}
    assert any(for_ms < timeout_ms for for_ms, timeout_ms in stalls)
    assert any(for_ms > timeout_ms for for_ms, timeout_ms in stalls)
    assert any(plan.pauses for plan in plans)
    assert any(plan.recreated_ms is not None for plan in plans)


def test_a_slow_directory_answers_long_before_the_timeout() -> None:
    for plan in map(directories, SEEDS):
        for _, fault in plan.faults:
            if isinstance(fault, SlowDirectory):
                assert 2 * 1.5 * fault.job_ms < int(plan.properties["log.dir.stall.timeout.ms"])


def test_no_directory_stalls_in_a_plan_with_losses() -> None:
    for seed in SEEDS:
        plan = draw(seed, Kind.LOSSES)
        assert not any(isinstance(fault, SlowDirectory | StallDirectory) for fault in faults(plan))
        assert "log.dir.stall.timeout.ms" not in plan.properties


def test_a_topic_is_created_again_before_and_after_the_wait_of_its_deletion() -> None:
    found = 0
    for seed in SEEDS:
        again = [at_ms for at_ms, each in draw(seed).operations if "-again" in str(each)]
        if again:
            found += 1
            assert [at_ms - again[0] for at_ms in again] == [0, 300, 450, 1_450, 2_450, 4_450, 8_450]
    assert found
