"""The cluster can begin and end every kind of fault."""

from __future__ import annotations

from ordeal import arena
from ordeal.kinds import TRAITS, Kind


def test_every_kind_has_its_actions() -> None:
    assert set(arena._BEGIN) == set(arena._END) == set(TRAITS) == set(Kind)
