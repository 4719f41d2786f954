"""The file of results, and the merging of partial runs."""

from __future__ import annotations

import pytest
from comparison.results import Outcome, ResultsError, decode, encode, merge
from hypothesis import given
from hypothesis import strategies as st


def outcome(name: str, value: float, *, failure: str | None = None) -> Outcome:
    return Outcome(
        scenario=name,
        day="2026-01-02",
        scale=1.0,
        machine="a machine",
        versions={"Odradek": "1"},
        runs={"odradek": ({"cpu_s": value}, {"cpu_s": value + 1})},
        failures={} if failure is None else {"apache": failure},
    )


def test_a_new_outcome_takes_the_place_of_the_whole_old_one() -> None:
    merged = merge([outcome("a", 1), outcome("b", 2)], [outcome("b", 5, failure="why"), outcome("c", 6)])
    assert merged == [outcome("a", 1), outcome("b", 5, failure="why"), outcome("c", 6)]


def test_merging_nothing_changes_nothing() -> None:
    assert merge([outcome("a", 1)], []) == [outcome("a", 1)]


@given(
    st.lists(
        st.builds(outcome, st.text(), st.floats(allow_nan=False, allow_infinity=False), failure=st.none() | st.text())
    )
)
def test_what_is_written_is_read(outcomes: list[Outcome]) -> None:
    assert decode(encode(outcomes)) == outcomes


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "outcomes": []}', '{"format": 1, "outcomes": [{"scenario": "a"}]}']
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ResultsError):
        decode(text)
