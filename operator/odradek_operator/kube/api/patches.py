"""Merge patches (RFC 7386): what must be sent so that one JSON value becomes another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The patch from `before` to `after`; empty where they are equal. Lists are replaced as a whole.

    Values of `after` must not be None: in a merge patch that means removal.
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = merge_patch(old, value)
            if inner:
                patch[key] = inner
        elif old != value or key not in before:
            patch[key] = value
    return patch
