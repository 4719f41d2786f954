"""Golden files with every object of three clusters. A diff of the files shows the effect of a change of the builders.

A changed pod template restarts the pods of every existing cluster. If the change is intended, regenerate the files:

    ODRADEK_WRITE_GOLDEN=1 .venv/bin/pytest operator/tests/unit/objects/test_golden.py
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from odradek_operator.crds import Cluster, Listener, ListenerType, read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.types import Brokers, ComputeResources, Monitoring, PodTemplate, Volume, ZooKeeper
from odradek_operator.objects.names import Component
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import Extras, wanted_objects

GOLDEN = Path(__file__).parent / "golden"
EXAMPLE = Path(__file__).parents[4] / "manifests" / "examples" / "cluster.yaml"
WRITE = os.environ.get("ODRADEK_WRITE_GOLDEN") == "1"
UID = "2f1c0c5e-54a7-4b39-9f0b-7a9b1b0f6f11"


def demo() -> Cluster:
    cluster = read_resources(parse_documents(EXAMPLE.read_text(encoding="utf-8"), EXAMPLE.name)).clusters["demo"]
    return dataclasses.replace(cluster, namespace="default", uid=UID)


def everything() -> Cluster:
    """Return a cluster that sets the fields that the example leaves at their defaults."""
    return Cluster(
        name="shop",
        namespace="sales",
        uid=UID,
        version="0.2.0",
        brokers=Brokers(
            replicas=2,
            volumes=(Volume(id=1, size="2Ti", storage_class="local-ssd"), Volume(id=0, size="1Ti")),
            delete_claims=True,
            rack_topology_key="topology.kubernetes.io/zone",
            image="registry.example/broker@sha256:0123",
            resources=ComputeResources(requests={"cpu": "1", "memory": "1Gi"}, limits={"memory": "2Gi"}),
            template=PodTemplate(
                labels={"team": "sales"},
                annotations={"example.com/note": "fast"},
                node_selector={"disk": "ssd"},
                affinity={"podAntiAffinity": {}},
                tolerations=({"key": "disk", "operator": "Exists"},),
                priority_class_name="high",
                image_pull_secrets=("registry",),
                termination_grace_period_seconds=300,
            ),
            config={"min.insync.replicas": "2", "num.partitions": "6", "a.key of others": "ä\n"},
        ),
        listeners=(
            Listener(name="plain", port=9092),
            Listener(name="nodes", port=9094, type=ListenerType.NODE_PORT),
            Listener(name="balanced", port=9095, type=ListenerType.LOAD_BALANCER),
        ),
        zookeeper=ZooKeeper(replicas=1, size="1Gi", storage_class="local-ssd", config={"tickTime": "500"}),
        monitoring=Monitoring(
            pod_monitors=True,
            rules=True,
            dashboards=True,
            exporter_resources=ComputeResources(limits={"memory": "256Mi"}),
        ),
    )


def cores() -> Cluster:
    """Return the same with several brokers in each pod."""
    cluster = everything()
    return dataclasses.replace(
        cluster, name="cores", brokers=dataclasses.replace(cluster.brokers, per_pod=3, image=None)
    )


class Dumper(yaml.SafeDumper):
    """Writes strings of several lines as blocks, and writes no YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)
EXTRAS = Extras(
    rule_groups=({"name": "kafka", "rules": [{"alert": "Offline", "expr": "sum(offline) > 0", "for": "10s"}]},),
    dashboards={"kafka": '{"title": "Kafka"}'},
)


@pytest.mark.parametrize("make", [demo, everything, cores])
def test_objects_are_those_of_the_files(make: Callable[[], Cluster]) -> None:
    cluster = make()
    wanted = wanted_objects(
        cluster,
        settings=ImageSettings(prefix="odradek", pull_policy="IfNotPresent", operator_version="0.1.0"),
        broker_count=cluster.brokers.replicas,
        operator_namespace="odradek-system",
        extras=EXTRAS,
        spread=frozenset({Component.KAFKA, Component.ZOOKEEPER}) if make is demo else frozenset(),
    )
    path = GOLDEN / f"{make.__name__}.yaml"
    if WRITE:
        text = yaml.dump_all([item.body for item in wanted], Dumper=Dumper, sort_keys=False, width=1_000)
        path.write_text(text, encoding="utf-8")
    assert [item.body for item in wanted] == list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
