"""Reading requests whose fields differ from version to version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")


def field(entity: object, name: str, default: Value) -> Value:
    """A request's field, or `default` where the request's version does not have it or has null."""
    value: Value | None = getattr(entity, name, None)
    return default if value is None else value


def items(entity: object, name: str) -> Sequence[Any]:
    """A request's array; empty where the request's version does not have it or has null."""
    value: Sequence[Any] | None = getattr(entity, name, None)
    return () if value is None else value
