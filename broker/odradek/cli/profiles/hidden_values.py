"""Shows client properties without their secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.client.settings import CLIENT_SETTINGS, canonical_name

HIDDEN: Final = "********"
"""Shown instead of the value of a secret."""


def is_secret(name: str) -> bool:
    """Whether the value of a property must not be shown.

    The value of an unknown property is hidden, too: it may be a misspelled password.
    """
    setting = CLIENT_SETTINGS.get(canonical_name(name))
    return setting is None or setting.sensitive


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the values of secrets hidden."""
    return {name: HIDDEN if is_secret(name) else value for name, value in properties.items()}


def with_kept_secrets(edited: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return edited properties with the former values of those that are still hidden."""
    return {name: before.get(name, value) if value == HIDDEN else value for name, value in edited.items()}
