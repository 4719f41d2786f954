"""Property tests of the operator in a model of a cluster, with events in any order.

Forbidden states never occur. Once no more faults happen, the cluster reaches the desired state.
"""

from __future__ import annotations

import dataclasses

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from odradek_operator.lifecycle.throttle import MARK
from odradek_operator.objects.names import Component

from .world import KAFKA, World, make_world

PODS = st.integers(0, 4)
BROKERS = st.builds(lambda ordinal, slot: ordinal + 1000 * slot, PODS, st.integers(0, 1))
EVENTS = st.tuples(
    st.sampled_from(["sets", "schedule", "end", "register", "ready", "member ready", "elect", "catch up", "reassign"]),
    st.integers(0, 12),
)
HASHES = st.sampled_from("abc")


def spread(brokers: int, partitions: int, factor: int, per_pod: int = 1) -> list[tuple[int, ...]]:
    """Return the replicas of partitions, each on another pod."""
    return [
        tuple((number + step) % brokers + 1000 * ((number + step) % per_pod) for step in range(factor))
        for number in range(partitions)
    ]


def happen(world: World, event: str, number: int) -> None:
    """Apply one event of the environment."""
    match event:
        case "sets":
            world.sets_act()
        case "schedule":
            world.schedule()
        case "end":
            world.end(Component.KAFKA)
            world.end(Component.ZOOKEEPER)
            world.elect()
        case "register":
            world.register(number % 5 + 1000 * (number // 5 % 2))
            world.elect()
        case "ready":
            world.become_ready(Component.KAFKA, number % 5)
        case "member ready":
            world.become_ready(Component.ZOOKEEPER, number % 3)
            world.elect()
        case "elect":
            world.elect()
        case "catch up":
            for _ in range(number):
                world.catch_up(number)
        case "reassign":
            world.reassign()


class OverTime(RuleBasedStateMachine):
    """The rules are the possible events. The assertions of `World` detect forbidden states."""

    world: World

    @initialize(
        brokers=st.integers(1, 4),
        zookeeper=st.sampled_from([1, 3]),
        shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3),
        racked=st.booleans(),
        per_pod=st.sampled_from([1, 1, 2]),
    )
    def begin(
        self, brokers: int, zookeeper: int, shapes: list[tuple[int, int, int]], racked: bool, per_pod: int
    ) -> None:
        self.world = make_world(
            {
                f"t{i}": spread(brokers, count, min(factor, brokers), per_pod)
                for i, (count, factor, _) in enumerate(shapes)
            },
            brokers=brokers,
            per_pod=per_pod,
            zookeeper=zookeeper,
            racks={broker: f"rack-{broker % 3}" for broker in range(8)} if racked else {},
            minimum={f"t{i}": minimum for i, (_, _, minimum) in enumerate(shapes)},
        )

    @rule(events=st.lists(EVENTS, max_size=8), dies_after=st.sampled_from([None, None, None, 0, 1]))
    def time_goes_on(self, events: list[tuple[str, int]], dies_after: int | None) -> None:
        """Apply events of the environment in any order, then run a round of the operator, which may be killed in it."""
        for event, number in events:
            happen(self.world, event, number)
        self.world.round(dies_after=dies_after)

    @rule(rounds=st.integers(1, 6), replicas_too=st.booleans())
    def all_settles(self, rounds: int, replicas_too: bool) -> None:
        for _ in range(rounds):
            self.world.settle(replicas_too=replicas_too)
            self.world.round()

    # Changes by users

    @rule(template=HASHES)
    def template_changes(self, template: str) -> None:
        self.world.hash = template

    @rule(template=HASHES)
    def template_is_bad(self, template: str) -> None:
        self.world.broken = {template}

    @rule(count=st.integers(1, 5))
    def size_changes(self, count: int) -> None:
        cluster = self.world.cluster
        self.world.cluster = dataclasses.replace(cluster, brokers=dataclasses.replace(cluster.brokers, replicas=count))

    @rule(per_pod=st.integers(1, 3))
    def pods_change(self, per_pod: int) -> None:
        brokers = dataclasses.replace(self.world.cluster.brokers, per_pod=per_pod)
        self.world.cluster = dataclasses.replace(self.world.cluster, brokers=brokers)

    @rule(topic=st.sampled_from(["t0", "t1"]), factor=st.integers(1, 4))
    def factor_changes(self, topic: str, factor: int) -> None:
        if topic in self.world.topics:
            self.world.factors[topic] = factor

    @rule(number=st.integers(0, 9))
    def defaults_change(self, number: int) -> None:
        self.world.dynamic = {"log.retention.ms": str(number)} if number else {}

    @rule(seconds=st.sampled_from([10, 400]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds

    # Faults

    @rule(broker=BROKERS)
    def broker_crashes(self, broker: int) -> None:
        self.world.crash(broker)
        self.world.elect()

    @rule(member=st.integers(0, 2))
    def member_crashes(self, member: int) -> None:
        self.world.crash_member(member)
        self.world.elect()

    @precondition(lambda self: len(self.world.bad_nodes) < 2)
    @rule(ordinal=PODS, runs_on=st.booleans())
    def node_is_lost(self, ordinal: int, runs_on: bool) -> None:
        self.world.lose_node(ordinal, runs_on=runs_on)
        self.world.elect()

    @precondition(lambda self: len(self.world.bad_nodes) < 2)
    @rule(member=st.integers(0, 2))
    def node_of_a_member_is_lost(self, member: int) -> None:
        self.world.lose_member_node(member)
        self.world.elect()

    @rule()
    def nodes_return(self) -> None:
        self.world.regain_nodes()

    def teardown(self) -> None:
        """Stop all faults. The cluster reaches the desired state, and the operator has nothing left to do."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.broken = set()
        world.regain_nodes()
        for _ in range(120):
            world.settle()
            decision = world.round()
            settled = not decision.steps and not [one for one in decision.waiting if not one.needs_person]
            if (
                settled
                and not world.asked
                and decision.broker_count == world.sets[KAFKA].replicas
                and all(one.generation_observed for one in world.sets.values())
            ):
                break
        else:
            raise AssertionError(f"it does not settle: {decision}")
        world.settle()
        check_settled(world)


def check_settled(world: World) -> None:
    decision = world.decide()
    refused = {one.reason for one in decision.waiting}
    assert not decision.steps, decision
    assert all(one.needs_person for one in decision.waiting)
    assert all(pod.hash == world.hash and pod.ready for pod in world.members.values())
    assert all(pod.ready for pod in world.pods.values())
    if "InSyncReplicas" in refused:
        # Replicas of a partition share a pod only if the pods that stay are too few for them.
        assert "ReplicasDoNotFit" in refused
    else:
        assert not decision.outdated
        hash_of_brokers = world.brokers_hash(decision.per_pod)
        assert all(pod.hash == hash_of_brokers for pod in world.pods.values())
    assert not any(one.adding or one.removing or set(one.isr) != set(one.replicas) for one in world.all_partitions())
    assert MARK not in world.defaults
    assert world.defaults == world.dynamic
    assert not any(world.overrides.values())
    if "ReplicasDoNotFit" not in refused:
        assert len(world.pods) == world.cluster.brokers.replicas
        assert decision.per_pod == world.cluster.brokers.per_pod
        ids = world.cluster.brokers.ids()
        assert all(ids.issuperset(one.replicas) for one in world.all_partitions())
    for topic, factor in world.factors.items():
        if factor <= world.cluster.brokers.replicas:
            assert all(len(one.replicas) == factor for one in world.topics[topic].values())


TestOverTime = OverTime.TestCase
TestOverTime.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_replicas_of_a_partition_in_the_only_pod_that_stays_need_a_person() -> None:
    """One broker is to stay, but a topic has two replicas. Both are on the pod that stays, which has two brokers."""
    state = OverTime()
    state.begin(brokers=2, zookeeper=1, shapes=[(3, 2, 1)], racked=False, per_pod=2)
    state.size_changes(count=1)
    state.all_settles(replicas_too=False, rounds=1)
    state.pods_change(per_pod=1)
    state.template_changes(template="b")
    state.teardown()
    decision = state.world.decide()
    assert {(one.what, one.reason, one.needs_person) for one in decision.waiting} == {
        ("roll", "InSyncReplicas", True),
        ("scale-in", "ReplicasDoNotFit", True),
    }


def test_no_pod_restarts_in_the_round_that_adds_another() -> None:
    """A surplus pod is still terminating when the size grows again. It counts as soon as the size includes it."""
    state = OverTime()
    state.begin(brokers=1, zookeeper=1, shapes=[(1, 1, 1)], racked=False, per_pod=1)
    state.size_changes(count=2)
    state.time_goes_on(events=[], dies_after=None)
    state.pods_change(per_pod=2)
    state.size_changes(count=1)
    state.time_goes_on(events=[("sets", 0)], dies_after=None)
    state.size_changes(count=2)
    state.time_goes_on(events=[("sets", 0)], dies_after=None)
    state.world.sets_act()
    waiting = [one.message for one in state.world.decide().waiting]
    assert waiting == ["Pod demo-kafka-1 is ending."]
    state.teardown()
