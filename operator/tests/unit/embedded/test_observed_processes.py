"""Local processes as input of the operator's decisions: restarts, drains and additions, as for pods."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import Endpoint
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek_operator.crds import Brokers, Cluster, Volume
from odradek_operator.embedded.observed_processes import CURRENT, ObservedBroker, kubernetes_state, local_cluster
from odradek_operator.lifecycle.cluster_plan import decide
from odradek_operator.lifecycle.observed_cluster import Quorum, Record
from odradek_operator.lifecycle.resize import present_size
from odradek_operator.lifecycle.steps import ClusterDecision, MoveReplicas, RestartPod
from odradek_operator.objects import names
from odradek_operator.topics.zookeeper_state import ObservedTopic, Snapshot

DEMO = Cluster(name="demo", brokers=Brokers(replicas=3))


def running(broker: int, *changed: str, ready: bool = True) -> ObservedBroker:
    return ObservedBroker(broker=broker, process=100 + broker, ready=ready, changed=changed)


def ended(broker: int) -> ObservedBroker:
    return ObservedBroker(broker=broker, process=None, ready=False, changed=("num.partitions",), trouble="It ended.")


def seen(
    *assignments: Sequence[int],
    live: Collection[int] = (0, 1, 2),
    isr: Collection[int] | None = None,
    controller: int = 0,
) -> Snapshot:
    """Return a snapshot with one topic, whose partitions have these replicas."""
    in_sync = set(live if isr is None else isr)
    parts = {number: ReplicaAssignment(replicas=tuple(replicas)) for number, replicas in enumerate(assignments)}
    states = {
        number: PartitionState(
            leader=next(broker for broker in replicas if broker in in_sync),
            leader_epoch=0,
            isr=tuple(broker for broker in replicas if broker in in_sync),
            controller_epoch=1,
        )
        for number, replicas in enumerate(assignments)
    }
    topic = ObservedTopic(assignment=TopicAssignment(topic="t", partitions=parts), version=0, states=states)
    return Snapshot(
        controller_id=controller,
        controller_epoch=1,
        controller_epoch_version=1,
        brokers={
            broker: BrokerRegistration(broker_id=broker, endpoints=(Endpoint("PLAINTEXT", "h", 1),)) for broker in live
        },
        topics={"t": topic} if assignments else {},
    )


def decided(cluster: Cluster, brokers: Sequence[ObservedBroker], snapshot: Snapshot) -> ClusterDecision:
    local = local_cluster(cluster)
    state = kubernetes_state(local, brokers, count=len(brokers), stored=range(len(brokers)), record=Record())
    return decide(
        local,
        state,
        snapshot,
        wanted_hashes={names.kafka("demo"): CURRENT, names.zookeeper("demo"): CURRENT},
        wanted_dynamic={},
        wanted_factors={},
        quorum=Quorum(),
        now=0.0,
        keep_others=True,
    )


def restarts(decision: ClusterDecision) -> list[int]:
    return [step.ordinal for step in decision.steps if isinstance(step, RestartPod)]


def with_brokers(count: int) -> Cluster:
    return dataclasses.replace(DEMO, brokers=dataclasses.replace(DEMO.brokers, replicas=count))


ALL = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def test_nothing_to_do() -> None:
    decision = decided(DEMO, [running(0), running(1), running(2)], seen(*ALL))
    assert (decision.broker_count, decision.steps, decision.waiting) == (3, (), ())


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ([running(0, "x"), running(1, "x"), running(2, "x")], [1]),
        ([running(0, "x"), running(1), running(2, "x")], [2]),
        ([running(0, "x"), running(1), running(2)], [0]),
        # The next restart waits for a restarted broker, and for one that has exited and starts with the new properties.
        ([running(0, "x"), running(1, ready=False), running(2, "x")], []),
        ([running(0, "x"), ended(1), running(2, "x")], []),
    ],
)
def test_brokers_restart_one_at_a_time_and_the_controller_last(
    brokers: Sequence[ObservedBroker], expected: list[int]
) -> None:
    assert restarts(decided(DEMO, brokers, seen(*ALL, controller=0))) == expected


def test_a_restart_waits_for_in_sync_replicas() -> None:
    config = {"min.insync.replicas": "2"}
    cluster = dataclasses.replace(DEMO, brokers=dataclasses.replace(DEMO.brokers, config=config))
    brokers = [running(0), running(1, "x"), running(2)]
    decision = decided(cluster, brokers, seen(*ALL, (0, 1, 2), isr=(0, 1)))
    assert restarts(decision) == []
    assert [waiting.what for waiting in decision.waiting] == ["roll"]


def test_a_broker_that_never_became_ready_restarts_with_new_properties() -> None:
    brokers = [running(0), running(1), running(2, "x", ready=False)]
    assert restarts(decided(DEMO, brokers, seen(*ALL, live=(0, 1)))) == [2]


def test_more_brokers_are_added_at_once() -> None:
    assert decided(with_brokers(5), [running(0), running(1), running(2)], seen(*ALL)).broker_count == 5


def test_a_broker_is_drained_before_it_is_removed() -> None:
    four = [running(broker) for broker in range(4)]
    draining = decided(DEMO, four, seen((0, 1, 3), live=range(4)))
    assert draining.broker_count == 4
    (step,) = draining.steps
    assert isinstance(step, MoveReplicas)
    assert list(step.targets.values()) == [(0, 1, 2)]
    assert decided(DEMO, four, seen((0, 1, 2), live=range(4))).broker_count == 3


def test_brokers_that_cannot_be_drained_stay_with_a_reason() -> None:
    decision = decided(with_brokers(2), [running(0), running(1), running(2)], seen(*ALL))
    assert decision.broker_count == 3
    assert [(waiting.reason, waiting.needs_person) for waiting in decision.waiting] == [("ReplicasDoNotFit", True)]


@pytest.mark.parametrize(
    ("stored", "record", "held", "count"),
    [
        ((), None, (0, 1), 3),
        ((0, 1, 2, 3), None, (3, 0), 4),
        ((0, 1, 2, 3), None, (0, 1), 3),
        # The directory of broker 3 was deleted. An empty broker would not restore its replicas.
        ((0, 1, 2), None, (3, 0), 3),
        ((0, 1, 2, 3, 4), 5, (0, 1), 5),
        ((0, 1, 2), 5, (0, 1), 3),
    ],
)
def test_brokers_of_an_unfinished_drain_start_again(
    stored: Collection[int], record: int | None, held: tuple[int, int], count: int
) -> None:
    local = local_cluster(DEMO)
    state = kubernetes_state(local, (), count=None, stored=stored, record=Record(brokers=record, first_id=0))
    assert present_size(local, state, seen(held, live=(0, 1, 2, 3))) == count


def test_several_volumes() -> None:
    volumes = (Volume(id=1, size="1Gi"), Volume(id=4, size="1Gi"))
    cluster = local_cluster(dataclasses.replace(DEMO, brokers=Brokers(replicas=1, volumes=volumes)))
    state = kubernetes_state(cluster, (), count=None, stored=(1,), record=Record())
    assert present_size(cluster, state, seen((1, 0), live=(0, 1))) == 2


observed = st.builds(
    lambda kind, broker: {
        "current": running(broker),
        "older": running(broker, "x"),
        "starting": running(broker, ready=False),
        "stuck": running(broker, "x", ready=False),
        "ended": ended(broker),
    }[kind],
    st.sampled_from(["current", "older", "starting", "stuck", "ended"]),
    st.just(0),
)


@given(st.lists(observed, min_size=3, max_size=3), st.integers(0, 2), st.sets(st.integers(0, 2), min_size=1))
def test_never_two_brokers_are_away_because_of_us(
    kinds: list[ObservedBroker], controller: int, in_sync: set[int]
) -> None:
    """A broker that serves clients restarts only while all others serve. One that does not run is never restarted."""
    brokers = [dataclasses.replace(one, broker=number) for number, one in enumerate(kinds)]
    live = [one.broker for one in brokers if one.process is not None and one.ready]
    in_sync &= set(live)
    if not in_sync:
        return
    snapshot = seen(*ALL, live=live, isr=in_sync, controller=controller if controller in live else live[0])
    for broker in restarts(decided(DEMO, brokers, snapshot)):
        assert brokers[broker].process is not None
        assert brokers[broker].changed
        if brokers[broker].ready:
            assert len(live) == 3
            assert len(in_sync - {broker}) >= 1
            older = [one.broker for one in brokers if one.changed]
            assert broker != snapshot.controller_id or older == [broker]
