"""The objects of Pipelines and the pods of their drivers, compared with golden files, and what must hold for all.

A changed driver restarts every streaming job. If the change is intended, regenerate the files:

    ODRADEK_WRITE_GOLDEN=1 .venv/bin/pytest operator/tests/unit/pipelines/test_pipeline_objects.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient

from odradek_operator.crds import Pipeline
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.pipelines import pipeline_names as names
from odradek_operator.pipelines.job_file import checkpoint_path, job_document, run_of_specification
from odradek_operator.pipelines.pipeline_objects import DRIVER_VERBS, WantedPipeline, kept_map, wanted_pipeline
from odradek_operator.security.client_connection import ClientConnection
from odradek_operator_testkit.pipelines import UID, pipeline

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("ODRADEK_WRITE_GOLDEN") == "1"
SETTINGS = ImageSettings(prefix="odradek", pull_policy="IfNotPresent", operator_version="0.1.0")
PLAIN = ClientConnection(bootstrap_servers="demo-kafka-bootstrap.shop.svc:9092")
TOKEN = ClientConnection(bootstrap_servers="demo:9094", audience="shop.demo", authority="demo-cluster-ca-cert")
TLS = ClientConnection(bootstrap_servers="demo:9093", authority="demo-cluster-ca-cert")
USER = ClientConnection(bootstrap_servers="demo:9095", secret="alice")
EVERYTHING: dict[str, Any] = {
    "source": {
        "pattern": "departures.*",
        "format": "json",
        "schema": "carrier STRING",
        "options": {"startingOffsets": "earliest"},
    },
    "transformation": {"sql": "SELECT * FROM source", "watermark": {"column": "timestamp", "delay": "1 day"}},
    "target": {"topic": "delayed", "deliveryGuarantee": "exactly-once", "outputMode": "update"},
    "streaming": {"triggerSeconds": 5},
    "driver": {"memory": "2Gi", "cpu": "300m"},
    "executors": {"memory": "3Gi", "cpu": "1500m", "dynamicAllocation": {"min": 0, "max": 4}},
    "checkpoint": {"claim": "checkpoints", "path": "delayed"},
    "volumes": [{"claim": "lookup", "mountPath": "/lookup", "readOnly": True}],
    "image": "registry.example/spark:1",
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "AWS_REGION", "value": "eu"}],
    "sparkConf": {"spark.sql.shuffle.partitions": "4"},
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


def wanted(what: Pipeline, connection: ClientConnection = PLAIN, settings: ImageSettings = SETTINGS) -> WantedPipeline:
    return wanted_pipeline(what, connection, settings=settings, operator_namespace="odradek-system")


def driver(what: Pipeline, connection: ClientConnection = PLAIN) -> dict[str, Any]:
    return wanted(what, connection).driver(what, number=3, run="streaming", attempt=2)


def template(found: WantedPipeline) -> dict[str, Any]:
    """The pod template of executors."""
    (files,) = [item.body["data"] for item in found.objects if item.kind == "ConfigMap"]
    content: dict[str, Any] = json.loads(files[names.EXECUTOR_FILE])
    return content


class Dumper(yaml.SafeDumper):
    """Writes strings of several lines as blocks, and writes no YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


@pytest.mark.parametrize(
    ("name", "what", "connection"),
    [("batch", pipeline(), PLAIN), ("everything", pipeline(**EVERYTHING), TOKEN)],
)
def test_objects_are_those_of_the_files(name: str, what: Pipeline, connection: ClientConnection) -> None:
    bodies = [*(item.body for item in wanted(what, connection).objects), driver(what, connection)]
    path = GOLDEN / f"{name}.yaml"
    if WRITE:
        text = yaml.dump_all(bodies, Dumper=Dumper, sort_keys=False, width=1_000)
        path.write_text(text, encoding="utf-8")
    assert bodies == list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("connection", [PLAIN, TOKEN, TLS, USER])
def test_pods_are_restricted(connection: ClientConnection) -> None:
    what = pipeline(**EVERYTHING)
    for pod in (driver(what, connection), template(wanted(what, connection))):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("connection", [PLAIN, TOKEN, TLS, USER])
def test_pods_are_valid_for_the_client_library(connection: ClientConnection) -> None:
    """Unknown fields and wrong types are found by the models of Kubernetes' client library."""
    what = pipeline(**EVERYTHING)
    client = ApiClient()
    for pod in (driver(what, connection), template(wanted(what, connection))):
        read = client._ApiClient__deserialize(pod, "V1Pod")  # type: ignore[attr-defined]
        assert client.sanitize_for_serialization(read) == pod


def test_only_the_driver_gets_a_token_for_the_api_server() -> None:
    what = pipeline()
    assert driver(what)["spec"]["automountServiceAccountToken"] is True
    assert template(wanted(what))["spec"]["automountServiceAccountToken"] is False


def test_the_driver_may_do_nothing_but_use_pods() -> None:
    (role,) = [item.body for item in wanted(pipeline()).objects if item.kind == "Role"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": list(DRIVER_VERBS)}]


def test_all_objects_belong_to_the_pipeline() -> None:
    what = pipeline(**EVERYTHING)
    for body in [*(item.body for item in wanted(what).objects), driver(what)]:
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pipeline", UID, True)
        # With the label of a Cluster, its loop would delete the object as obsolete.
        assert "odradek.dev/cluster" not in body["metadata"]["labels"]


def test_a_specification_changes_with_what_a_driver_is_made_from_only() -> None:
    def specification(connection: ClientConnection = PLAIN, **changes: Any) -> str:
        return wanted(pipeline(streaming={}, **changes), connection).specification

    first = specification()
    assert first == specification(suspend=True, history=9, restart={"backoffLimit": 1}, podMonitor=True)
    others = [
        specification(TOKEN),
        specification(image="another"),
        specification(executors={"instances": 2}),
        specification(driver={"cpu": "1"}),
        specification(env=[{"name": "A", "value": "b"}]),
        specification(transformation={"sql": "SELECT 1"}),
    ]
    assert len({first, *others}) == len(others) + 1


def test_each_specification_has_its_configmap() -> None:
    first, second = wanted(pipeline()), wanted(pipeline(image="another"))
    (one,), (other,) = ([item for item in each.objects if item.kind == "ConfigMap"] for each in (first, second))
    assert one.name != other.name
    assert one.body["immutable"]
    assert kept_map(pipeline(), first.specification).name == one.name


def test_the_only_run_survives_upgrades_and_moves() -> None:
    upgraded = ImageSettings(prefix="odradek", operator_version="9.9")
    assert wanted(pipeline(), settings=upgraded).run == wanted(pipeline(), TOKEN).run
    assert run_of_specification(pipeline()) != run_of_specification(pipeline(target={"path": "/other"}))
    assert run_of_specification(pipeline()) == run_of_specification(pipeline(suspend=True))


def test_the_identity_of_the_output_is_that_of_the_resource() -> None:
    exact = {"topic": "t", "deliveryGuarantee": "exactly-once"}
    document = job_document(pipeline(target=exact), PLAIN, "Always")
    assert document["target"]["options"] == {"sinkId": f"shop/departures/{UID}"}
    given = job_document(pipeline(target={**exact, "options": {"sinkId": "mine"}}), PLAIN, "Always")
    assert given["target"]["options"] == {"sinkId": "mine"}
    assert "options" in job_document(pipeline(target={"topic": "t"}), PLAIN, "Always")["target"]
    assert job_document(pipeline(target={"topic": "t"}), PLAIN, "Always")["target"]["options"] == {}


def test_a_listener_with_tls_only_is_trusted_by_options() -> None:
    document = job_document(pipeline(target={"topic": "t"}), TLS, "Always")
    for part in ("source", "target"):
        assert document[part]["options"]["kafka.security.protocol"] == "SSL"
    spec = driver(pipeline(), TLS)["spec"]
    (login,) = [volume for volume in spec["volumes"] if volume["name"] == "login"]
    assert [list(source) for source in login["projected"]["sources"]] == [["secret"]]


def test_the_checkpoint_is_on_its_volume() -> None:
    assert checkpoint_path(pipeline(checkpoint={"claim": "c", "path": "/a/b"})) == f"{names.CHECKPOINT_FOLDER}/a/b"
    assert checkpoint_path(pipeline()) == "s3a://bucket/checkpoint"


def test_a_claim_has_one_volume_whatever_is_mounted_from_it() -> None:
    what = pipeline(
        checkpoint={"claim": "shared", "path": "checkpoint"},
        volumes=[{"claim": "other", "mountPath": "/other"}, {"claim": "shared", "mountPath": "/archive"}],
    )
    spec = driver(what)["spec"]
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in spec["volumes"]
        if "persistentVolumeClaim" in volume
    }
    mounts = {each["mountPath"]: claims.get(each["name"]) for each in spec["containers"][0]["volumeMounts"]}
    assert sorted(claims.values()) == ["other", "shared"]
    assert (mounts["/other"], mounts["/archive"], mounts[names.CHECKPOINT_FOLDER]) == ("other", "shared", "shared")


def test_names_are_short_enough() -> None:
    longest = "p" * 32
    assert len(names.driver_pod(longest, 999_999)) <= 47, "spark.kubernetes.executor.podNamePrefix"
    assert len(names.pipeline_objects_name(longest)) <= 63
