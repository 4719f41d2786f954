"""The objects of Mirrors, compared with golden files, and what must hold for all.

A changed pod template restarts every mirror. If the change is intended, regenerate the files:

    ODRADEK_WRITE_GOLDEN=1 .venv/bin/pytest operator/tests/unit/mirrors/test_mirror_objects.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient

from odradek_operator.crds import Mirror
from odradek_operator.mirrors import mirror_names as names
from odradek_operator.mirrors.mirror_file import MirrorConnections
from odradek_operator.mirrors.mirror_objects import wanted_mirror
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.security.client_connection import ClientConnection
from odradek_operator_testkit.mirrors import EAST, PLAIN, UID, mirror

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("ODRADEK_WRITE_GOLDEN") == "1"
SETTINGS = ImageSettings(prefix="odradek", pull_policy="IfNotPresent", operator_version="0.1.0")
WEST = {"name": "West_2", "cluster": "west", "topics": {"include": [".*"], "exclude": ["x"]}, "prefix": ""}
LOGINS = MirrorConnections(
    target=ClientConnection(bootstrap_servers="demo-kafka-bootstrap.shop.svc:9095", secret="alice"),
    sources={
        "east": ClientConnection(bootstrap_servers="east:9092", secret="east-login"),
        "West_2": ClientConnection(bootstrap_servers="west:9094", authority="west-ca", audience="shop.west"),
    },
)
EVERYTHING: dict[str, Any] = {
    "target": {"cluster": "demo", "user": "alice"},
    "sources": [{**EAST, "secret": "east-login", "groups": {"include": [".*"]}, "maxBytesPerSecond": 1000000}, WEST],
    "replicas": 3,
    "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
    "image": "registry.example/broker:1",
    "imagePullSecrets": [{"name": "registry"}],
    "template": {
        "labels": {"team": "data"},
        "annotations": {"example.com/note": "fast"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "disk", "operator": "Exists"}],
        "priorityClassName": "high",
        "terminationGracePeriodSeconds": 120,
    },
    "podMonitor": True,
}
VERSIONS = {"alice": "7", "east-login": "8", "west-ca": "9"}


def bodies(what: Mirror, connections: MirrorConnections = PLAIN, versions: dict[str, str] | None = None) -> list[Any]:
    found = wanted_mirror(what, connections, versions or {}, settings=SETTINGS, operator_namespace="odradek-system")
    return [item.body for item in found]


def deployment(what: Mirror, connections: MirrorConnections = PLAIN, **versions: str) -> dict[str, Any]:
    (found,) = [body for body in bodies(what, connections, versions) if body["kind"] == "Deployment"]
    content: dict[str, Any] = found
    return content


def specification(what: Mirror, connections: MirrorConnections = PLAIN, **versions: str) -> str:
    template = deployment(what, connections, **versions)["spec"]["template"]
    return str(template["metadata"]["annotations"][names.SPECIFICATION])


class Dumper(yaml.SafeDumper):
    """Writes strings of several lines as blocks, and writes no YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


@pytest.mark.parametrize(
    ("name", "found"),
    [("minimal", bodies(mirror())), ("everything", bodies(mirror(**EVERYTHING), LOGINS, VERSIONS))],
)
def test_objects_are_those_of_the_files(name: str, found: list[Any]) -> None:
    path = GOLDEN / f"{name}.yaml"
    if WRITE:
        path.write_text(yaml.dump_all(found, Dumper=Dumper, sort_keys=False, width=1_000), encoding="utf-8")
    assert found == list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_all_objects_belong_to_the_mirror() -> None:
    for body in bodies(mirror(**EVERYTHING), LOGINS, VERSIONS):
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Mirror", UID, True)
        assert body["metadata"]["labels"][names.MIRROR_LABEL] == "flights"
        assert "odradek.dev/cluster" not in body["metadata"]["labels"], "the Cluster would delete it"


def test_pods_are_restricted_and_have_no_token_for_the_api_server() -> None:
    spec = deployment(mirror(**EVERYTHING), LOGINS)["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


def test_objects_are_valid_for_the_client_library() -> None:
    """Unknown fields and wrong types are found by the models of Kubernetes' client library."""
    kinds = {
        "ServiceAccount": "V1ServiceAccount",
        "ConfigMap": "V1ConfigMap",
        "NetworkPolicy": "V1NetworkPolicy",
        "PodDisruptionBudget": "V1PodDisruptionBudget",
        "Deployment": "V1Deployment",
    }
    client = ApiClient()
    found = [body for body in bodies(mirror(**EVERYTHING), LOGINS) if body["kind"] in kinds]
    assert {body["kind"] for body in found} == set(kinds)
    for body in found:
        read = client._ApiClient__deserialize(body, kinds[body["kind"]])  # type: ignore[attr-defined]
        assert client.sanitize_for_serialization(read) == body


def test_a_rollout_starts_a_pod_before_it_stops_another() -> None:
    strategy = deployment(mirror())["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_what_restarts_the_pods() -> None:
    first = specification(mirror())
    assert specification(mirror(replicas=3, suspend=True, podMonitor=True)) == first
    others = [
        specification(mirror(sources=[{**EAST, "prefix": ""}])),
        specification(mirror(refreshSeconds=60)),
        specification(mirror(mirrorName="another")),
        specification(mirror(), PLAIN, **{"a-secret": "1"}),
        specification(mirror(), PLAIN, **{"a-secret": "2"}),
    ]
    assert len({first, *others}) == len(others) + 1


def test_a_suspended_mirror_has_no_pods() -> None:
    assert deployment(mirror(replicas=3, suspend=True))["spec"]["replicas"] == 0


def test_a_single_pod_has_no_disruption_budget() -> None:
    assert "PodDisruptionBudget" not in [body["kind"] for body in bodies(mirror())]
    assert "PodDisruptionBudget" in [body["kind"] for body in bodies(mirror(replicas=2))]


def test_an_affinity_of_the_user_replaces_that_of_the_operator() -> None:
    given = {"nodeAffinity": {}}
    assert deployment(mirror(template={"affinity": given}))["spec"]["template"]["spec"]["affinity"] == given
