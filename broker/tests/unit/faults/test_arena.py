"""Every kind of fault can be done and taken back."""

from __future__ import annotations

from ordeal import arena
from ordeal.kinds import TRAITS, Kind


def test_every_kind_has_its_actions() -> None:
    assert set(arena._BEGIN) == set(arena._END) == set(TRAITS) == set(Kind)
