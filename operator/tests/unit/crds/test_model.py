"""The schema and the reader have equal bounds. Every field is tested with values at and outside of its bounds."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from odradek_operator.crds import read_object
from odradek_operator.crds.problems import ResourceError
from odradek_operator.crds.schema import definitions

Schema = dict[str, Any]
Path = tuple[str, ...]

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
SPECIFICATIONS: dict[str, Any] = {
    "Cluster": {
        "version": "9.9",
        "brokers": {
            "replicas": 5,
            "perPod": 1,
            "firstBrokerId": 0,
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
                "type": "internal",
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
        "networkAccess": {"replication": [{"a": {}}], "metrics": [{"a": {}}], "zookeeper": [{"a": {}}]},
    },
    "Topic": {
        "cluster": "demo",
        "partitions": 2,
        "replicas": 2,
        "config": {"retention.ms": 1},
        "deletion": "Delete",
        "drift": "Adopt",
    },
}
OTHER_RULES: set[Path] = {
    ("zookeeper", "connect"),
    ("config",),
}
"""Fields with rules beyond their own bounds, in CEL or in the settings of Kafka."""
TIED: set[Path] = {
    ("listeners", "[]", "tls"),
    ("listeners", "[]", "authentication", "type"),
    ("listeners", "[]", "authentication", "jwksUrl"),
    ("maintenanceWindows", "[]", "start"),
}
"""Fields whose values depend on other fields, or have a pattern: `test_reader` tests them."""
KEYWORDS = {
    *("description", "default", "format", "properties", "required", "items", "additionalProperties"),
    *("x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"),
    *("type", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems"),
    "maxProperties",
}
TYPES: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


def specification(kind: str) -> Schema:
    (version,) = definitions()[f"{kind.lower()}s"]["spec"]["versions"]
    found: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def fields_of(schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from fields_of(inner, (*path, name))
    if "items" in schema:
        yield from fields_of(schema["items"], (*path, "[]"))


FIELDS = [
    pytest.param(kind, path, schema, id=".".join((kind, *path)))
    for kind in SPECIFICATIONS
    for path, schema in fields_of(specification(kind))
    if path
]


def is_valid(value: Any, schema: Schema) -> bool:
    """Whether the structural schema accepts a value, without CEL rules."""
    assert schema.keys() <= KEYWORDS
    return has_type(value, schema) and within_bounds(value, schema) and inner_are_valid(value, schema)


def has_type(value: Any, schema: Schema) -> bool:
    if "x-kubernetes-int-or-string" in schema:
        return isinstance(value, str | int) and not isinstance(value, bool)
    return isinstance(value, TYPES[schema["type"]]) and (schema["type"] == "boolean" or not isinstance(value, bool))


def within_bounds(value: Any, schema: Schema) -> bool:
    match value:
        case str():
            length, low, high = len(value), schema.get("minLength", 0), schema.get("maxLength")
        case int():
            length, low, high = value, schema.get("minimum", value), schema.get("maximum")
        case list():
            length, low, high = len(value), schema.get("minItems", 0), schema.get("maxItems")
        case _:
            length, low, high = len(value), 0, schema.get("maxProperties")
    fits = low <= length and (high is None or length <= high) and value in schema.get("enum", [value])
    return fits and (not isinstance(value, str) or re.search(schema.get("pattern", ""), value) is not None)


def inner_are_valid(value: Any, schema: Schema) -> bool:
    if isinstance(value, list):
        return all(is_valid(item, schema["items"]) for item in value)
    if not isinstance(value, dict):
        return True
    inner = schema.get("properties", {})
    return set(schema.get("required", ())) <= value.keys() and all(
        is_valid(item, inner.get(name) or schema.get("additionalProperties") or {"type": "object"})
        for name, item in value.items()
        if name in inner or "additionalProperties" in schema
    )


def at(specification: Any, path: Path) -> Any:
    for name in path:
        specification = specification[0] if name == "[]" else specification[name]
    return specification


def replaced(kind: str, path: Path, value: Any) -> Any:
    """Return the specification with another value of one field. Adds mappings that the sample lacks."""
    found = copy.deepcopy(SPECIFICATIONS[kind])
    inner = found
    for name in path[:-1]:
        inner = inner[0] if name == "[]" else inner.setdefault(name, {})
    inner[0 if path[-1] == "[]" else path[-1]] = value
    return found


def many(kind: str, path: Path, count: int) -> list[Any]:
    """Return a list of `count` entries. Fields that must be unique have different values."""
    entry = at(SPECIFICATIONS[kind], (*path, "[]"))
    different = {"volumes": lambda i: {"id": i}, "listeners": lambda i: {"name": f"n{i}", "port": i + 1}}
    change = different.get(path[-1])
    return [entry if change is None else entry | change(index) for index in range(count)]


def outside(kind: str, path: Path, schema: Schema) -> Iterator[Any]:
    """Yield values just outside of each bound, and values of other types."""
    if "x-kubernetes-int-or-string" in schema:
        yield from ("1" * (schema["maxLength"] + 1), "much", -1, True, [])
        return
    match schema["type"]:
        case "integer":
            yield from (schema["minimum"] - 1, schema["maximum"] + 1, "1", True, 1.5)
        case "boolean":
            yield from (1, "true", [])
        case "string" if "enum" in schema:
            yield from ("", "other", 1, schema["enum"][0].swapcase())
        case "string":
            yield from ("", "a" * (schema["maxLength"] + 1), 1, ["a"])
            yield from ["?"] if "pattern" in schema else []
        case "array":
            yield from ("a", {}, 1)
            yield from [many(kind, path, schema["maxItems"] + 1)] if "maxItems" in schema else []
            yield from [[]] if "minItems" in schema else []
        case _:
            yield from outside_of_mapping(kind, path, schema)


def outside_of_mapping(kind: str, path: Path, schema: Schema) -> Iterator[Any]:
    yield from ("a", [], 1)
    for name in schema.get("required", ()):
        yield {key: value for key, value in at(SPECIFICATIONS[kind], path).items() if key != name} if name else {}
    if (entry := schema.get("additionalProperties")) is not None:
        yield {"key": []}
        yield from [{"key": "a" * (entry["maxLength"] + 1)}] if "maxLength" in entry else []
        yield from [{f"key{i}": "a" for i in range(schema["maxProperties"] + 1)}] if "maxProperties" in schema else []


def inside(kind: str, path: Path, schema: Schema) -> Iterator[Any]:
    """Yield values at each bound."""
    if "x-kubernetes-int-or-string" in schema:
        yield from ("9" * schema["maxLength"], 2_000_000, "1Gi")
        return
    match schema["type"]:
        case "integer":
            yield from (schema["minimum"], schema["maximum"])
        case "boolean":
            yield from (True, False)
        case "string":
            yield from schema.get("enum") or ("a", "a" * schema["maxLength"])
        case "array" if "maxItems" in schema:
            yield from (many(kind, path, schema["maxItems"]), many(kind, path, schema.get("minItems", 0)))
        case "object" if (entry := schema.get("additionalProperties")) is not None:
            count, length = schema.get("maxProperties", 3), entry.get("maxLength", 3)
            yield {f"key{i}": "a" * length for i in range(count)}


def is_read(kind: str, specification: Any) -> bool:
    document = {"apiVersion": "odradek.dev/v1", "kind": kind, "metadata": {"name": "demo"}, "spec": specification}
    try:
        read_object(document)
    except ResourceError:
        return False
    return True


def test_the_samples_have_every_field_and_are_valid() -> None:
    for kind, sample in SPECIFICATIONS.items():
        assert is_valid(sample, specification(kind))
        assert is_read(kind, sample)
        for path, _ in fields_of(specification(kind)):
            if path not in OTHER_RULES:
                at(sample, path)


@pytest.mark.parametrize(("kind", "path", "schema"), FIELDS)
def test_schema_and_reader_refuse_values_outside_of_the_bounds(kind: str, path: Path, schema: Schema) -> None:
    values = list(outside(kind, path, schema))
    assert len(values) >= 3
    for value in values:
        assert not is_valid(value, schema), value
        assert not is_read(kind, replaced(kind, path, value)), value


@pytest.mark.parametrize(("kind", "path", "schema"), [one for one in FIELDS if one.values[1] not in TIED])
def test_schema_and_reader_accept_values_at_the_bounds(kind: str, path: Path, schema: Schema) -> None:
    for value in inside(kind, path, schema):
        assert is_valid(value, schema), value
        assert is_read(kind, replaced(kind, path, value)) != (path in OTHER_RULES and bool(value)), value


@pytest.mark.parametrize("part", ["brokers", "zookeeper"])
def test_a_part_that_occurs_twice_is_read_in_the_same_way(part: str) -> None:
    """Null counts as a missing field in every place."""
    assert is_read("Cluster", replaced("Cluster", (part, "template", "labels"), None))
    assert is_read("Cluster", replaced("Cluster", (part, "resources", "requests"), None))
