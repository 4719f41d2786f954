"""The identity of a pod, read from the environment that the operator's StatefulSets set, and its errors."""

from __future__ import annotations

import json

import pytest

from odradek_operator.crds.types import ListenerType
from odradek_operator.errors import PodError
from odradek_operator.pod.identity import (
    LISTENER_TYPES,
    BrokerPod,
    MemberPod,
    PodListener,
    broker_pod,
    member_pod,
    ordinal,
    pod_listeners,
)

BROKER = {
    "CLUSTER": "demo",
    "POD_NAME": "demo-kafka-12",
    "POD_NAMESPACE": "events",
    "NODE_NAME": "node-a",
    "LISTENERS": json.dumps([{"name": "plain", "port": 9092, "type": "internal"}]),
}
MEMBER = {
    "CLUSTER": "demo",
    "POD_NAME": "demo-zookeeper-2",
    "POD_NAMESPACE": "events",
    "ENSEMBLE_REPLICAS": "3",
}


def test_the_environment_of_a_broker() -> None:
    assert broker_pod(BROKER) == BrokerPod(
        cluster="demo",
        name="demo-kafka-12",
        namespace="events",
        node="node-a",
        broker_id=12,
        listeners=(PodListener(name="plain", port=9092, type="internal"),),
        rack_key=None,
    )


def test_a_broker_reads_its_node_for_a_rack_or_a_node_port() -> None:
    assert not broker_pod(BROKER).reads_node
    assert broker_pod({**BROKER, "RACK_TOPOLOGY_KEY": "zone"}).reads_node
    node_port = json.dumps([{"name": "out", "port": 9094, "type": "nodeport"}])
    assert broker_pod({**BROKER, "LISTENERS": node_port}).reads_node
    balanced = json.dumps([{"name": "out", "port": 9094, "type": "loadbalancer"}])
    assert not broker_pod({**BROKER, "LISTENERS": balanced}).reads_node


def test_the_environment_of_a_member() -> None:
    found = member_pod(MEMBER)
    assert found == MemberPod(cluster="demo", namespace="events", ordinal=2, members=3)
    assert found.server_id == 3


@pytest.mark.parametrize("name", ["CLUSTER", "POD_NAME", "POD_NAMESPACE", "NODE_NAME"])
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(PodError, match=f"{name} is not set"):
        broker_pod({**BROKER, name: ""})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ENSEMBLE_REPLICAS": "none"}, "ENSEMBLE_REPLICAS='none'"),
        ({"ENSEMBLE_REPLICAS": "0"}, "ENSEMBLE_REPLICAS='0'"),
        ({"ENSEMBLE_REPLICAS": "256"}, "ENSEMBLE_REPLICAS='256'"),
        ({"ENSEMBLE_REPLICAS": "2"}, "the last member is 1"),
    ],
)
def test_an_impossible_ensemble_is_refused(variables: dict[str, str], message: str) -> None:
    with pytest.raises(PodError, match=message):
        member_pod({**MEMBER, **variables})


@pytest.mark.parametrize("name", ["demo", "demo-kafka", "demo-kafka-", "7"])
def test_a_name_without_a_number_is_refused(name: str) -> None:
    with pytest.raises(PodError, match="does not end in a number"):
        ordinal(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", "not a JSON list"),
        ("[1]", "has 1:"),
        ('[{"name": "a", "port": "9092", "type": "internal"}]', "an entry must have"),
        ('[{"name": "a", "port": true, "type": "internal"}]', "an entry must have"),
        ('[{"name": "a", "port": 0, "type": "internal"}]', "an entry must have"),
        ('[{"name": "", "port": 1, "type": "internal"}]', "an entry must have"),
        ('[{"name": "a", "port": 1, "type": "ingress"}]', "an entry must have"),
    ],
)
def test_invalid_listeners_are_refused(text: str, message: str) -> None:
    with pytest.raises(PodError, match=message):
        pod_listeners(text)


def test_the_types_are_those_of_the_resource() -> None:
    assert set(LISTENER_TYPES) == {kind.value for kind in ListenerType}


def test_a_further_broker_of_a_pod_has_another_id() -> None:
    found = broker_pod({**BROKER, "SLOT": "3"})
    assert (found.broker_id, found.slot) == (3012, 3)


@pytest.mark.parametrize("slot", ["", "16", "-1", "a"])
def test_the_slot_must_be_a_number(slot: str) -> None:
    with pytest.raises(PodError, match="SLOT="):
        broker_pod({**BROKER, "SLOT": slot})
