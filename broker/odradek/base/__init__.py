"""Foundations that every layer may use: errors, types, ports, settings and names."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
"""The version of this distribution, equal to that in pyproject.toml. It is here because `network` must not import the
root package, which names the client library."""
