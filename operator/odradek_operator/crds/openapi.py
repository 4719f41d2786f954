"""Kubernetes' structural schema (OpenAPI v3) of a part of the model. Pure.

pydantic generates a JSON schema with references and null types. A structural schema has neither.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

from odradek_operator.crds.model import ALLOWED, DEFAULT, Schema

_INTERNAL: Final = (ALLOWED,)
_COMPOSITE: Final = ("array", "object")


@cache
def adapter_of(model: Any) -> TypeAdapter[Any]:
    """Return pydantic's reader of a dataclass of the model."""
    return TypeAdapter(model)


@cache
def schema_of(model: Any) -> Schema:
    """Return the schema of a dataclass of the model, with the internal keywords that messages are made from."""
    generated = adapter_of(model).json_schema()
    return _structural(generated, generated.get("$defs", {}))


def published_schema(node: Schema) -> Schema:
    """Return a schema as the API server gets it: without internal keywords."""
    found = {key: value for key, value in node.items() if key not in _INTERNAL}
    if "properties" in found:
        found["properties"] = {name: published_schema(inner) for name, inner in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = published_schema(found[key])
    return found


def _structural(node: Schema, definitions: Schema) -> Schema:
    node = _resolved(node, definitions)
    for key in ("$defs", "title"):
        node.pop(key, None)
    if not node.get("required", True):
        del node["required"]
    if "const" in node:
        # Kubernetes' schemas have no constants.
        node["enum"] = [node.pop("const")]
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    # Defaults of mappings and lists are published only if the model says so: the API server would add them to objects.
    default = node.pop("default", None)
    default = node.pop(DEFAULT, None if node.get("type") in _COMPOSITE else default)
    if default is not None:
        node["default"] = default
    if "properties" in node:
        node["properties"] = {name: _structural(inner, definitions) for name, inner in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            node[key] = _structural(node[key], definitions)
    return node


def _resolved(node: Schema, definitions: Schema) -> Schema:
    """Return the node without references and null types. Its own keywords replace those of what it refers to."""
    own = dict(node)
    while "$ref" in own or "anyOf" in own:
        if reference := own.pop("$ref", None):
            inner = definitions[reference.rsplit("/", 1)[1]]
        else:
            (inner,) = [each for each in own.pop("anyOf") if each.get("type") != "null"]
        own = dict(inner) | own
    return own
