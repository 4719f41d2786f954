"""Broker ids, pods and slots of `spec.brokers.perPod`, and which values are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.crds import Brokers, Cluster, read_object, read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.problems import ResourceError

SIZES = st.builds(
    Brokers, replicas=st.integers(1, 1_000), per_pod=st.integers(1, 16), first_id=st.integers(0, 999_983_999)
)


@given(brokers=SIZES)
def test_ids_are_a_bijection_of_pods_and_slots(brokers: Brokers) -> None:
    ids = brokers.ids()
    places = {(brokers.pod_of(broker), brokers.slot_of(broker)): broker for broker in ids}
    assert len(places) == len(ids) == brokers.replicas * brokers.per_pod
    assert {pod for pod, _ in places} == set(brokers.ordinals())
    assert {slot for _, slot in places} == set(range(brokers.per_pod))
    assert all(brokers.ids_of_pod(pod)[slot] == broker for (pod, slot), broker in places.items())
    assert max(ids) <= 999_999_999


@given(brokers=SIZES, pods=st.integers(1, 1_000), per_pod=st.integers(1, 16))
def test_a_change_of_size_renumbers_no_broker(brokers: Brokers, pods: int, per_pod: int) -> None:
    smaller = brokers.ids(min(pods, brokers.replicas), min(per_pod, brokers.per_pod))
    assert smaller <= brokers.ids()
    assert smaller <= brokers.ids(pods, per_pod) or pods < brokers.replicas or per_pod < brokers.per_pod


def test_the_ids_of_slot_0_are_those_of_the_pods() -> None:
    assert Brokers(replicas=3, first_id=7).ids() == {7, 8, 9}
    assert sorted(Brokers(replicas=2, per_pod=3).ids()) == [0, 1, 1000, 1001, 2000, 2001]


def embedded(spec: str) -> Cluster:
    text = f"{{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {{name: demo}}, spec: {spec}}}"
    return read_resources(parse_documents(text, "f")).clusters["demo"]


def on_kubernetes(spec: dict[str, object]) -> Cluster:
    metadata = {"name": "demo", "namespace": "a", "uid": "u", "generation": 1}
    found = read_object({"apiVersion": "odradek.dev/v1", "kind": "Cluster", "metadata": metadata, "spec": spec})
    assert isinstance(found, Cluster)
    return found


def test_an_embedded_cluster_reads_it() -> None:
    assert embedded("{brokers: {replicas: 1, perPod: 8}}").brokers.per_pod == 8
    with pytest.raises(ResourceError, match=r"spec.brokers.perPod: must be .*16"):
        embedded("{brokers: {perPod: 17}}")


def test_a_topic_may_have_as_many_replicas_as_there_are_brokers() -> None:
    topic = "{apiVersion: odradek.dev/v1, kind: Topic, metadata: {name: t}, spec: {cluster: demo, replicas: %d}}"
    cluster = "{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: demo}, spec: {brokers: %s}}"
    text = cluster % "{replicas: 2, perPod: 2}"
    assert read_resources(parse_documents(f"{text}\n---\n{topic % 4}", "f")).topics["t"].replicas == 4
    with pytest.raises(ResourceError, match="at most 4, the number of brokers"):
        read_resources(parse_documents(f"{text}\n---\n{topic % 5}", "f"))


@pytest.mark.parametrize(
    ("port", "per_pod", "message"),
    [
        (8091, 2, "slots of it and of 9091 have the same port"),
        (9404 + 3_000, 4, "slots of it and of 9404 have the same port"),
        (11_092, 3, "slots of it and of 9092 have the same port"),
        (65_000, 2, "must be at most 64535 with perPod 2"),
    ],
)
def test_ports_of_slots_must_differ(port: int, per_pod: int, message: str) -> None:
    listeners = [{"name": "plain", "port": 9092}, {"name": "other", "port": port}]
    with pytest.raises(ResourceError, match=message):
        on_kubernetes({"brokers": {"perPod": per_pod}, "listeners": listeners})
    fewer = on_kubernetes({"brokers": {"perPod": per_pod - 1}, "listeners": listeners})
    assert fewer.brokers.per_pod == per_pod - 1


def test_ids_have_at_most_nine_digits() -> None:
    most = on_kubernetes({"brokers": {"perPod": 2, "firstBrokerId": 999_997_999}})
    assert max(most.brokers.ids(1_000)) == 999_999_998
    with pytest.raises(ResourceError, match=r"spec\.brokers\.firstBrokerId: must be at most 999997999 with perPod 2"):
        on_kubernetes({"brokers": {"perPod": 2, "firstBrokerId": 999_998_000}})
