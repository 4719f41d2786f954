"""Reading objects of the API server. Missing or unexpected fields stop nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.lifecycle.observed_cluster import (
    Claim,
    KubernetesState,
    Node,
    Pod,
    Set,
    observe,
    parse_claim,
    parse_node,
    parse_pod,
    parse_set,
    trouble,
)

LABELS = {"odradek.dev/cluster": "demo"}


def pod_body(name: str = "demo-kafka-2", **status: object) -> dict[str, object]:
    return {
        "metadata": {
            "name": name,
            "uid": "u2",
            "labels": LABELS,
            "annotations": {"odradek.dev/restart-hash": "abc"},
        },
        "spec": {
            "nodeName": "node-1",
            "volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}},
            ],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **status},
    }


def volume_body(key: str = "kubernetes.io/hostname", value: str = "host-1", **match: object) -> dict[str, object]:
    rule = {"key": key, "operator": "In", "values": [value]}
    return {
        "metadata": {"name": "pv-1"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [match or {"matchExpressions": [rule]}]}}},
    }


CLAIM = {
    "metadata": {"name": "data-demo-kafka-2", "uid": "c2", "labels": LABELS},
    "spec": {"volumeName": "pv-1"},
    "status": {"phase": "Bound"},
}
NODE = {
    "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "host-1"}},
    "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"}]},
}
SET = {
    "metadata": {"name": "demo-kafka", "generation": 3, "labels": LABELS},
    "spec": {"replicas": 3, "template": {"metadata": {"annotations": {"odradek.dev/restart-hash": "abc"}}}},
    "status": {"observedGeneration": 3},
}


def test_a_pod() -> None:
    assert parse_pod(pod_body()) == Pod(
        name="demo-kafka-2",
        uid="u2",
        ordinal=2,
        node="node-1",
        ready=True,
        terminating=False,
        restart_hash="abc",
        phase="Running",
        trouble="",
        unscheduled_since=None,
        claims=("data-demo-kafka-2",),
    )


def test_a_pod_that_fits_nowhere() -> None:
    body = pod_body(
        phase="Pending",
        conditions=[
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes are available.",
                "lastTransitionTime": "1970-01-01T00:00:07Z",
            }
        ],
    )
    body["spec"] = {}
    pod = parse_pod(body)
    assert (pod.node, pod.ready, pod.unscheduled_since) == (None, False, 7.0)
    assert pod.trouble == "It fits on no node: 0/3 nodes are available."


def test_a_pod_without_a_number_is_of_no_set() -> None:
    with pytest.raises(ValueError, match="exporter"):
        parse_pod({"metadata": {"name": "exporter"}})


@pytest.mark.parametrize(
    ("claim", "volume", "expected"),
    [
        (CLAIM, volume_body(), ("pv-1", ("host-1",), False)),
        (CLAIM, volume_body("topology.topolvm.io/node"), ("pv-1", ("host-1",), False)),
        (CLAIM, volume_body("topology.kubernetes.io/zone"), ("pv-1", (), False)),
        (
            CLAIM,
            volume_body(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]),
            ("pv-1", ("node-1",), False),
        ),
        (CLAIM, None, ("pv-1", (), False)),
        ({**CLAIM, "status": {"phase": "Lost"}}, None, ("pv-1", (), True)),
        ({**CLAIM, "spec": {}}, None, (None, (), False)),
    ],
)
def test_a_claim_and_the_nodes_it_is_tied_to(claim: dict[str, object], volume: object, expected: object) -> None:
    parsed = parse_claim(claim, volume)  # type: ignore[arg-type]
    assert (parsed.volume, parsed.nodes, parsed.lost) == expected
    assert (parsed.name, parsed.uid, parsed.terminating) == ("data-demo-kafka-2", "c2", False)


@pytest.mark.parametrize(
    ("match", "nodes"),
    [
        ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "z"]}]}, {"a"}),
        ({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]}, {"b", "c"}),
        ({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"a", "b"}),
        ({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, {"c"}),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}, {"c"}),
        (
            {
                "matchExpressions": [{"key": "zone", "operator": "Exists"}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b", "c"]}],
            },
            {"b"},
        ),
        # An unknown operator or an empty list of expressions matches no node.
        ({"matchExpressions": [{"key": "zone", "operator": "Near"}]}, set()),
        ({"matchExpressions": []}, set()),
    ],
)
def test_the_nodes_that_a_volume_can_be_used_on(match: dict[str, object], nodes: set[str]) -> None:
    all_nodes = [
        {"metadata": {"name": name, "labels": {"zone": zone} if zone else {}}}
        for name, zone in (("a", "x"), ("b", "y"), ("c", ""))
    ]
    assert parse_claim(CLAIM, volume_body(**match), all_nodes).reach == nodes


def test_a_volume_without_an_affinity_can_be_used_everywhere() -> None:
    assert parse_claim(CLAIM, {"metadata": {"name": "pv-1"}, "spec": {}}, [NODE]).reach is None


def test_a_claim_that_goes() -> None:
    body = {"metadata": {"name": "c", "uid": "u", "deletionTimestamp": "1970-01-01T00:00:00Z"}}
    assert parse_claim(body, None).terminating


def test_a_node() -> None:
    assert parse_node(NODE) == Node(name="node-1", ready=True, changed_at=100.0)


def test_a_node_that_never_spoke_is_not_ready_since_it_was_made() -> None:
    body = {"metadata": {"name": "n", "creationTimestamp": "1970-01-01T00:00:03Z"}}
    assert parse_node(body) == Node(name="n", ready=False, changed_at=3.0)


@pytest.mark.parametrize(("observed", "seen"), [(3, True), (2, False), (None, False)])
def test_a_set_is_seen_once_its_controller_has_seen_it(observed: int | None, seen: bool) -> None:
    parsed = parse_set({**SET, "status": {"observedGeneration": observed}})
    assert parsed == Set(name="demo-kafka", replicas=3, restart_hash="abc", generation_observed=seen)


def test_a_set_without_replicas_has_one() -> None:
    assert parse_set({"metadata": {"name": "s"}}).replicas == 1


def test_everything_of_one_cluster() -> None:
    stranger = pod_body("demo-kafka-7")
    stranger["metadata"] = {"name": "demo-kafka-7", "labels": {"odradek.dev/cluster": "other"}}
    state = observe(
        "demo",
        pods=[
            pod_body("demo-kafka-10"),
            pod_body(),
            pod_body("demo-zookeeper-0"),
            pod_body("demo-kafka-exporter-abc12"),
            pod_body("demo-kafka-exporter-7"),
            stranger,
        ],
        claims=[CLAIM],
        volumes=[volume_body()],
        nodes=[NODE],
        sets=[SET],
    )
    assert list(state.brokers) == [2, 10]
    assert list(state.ensemble) == [0]
    claim = Claim(
        name="data-demo-kafka-2",
        uid="c2",
        volume="pv-1",
        nodes=("node-1",),
        lost=False,
        terminating=False,
        reach=frozenset({"node-1"}),
    )
    assert state.claims == {claim.name: claim}, "volumes name nodes by their host names"
    assert list(state.nodes) == ["node-1"]
    assert list(state.sets) == ["demo-kafka"]


@pytest.mark.parametrize(
    ("owners", "unneeded"),
    [
        ([], False),
        ([{"kind": "StatefulSet", "uid": "s1"}], False),
        ([{"kind": "Pod", "uid": "p1"}], False),
        ([{"kind": "StatefulSet", "uid": "gone"}], True),
    ],
)
def test_a_claim_of_a_set_that_is_gone_goes_with_it(owners: list[dict[str, object]], unneeded: bool) -> None:
    claim = {**CLAIM, "metadata": {**CLAIM["metadata"], "ownerReferences": owners}}  # type: ignore[dict-item]
    present = {**SET, "metadata": {**SET["metadata"], "uid": "s1"}}  # type: ignore[dict-item]
    state = observe("demo", pods=[], claims=[claim], volumes=[], nodes=[], sets=[present])
    assert state.claims["data-demo-kafka-2"].terminating is unneeded


def container(name: str = "kafka", **more: object) -> dict[str, object]:
    return {"name": name, "ready": False, **more}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, ""),
        ({"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [container()]}, ""),
        (
            {
                "containerStatuses": [
                    container(state={"waiting": {"reason": "ImagePullBackOff", "message": "no  such\n"}})
                ]
            },
            "Container kafka waits (ImagePullBackOff): no such.",
        ),
        ({"containerStatuses": [container(state={"waiting": {"reason": "ContainerCreating"}})]}, ""),
        (
            {
                "containerStatuses": [
                    container(
                        state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}},
                        lastState={"terminated": {"exitCode": 1, "reason": "Error"}},
                    )
                ]
            },
            "Container kafka waits (CrashLoopBackOff): it ended with exit code 1.",
        ),
        (
            {
                "containerStatuses": [
                    container(
                        state={"running": {"startedAt": "x"}},
                        lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    )
                ]
            },
            "Container kafka was started again and is not ready yet: it ended with exit code 137 (OOMKilled).",
        ),
        (
            {"containerStatuses": [container(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})]},
            "Container kafka is down: it ended with exit code 137 (OOMKilled).",
        ),
        (
            {"initContainerStatuses": [container("prepare", state={"terminated": {"exitCode": 0}})]},
            "",
        ),
        (
            {"containerStatuses": [container(state={"running": {"startedAt": "x"}})]},
            "Container kafka runs and is not ready yet.",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "},
            "It failed (Evicted): The node was low on resource: memory.",
        ),
    ],
)
def test_why_a_pod_is_not_ready(status: dict[str, object], message: str) -> None:
    assert trouble({"status": status}) == message


def test_a_sentence_stays_short() -> None:
    reason = trouble(
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room. " * 500}]}}
    )
    assert len(reason) < 450
    assert reason.endswith("….")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "x", "demo-kafka-1", "False"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "name", "labels", "conditions", "type", "containerStatuses", "state"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON), max_size=3))
def test_no_object_stops_it(bodies: list[dict[str, object]]) -> None:
    named = [{**body, "metadata": {"name": "demo-kafka-0", "labels": LABELS}} for body in bodies]
    state = observe("demo", pods=named, claims=named, volumes=bodies, nodes=bodies, sets=named)
    assert isinstance(state, KubernetesState)
    assert all(isinstance(trouble(body), str) for body in bodies)
