"""Fields that a version of a request may lack."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from odradek.server.fields import field, items

ENTITY = SimpleNamespace(here=0, null=None, listed=(1, 2))


@pytest.mark.parametrize(("name", "value"), [("here", 0), ("null", 7), ("missing", 7)])
def test_field(name: str, value: int) -> None:
    assert field(ENTITY, name, 7) == value


@pytest.mark.parametrize(("name", "value"), [("listed", (1, 2)), ("null", ()), ("missing", ())])
def test_items(name: str, value: tuple[int, ...]) -> None:
    assert items(ENTITY, name) == value
