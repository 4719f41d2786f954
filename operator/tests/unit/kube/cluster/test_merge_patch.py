"""Merge patches: the patch between two values, applied to the first one, yields the second one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.kube.cluster.status_documents import merge_patch
from odradek_operator_testkit.merging import merge

KEYS = st.sampled_from("abc")
LEAVES = st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["", "x", "y"]))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_the_patch_turns_one_value_into_the_other(before: dict[str, object], after: dict[str, object]) -> None:
    assert merge(before, merge_patch(before, after)) == after


@given(OBJECTS)
def test_equal_values_need_no_patch(value: dict[str, object]) -> None:
    assert merge_patch(value, value) == {}
