"""Tests the guide to Kubernetes: its resources are valid, and the chart values and files that it names exist."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from chart_files import CHART, ROOT, read
from odradek_operator.crds import read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_testkit.interop.guides import fenced_blocks

GUIDE = read(ROOT / "docs/kubernetes.md")
RUNBOOK = read(ROOT / "docs/runbook.md")
SCHEMA: dict[str, Any] = json.loads(read(CHART / "values.schema.json"))


def definition(plural: str) -> dict[str, Any]:
    """The schema of a resource."""
    found = yaml.safe_load(read(CHART / f"files/crds/{plural}.yaml"))
    schema: dict[str, Any] = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_resources_are_taken_without_a_notice() -> None:
    """Checks the resources within commands and the example with which the guide starts."""
    within = re.findall(r"<<'YAML'\n(.*?)^YAML$", "\n".join(fenced_blocks(GUIDE, "sh")), re.MULTILINE | re.DOTALL)
    texts = [read(ROOT / "manifests/examples/cluster.yaml"), *fenced_blocks(GUIDE, "yaml"), *within]
    resources = read_resources([document for text in texts for document in parse_documents(text, "kubernetes.md")])
    assert ([*resources.clusters], [*resources.topics]) == (["demo"], ["greetings"])
    assert resources.notices == ()


def test_values_are_the_charts() -> None:
    commands = " ".join(fenced_blocks(GUIDE, "sh")) + " ".join(re.findall(r"`--set ([^`]+)`", GUIDE))
    named = re.findall(r"--set ([\w.]+)=", commands)
    assert named
    for path in named:
        found = SCHEMA
        for name in path.split("."):
            found = found["properties"][name]


def test_patches_are_of_fields_that_there_are() -> None:
    for text in (GUIDE, RUNBOOK):
        found = re.findall(r"kubectl patch (cluster|topic)\S* .*?-p '(\{.*?\})'$", text, re.MULTILINE)
        assert found
        for kind, patch in found:
            # Kubernetes itself defines the fields of `metadata`.
            fields = {name: value for name, value in json.loads(patch).items() if name != "metadata"}
            _known(definition(f"{kind}s"), fields, patch)


def test_status_fields_are_those_of_the_definitions() -> None:
    for text in (GUIDE, RUNBOOK):
        paths = re.findall(r"get (cluster|topic)\S* [^\n]*jsonpath='([^']*)'", text)
        assert paths
        for kind, path in paths:
            for found in re.findall(r"\.(?:status|spec)[\w.]*", path):
                schema = definition(f"{kind}s")
                for name in found.strip(".").split("."):
                    assert name in schema.get("properties", {}), found
                    schema = schema["properties"][name]


def _known(schema: dict[str, Any], value: Any, where: str) -> None:
    if not isinstance(value, dict) or "properties" not in schema:
        return
    for name, inner in value.items():
        assert name in schema["properties"], f"{name} in {where}"
        _known(schema["properties"][name], inner, where)
