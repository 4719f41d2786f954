"""The Pipeline resource: schema and reader agree, examples are read, and mistakes are named."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek_operator.crds import Pipeline, read_object, read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.problems import ResourceError
from odradek_operator.crds.schema import definitions

EXAMPLES = Path(__file__).parents[4] / "manifests/examples/pipelines"
MINIMAL: dict[str, Any] = {
    "cluster": "demo",
    "source": {"topics": ["a"]},
    "target": {"path": "/x"},
    "checkpoint": {"path": "/c"},
}


def read(**spec: Any) -> Pipeline:
    content = {name: value for name, value in {**MINIMAL, **spec}.items() if value is not None}
    found = read_object(
        {"apiVersion": "odradek.dev/v1", "kind": "Pipeline", "metadata": {"name": "demo"}, "spec": content}
    )
    assert isinstance(found, Pipeline)
    return found


def defaulted(value: Any, schema: dict[str, Any]) -> Any:
    """Return the value with the defaults that the API server adds."""
    if isinstance(value, dict):
        filled = dict(value)
        for name, inner in schema.get("properties", {}).items():
            if name not in filled and "default" in inner:
                filled[name] = copy.deepcopy(inner["default"])
            if name in filled:
                filled[name] = defaulted(filled[name], inner)
        return filled
    return [defaulted(item, schema["items"]) for item in value] if isinstance(value, list) else value


def fields_of(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, inner in schema.get("properties", {}).items():
        found += [(f"{path}.{name}", inner), *fields_of(inner, f"{path}.{name}")]
    return found + (fields_of(schema["items"], f"{path}[]") if "items" in schema else [])


def schema() -> dict[str, Any]:
    (version,) = definitions()["pipelines"]["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def test_defaults_of_the_schema_are_those_of_the_types() -> None:
    spec = {**MINIMAL, "streaming": {}, "volumes": [{"claim": "a", "mountPath": "/a"}], "restart": {}}
    filled = defaulted(spec, schema()["properties"]["spec"])
    assert filled != spec
    assert read(**filled) == read(**spec)


def test_every_field_is_explained_and_has_no_constant() -> None:
    for path, inner in fields_of(schema()):
        assert path.startswith(".metadata") or inner.get("description", "").endswith("."), path
        assert "const" not in inner, "Kubernetes refuses it"


def test_columns_are_those_of_the_documentation() -> None:
    (version,) = definitions()["pipelines"]["spec"]["versions"]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column["priority"]]
    assert shown == ["Phase", "Rate", "Lag", "Age"]
    paths = {path for path, _ in fields_of(schema())} | {".metadata.creationTimestamp"}
    for column in version["additionalPrinterColumns"]:
        assert column["jsonPath"].replace('[?(@.type=="Ready")]', "[]") in paths


def test_the_examples_are_pipelines() -> None:
    found = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document["kind"] == "Pipeline":
                resource = read_object(document)
                assert isinstance(resource, Pipeline)
                assert not resource.unknown_fields
                found[resource.name] = resource
    assert found["departures-archive"].schedule is not None
    assert found["departures-delays"].is_streaming


def test_an_embedded_cluster_says_that_it_runs_none() -> None:
    cluster = "apiVersion: odradek.dev/v1\nkind: Cluster\nmetadata: {name: demo}\nspec: {}\n---\n"
    text = cluster + yaml.safe_dump(
        {"apiVersion": "odradek.dev/v1", "kind": "Pipeline", "metadata": {"name": "p"}, "spec": MINIMAL}
    )
    found = read_resources(parse_documents(text, "f"))
    assert list(found.pipelines) == ["p"]
    assert any("runs on Kubernetes only" in notice for notice in found.notices)


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"cluster": None}, "spec.cluster"),
        ({"bootstrapServers": "a:1"}, "spec.cluster"),
        ({"schedule": {"cron": "0 3 * * *"}, "streaming": {}}, "spec.schedule"),
        ({"schedule": {"cron": "0 3 * *"}}, "spec.schedule.cron"),
        ({"schedule": {"cron": "0 3 * * *", "timeZone": "Mars"}}, "spec.schedule.timeZone"),
        ({"schedule": {"cron": "0 3 * * *", "concurrency": "Allow"}}, "spec.schedule.concurrency"),
        ({"source": {}}, "spec.source.topics"),
        ({"source": {"topics": ["a"], "pattern": "b"}}, "spec.source.topics"),
        ({"source": {"topics": []}}, "spec.source.topics"),
        ({"source": {"topics": ["a"], "format": "json"}}, "spec.source.schema"),
        ({"source": {"topics": ["a"], "schema": "a INT"}}, "spec.source.schema"),
        ({"source": {"topics": ["a"], "options": {"subscribe": "b"}}}, "spec.source.options[subscribe]"),
        (
            {"source": {"topics": ["a"], "options": {"kafka.sasl.jaas.config": "x"}}},
            "spec.source.options[kafka.sasl.jaas.config]",
        ),
        ({"target": {}}, "spec.target.topic"),
        ({"target": {"topic": "a", "path": "/b"}}, "spec.target.topic"),
        ({"target": {"path": "/b", "deliveryGuarantee": "exactly-once"}}, "spec.target.deliveryGuarantee"),
        ({"target": {"topic": "a", "partitionBy": ["b"]}}, "spec.target.partitionBy"),
        ({"target": {"path": "/b", "outputMode": "update"}}, "spec.target.outputMode"),
        ({"driver": {"memory": "1000Mi"}}, "spec.driver.memory"),
        ({"executors": {"instances": 1, "dynamicAllocation": {"max": 2}}}, "spec.executors.instances"),
        ({"executors": {"dynamicAllocation": {"min": 3, "max": 2}}}, "spec.executors.dynamicAllocation.min"),
        ({"volumes": [{"claim": "a", "mountPath": "b"}]}, "spec.volumes[0].mountPath"),
        ({"sparkConf": {"spark.master": "local"}}, "spec.sparkConf[spark.master]"),
        ({"sparkConf": {"hadoop.x": "y"}}, "spec.sparkConf[hadoop.x]"),
        ({"sparkConf": {"spark.hadoop.fs.s3a.secret.key": "y"}}, "spec.sparkConf[spark.hadoop.fs.s3a.secret.key]"),
        ({"template": {"labels": {"odradek.dev/pipeline": "x"}}}, "spec.template.labels[odradek.dev/pipeline]"),
        ({"restart": {"policy": "Always"}}, "spec.restart.policy"),
        ({"history": 0}, "spec.history"),
    ],
)
def test_mistakes_are_named(spec: dict[str, Any], place: str) -> None:
    with pytest.raises(ResourceError) as caught:
        read(**spec)
    assert place in [problem.path for problem in caught.value.problems]


@pytest.mark.parametrize("name", ["a.b", "1a", "A", "a-", "a" * 33])
def test_names_that_no_service_can_have(name: str) -> None:
    with pytest.raises(ResourceError, match=r"metadata\.name"):
        read_object({"apiVersion": "odradek.dev/v1", "kind": "Pipeline", "metadata": {"name": name}, "spec": MINIMAL})
