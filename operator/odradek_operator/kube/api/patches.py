"""Merge patches (RFC 7386): computes the patch that turns one JSON value into another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch from `before` to `after`; empty if they are equal. Lists are replaced as a whole.

    `after` must not contain None, which means removal in a merge patch.
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
