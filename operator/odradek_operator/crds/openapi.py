"""Small pieces of OpenAPI v3 as Kubernetes' structural schemas want them. Pure.

Enters: a description, bounds, a default. Leaves: dictionaries for a CustomResourceDefinition. Called by the schemas
beside this module. Whatever a rule looks at has bounds of length and number: the API server refuses rules whose cost it
cannot bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from odradek_operator.crds.fields import QUANTITY_PATTERN

Schema = dict[str, Any]

MAX_TEXT: Final = 512
MAX_QUANTITY: Final = 32
MAX_PROPERTIES: Final = 256
MAX_PROPERTY: Final = 8_192
MAX_LABELS: Final = 64
MAX_LABEL: Final = 63


def rule(expression: str, message: str) -> dict[str, str]:
    """A CEL rule and the sentence that people read when it does not hold."""
    return {"rule": expression, "message": message}


def ruled(schema: Schema, *rules: Mapping[str, str]) -> Schema:
    """The schema with rules of its own."""
    return schema | {"x-kubernetes-validations": [dict(each) for each in rules]}


def text(
    description: str,
    *,
    pattern: str | None = None,
    max_length: int = MAX_TEXT,
    values: Sequence[str] = (),
    default: str | None = None,
) -> Schema:
    """Text that is not empty; with `pattern` of that form as a whole, with `values` one of these."""
    schema: Schema = {"description": description, "type": "string"}
    if values:
        schema["enum"] = list(values)
    else:
        schema |= {"minLength": 1, "maxLength": max_length}
    if pattern is not None:
        schema["pattern"] = f"^{pattern}$"
    return schema if default is None else schema | {"default": default}


def whole(description: str, *, low: int, high: int | None = None, default: int | None = None) -> Schema:
    """A whole number within bounds."""
    schema: Schema = {"description": description, "type": "integer", "format": "int64", "minimum": low}
    if high is not None:
        schema["maximum"] = high
    return schema if default is None else schema | {"default": default}


def truth(description: str, *, default: bool | None = None) -> Schema:
    """true or false."""
    schema: Schema = {"description": description, "type": "boolean"}
    return schema if default is None else schema | {"default": default}


def quantity(description: str, *, default: str | None = None) -> Schema:
    """A quantity of Kubernetes, such as 100Gi, 2 or 500m."""
    schema: Schema = {
        "description": description,
        "maxLength": MAX_QUANTITY,
        "minimum": 0,
        "pattern": f"^{QUANTITY_PATTERN}$",
        "x-kubernetes-int-or-string": True,
    }
    return schema if default is None else schema | {"default": default}


def properties(description: str) -> Schema:
    """A map of properties: text, or whole numbers."""
    return {
        "description": f"{description} Values are text or whole numbers: put true, false and fractions in quotes.",
        "type": "object",
        "maxProperties": MAX_PROPERTIES,
        "additionalProperties": {
            "maxLength": MAX_PROPERTY,
            "x-kubernetes-int-or-string": True,
        },
    }


def labels(description: str) -> Schema:
    """A map of labels."""
    return {
        "description": description,
        "type": "object",
        "maxProperties": MAX_LABELS,
        "additionalProperties": {"type": "string", "maxLength": MAX_LABEL},
    }


def verbatim(description: str) -> Schema:
    """A mapping that is handed to Kubernetes as it is; Kubernetes says what is wrong with it."""
    return {"description": description, "type": "object", "x-kubernetes-preserve-unknown-fields": True}


def record(
    description: str, fields: Mapping[str, Schema], *, required: Iterable[str] = (), default: Schema | None = None
) -> Schema:
    """A mapping with known fields."""
    schema: Schema = {"description": description, "type": "object"}
    if names := list(required):
        schema["required"] = names
    schema["properties"] = dict(fields)
    return schema if default is None else schema | {"default": default}


def listed(
    description: str, item: Schema, *, max_items: int | None = None, key: str | None = None, default: Any = None
) -> Schema:
    """A list; with `key` its entries differ in that field and are known by it."""
    schema: Schema = {"description": description, "type": "array", "items": item}
    if max_items is not None:
        schema["maxItems"] = max_items
    if key is not None:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return schema if default is None else schema | {"default": default}


def not_among(keys: Iterable[str]) -> str:
    """The CEL expression that none of these keys is in the map."""
    return f"[{', '.join(map(repr, sorted(keys)))}].all(key, !(key in self))"
