"""The record of a cluster's sizes: its content, when it applies, and which changes of the size it refuses."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.crds import Brokers, Cluster, Volume, ZooKeeper
from odradek_operator.lifecycle.cluster_record import (
    Ensemble,
    ensemble_of,
    in_force,
    is_formed,
    next_record,
    other_cluster,
    read_record,
    record_data,
)
from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Record, Set, parse_set

VOLUMES = (Volume(id=0, size="1Gi"),)
records = st.builds(
    Record,
    brokers=st.none() | st.integers(1, 1_000),
    first_id=st.none() | st.integers(0, 999_000),
    members=st.none() | st.integers(1, 255),
    formed=st.none() | st.booleans(),
    cluster_id=st.none() | st.text(min_size=1),
    cluster_uid=st.text(),
)


def cluster(members: int = 3, *, connect: str | None = None, uid: str = "u1") -> Cluster:
    return Cluster(
        name="demo",
        uid=uid,
        brokers=Brokers(replicas=3, volumes=VOLUMES),
        zookeeper=ZooKeeper(replicas=members, connect=connect),
    )


def claims(*names: str, terminating: bool = False) -> dict[str, Claim]:
    found = [
        Claim(name=f"data-demo-{name}", uid="c", volume="v", nodes=(), lost=False, terminating=terminating)
        for name in names
    ]
    return {claim.name: claim for claim in found}


MEMBERS = ("zookeeper-0", "zookeeper-1", "zookeeper-2")


def sets(members: int) -> dict[str, Set]:
    found = Set(name="demo-zookeeper", replicas=members, restart_hash="a", generation_observed=True)
    return {found.name: found}


@given(record=records)
def test_what_is_written_is_read(record: Record) -> None:
    data = {key: value for key, value in record_data(record).items() if value is not None}
    assert read_record(data) == record


@given(
    data=st.dictionaries(
        st.sampled_from(list(record_data(Record()))), st.text() | st.integers() | st.none() | st.lists(st.integers())
    )
)
def test_what_somebody_has_spoilt_is_unknown(data: dict[str, object]) -> None:
    record = read_record(data)
    assert record.brokers is None or 1 <= record.brokers <= 1_000
    assert record.members is None or 1 <= record.members <= 255


@pytest.mark.parametrize(
    ("uid", "state", "counts"),
    [
        ("u1", KubernetesState(), True),
        # Another Cluster of the same name: the record applies while objects of the earlier cluster still exist.
        ("u2", KubernetesState(), False),
        ("u2", KubernetesState(claims=claims("kafka-0")), True),
        ("u2", KubernetesState(claims=claims("kafka-0", terminating=True)), False),
        ("u2", KubernetesState(sets=sets(3)), True),
    ],
)
def test_a_record_counts_as_long_as_anything_is_left(uid: str, state: KubernetesState, counts: bool) -> None:
    record = Record(brokers=5, cluster_uid="u1")
    assert in_force(record, state, uid=uid) == (record if counts else Record())


@pytest.mark.parametrize(
    ("record", "state", "size", "reasons"),
    [
        # A new cluster, and clusters whose size has not changed.
        (Record(), KubernetesState(), 3, []),
        (Record(members=3, formed=True), KubernetesState(claims=claims(*MEMBERS)), 3, []),
        (Record(), KubernetesState(claims=claims(*MEMBERS)), 3, []),
        (Record(), KubernetesState(sets=sets(3), claims=claims(*MEMBERS)), 3, []),
        # The resource has another size than before. The record or the set has the former size; claims do not show it.
        (
            Record(members=1, formed=True),
            KubernetesState(claims=claims("zookeeper-0")),
            1,
            ["EnsembleSizeCannotChange"],
        ),
        (Record(members=5, formed=True), KubernetesState(sets=sets(3)), 5, ["EnsembleSizeCannotChange"]),
        (Record(), KubernetesState(sets=sets(5)), 5, ["EnsembleSizeCannotChange"]),
        (Record(), KubernetesState(claims=claims("zookeeper-0")), None, ["EnsembleSizeUnknown"]),
        (Record(), KubernetesState(claims=claims(*MEMBERS, "zookeeper-4")), None, ["EnsembleSizeUnknown"]),
        # Somebody has scaled the set to 0, so the former size is unknown.
        (Record(), KubernetesState(sets=sets(0)), 3, []),
        # The claims of the ensemble are gone, but the claims of the brokers still exist.
        (Record(members=3, formed=True), KubernetesState(claims=claims("kafka-0")), 3, ["EnsembleLost"]),
        (Record(members=3, formed=False), KubernetesState(), 3, []),
    ],
)
def test_the_ensemble_keeps_its_size(
    record: Record, state: KubernetesState, size: int | None, reasons: list[str]
) -> None:
    found = ensemble_of(cluster(), dataclasses.replace(state, record=record))
    assert (found.cluster.zookeeper.replicas if found.known else None) == size
    assert [waiting.reason for waiting in found.waiting] == reasons
    assert all(waiting.needs_person for waiting in found.waiting)


def test_a_refused_size_says_which_one_to_return_to() -> None:
    state = KubernetesState(record=Record(members=1, formed=True), claims=claims("zookeeper-0"))
    (waiting,) = ensemble_of(cluster(), state).waiting
    assert waiting.message.startswith(
        "spec.zookeeper.replicas is 3, but the ensemble of this cluster has 1 member, and that number cannot change. "
        "Set spec.zookeeper.replicas back to 1."
    )


def test_another_ones_ensemble_has_any_size() -> None:
    given_one = cluster(connect="zk:2181")
    assert ensemble_of(given_one, KubernetesState(record=Record(members=5))) == Ensemble(cluster=given_one)


@pytest.mark.parametrize(
    ("record", "state", "formed"),
    [
        (Record(), KubernetesState(), False),
        (Record(formed=False), KubernetesState(claims=claims(*MEMBERS)), False),
        (Record(formed=True), KubernetesState(), True),
        # Without a record: claims without a set belong to an earlier cluster. With a set, the ensemble counts as formed
        # once it answers.
        (Record(), KubernetesState(claims=claims(*MEMBERS)), True),
        (Record(), KubernetesState(claims=claims(*MEMBERS), sets=sets(3)), False),
    ],
)
def test_when_an_empty_member_may_vote(record: Record, state: KubernetesState, formed: bool) -> None:
    assert is_formed(cluster(), dataclasses.replace(state, record=record)) is formed


def test_what_is_remembered_next() -> None:
    new = next_record(Ensemble(cluster=cluster()), KubernetesState(), broker_count=3, cluster_id=None)
    assert new == Record(brokers=3, first_id=0, members=3, formed=False, cluster_uid="u1")
    state = KubernetesState(record=new)
    answered = next_record(Ensemble(cluster=cluster(uid="u2")), state, broker_count=2, cluster_id="id")
    assert answered == Record(brokers=3, first_id=0, members=3, formed=True, cluster_id="id", cluster_uid="u2")
    state = KubernetesState(record=answered)
    assert next_record(Ensemble(cluster=cluster()), state, broker_count=5, cluster_id=None) == dataclasses.replace(
        answered, brokers=5, cluster_uid="u1"
    )
    unknown = Ensemble(cluster=cluster(), known=False)
    left = KubernetesState(claims=claims("zookeeper-0"))
    found = next_record(unknown, left, broker_count=3, cluster_id=None)
    assert (found.members, found.formed) == (None, None), "once those claims are deleted, the ensemble is a new one"
    given_one = Ensemble(cluster=cluster(connect="zk:2181"))
    refused = next_record(given_one, KubernetesState(), broker_count=0, cluster_id="id")
    assert refused == Record(cluster_uid="u1"), "before the first broker, another ensemble may still be named"
    assert next_record(given_one, KubernetesState(), broker_count=3, cluster_id="id") == Record(
        brokers=3, first_id=0, cluster_id="id", cluster_uid="u1"
    )


def beginning_at(first_id: int) -> Cluster:
    wanted = cluster(connect="zk:2181")
    return dataclasses.replace(wanted, brokers=dataclasses.replace(wanted.brokers, first_id=first_id))


@pytest.mark.parametrize(
    "state",
    [
        KubernetesState(record=Record(brokers=3, first_id=100)),
        KubernetesState(claims=claims("kafka-102", "kafka-100", "zookeeper-0")),
        KubernetesState(
            sets={"demo-kafka": parse_set({"metadata": {"name": "demo-kafka"}, "spec": {"ordinals": {"start": 100}}})},
            claims=claims("kafka-102"),
        ),
    ],
)
def test_broker_ids_stay_as_they_are(state: KubernetesState) -> None:
    assert ensemble_of(beginning_at(100), state) == Ensemble(cluster=beginning_at(100))
    other = ensemble_of(beginning_at(200), state)
    assert other.cluster == beginning_at(100)
    (waiting,) = other.waiting
    assert (waiting.reason, waiting.needs_person) == ("BrokerIdsCannotChange", True)
    assert "Set spec.brokers.firstBrokerId back to 100." in waiting.message


def test_broker_ids_begin_at_0_in_a_record_without_them_and_anywhere_before_there_are_brokers() -> None:
    old = KubernetesState(record=Record(brokers=3))
    assert ensemble_of(beginning_at(100), old).cluster == beginning_at(0)
    assert ensemble_of(beginning_at(100), KubernetesState()) == Ensemble(cluster=beginning_at(100))
    gone = KubernetesState(claims=claims("kafka-0", terminating=True))
    assert ensemble_of(beginning_at(100), gone) == Ensemble(cluster=beginning_at(100))


@pytest.mark.parametrize(
    ("recorded", "found", "message"),
    [
        (None, None, ""),
        (None, "a", ""),
        ("a", "a", ""),
        ("a", "b", "ZooKeeper has cluster id b, but this cluster's id is a: "),
        ("a", None, "ZooKeeper has no cluster id, but this cluster's id is a: "),
    ],
)
def test_metadata_of_another_cluster_is_refused(recorded: str | None, found: str | None, message: str) -> None:
    waiting = other_cluster(cluster(), Record(cluster_id=recorded), found)
    assert ("" if waiting is None else waiting.message).startswith(message)
    assert (waiting is None) == (not message)
