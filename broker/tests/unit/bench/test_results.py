"""The file of results, and the merging of partial runs."""

from __future__ import annotations

import pytest
from comparison.results import Outcome, ResultsError, decode, encode, merge
from hypothesis import given
from hypothesis import strategies as st

from .outcomes import outcome


def costing(name: str, cpu_s: float, *, failure: str | None = None) -> Outcome:
    """Return the outcome of two runs that used about as much CPU time; `failure` is that of Apache Kafka."""
    failures = {} if failure is None else {"apache": failure}
    return outcome(name, [{"cpu_s": cpu_s}, {"cpu_s": cpu_s + 1}], [], **failures)


def test_a_new_outcome_takes_the_place_of_the_whole_old_one() -> None:
    merged = merge([costing("a", 1), costing("b", 2)], [costing("b", 5, failure="why"), costing("c", 6)])
    assert merged == [costing("a", 1), costing("b", 5, failure="why"), costing("c", 6)]


def test_merging_nothing_changes_nothing() -> None:
    assert merge([costing("a", 1)], []) == [costing("a", 1)]


@given(
    st.lists(
        st.builds(costing, st.text(), st.floats(allow_nan=False, allow_infinity=False), failure=st.none() | st.text())
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
