"""Reading objects of the API server without trusting their form: what is missing or of another type is empty. Pure.

Enters: JSON as the API server sends it. Leaves: mappings, lists, texts and times. Called by `observed_cluster` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

Object = Mapping[str, object]

_NOTHING: Final[Object] = {}


def mapping(body: object, *path: str) -> Object:
    """The object at a path; empty where there is none."""
    found: object = body
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else _NOTHING


def items(body: object, *path: str) -> list[Object]:
    """The objects of the list at a path; empty where there is none."""
    found = mapping(body, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list | tuple) else []


def text(body: object, *path: str) -> str:
    """The text at a path; empty where there is none."""
    found = mapping(body, *path[:-1]).get(path[-1])
    return found if isinstance(found, str) else ""


def texts(body: object, *path: str) -> list[str]:
    """The texts of the list at a path."""
    found = mapping(body, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, str)] if isinstance(found, list | tuple) else []


def number(body: object, *path: str) -> int | None:
    """The whole number at a path; None where there is none."""
    found = mapping(body, *path[:-1]).get(path[-1])
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def moment(body: object, *path: str) -> float | None:
    """The time at a path in seconds since the epoch; None where there is none that can be read."""
    try:
        return datetime.fromisoformat(text(body, *path)).timestamp()
    except ValueError:
        return None


def condition(body: object, kind: str) -> Object:
    """The condition of this type; empty where the object has none."""
    return next((one for one in items(body, "status", "conditions") if one.get("type") == kind), _NOTHING)


def is_true(body: object, kind: str) -> bool:
    """Whether the condition of this type holds."""
    return text(condition(body, kind), "status") == "True"
