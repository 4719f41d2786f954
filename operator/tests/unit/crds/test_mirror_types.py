"""The Mirror resource: schema and reader agree, examples are read, and mistakes are named."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek_operator.crds import Mirror, read_object, read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.problems import ResourceError
from odradek_operator.crds.schema import definitions

EXAMPLES = Path(__file__).parents[4] / "manifests/examples/mirror"
SOURCE: dict[str, Any] = {"name": "east", "bootstrapServers": "east:9092", "topics": {"include": ["orders.*"]}}
MINIMAL: dict[str, Any] = {"target": {"cluster": "demo"}, "sources": [SOURCE]}


def read(**spec: Any) -> Mirror:
    metadata = {"name": "flights", "namespace": "shop"}
    content = {**MINIMAL, **spec}
    found = read_object({"apiVersion": "odradek.dev/v1", "kind": "Mirror", "metadata": metadata, "spec": content})
    assert isinstance(found, Mirror)
    return found


def source(**fields: Any) -> dict[str, Any]:
    return {"sources": [{name: value for name, value in {**SOURCE, **fields}.items() if value is not None}]}


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
    (version,) = definitions()["mirrors"]["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def test_defaults_of_the_schema_are_those_of_the_types() -> None:
    filled = defaulted(MINIMAL, schema()["properties"]["spec"])
    assert filled != MINIMAL
    assert read(**filled) == read()


def test_every_field_is_explained() -> None:
    for path, inner in fields_of(schema()):
        assert path.startswith(".metadata") or inner.get("description", "").endswith("."), path


def test_columns_are_those_of_the_documentation() -> None:
    (version,) = definitions()["mirrors"]["spec"]["versions"]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column["priority"]]
    assert shown == ["Phase", "Sources", "Lag", "Age"]
    paths = {path for path, _ in fields_of(schema())} | {".metadata.creationTimestamp"}
    for column in version["additionalPrinterColumns"]:
        assert column["jsonPath"].replace('[?(@.type=="Ready")]', "[]") in paths


def test_the_examples_are_mirrors() -> None:
    found = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            resource = read_object(document)
            assert not resource.unknown_fields
            if isinstance(resource, Mirror):
                found[resource.name] = resource
    assert set(found) == {"flights", "from-kafka"}
    assert found["flights"].replicas == 2
    assert found["from-kafka"].sources[0].secret is not None


def test_the_name_in_the_target() -> None:
    assert read().name_in_target == "shop-flights"
    assert read(mirrorName="former").name_in_target == "former"


def test_an_embedded_cluster_says_that_it_runs_none() -> None:
    cluster = "apiVersion: odradek.dev/v1\nkind: Cluster\nmetadata: {name: demo}\nspec: {}\n---\n"
    text = cluster + yaml.safe_dump(
        {"apiVersion": "odradek.dev/v1", "kind": "Mirror", "metadata": {"name": "m"}, "spec": MINIMAL}
    )
    found = read_resources(parse_documents(text, "f"))
    assert list(found.mirrors) == ["m"]
    assert any("runs on Kubernetes only" in notice for notice in found.notices)


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"target": {}}, "spec.target.cluster"),
        ({"target": {"cluster": "a", "bootstrapServers": "b:1"}}, "spec.target.cluster"),
        ({"target": {"bootstrapServers": "b:1", "user": "c"}}, "spec.target.user"),
        ({"target": {"cluster": "a", "secret": "c"}}, "spec.target.secret"),
        (
            {"target": {"cluster": "a", "properties": {"bootstrap.servers": "b:1"}}},
            "spec.target.properties[bootstrap.servers]",
        ),
        (
            {"target": {"cluster": "a", "properties": {"sasl.jaas.config": "b"}}},
            "spec.target.properties[sasl.jaas.config]",
        ),
        ({"sources": []}, "spec.sources"),
        ({"sources": [SOURCE, SOURCE]}, "spec.sources[1].name"),
        (source(name="east.west"), "spec.sources[0].name"),
        (source(topics=None), "spec.sources[0].topics"),
        (source(topics={"include": []}), "spec.sources[0].topics.include"),
        (source(topics={"include": ["a", "("]}), "spec.sources[0].topics.include[1]"),
        (source(groups={"exclude": ["["]}), "spec.sources[0].groups.exclude[0]"),
        (source(prefix="a/"), "spec.sources[0].prefix"),
        (source(startingOffsets="none"), "spec.sources[0].startingOffsets"),
        (source(onDataLoss="ignore"), "spec.sources[0].onDataLoss"),
        (source(maxBytesPerSecond=0), "spec.sources[0].maxBytesPerSecond"),
        ({"mirrorName": "A"}, "spec.mirrorName"),
        ({"replicas": 0}, "spec.replicas"),
        ({"refreshSeconds": 0}, "spec.refreshSeconds"),
        ({"template": {"labels": {"odradek.dev/mirror": "x"}}}, "spec.template.labels[odradek.dev/mirror]"),
    ],
)
def test_mistakes_are_named(spec: dict[str, Any], place: str) -> None:
    with pytest.raises(ResourceError) as caught:
        read(**spec)
    assert place in [problem.path for problem in caught.value.problems]


@pytest.mark.parametrize("name", ["a.b", "1a", "A", "a-", "a" * 41])
def test_names_that_no_deployment_can_have(name: str) -> None:
    with pytest.raises(ResourceError, match=r"metadata\.name"):
        read_object({"apiVersion": "odradek.dev/v1", "kind": "Mirror", "metadata": {"name": name}, "spec": MINIMAL})
