"""Slices contain all items in order, and no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.context import slices


@given(st.lists(st.integers(), max_size=50), st.integers(1, 12))
def test_slices_are_limited_and_complete(items: list[int], size: int) -> None:
    found = list(slices(iter(items), size))
    assert [item for some in found for item in some] == items
    assert all(0 < len(some) <= size for some in found)
    assert all(len(some) == size for some in found[:-1])


def test_the_items_may_change_meanwhile() -> None:
    source = {1: "a", 2: "b", 3: "c"}
    for some in slices(source, 1):
        source[some[0] + 10] = "later"
    assert len(source) == 6
