"""Volume claims: their names and sizes, and when a StatefulSet must be recreated."""

from __future__ import annotations

import pytest

from odradek_operator.crds.types import Brokers, Cluster, Volume, ZooKeeper
from odradek_operator.objects import storage
from odradek_operator.objects.names import Component

ONE = (Volume(id=0, size="100Gi", storage_class="local-ssd"),)
TWO = (Volume(id=1, size="2Gi"), Volume(id=0, size="1Gi"))


@pytest.mark.parametrize(
    ("volumes", "claims", "mounts"),
    [
        ((), [], [("data", "/var/lib/odradek/data-0")]),
        (ONE, ["data"], [("data", "/var/lib/odradek/data-0")]),
        ((Volume(id=4, size="1"),), ["data"], [("data", "/var/lib/odradek/data-4")]),
        (TWO, ["data-0", "data-1"], [("data-0", "/var/lib/odradek/data-0"), ("data-1", "/var/lib/odradek/data-1")]),
    ],
)
def test_volumes_have_claims_and_mounts(
    volumes: tuple[Volume, ...], claims: list[str], mounts: list[tuple[str, str]]
) -> None:
    brokers = Brokers(volumes=volumes)
    found = storage.broker_claims(Cluster(name="demo", brokers=brokers))
    assert [claim["metadata"]["name"] for claim in found] == claims
    assert [(mount["name"], mount["mountPath"]) for mount in storage.broker_mounts(brokers)] == mounts
    assert storage.broker_pod_volumes(brokers) == ([] if volumes else [{"name": "data", "emptyDir": {}}])


def test_a_claim_template_never_changes() -> None:
    # Kubernetes refuses to change the claim templates of a StatefulSet, so later versions must return the same
    # template.
    assert storage.claim_template("demo", Component.KAFKA, name="data", size="100Gi", storage_class="local-ssd") == {
        "metadata": {
            "name": "data",
            "labels": {
                "app.kubernetes.io/name": "odradek",
                "app.kubernetes.io/instance": "demo",
                "app.kubernetes.io/managed-by": "odradek-operator",
                "app.kubernetes.io/component": "kafka",
                "odradek.dev/cluster": "demo",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "100Gi"}},
            "storageClassName": "local-ssd",
        },
    }


def test_the_default_class_is_kubernetes_choice() -> None:
    template = storage.claim_template("demo", Component.KAFKA, name="data", size="1", storage_class=None)
    assert "storageClassName" not in template["spec"]


@pytest.mark.parametrize(("delete", "deleted"), [(True, "Delete"), (False, "Retain")])
def test_claims_stay_unless_the_resource_says_otherwise(delete: bool, deleted: str) -> None:
    assert storage.retention(delete_claims=delete) == {"whenDeleted": deleted, "whenScaled": "Retain"}


def test_sizes_of_claims_by_name() -> None:
    cluster = Cluster(name="demo", brokers=Brokers(volumes=TWO), zookeeper=ZooKeeper(replicas=1))
    found = storage.volume_sizes(cluster, broker_count=2)
    assert [(one.stateful_set, one.field, one.size, one.claims) for one in found] == [
        (
            "demo-kafka",
            "spec.brokers.storage.volumes[id=0].size",
            "1Gi",
            {0: "data-0-demo-kafka-0", 1: "data-0-demo-kafka-1"},
        ),
        (
            "demo-kafka",
            "spec.brokers.storage.volumes[id=1].size",
            "2Gi",
            {0: "data-1-demo-kafka-0", 1: "data-1-demo-kafka-1"},
        ),
        ("demo-zookeeper", "spec.zookeeper.storage.size", "10Gi", {0: "data-demo-zookeeper-0"}),
    ]


def test_a_given_ensemble_has_no_claims() -> None:
    cluster = Cluster(name="demo", brokers=Brokers(volumes=ONE), zookeeper=ZooKeeper(connect="zk:2181"))
    (one,) = storage.volume_sizes(cluster, broker_count=1)
    assert (one.size, one.claims) == ("100Gi", {0: "data-demo-kafka-0"})


def stateful_set(**sizes: str) -> dict[str, object]:
    claims = [
        {"metadata": {"name": name}, "spec": {"resources": {"requests": {"storage": size}}}}
        for name, size in sizes.items()
    ]
    return {"spec": {"volumeClaimTemplates": claims}}


@pytest.mark.parametrize(
    ("present", "wanted", "remade"),
    [
        (stateful_set(data="1Gi"), stateful_set(data="2Gi"), True),
        (stateful_set(a="1Gi", b="1Gi"), stateful_set(a="1Gi", b="1500Mi"), True),
        (stateful_set(data="1Gi"), stateful_set(data="1024Mi"), False),
        (stateful_set(data="1Gi"), stateful_set(data="1Gi"), False),
        # The operator refuses other changes of the resource. If the set differed nevertheless, only a user could repair
        # it.
        (stateful_set(data="1Gi"), stateful_set(other="2Gi"), False),
        ({"spec": {}}, stateful_set(data="1Gi"), False),
        ({"spec": {}}, {"spec": {}}, False),
    ],
)
def test_sets_are_made_anew_for_another_size_only(
    present: dict[str, object], wanted: dict[str, object], remade: bool
) -> None:
    assert storage.must_be_remade(present, wanted) is remade


def test_a_set_is_applied_with_the_sizes_that_it_has() -> None:
    kept = storage.with_sizes_of(stateful_set(a="1Gi", b="3Gi"), stateful_set(a="2Gi", b="2Gi"))
    assert storage.template_sizes(kept) == {"a": "1Gi", "b": "3Gi"}
