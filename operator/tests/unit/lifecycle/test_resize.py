"""Fewer brokers and other replication factors: where replicas move, what is refused, and how the set shrinks."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import Endpoint, TopicPartition
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek_operator.crds import Brokers, Cluster, Volume, ZooKeeper
from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Pod, Record, Set
from odradek_operator.lifecycle.replicas import partitions_of
from odradek_operator.lifecycle.resize import Resized, leaving, present_size, resized, size
from odradek_operator.topics.zookeeper_state import ObservedTopic, Snapshot

T = [TopicPartition("t", number) for number in range(9)]


def cluster(replicas: int, connect: str | None = None) -> Cluster:
    return Cluster(name="demo", brokers=Brokers(replicas=replicas), zookeeper=ZooKeeper(connect=connect))


def snapshot(
    *shape: tuple[int, ...],
    live: range | tuple[int, ...] = range(5),
    racks: dict[int, str] | None = None,
    machines: dict[int, str] | None = None,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    deleting: bool = False,
) -> Snapshot:
    topic = ObservedTopic(
        assignment=TopicAssignment(
            topic="t",
            partitions={number: ReplicaAssignment(replicas=replicas) for number, replicas in enumerate(shape)},
        ),
        version=5,
        states={
            number: PartitionState(
                leader=replicas[0] if leader is None else leader,
                leader_epoch=0,
                isr=replicas if isr is None else isr,
                controller_epoch=1,
            )
            for number, replicas in enumerate(shape)
        },
    )
    return Snapshot(
        controller_id=0,
        controller_epoch_version=1,
        brokers={
            broker: BrokerRegistration(
                broker_id=broker,
                endpoints=(Endpoint("R", "h", 1),),
                rack=(racks or {}).get(broker),
                machine=(machines or {}).get(broker),
            )
            for broker in live
        },
        topics={"t": topic},
        deleting=frozenset({"t"} if deleting else ()),
    )


def resize(brokers: int, seen: Snapshot, *, present: int = 5, factors: dict[str, int] | None = None) -> Resized:
    partitions = partitions_of(seen)
    gone = leaving(cluster(brokers), present, partitions)
    return resized(cluster(brokers), seen, partitions, gone=gone, factors=factors or {})


@pytest.mark.parametrize(
    ("seen", "brokers", "factors", "targets"),
    [
        # Nothing to do.
        (snapshot((0, 1), (1, 2)), 3, {}, {}),
        (snapshot((0, 1)), 5, {"t": 2}, {}),
        # A replica moves from the broker that is drained to the broker with the fewest replicas.
        (snapshot((4, 0), (0, 1)), 3, {}, {T[0]: (2, 0)}),
        (snapshot((0, 4), (0, 3)), 3, {}, {T[0]: (0, 1), T[1]: (0, 2)}),
        (snapshot((3, 4)), 3, {}, {T[0]: (0, 1)}),
        # A rack without a replica of the partition comes first, even if its brokers have more replicas.
        (snapshot((0, 4), (2, 0), (2, 0), racks={0: "a", 1: "a", 2: "b", 3: "a", 4: "b"}), 3, {}, {T[0]: (0, 2)}),
        # More replicas, fewer replicas, and a drain together with either.
        (snapshot((0,), live=range(3)), 3, {"t": 3}, {T[0]: (0, 1, 2)}),
        (snapshot((2, 1, 0), live=range(3)), 3, {"t": 1}, {T[0]: (2,)}),
        (snapshot((4, 0, 1)), 3, {"t": 2}, {T[0]: (0, 1)}),
        (snapshot((4, 0)), 3, {"t": 3}, {T[0]: (1, 0, 2)}),
        # So does a machine without a replica of the partition.
        (snapshot((0, 4), (2, 0), (2, 0), machines={0: "a", 1: "a", 2: "b"}), 3, {}, {T[0]: (0, 2)}),
        (snapshot((0,), (1, 0), machines={0: "a", 1: "b", 2: "a"}), 3, {"t": 2}, {T[0]: (0, 1)}),
        (snapshot((0, 1, 2), live=range(3), machines={0: "a", 1: "b", 2: "a"}), 3, {"t": 2}, {T[0]: (0, 1)}),
        # Which replica is removed: on a broker that is down, not in sync, or in a rack that has another replica.
        (snapshot((0, 1, 2), live=(0, 2)), 3, {"t": 2}, {T[0]: (0, 2)}),
        (snapshot((0, 1, 2), live=range(3), isr=(0, 2)), 3, {"t": 2}, {T[0]: (0, 2)}),
        (snapshot((0, 1, 2), live=range(3), racks={0: "a", 1: "b", 2: "a"}), 3, {"t": 2}, {T[0]: (0, 1)}),
        (snapshot((0, 1, 2), (1, 0), (1, 0), live=range(3)), 3, {"t": 2}, {T[0]: (0, 2)}),
        # Replicas of a topic that is being deleted do not move.
        (snapshot((4, 0), deleting=True), 3, {"t": 3}, {}),
    ],
)
def test_where_replicas_go(
    seen: Snapshot, brokers: int, factors: dict[str, int], targets: dict[TopicPartition, tuple[int, ...]]
) -> None:
    wish = resize(brokers, seen, factors=factors)
    assert dict(wish.targets) == targets
    assert not wish.stuck
    assert not wish.waiting


@pytest.mark.parametrize(
    "seen",
    [
        snapshot((4, 0), leader=-1),
        snapshot((4, 0), leader=4, live=(0, 1, 2)),
        snapshot((4, 0), leader=0, live=(0, 4)),
        snapshot((4, 0, 1), live=(0, 2, 4)),
    ],
)
def test_what_cannot_move_yet(seen: Snapshot) -> None:
    wish = resize(3, seen)
    assert not wish.targets
    assert wish.stuck == (T[0],)


def test_never_onto_a_broker_that_is_not_registered() -> None:
    assert resize(3, snapshot((4, 0), live=(0, 2, 4))).targets == {T[0]: (2, 0)}


def test_a_drain_is_refused_where_a_topic_would_not_fit_and_then_nothing_moves() -> None:
    wish = resize(3, snapshot((4, 0), (0, 1, 2, 3)))
    assert not wish.targets
    refused = wish.waiting[0]
    assert (refused.what, refused.reason, refused.needs_person) == ("scale-in", "ReplicasDoNotFit", True)
    assert refused.message == (
        "Brokers 3 and 4 cannot be drained: topic t has 4 replicas, and 3 brokers would remain. Lower its replication "
        "factor, or keep the brokers."
    )


def test_a_factor_that_is_lowered_in_the_same_breath_makes_it_fit() -> None:
    wish = resize(3, snapshot((0, 1, 2, 3)), factors={"t": 3})
    assert wish.targets == {T[0]: (0, 1, 2)}
    assert not wish.waiting


def test_a_factor_beyond_the_brokers_is_refused() -> None:
    wish = resize(2, snapshot((0, 1), live=range(2)), present=2, factors={"t": 3})
    assert not wish.targets
    assert [(one.what, one.reason, one.needs_person) for one in wish.waiting] == [
        ("replication-factor", "NotEnoughBrokers", True)
    ]


def state(replicas: int) -> KubernetesState:
    found = Set(name="demo-kafka", replicas=replicas, restart_hash="", generation_observed=True)
    return KubernetesState(sets={found.name: found})


@pytest.mark.parametrize(
    ("present", "wanted", "seen", "expected"),
    [
        (3, 5, snapshot((0, 1)), 5),
        (3, 5, None, 5),
        (5, 3, None, 5),
        (5, 3, snapshot((0, 1)), 3),
        (5, 3, snapshot((0, 3)), 4),
        (5, 3, snapshot((0, 4)), 5),
        (5, 3, snapshot((0, 4), deleting=True), 5),
        (5, 3, dataclasses.replace(snapshot((0, 1)), reassigning=frozenset({T[0]})), 5),
        (5, 3, dataclasses.replace(snapshot((0, 1)), reassignment_requested=True), 5),
        (5, 3, dataclasses.replace(snapshot((0, 1)), unreadable={"u": "A znode cannot be understood."}), 5),
    ],
)
def test_the_set_shrinks_from_the_top_by_those_that_hold_nothing(
    present: int, wanted: int, seen: Snapshot | None, expected: int
) -> None:
    assert size(cluster(wanted), state(present), seen) == expected


def known(
    record: int | None, *, replicas: int | None = None, claims: tuple[int, ...] = (), pods: tuple[int, ...] = ()
) -> KubernetesState:
    """Return a Kubernetes state with this record of the size, with or without a StatefulSet."""
    found = {number: f"data-demo-kafka-{number}" for number in claims}
    return dataclasses.replace(
        KubernetesState() if replicas is None else state(replicas),
        record=Record(brokers=record),
        claims={
            name: Claim(name=name, uid="c", volume="v", nodes=(), lost=False, terminating=False)
            for name in found.values()
        },
        brokers={
            number: Pod(
                name=f"demo-kafka-{number}",
                uid="p",
                ordinal=number,
                node="n",
                ready=True,
                terminating=False,
                restart_hash="",
                phase="Running",
                trouble="",
                unscheduled_since=None,
            )
            for number in pods
        },
    )


FIVE = (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("seen", "assigned", "expected"),
    [
        # The record has the size, with or without a set: the set was deleted, scaled down by hand, or has not grown
        # yet.
        (known(5, claims=FIVE), None, 5),
        (known(5, replicas=3, claims=FIVE), None, 5),
        (known(3, replicas=5, claims=FIVE), None, 5),
        (known(5, claims=FIVE), (0, 1), 5),
        # The claims of drained brokers are kept and do not count.
        (known(3, claims=FIVE), None, 3),
        (known(3, claims=FIVE), (0, 1), 3),
        (known(3, replicas=3, claims=FIVE), (0, 2), 3),
        # A broker with a claim and with replicas in ZooKeeper was removed before it was drained.
        (known(None, claims=FIVE), (0, 4), 5),
        (known(3, replicas=3, claims=FIVE), (0, 4), 5),
        (known(3, replicas=3, claims=(0, 1, 2)), (0, 4), 3),
        # The record has brokers without claims. They belong to an earlier cluster.
        (known(5, claims=(0, 1, 2)), None, 3),
        (known(5, claims=(0, 1, 2, 3)), None, 4),
        # Without a record and a set, leftover pods determine the size, else the resource.
        (known(None, pods=(0, 1, 2, 3)), None, 4),
        (known(None, claims=FIVE), None, 3),
        (known(None), None, 3),
    ],
)
def test_how_many_brokers_there_are(seen: KubernetesState, assigned: tuple[int, ...] | None, expected: int) -> None:
    wanted = cluster(3)
    wanted = dataclasses.replace(
        wanted, brokers=dataclasses.replace(wanted.brokers, volumes=(Volume(id=0, size="1Gi"),))
    )
    assert present_size(wanted, seen, None if assigned is None else snapshot(assigned)) == expected


def test_brokers_beyond_ours_in_anothers_ensemble_are_not_brought_back() -> None:
    ours = dataclasses.replace(
        cluster(3, connect="zk"), brokers=Brokers(replicas=3, volumes=(Volume(id=0, size="1Gi"),))
    )
    assert present_size(ours, known(3, replicas=3, claims=FIVE), snapshot((0, 4))) == 3


def test_the_first_set_is_as_large_as_specified() -> None:
    assert size(cluster(3), KubernetesState(), None) == 3


def test_who_leaves_depends_on_whose_ensemble_it_is() -> None:
    partitions = partitions_of(snapshot((0, 7), (1, 3)))
    assert leaving(cluster(3), 4, partitions) == {3, 7}, "7 was taken away too early"
    assert leaving(cluster(3, connect="zk:2181"), 4, partitions) == {3}, "7 is somebody else's"


@given(st.data())
def test_carried_out_it_leaves_nothing_to_do_and_nothing_on_those_that_leave(data: st.DataObject) -> None:
    present = data.draw(st.integers(1, 6))
    brokers = data.draw(st.integers(1, 6))
    ids = range(max(present, brokers))
    one = st.permutations(ids).flatmap(lambda order: st.integers(1, len(ids)).map(lambda count: tuple(order[:count])))
    shape = data.draw(st.lists(one, min_size=1, max_size=12))
    racks = {broker: f"r{broker % 2}" for broker in ids} if data.draw(st.booleans()) else {}
    factors = data.draw(st.dictionaries(st.just("t"), st.integers(1, 6)))
    wish = resize(brokers, snapshot(*shape, live=ids, racks=racks), present=present, factors=factors)
    after = [wish.targets.get(T[0]._replace(partition=number), replicas) for number, replicas in enumerate(shape)]
    assert not wish.stuck
    again = resize(brokers, snapshot(*after, live=ids, racks=racks), present=present, factors=factors)
    assert not again.targets
    for replicas in after:
        assert len(set(replicas)) == len(replicas)
        if not wish.waiting:
            assert max(replicas) < brokers
            assert len(replicas) == factors.get("t", len(replicas))
