"""The CRDs: the files are up to date, and schema and reader have the same fields and defaults."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.crds import Cluster, Topic, read_object, read_resources
from odradek_operator.crds.documents import Document, LocatedMapping
from odradek_operator.crds.generate_crds import FOLDER, main, rendered
from odradek_operator.crds.problems import ResourceError
from odradek_operator.crds.schema import definitions

ROOT = Path(__file__).parents[4]

SOURCE: Any = {"secretName": "ca", "issuerRef": {"name": "ca", "kind": "ClusterIssuer", "group": "g"}}
PODS = {
    "image": "registry/image:1",
    "resources": {
        kind: {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "2Gi"} for kind in ("requests", "limits")
    },
    "template": {
        "labels": {"team": "data"},
        "annotations": {"note": "1"},
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"podAffinity": {}},
        "tolerations": [{"key": "a"}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "pull"}],
        "terminationGracePeriodSeconds": 90,
    },
}
CLUSTER = {
    "version": "9.9",
    "brokers": {
        "replicas": 5,
        "perPod": 2,
        "storage": {
            "volumes": [{"id": 1, "size": "1Gi", "storageClass": "fast"}],
            "deleteClaims": True,
            "releaseLostAfterSeconds": 1,
        },
        "rack": {"topologyKey": "zone", "names": ["a"]},
        "spread": "Preferred",
        "rebalance": {"partitions": 3, "throttle": "1M"},
        "config": {"min.insync.replicas": 2},
        "configFrom": [{"secretRef": {"name": "passwords"}}],
        **PODS,
    },
    "listeners": [
        {
            "name": "x",
            "port": 1,
            "type": "loadbalancer",
            "tls": True,
            "authentication": {
                "type": "oauth",
                "jwksUrl": "https://issuer.example/keys",
                "issuer": "https://issuer.example",
                "audience": "kafka",
                "principalClaim": "client_id",
            },
            "insecure": True,
            "alternativeNames": ["kafka.example"],
            "annotations": {"a": "b"},
            "sourceRanges": ["192.0.2.0/24"],
        }
    ],
    "certificateAuthorities": {
        "cluster": {**SOURCE, "validityDays": 9, "renewalDays": 2, "certificateDays": 3, "graceHours": 1},
        "clients": {**SOURCE, "validityDays": 9, "renewalDays": 2, "certificateDays": 3, "graceHours": 1},
    },
    "maintenanceWindows": [{"days": ["Sat"], "start": "02:00", "minutes": 5}],
    "zookeeper": {
        "replicas": 5,
        "storage": {"size": "1Gi", "storageClass": "fast", "deleteClaims": True, "releaseLostAfterSeconds": 60},
        "spread": "Preferred",
        "config": {"tickTime": 1},
        **PODS,
    },
    "monitoring": {
        "podMonitors": True,
        "rules": True,
        "dashboards": True,
        "exporter": {"enabled": False, "resources": PODS["resources"]},
    },
    "networkPolicies": False,
    "networkAccess": {
        "replication": [{"podSelector": {}}],
        "metrics": [{"podSelector": {}}],
        "zookeeper": [{"podSelector": {}}],
    },
}
"""A specification with every field except those of `SHARED_ENSEMBLE`. No value is the default."""
SHARED_ENSEMBLE = {("zookeeper", "connect"), ("brokers", "firstBrokerId")}
TOPIC = {
    "cluster": "demo",
    "partitions": 2,
    "replicas": 2,
    "config": {"retention.ms": 1},
    "deletion": "Delete",
    "drift": "Adopt",
}


def schema_of(plural: str) -> dict[str, Any]:
    (version,) = definitions()[plural]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def wrapped(kind: str, spec: object) -> dict[str, Any]:
    return {"apiVersion": "odradek.dev/v1", "kind": kind, "metadata": {"name": "demo"}, "spec": spec}


def located(value: Any) -> Any:
    """Return a document whose values are all at line 1."""
    if isinstance(value, list):
        return [located(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = LocatedMapping(1)
    found.update({key: located(item) for key, item in value.items()})
    return found


def read(kind: str, spec: object) -> Cluster | Topic:
    """Read a manifest of an embedded cluster, for which listeners may have TLS and authentication."""
    demo = located(wrapped("Cluster", {"brokers": {"replicas": 5}}))
    documents = [Document("f", 1, located(wrapped(kind, spec)))]
    resources = read_resources([*documents, Document("f", 2, demo)] if kind == "Topic" else documents)
    return resources.topics["demo"] if kind == "Topic" else resources.clusters["demo"]


def leaves(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all fields without inner fields. `[]` is an entry of a list."""
    if "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from leaves(inner, (*path, name))
    elif schema.get("type") == "array" and "properties" in schema["items"]:
        yield from leaves(schema["items"], (*path, "[]"))
    else:
        yield path


def fields_of(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every field at every depth."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from fields_of(inner, f"{path}.{name}")
    if "items" in schema:
        yield f"{path}[]", schema["items"]
        yield from fields_of(schema["items"], f"{path}[]")


def without(document: Any, path: tuple[str, ...]) -> Any:
    """Return a copy without the field."""
    result = copy.deepcopy(document)
    inner = result
    for name in path[:-1]:
        inner = inner[0] if name == "[]" else inner[name]
    del inner[path[-1]]
    return result


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
    if isinstance(value, list):
        return [defaulted(item, schema["items"]) for item in value]
    return value


def test_the_files_of_the_chart_are_up_to_date() -> None:
    for name, text in rendered().items():
        assert (ROOT / FOLDER / name).read_text(encoding="utf-8") == text, "run: make crds"


def test_generating_writes_every_file(tmp_path: Path) -> None:
    main(tmp_path / "crds")
    assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "crds").iterdir()} == rendered()


@pytest.mark.parametrize(("plural", "kind", "sample"), [("clusters", "Cluster", CLUSTER), ("topics", "Topic", TOPIC)])
def test_schema_and_reader_know_the_same_fields(plural: str, kind: str, sample: dict[str, Any]) -> None:
    known = set(leaves(schema_of(plural)["properties"]["spec"])) - SHARED_ENSEMBLE
    whole = read(kind, sample)
    for path in known:
        # Fails for a field of the schema that the sample lacks, or that the reader ignores.
        shorter = without(sample, path)
        try:
            assert read(kind, shorter) != whole, path
        except ResourceError as error:
            # A refusal also shows that the reader knows the field.
            assert "it is missing" in str(error) or "set tls: true" in str(error)
    with pytest.raises(ResourceError, match="is not a field here"):
        read(kind, sample | {"another": 1})


@pytest.mark.parametrize(("kind", "sample"), [("Cluster", CLUSTER), ("Topic", TOPIC)])
def test_every_field_of_the_types_is_read(kind: str, sample: dict[str, Any]) -> None:
    """All values differ from the defaults, so a field that the reader ignores is found."""
    whole = read(kind, sample)
    default = Cluster(name="demo") if kind == "Cluster" else Topic(name="demo", cluster="")
    metadata = {"name", "namespace", "uid", "generation", "paused", "unknown_fields", "broker_link"} | {
        "ensemble_link",
        "ensemble_certificates",
    }
    same = {path for path in unchanged(whole, default) if path not in metadata}
    assert same == ({"zookeeper.connect", "brokers.first_id"} if kind == "Cluster" else set())


def unchanged(value: Any, default: Any, path: str = "") -> Iterator[str]:
    for field in dataclasses.fields(value):
        found, other = getattr(value, field.name), getattr(default, field.name)
        if dataclasses.is_dataclass(found) and other is not None:
            yield from unchanged(found, other, f"{path}{field.name}.")
        elif found == other:
            yield f"{path}{field.name}"


def test_an_existing_ensemble_is_read() -> None:
    found = read("Cluster", {"zookeeper": {"connect": "a:1/b"}})
    assert isinstance(found, Cluster)
    assert found.zookeeper.connect == "a:1/b"


@pytest.mark.parametrize(
    ("plural", "kind", "spec"),
    [
        ("clusters", "Cluster", {}),
        ("clusters", "Cluster", {"brokers": {"replicas": 2}, "zookeeper": {"connect": "a:1"}, "monitoring": {}}),
        ("clusters", "Cluster", {"listeners": [{"name": "a", "port": 1}], "zookeeper": {"storage": {"size": "1Gi"}}}),
        ("topics", "Topic", {"cluster": "demo"}),
    ],
)
def test_defaults_of_the_schema_are_those_of_the_types(plural: str, kind: str, spec: dict[str, Any]) -> None:
    filled = defaulted(spec, schema_of(plural)["properties"]["spec"])
    assert filled != spec
    assert read_object(wrapped(kind, filled)) == read_object(wrapped(kind, spec))


PATHS = {
    plural: sorted(set(leaves(schema_of(plural)["properties"]["spec"])) - {("zookeeper", "connect")})
    for plural in ("clusters", "topics")
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize(("plural", "kind", "sample"), [("clusters", "Cluster", CLUSTER), ("topics", "Topic", TOPIC)])
@given(data=st.data())
def test_any_value_in_a_field_is_read_or_is_a_problem(
    plural: str, kind: str, sample: dict[str, Any], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(PATHS[plural]))
    # A mapping or list around the field can be replaced as well.
    path = path[: data.draw(st.integers(1, len(path)))]
    spoiled = copy.deepcopy(sample)
    inner: Any = spoiled
    for name in path[:-1]:
        inner = inner[0] if name == "[]" else inner[name]
    inner[0 if path[-1] == "[]" else path[-1]] = data.draw(json_values)
    try:
        read_object(wrapped(kind, spoiled))
    except ResourceError as error:
        assert all(problem.path.startswith("spec.") and problem.message for problem in error.problems)


@pytest.mark.parametrize("plural", ["clusters", "topics"])
def test_every_field_is_explained(plural: str) -> None:
    schema = schema_of(plural)
    assert schema["description"]
    for path, inner in fields_of(schema):
        if path.startswith(".metadata"):
            continue  # Kubernetes describes these fields itself.
        assert inner.get("description", "").endswith("."), path


@pytest.mark.parametrize("plural", ["clusters", "topics"])
def test_only_parts_that_kubernetes_validates_have_no_schema(plural: str) -> None:
    opened = {path for path, inner in fields_of(schema_of(plural)) if "x-kubernetes-preserve-unknown-fields" in inner}
    pods = {
        f".spec.{part}.template.{name}" for part in ("brokers", "zookeeper") for name in ("affinity", "tolerations[]")
    }
    peers = {f".spec.networkAccess.{port}[]" for port in ("replication", "metrics", "zookeeper")}
    assert opened == (pods | peers if plural == "clusters" else set())


@pytest.mark.parametrize("plural", ["clusters", "topics"])
def test_messages_of_rules_are_sentences(plural: str) -> None:
    schema = schema_of(plural)
    rules = [
        rule for _, inner in [("", schema), *fields_of(schema)] for rule in inner.get("x-kubernetes-validations", [])
    ]
    assert len(rules) > 5
    for rule in rules:
        assert rule["message"].endswith("."), rule
        assert "\n" not in rule["message"]


@pytest.mark.parametrize("plural", ["clusters", "topics"])
def test_columns_show_existing_fields(plural: str) -> None:
    (version,) = definitions()[plural]["spec"]["versions"]
    paths = {path for path, _ in fields_of(schema_of(plural))} | {".metadata.creationTimestamp"}
    for column in version["additionalPrinterColumns"]:
        assert re.sub(r"\[[^]]*\]", "[]", column["jsonPath"]) in paths


def test_an_uninstall_keeps_the_definitions() -> None:
    for plural, definition in definitions().items():
        assert definition["metadata"]["name"] == f"{plural}.odradek.dev"
        assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert definition["spec"]["names"]["categories"] == ["odradek"]
        assert definition["spec"]["versions"][0]["subresources"] == {"status": {}}


def test_rules_of_mappings_with_an_empty_default_allow_missing_fields() -> None:
    """The API server applies the rules to the default itself, and refuses the definition if a rule cannot be
    evaluated."""
    checked = 0
    for path, inner in fields_of(schema_of("clusters")):
        if inner.get("default") != {} or "properties" not in inner:
            continue
        for rule in inner.get("x-kubernetes-validations", []):
            used = set(re.findall(r"self\.([a-zA-Z]+)", rule["rule"])) & inner["properties"].keys()
            assert used <= set(re.findall(r"has\(self\.([a-zA-Z]+)\)", rule["rule"])), path
            checked += bool(used)
    assert checked
