"""When a cluster takes the next step to TLS."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek_operator.crds.types import Cluster, Listener, ZooKeeper
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Pod, Record, Set
from odradek_operator.lifecycle.tls_links import Links, change, next_links, present_links
from odradek_operator.objects.names import BrokerLink, EnsembleLink

SECURED = Cluster(
    name="demo", listeners=(Listener(name="secure", port=9093, tls=True),), zookeeper=ZooKeeper(replicas=1)
)
OPEN = replace(SECURED, listeners=(Listener(name="plain", port=9092),))
ELSEWHERE = replace(SECURED, zookeeper=ZooKeeper(connect="zk:2181"))
FIRST = Links(BrokerLink.PLAINTEXT, EnsembleLink.PLAINTEXT)
SECOND = Links(BrokerLink.BOTH, EnsembleLink.BOTH)


def pod(name: str, *, ready: bool = True, terminating: bool = False, restart_hash: str = "new") -> Pod:
    return Pod(
        name=name,
        uid=name,
        ordinal=0,
        node="node",
        ready=ready,
        terminating=terminating,
        restart_hash=restart_hash,
        phase="Running",
        trouble="",
        unscheduled_since=None,
    )


def stateful_set(name: str, **fields: object) -> Set:
    return Set(name=name, replicas=1, restart_hash="new", generation_observed=True, **fields)  # type: ignore[arg-type]


SETTLED = KubernetesState(brokers={0: pod("demo-kafka-0")}, ensemble={0: pod("demo-zookeeper-0")})


def following(cluster: Cluster, state: KubernetesState = SETTLED, **changes: object) -> Links:
    options: dict[str, object] = {"broker_count": 1, "outdated": (), "ensemble_hash": "new", "can_change": True}
    return next_links(cluster, state, **{**options, **changes})  # type: ignore[arg-type]


def test_each_step_follows_when_all_pods_have_the_present_one() -> None:
    assert following(SECURED) == SECOND
    assert following(OPEN) == FIRST
    found, cluster = [FIRST], SECURED
    while (links := following(cluster)) != found[-1]:
        found.append(links)
        cluster = replace(cluster, broker_link=links.brokers, ensemble_link=links.ensemble)
    assert [links.brokers for links in found] == [*BrokerLink, BrokerLink.TLS]
    assert [links.ensemble for links in found] == list(EnsembleLink)
    assert change(cluster) == ()


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        (replace(SETTLED, brokers={}), {}),
        (replace(SETTLED, brokers={0: pod("demo-kafka-0", ready=False)}), {}),
        (replace(SETTLED, brokers={0: pod("demo-kafka-0", terminating=True)}), {}),
        (replace(SETTLED, ensemble={}), {}),
        (replace(SETTLED, ensemble={0: pod("demo-zookeeper-0", ready=False)}), {}),
        (replace(SETTLED, ensemble={0: pod("demo-zookeeper-0", terminating=True)}), {}),
        (replace(SETTLED, ensemble={0: pod("demo-zookeeper-0", restart_hash="old")}), {}),
        (SETTLED, {"outdated": (0,)}),
        (SETTLED, {"broker_count": 2}),
        (SETTLED, {"can_change": False}),
    ],
)
def test_it_waits_for_every_pod_for_certificates_and_for_zookeeper(
    state: KubernetesState, changes: dict[str, object]
) -> None:
    assert following(SECURED, state, **changes) == FIRST


def test_brokers_of_another_ensemble_change_alone() -> None:
    assert following(ELSEWHERE, replace(SETTLED, ensemble={})) == Links(BrokerLink.BOTH, EnsembleLink.PLAINTEXT)
    assert [waiting.reason for waiting in change(ELSEWHERE)] == ["ChangingToTls"]


@pytest.mark.parametrize(
    ("cluster", "state", "expected"),
    [
        (SECURED, KubernetesState(), Links(BrokerLink.TLS, EnsembleLink.TLS)),
        (OPEN, KubernetesState(), FIRST),
        (ELSEWHERE, KubernetesState(), Links(BrokerLink.TLS, EnsembleLink.PLAINTEXT)),
        (SECURED, SETTLED, FIRST),
        (SECURED, KubernetesState(record=Record(brokers=1, members=1)), FIRST),
        (
            SECURED,
            KubernetesState(record=Record(link=BrokerLink.TLS, ensemble_link=EnsembleLink.CHANGED)),
            Links(BrokerLink.TLS, EnsembleLink.CHANGED),
        ),
        # A cluster of an earlier version with TLS between brokers.
        (
            SECURED,
            KubernetesState(
                record=Record(brokers=1, members=1, link=BrokerLink.TLS),
                sets={"demo-zookeeper": stateful_set("demo-zookeeper")},
            ),
            Links(BrokerLink.TLS, EnsembleLink.PLAINTEXT),
        ),
        # The record was lost.
        (
            SECURED,
            KubernetesState(
                sets={
                    "demo-kafka": stateful_set("demo-kafka", link=BrokerLink.CHANGED),
                    "demo-zookeeper": stateful_set("demo-zookeeper", ensemble_link=EnsembleLink.BOTH),
                }
            ),
            Links(BrokerLink.CHANGED, EnsembleLink.BOTH),
        ),
    ],
)
def test_the_record_or_else_the_sets_tell_how_far_the_change_is(
    cluster: Cluster, state: KubernetesState, expected: Links
) -> None:
    assert present_links(cluster, state) == expected
