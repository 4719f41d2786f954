"""Tests the chart's values: each has a comment, a description in the schema, and a default that the schema allows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from chart_files import CHART, read
from odradek_operator.crds import DEFAULT_VERSION

VALUES: dict[str, Any] = yaml.safe_load(read(CHART / "values.yaml"))
SCHEMA: dict[str, Any] = json.loads(read(CHART / "values.schema.json"))
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "object": dict,
    "array": list,
}


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The path, default and schema of every value. A mapping without declared properties is one value."""
    for name, value in values.items():
        found = schema["properties"].get(name)
        assert found is not None, f"{path}{name} is no value of the schema"
        if "properties" in found:
            yield from leaves(value, found, f"{path}{name}.")
        else:
            yield f"{path}{name}", value, found


def test_schema_and_defaults_have_the_same_values() -> None:
    def names(schema: dict[str, Any], path: str = "") -> set[str]:
        found: set[str] = set()
        for name, inner in schema["properties"].items():
            found |= names(inner, f"{path}{name}.") if "properties" in inner else {f"{path}{name}"}
        return found

    assert names(SCHEMA) - {"global"} == {path for path, _, _ in leaves(VALUES, SCHEMA)}


def test_defaults_are_allowed() -> None:
    for path, value, schema in leaves(VALUES, SCHEMA):
        assert isinstance(value, TYPES[schema["type"]]), path
        assert "enum" not in schema or value in schema["enum"], path
        assert "pattern" not in schema or re.search(schema["pattern"], value), path
        assert "minimum" not in schema or schema["minimum"] <= value, path


def test_schema_takes_nothing_unknown_and_describes_everything() -> None:
    def look(schema: dict[str, Any], path: str) -> None:
        assert schema.get("description"), path
        if "properties" in schema:
            assert schema["additionalProperties"] is False, path
            for name, inner in schema["properties"].items():
                look(inner, f"{path}.{name}")

    look(SCHEMA, "values")


def test_lines_are_short() -> None:
    assert [line for line in read(CHART / "values.yaml").splitlines() if len(line) > 120] == []


def test_every_value_has_a_comment_above_it() -> None:
    lines = read(CHART / "values.yaml").splitlines()
    bare = []
    for number, line in enumerate(lines):
        found = re.match(r"( *)([a-zA-Z]+):(.*)$", line)
        if not found or lines[number - 1].lstrip().startswith("#"):
            continue
        indent, name, rest = found.groups()
        is_group = not rest.strip() and re.match(rf"{indent}  #", lines[number + 1])
        inside_other = re.match(r"podSecurityContext|securityContext|resources", _top(lines, number)) and indent
        if not is_group and not inside_other:
            bare.append(name)
    assert bare == []


def _top(lines: list[str], number: int) -> str:
    return next(line for line in reversed(lines[: number + 1]) if re.match(r"[a-zA-Z]", line))


def test_chart_is_of_the_products_version() -> None:
    chart = yaml.safe_load(read(CHART / "Chart.yaml"))
    assert chart["appVersion"] == DEFAULT_VERSION
    assert chart["version"] == DEFAULT_VERSION
