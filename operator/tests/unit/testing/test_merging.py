"""In-memory server-side apply: sets the applied fields, removes those no longer applied, and keeps those of others."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from odradek_operator_testkit.merging import agreeing, apply, merge

KEYS = st.sampled_from("abcd")
LEAVES = st.one_of(st.integers(0, 3), st.sampled_from(["x", "y"]), st.lists(st.integers(0, 2), max_size=2))
ENTRIES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("pqr")}, optional={"value": st.integers(0, 3)}),
    max_size=3,
    unique_by=lambda entry: entry["name"],
)
OBJECTS = st.recursive(
    st.dictionaries(KEYS, LEAVES, max_size=3),
    lambda inner: st.dictionaries(KEYS, st.one_of(LEAVES, inner), max_size=3),
    max_leaves=6,
)
CONFIGS = st.builds(lambda body, env: {**body, **({"env": env} if env else {})}, OBJECTS, ENTRIES)


@given(CONFIGS)
def test_applying_to_nothing_gives_what_is_applied(config: dict[str, object]) -> None:
    assert apply({}, config, {}, [], custom=False) == config


@given(CONFIGS, CONFIGS)
def test_alone_the_last_one_is_all_there_is(first: dict[str, object], second: dict[str, object]) -> None:
    live = apply({}, first, {}, [], custom=False)
    before = copy.deepcopy(live)
    found = apply(live, second, first, [], custom=False)
    assert live == before, "an argument was changed"
    assert agreeing(second, found) == second
    assert apply(found, second, second, [], custom=False) == found
    assert apply(found, {}, second, [], custom=False) == apply(found, {}, found, [], custom=False)


@given(CONFIGS, CONFIGS, CONFIGS)
def test_what_others_applied_stays(
    ours: dict[str, object], later: dict[str, object], theirs: dict[str, object]
) -> None:
    kept = {f"theirs-{key}": value for key, value in theirs.items()}
    live = apply(apply({}, ours, {}, [], custom=False), kept, {}, [ours], custom=False)
    found = apply(live, later, ours, [kept], custom=False)
    assert agreeing(kept, found) == kept


def test_lists_are_merged_by_key_and_others_replaced() -> None:
    live = {"env": [{"name": "p", "value": 1}, {"name": "theirs", "value": 2}], "args": [1, 2]}
    before = {"env": [{"name": "p", "value": 1}], "args": [1, 2]}
    after = {"env": [{"name": "q", "value": 3}], "args": [4]}
    assert apply(live, after, before, [], custom=False) == {
        "env": [{"name": "theirs", "value": 2}, {"name": "q", "value": 3}],
        "args": [4],
    }
    assert apply(live, after, before, [], custom=True) == after


def test_an_entry_to_which_others_added_keeps_its_key() -> None:
    live = {"env": [{"name": "p", "value": 1, "note": "theirs"}]}
    before = {"env": [{"name": "p", "value": 1}]}
    assert apply(live, {}, before, [], custom=False) == {"env": [{"name": "p", "note": "theirs"}]}


def test_merge_patches_remove_by_null() -> None:
    assert merge({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": None, "e": {}}}) == {"b": {"d": 3, "e": {}}}
    assert merge({"a": [1, 2]}, {"a": [3]}) == {"a": [3]}
    assert merge({"a": 1}, {"a": {"b": None, "c": 1}}) == {"a": {"c": 1}}
