"""Reads fields of Kubernetes objects without trusting their form: a missing or mistyped field is empty. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

Object = Mapping[str, object]

_NOTHING: Final[Object] = {}


def mapping(body: object, *path: str) -> Object:
    """Return the object at a path; empty if there is none."""
    found: object = body
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else _NOTHING


def items(body: object, *path: str) -> list[Object]:
    """Return the objects of the list at a path; empty if there is none."""
    found = mapping(body, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list | tuple) else []


def text(body: object, *path: str) -> str:
    """Return the string at a path; empty if there is none."""
    found = mapping(body, *path[:-1]).get(path[-1])
    return found if isinstance(found, str) else ""


def texts(body: object, *path: str) -> list[str]:
    """Return the strings of the list at a path."""
    found = mapping(body, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, str)] if isinstance(found, list | tuple) else []


def number(body: object, *path: str) -> int | None:
    """Return the integer at a path; None if there is none."""
    found = mapping(body, *path[:-1]).get(path[-1])
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def moment(body: object, *path: str) -> float | None:
    """Return the time at a path in seconds since the epoch; None if there is no valid time."""
    try:
        return datetime.fromisoformat(text(body, *path)).timestamp()
    except ValueError:
        return None


def condition(body: object, kind: str) -> Object:
    """Return the condition of this type; empty if there is none."""
    return next((one for one in items(body, "status", "conditions") if one.get("type") == kind), _NOTHING)


def is_true(body: object, kind: str) -> bool:
    """Whether the condition of this type is true."""
    return text(condition(body, kind), "status") == "True"
