"""The paths of the chart and of its stored renderings, and functions that read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts/odradek"
GOLDEN: Final = ROOT / "tests/chart/golden"
RENDERED: Final = ("default", "namespaced", "everything")
"""The stored renderings, by the arguments of `charts/render`."""

Object = dict[str, Any]


def read(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


def objects(text: str) -> list[Object]:
    """The Kubernetes objects in a YAML text."""
    return [document for document in yaml.safe_load_all(text) if document]


def rendered(name: str) -> list[Object]:
    """The objects of a stored rendering."""
    return objects(read(GOLDEN / f"{name}.yaml"))


def pod_specs(found: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod specification among objects, with the name of the object that creates the pod."""
    for each in found:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
        elif each["kind"] == "CronJob":
            yield each["metadata"]["name"], each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        elif "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def rules(found: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every rule of every role, with `Kind/namespace/name` of the role."""
    for each in found:
        if each["kind"] in ("Role", "ClusterRole"):
            metadata = each["metadata"]
            for rule in each["rules"]:
                yield f"{each['kind']}/{metadata.get('namespace', '')}/{metadata['name']}", rule


def sections(text: str) -> dict[str, str]:
    """The text of each section with a third-level heading, by its title.

    A section ends at the next heading of level two or three.
    """
    parts = re.split(r"^(###?) (.+)$", text, flags=re.MULTILINE)
    found = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    return {title: body for level, title, body in found if level == "###"}
