"""Decisions about one topic: a table of states and resources, and that a completed plan leaves nothing to do."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.zk.layout import ReplicaAssignment, TopicAssignment
from odradek.zk.ownership import ManagedTopic
from odradek_operator.crds import Brokers, Cluster, Deletion, Drift, Topic, ZooKeeper
from odradek_operator.topics import topic_decisions as topics
from odradek_operator.topics.topic_actions import (
    Action,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    ForgetOwnership,
    Obstacle,
    Ownership,
    RecordOwnership,
    SetConfig,
)
from odradek_operator.topics.topic_plan import Plan, Wanted, make_plan
from odradek_operator.topics.zookeeper_state import ObservedConfig, ObservedOwnership, ObservedTopic, Snapshot

from .topic_states import TWO, brokers, desired, observed, record, snapshot


def test_a_topic_that_is_not_there_is_created_over_all_live_brokers() -> None:
    decision = topics.decide(desired(6, 2, retention_ms="60000"), snapshot(), brokers=3)
    (action,) = decision.actions
    assert isinstance(action, CreateTopic)
    assert sorted(action.assignment) == list(range(6))
    assert all(len(set(replicas)) == 2 for replicas in action.assignment.values())
    assert sorted(replicas[0] for replicas in action.assignment.values()) == [0, 0, 1, 1, 2, 2]
    assert action.config == {"retention.ms": "60000"}
    assert action.config_version is None
    assert action.reason == "requested by the resource: 6 partitions with 2 replicas"


def test_what_an_earlier_topic_left_in_the_configuration_is_replaced() -> None:
    (action,) = topics.decide(desired(), snapshot(config={"retention.ms": "1"}), brokers=3).actions
    assert isinstance(action, CreateTopic)
    assert (action.config, action.config_version) == ({}, 2)


def test_replicas_that_are_not_given_follow_the_cluster() -> None:
    (action,) = topics.decide(desired(1, None), snapshot(live=2), brokers=2).actions
    assert isinstance(action, CreateTopic)
    assert len(action.assignment[0]) == 2


def test_the_same_state_gives_the_same_assignment() -> None:
    assert topics.decide(desired(), snapshot(), brokers=3) == topics.decide(desired(), snapshot(), brokers=3)


def test_replicas_are_spread_over_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    (action,) = topics.decide(desired(8, 2), snapshot(brokers=brokers(4, racks)), brokers=4).actions
    assert isinstance(action, CreateTopic)
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in action.assignment.values())


def test_replicas_of_new_topics_and_partitions_are_spread_over_machines() -> None:
    machines = {0: "a", 1: "a", 2: "b", 3: "b"}
    live = brokers(4, machines=machines)
    (created,) = topics.decide(desired(8, 2), snapshot(brokers=live), brokers=4).actions
    assert isinstance(created, CreateTopic)
    assert all({machines[broker] for broker in replicas} == {"a", "b"} for replicas in created.assignment.values())
    (grown,) = topics.decide(desired(9, 2), snapshot(observed("orders", (0, 2)), brokers=live), brokers=4).actions
    assert isinstance(grown, AddPartitions)
    replicas = [part.replicas for part in grown.assignment.partitions.values()]
    assert len(replicas) == 9
    assert all({machines[broker] for broker in each} == {"a", "b"} for each in replicas)


def test_a_topic_that_is_as_specified_is_adopted_without_a_change() -> None:
    state = snapshot(TWO, config={"retention.ms": "60000"}, owned=None)
    decision = topics.decide(desired(retention_ms="60000"), state, brokers=3)
    (action,) = decision.actions
    assert isinstance(action, RecordOwnership), "only that it is the resource's is noted"
    assert action.ownership == Ownership(resource="", owned=frozenset({"retention.ms"}), version=None)
    assert decision.refusals == ()


def test_growing_keeps_every_existing_replica_and_goes_on_in_turn() -> None:
    (action,) = topics.decide(desired(5), snapshot(TWO, config={}), brokers=3).actions
    assert isinstance(action, AddPartitions)
    partitions = {number: part.replicas for number, part in action.assignment.partitions.items()}
    assert partitions[0] == (0, 1)
    assert partitions[1] == (1, 2)
    assert [partitions[number][0] for number in (2, 3, 4)] == [2, 0, 1]
    assert all(len(set(replicas)) == 2 for replicas in partitions.values())
    assert action.version == 4
    assert action.assignment.topic_id == TWO.assignment.topic_id
    assert action.reason == "spec.partitions is 5, but the topic has 2"


def test_growing_keeps_the_topics_factor_whatever_the_resource_says() -> None:
    decision = topics.decide(desired(3, 3), snapshot(TWO, config={}), brokers=3)
    (action,) = decision.actions
    assert isinstance(action, AddPartitions)
    assert len(action.assignment.partitions[2].replicas) == 2
    assert decision.refusals == ()
    assert decision.reassigning.startswith("spec.replicas is 3: 0 of 2 partitions have")


@pytest.mark.parametrize(
    ("present", "wanted", "result", "reason"),
    [
        ({}, {"retention.ms": "1"}, {"retention.ms": "1"}, "retention.ms is set to 1"),
        ({"retention.ms": "2"}, {"retention.ms": "1"}, {"retention.ms": "1"}, "retention.ms changes from 2 to 1"),
        ({"retention.ms": "2"}, {}, {}, "retention.ms is removed (was 2)"),
        (
            {"retention.ms": "2", "segment.bytes": "100"},
            {"segment.bytes": "100", "preallocate": "true"},
            {"segment.bytes": "100", "preallocate": "true"},
            "preallocate is set to true; retention.ms is removed (was 2)",
        ),
        ({"retention.ms": "soon"}, {"retention.ms": "1"}, {"retention.ms": "1"}, "retention.ms changes from soon to 1"),
        (
            {"leader.replication.throttled.replicas": "*", "retention.ms": "2"},
            {},
            {"leader.replication.throttled.replicas": "*"},
            "retention.ms is removed (was 2)",
        ),
    ],
)
def test_configurations_follow(
    present: dict[str, str], wanted: dict[str, str], result: dict[str, str], reason: str
) -> None:
    (action,) = topics.decide(
        dataclasses.replace(desired(), config=wanted), snapshot(TWO, config=present), brokers=3
    ).actions
    assert isinstance(action, SetConfig)
    assert (action.config, action.version, action.reason) == (result, 2, reason)
    assert action.ownership == Ownership(resource="", owned=frozenset(wanted), version=5)


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ({"retention.ms": "0060"}, {"retention.ms": "60"}),
        ({"preallocate": "TRUE"}, {"preallocate": "true"}),
        ({"cleanup.policy": "compact, delete"}, {"cleanup.policy": "compact,delete"}),
        ({"follower.replication.throttled.replicas": "0:1"}, {}),
    ],
)
def test_values_that_mean_the_same_and_foreign_keys_are_left_alone(
    present: dict[str, str], wanted: dict[str, str]
) -> None:
    state = snapshot(TWO, config=present, owned=wanted)
    decision = topics.decide(dataclasses.replace(desired(), config=wanted), state, brokers=3)
    assert decision.actions == ()


def test_a_topic_without_a_configuration_znode_gets_one_when_it_needs_it() -> None:
    (action,) = topics.decide(desired(retention_ms="1"), snapshot(TWO), brokers=3).actions
    assert isinstance(action, SetConfig)
    assert action.version is None
    assert topics.decide(desired(), snapshot(TWO), brokers=3).actions == ()


@pytest.mark.parametrize(
    ("topic", "state", "obstacle", "words"),
    [
        (desired(), snapshot(controller_epoch_version=None), Obstacle.NO_CONTROLLER, "no controller yet"),
        (desired(), snapshot(TWO, deleting=frozenset({"orders"})), Obstacle.BEING_DELETED, "still being deleted"),
        (
            desired(),
            snapshot(live=1),
            Obstacle.NOT_ENOUGH_BROKERS,
            "2 replicas need as many live brokers, but there are only 1",
        ),
        (desired(1), snapshot(TWO), Obstacle.PARTITIONS_CANNOT_SHRINK, "spec.partitions is 1, but the topic has 2"),
        (desired(2, 4), snapshot(TWO), Obstacle.TOO_MANY_REPLICAS, "spec.replicas is 4, and the cluster has 3 brokers"),
        (desired(2, 4), snapshot(), Obstacle.TOO_MANY_REPLICAS, "spec.replicas is 4, and the cluster has 3 brokers"),
        (desired(2, 3), snapshot(TWO, live=2), Obstacle.NOT_ENOUGH_BROKERS, "3 replicas need as many live brokers"),
        (dataclasses.replace(desired(), paused=True), snapshot(TWO), Obstacle.PAUSED, "odradek.dev/paused"),
        (
            desired(),
            snapshot(TWO, unreadable={"orders": "A znode cannot be understood."}),
            Obstacle.ZNODE_UNREADABLE,
            "A znode cannot be understood.",
        ),
        (desired(3), snapshot(TWO, live=1), Obstacle.NOT_ENOUGH_BROKERS, "new partitions with 2 replicas need as many"),
        (
            desired(3),
            snapshot(observed("orders", (0, 1, 2), (1, 2), adding=(2,))),
            Obstacle.REASSIGNMENT_UNDER_WAY,
            "added after the current reassignment",
        ),
        (
            desired(3),
            snapshot(TWO, reassigning=frozenset({TopicPartition("orders", 1)})),
            Obstacle.REASSIGNMENT_UNDER_WAY,
            "added after the current reassignment",
        ),
        (desired(), snapshot(observed("orders")), Obstacle.NO_PARTITIONS, "has no partitions"),
        (
            Topic(name="or.ders", cluster="demo", replicas=1),
            snapshot(observed("or_ders", (0,))),
            Obstacle.NAME_COLLIDES,
            "collides with topic or_ders",
        ),
    ],
)
def test_refusals(topic: Topic, state: Snapshot, obstacle: Obstacle, words: str) -> None:
    decision = topics.decide(topic, state, brokers=3)
    (refusal,) = [refusal for refusal in decision.refusals if refusal.obstacle is obstacle]
    assert words in refusal.message
    assert not any(isinstance(action, CreateTopic | AddPartitions) for action in decision.actions)


def test_while_a_topic_moves_its_factor_is_that_of_its_target() -> None:
    moving = observed("orders", (0, 1), (1, 2))
    partitions = {
        0: ReplicaAssignment(replicas=(2, 0, 1), adding=(2,), removing=(1,)),
        1: ReplicaAssignment(replicas=(1, 2)),
    }
    topic = dataclasses.replace(moving, assignment=dataclasses.replace(moving.assignment, partitions=partitions))
    assert topic.replication_factor == 2
    decision = topics.decide(desired(), snapshot(topic), brokers=3)
    assert (decision.refusals, decision.actions) == ((), ())
    assert decision.reassigning == "replicas of 1 of 2 partitions are being moved."


def test_a_move_that_is_only_asked_for_is_told_too() -> None:
    state = snapshot(TWO, reassigning=frozenset({TopicPartition("orders", 1), TopicPartition("other", 0)}))
    assert topics.decide(desired(), state, brokers=3).reassigning == "replicas of 1 of 2 partitions are being moved."


def factors(*desired_topics: Topic, state: Snapshot, cluster: Cluster | None = None) -> dict[str, int]:
    wanted = Wanted(cluster=cluster or Cluster(name="demo"), topics={topic.name: topic for topic in desired_topics})
    return topics.wanted_factors(wanted, state)


@pytest.mark.parametrize(
    ("topic", "state", "expected"),
    [
        (desired(2, 3), snapshot(TWO), {"orders": 3}),
        (desired(2, 1), snapshot(TWO), {"orders": 1}),
        (desired(2, 2), snapshot(TWO), {}),
        (desired(2, None), snapshot(TWO), {}),
        (desired(2, 3), snapshot(), {}),
        (desired(2, 4), snapshot(TWO), {}),
        (desired(2, 4), snapshot(TWO, live=4), {"orders": 4}),
        (desired(2, 3), snapshot(TWO, live=2), {}),
        (desired(2, 3), snapshot(TWO, controller_epoch_version=None), {}),
        (desired(2, 3), snapshot(TWO, deleting=frozenset({"orders"})), {}),
        (desired(2, 3), snapshot(TWO, unreadable={"orders": "why."}), {}),
        (dataclasses.replace(desired(2, 3), paused=True), snapshot(TWO), {}),
    ],
)
def test_other_replication_factors_are_named_where_they_are_possible(
    topic: Topic, state: Snapshot, expected: dict[str, int]
) -> None:
    assert factors(topic, state=state) == expected
    assert factors(topic, state=state, cluster=Cluster(name="demo", paused=True)) == {}


def test_a_factor_is_wanted_until_the_last_partition_has_it() -> None:
    half = observed("orders", (0, 1, 2), (1, 2))
    assert factors(desired(2, 3), state=snapshot(half)) == {"orders": 3}
    decision = topics.decide(desired(2, 3), snapshot(half), brokers=3)
    assert decision.reassigning.startswith("spec.replicas is 3: 1 of 2 partitions have this factor or")
    # The last partition is being moved: no factor is wanted any more, and the status reports the move.
    partitions = {
        0: ReplicaAssignment(replicas=(0, 1, 2)),
        1: ReplicaAssignment(replicas=(1, 2, 0), adding=(0,)),
    }
    moving = dataclasses.replace(half, assignment=dataclasses.replace(half.assignment, partitions=partitions))
    assert factors(desired(2, 3), state=snapshot(moving)) == {}
    decision = topics.decide(desired(2, 3), snapshot(moving), brokers=3)
    assert decision.reassigning == "replicas of 1 of 2 partitions are being moved."


ADOPTING = dataclasses.replace(desired(1, 2, retention_ms="5"), drift=Drift.ADOPT)


def test_what_others_set_is_adopted_and_told() -> None:
    found = {"retention.ms": "6", "segment.bytes": "100", "leader.replication.throttled.replicas": "*"}
    decision = topics.decide(ADOPTING, snapshot(TWO, config=found), brokers=3)
    (action,) = decision.actions
    assert isinstance(action, SetConfig)
    assert action.config == found | {"retention.ms": "5"}
    assert decision.refusals == ()
    assert decision.adopted == ("partitions=2", "segment.bytes=100")


def test_what_is_adopted_already_is_left_alone() -> None:
    state = snapshot(TWO, config={"retention.ms": "5", "segment.bytes": "100"})
    state = dataclasses.replace(state, ownership={"orders": record({"retention.ms"})})
    assert topics.decide(ADOPTING, state, brokers=3).actions == ()
    reverting = dataclasses.replace(ADOPTING, drift=Drift.REVERT)
    decision = topics.decide(reverting, state, brokers=3)
    assert [type(action) for action in decision.actions] == [SetConfig]
    assert [refusal.obstacle for refusal in decision.refusals] == [Obstacle.PARTITIONS_CANNOT_SHRINK]
    assert decision.adopted == ()


def test_a_topic_that_cannot_be_read_is_not_made_anew_and_not_deleted() -> None:
    state = snapshot(TWO, unreadable={"orders": "why."})
    loose = dataclasses.replace(desired(), deletion=Deletion.DELETE)
    decision = topics.decide_removed(loose, state)
    assert decision.actions == ()
    assert [refusal.obstacle for refusal in decision.refusals] == [Obstacle.ZNODE_UNREADABLE]


@pytest.mark.parametrize(("connect", "used"), [(None, {0, 1, 2}), ("zk:2181/kafka", {0, 1, 2, 3, 4})])
def test_new_replicas_do_not_go_to_brokers_that_are_drained(connect: str | None, used: set[int]) -> None:
    cluster = Cluster(name="demo", brokers=Brokers(replicas=3), zookeeper=ZooKeeper(connect=connect))
    plan = make_plan(Wanted(cluster=cluster, topics={"orders": desired(30, 3)}), snapshot(live=5))
    (action,) = plan.actions
    assert isinstance(action, CreateTopic)
    assert {broker for replicas in action.assignment.values() for broker in replicas} == used


def test_nothing_is_planned_for_a_paused_cluster_or_topic() -> None:
    paused = dataclasses.replace(desired(), paused=True, deletion=Deletion.DELETE)
    gone = dataclasses.replace(paused, name="gone")
    plan = make_plan(
        Wanted(cluster=Cluster(name="demo", paused=True), topics={"orders": desired(9)}, removed={"gone": gone}),
        snapshot(TWO),
    )
    assert plan.actions == ()
    assert {refusal.obstacle for refusal in plan.refusals} == {Obstacle.PAUSED}
    assert len(plan.decisions) == 2
    (refusal,) = topics.decide_removed(paused, snapshot(TWO)).refusals
    assert refusal.obstacle is Obstacle.PAUSED


@pytest.mark.parametrize(
    ("deletion", "state", "deleted", "obstacle"),
    [
        (Deletion.DELETE, snapshot(TWO), True, None),
        (Deletion.PROTECT, snapshot(TWO, owned=None), False, Obstacle.PROTECTED),
        (Deletion.DELETE, snapshot(), False, None),
        (Deletion.PROTECT, snapshot(), False, None),
        (Deletion.DELETE, snapshot(TWO, deleting=frozenset({"orders"})), False, None),
        (Deletion.DELETE, snapshot(TWO, controller_epoch_version=None), False, Obstacle.NO_CONTROLLER),
    ],
)
def test_a_removed_resource(deletion: Deletion, state: Snapshot, deleted: bool, obstacle: Obstacle | None) -> None:
    decision = topics.decide_removed(dataclasses.replace(desired(), deletion=deletion), state)
    assert [type(action) for action in decision.actions] == [DeleteTopic] * deleted
    assert [refusal.obstacle for refusal in decision.refusals] == [obstacle] * (obstacle is not None)
    assert all(isinstance(action, DeleteTopic) and action.version == 4 for action in decision.actions)


def test_a_plan_ends_things_before_it_makes_new_ones_and_leaves_strangers_alone() -> None:
    state = dataclasses.replace(
        snapshot(),
        topics={name: observed(name, (0, 1), (1, 2)) for name in ("grows", "stranger", "unwanted", "zz-configured")},
    )
    plan = make_plan(
        Wanted(
            cluster=Cluster(name="demo"),
            topics={
                "a-new": Topic(name="a-new", cluster="demo"),
                "grows": Topic(name="grows", cluster="demo", partitions=3, replicas=2),
                "zz-configured": Topic(
                    name="zz-configured", cluster="demo", partitions=2, replicas=2, config={"retention.ms": "1"}
                ),
            },
            removed={"unwanted": Topic(name="unwanted", cluster="demo", deletion=Deletion.DELETE)},
        ),
        dataclasses.replace(state, ownership={"grows": record(())}),
    )
    assert [(type(action), action.topic) for action in plan.actions] == [
        (DeleteTopic, "unwanted"),
        (CreateTopic, "a-new"),
        (AddPartitions, "grows"),
        (SetConfig, "zz-configured"),
    ]
    assert plan.refusals == ()


def test_a_resource_that_is_back_is_not_deleted() -> None:
    back = dataclasses.replace(desired(), deletion=Deletion.DELETE)
    wanted = Wanted(cluster=Cluster(name="demo"), topics={"orders": back}, removed={"orders": back})
    assert make_plan(wanted, snapshot(TWO)).actions == ()


# A separate model of the writes: the property test below must not rely on the code under test.


def after(state: Snapshot, action: Action) -> Snapshot:
    there = dict(state.topics)
    configs = dict(state.configs)
    ownership = dict(state.ownership)
    match action:
        case CreateTopic():
            assignment = TopicAssignment(
                topic=action.topic,
                partitions={n: ReplicaAssignment(replicas=tuple(r)) for n, r in action.assignment.items()},
            )
            there[action.topic] = ObservedTopic(assignment=assignment, version=0)
            version = -1 if action.config_version is None else action.config_version
            configs[action.topic] = ObservedConfig(values=action.config, version=version + 1)
            ownership[action.topic] = noted(state, action.topic, None, action.ownership)
        case AddPartitions():
            assert there[action.topic].version == action.version
            there[action.topic] = ObservedTopic(assignment=action.assignment, version=action.version + 1)
        case SetConfig():
            known = configs.get(action.topic)
            assert (None if known is None else known.version) == action.version
            configs[action.topic] = ObservedConfig(values=action.config, version=(action.version or 0) + 1)
            ownership[action.topic] = noted(state, action.topic, action.topic_id, action.ownership)
        case RecordOwnership():
            assert there[action.topic].version == action.topic_version
            known = configs.get(action.topic)
            assert (None if known is None else known.version) == action.config_version
            ownership[action.topic] = noted(state, action.topic, action.topic_id, action.ownership)
        case DeleteTopic():
            known_record = ownership.pop(action.topic, None)
            assert (None if known_record is None else known_record.version) == action.ownership_version
            return dataclasses.replace(state, deleting=state.deleting | {action.topic}, ownership=ownership)
        case ForgetOwnership():
            assert ownership.pop(action.topic).version == action.version
    return dataclasses.replace(state, topics=there, configs=configs, ownership=ownership)


def noted(state: Snapshot, topic: str, topic_id: UUID | None, ownership: Ownership) -> ObservedOwnership:
    known = state.ownership.get(topic)
    assert (None if known is None else known.version) == ownership.version
    managed = ManagedTopic(
        topic=topic,
        topic_id=topic_id,
        resource=ownership.resource,
        owned=ownership.owned,
        preserved=ownership.preserved,
    )
    return ObservedOwnership(record=managed, version=0 if known is None else known.version + 1)


names = st.sampled_from(["a", "b", "c.d", "c-d"])
configs = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.bytes", "max.message.bytes"]), st.integers(100, 9999).map(str), max_size=3
)


@st.composite
def resources(draw: st.DrawFn) -> Topic:
    return Topic(
        name=draw(names),
        cluster="demo",
        partitions=draw(st.integers(1, 7)),
        replicas=draw(st.none() | st.integers(1, 4)),
        config=draw(configs),
        deletion=draw(st.sampled_from(Deletion)),
        drift=draw(st.sampled_from(Drift)),
    )


@st.composite
def states(draw: st.DrawFn) -> Snapshot:
    live = draw(st.integers(1, 5))
    racks = draw(st.sampled_from([{}, dict.fromkeys(range(5), "a"), {0: "a", 1: "b", 2: "a", 3: "b", 4: "c"}]))
    there = {}
    for name in draw(st.sets(names | st.just("c_d"))):
        factor = draw(st.integers(1, live))
        rows = draw(st.lists(st.permutations(range(live)), min_size=1, max_size=5))
        there[name] = observed(name, *(tuple(row[:factor]) for row in rows), version=draw(st.integers(0, 9)))
    return snapshot(
        brokers=brokers(live, racks),
        topics=there,
        configs={name: ObservedConfig(values=draw(configs), version=3) for name in draw(st.sets(names))},
        ownership={name: record(draw(configs), draw(configs)) for name in draw(st.sets(names))},
        deleting=frozenset(draw(st.sets(st.sampled_from(sorted(there))))) if there else frozenset(),
        controller_epoch_version=draw(st.sampled_from([None, 0, 7])),
    )


@given(
    state=states(),
    wanted=st.lists(resources(), max_size=4),
    removed=st.lists(resources(), max_size=2),
    size=st.integers(1, 5),
)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    state: Snapshot, wanted: list[Topic], removed: list[Topic], size: int
) -> None:
    desired_topics = Wanted(
        cluster=Cluster(name="demo", brokers=Brokers(replicas=size)),
        topics={topic.name: topic for topic in wanted},
        removed={topic.name: topic for topic in removed},
    )
    plan = make_plan(desired_topics, state)
    done = state
    for action in plan.actions:
        done = after(done, action)
    again = make_plan(desired_topics, done)
    # A new topic can collide with the name of another one. That may cause refusals, but no further actions.
    assert again.actions == ()
    # New partitions and changed configurations cancel no change of a replication factor.
    assert topics.wanted_factors(desired_topics, state).items() <= topics.wanted_factors(desired_topics, done).items()
    check(desired_topics, plan, state, done)


def check(desired_topics: Wanted, plan: Plan, before: Snapshot, done: Snapshot) -> None:
    """Check what must be true of every plan."""
    touched = {action.topic for action in plan.actions}
    assert touched <= {*desired_topics.topics, *desired_topics.removed}
    for name, topic in done.topics.items():
        for part in topic.assignment.partitions.values():
            assert len(set(part.replicas)) == len(part.replicas)
        if name in before.topics:
            earlier = before.topics[name].assignment.partitions
            assert {number: topic.assignment.partitions[number] for number in earlier} == earlier
    for name in done.deleting - before.deleting:
        assert desired_topics.removed[name].deletion is Deletion.DELETE
        assert name not in desired_topics.topics
