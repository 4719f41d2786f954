"""When pods must run on different nodes, and what is reported about nodes that run several."""

from __future__ import annotations

import dataclasses

import pytest

from odradek_operator.crds import Brokers, Cluster, PodTemplate, Spread, Volume, ZooKeeper
from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Node, Pod, Set
from odradek_operator.lifecycle.spreading import MAX_NOTICES, demanded, notices, obsolete
from odradek_operator.objects.names import Component

KAFKA, ZOOKEEPER = Component.KAFKA, Component.ZOOKEEPER
VOLUMES = (Volume(id=0, size="1Gi"), Volume(id=1, size="1Gi"))


def cluster(brokers: int = 3, *, spread: Spread = Spread.REQUIRED, template: PodTemplate | None = None) -> Cluster:
    return Cluster(
        name="demo",
        brokers=Brokers(replicas=brokers, volumes=VOLUMES, spread=spread, template=template or PodTemplate()),
        zookeeper=ZooKeeper(connect="zk:2181"),
    )


def pod(ordinal: int, node: str | None, *, spread: bool = False) -> Pod:
    return Pod(
        name=f"demo-kafka-{ordinal}",
        uid=f"uid-{ordinal}",
        ordinal=ordinal,
        node=node,
        ready=node is not None,
        terminating=False,
        restart_hash="a",
        phase="Pending" if node is None else "Running",
        trouble="",
        unscheduled_since=1.0 if node is None else None,
        spread=spread,
    )


def claim(ordinal: int, reach: str | None) -> Claim:
    """Return the claim of the second volume. Each letter of `reach` is a node that can use it; None: all nodes."""
    return Claim(
        name=f"data-1-demo-kafka-{ordinal}",
        uid="c",
        volume="v",
        nodes=(),
        lost=False,
        terminating=False,
        reach=None if reach is None else frozenset(reach),
    )


def state(
    places: list[str | None],
    reaches: list[str | None],
    *,
    bad: str = "",
    set_spread: bool = True,
    pods_spread: bool = False,
) -> KubernetesState:
    pods = {
        number: pod(number, None if node == "?" else node, spread=pods_spread)
        for number, node in enumerate(places)
        if node is not None
    }
    claims = [claim(number, reach) for number, reach in enumerate(reaches)]
    found = Set(name="demo-kafka", replicas=3, restart_hash="a", generation_observed=True, spread=set_spread)
    return KubernetesState(
        brokers=pods,
        claims={one.name: one for one in claims},
        nodes={name: Node(name=name, ready=name not in bad, changed_at=0.0) for name in "abcd"},
        sets={found.name: found},
    )


@pytest.mark.parametrize(
    ("places", "reaches", "bad", "required"),
    [
        # No pods yet, and volumes that every node can use, wherever the pods run.
        ([], [], "", True),
        (["a", "a", "b"], [None, None, None], "", True),
        # Each volume is tied to its own node. A pod or a node may be down.
        (["a", "b", "c"], ["a", "b", "c"], "", True),
        (["a", None, "c"], ["a", "b", "c"], "", True),
        (["a", "?", "c"], ["a", "b", "c"], "b", True),
        # Two volumes are tied to one node. If the pods had to spread, the second one could not run again.
        (["a", "a", "c"], ["a", "a", "c"], "", False),
        (["a", None, "c"], ["a", "a", "c"], "", False),
        ([None, None, None], ["a", "a", "c"], "", False),
        # A volume is tied to a node on which a pod without such a volume already runs.
        (["a", "a", "c"], [None, "a", None], "", False),
        # Volumes are tied to zones. Spreading is required while the zones have enough ready nodes for the pods.
        (["a", "b", "c"], ["ab", "ab", "c"], "", True),
        (["a", "b", "a"], ["ab", "ab", "ab"], "", False),
        (["a", "b", "c"], ["ab", "ab", "c"], "b", False),
    ],
)
def test_pods_must_spread_unless_their_volumes_leave_no_choice(
    places: list[str | None], reaches: list[str | None], bad: str, required: bool
) -> None:
    found = demanded(cluster(), state(places, reaches, bad=bad), broker_count=3)
    assert found == (frozenset({KAFKA}) if required else frozenset())


@pytest.mark.parametrize(
    "wanted",
    [
        cluster(spread=Spread.PREFERRED),
        cluster(template=PodTemplate(affinity={"podAntiAffinity": {}})),
    ],
)
def test_the_resource_may_say_otherwise(wanted: Cluster) -> None:
    assert demanded(wanted, KubernetesState(), broker_count=3) == frozenset()


def test_the_ensemble_spreads_by_its_own_field() -> None:
    own = dataclasses.replace(cluster(spread=Spread.PREFERRED), zookeeper=ZooKeeper())
    assert demanded(own, KubernetesState(), broker_count=3) == {ZOOKEEPER}


@pytest.mark.parametrize(
    ("seen", "replaced"),
    [
        (state(["a", "?", "c"], ["a", "a", "c"], set_spread=False, pods_spread=True), "demo-kafka-1"),
        # The pod is pending for another reason, or the set still has the rule, or the pod runs.
        (state(["a", "?", "c"], ["a", "a", "c"], set_spread=False), None),
        (state(["a", "?", "c"], ["a", "a", "c"], pods_spread=True), None),
        (state(["a", "b", "c"], ["a", "a", "c"], set_spread=False, pods_spread=True), None),
    ],
)
def test_a_pod_that_waits_under_a_rule_that_is_gone_is_replaced(seen: KubernetesState, replaced: str | None) -> None:
    step = obsolete(cluster(), seen, broker_count=3)
    assert (None if step is None else step.pod) == replaced


def test_nodes_that_run_several_pods_are_named() -> None:
    assert notices(cluster(), state(["a", "b", "c"], []), broker_count=3) == ()
    assert notices(cluster(), state(["a", "b", "a"], []), broker_count=3) == (
        "Brokers 0 and 2 run on node a: its loss takes both.",
    )
    assert notices(cluster(), state(["a", "a", "a"], ["a", "a", None]), broker_count=3) == (
        "Brokers 0, 1 and 2 run on node a: its loss takes all 3. Their volumes are on it, so they stay there.",
    )
    members = {number: dataclasses.replace(pod(number, "a"), name=f"demo-zookeeper-{number}") for number in (0, 1)}
    own = dataclasses.replace(cluster(), zookeeper=ZooKeeper())
    assert notices(own, KubernetesState(ensemble=members), broker_count=3) == (
        "ZooKeeper members 0 and 1 run on node a: its loss takes both.",
    )


def test_notices_are_bounded() -> None:
    pods = {number: pod(number, f"node-{number % 10}") for number in range(20)}
    found = notices(cluster(20), KubernetesState(brokers=pods), broker_count=20)
    assert len(found) == MAX_NOTICES + 1
    assert found[-1] == "6 more nodes run several pods of demo-kafka."
