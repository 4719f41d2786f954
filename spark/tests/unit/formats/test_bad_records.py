"""The search for values that a parser refuses, with parsers that count how often they are called."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_odradek.formats.bad_records import WrongRowError, decode_values


class Numbers:
    """Parses decimal numbers, and knows which row is wrong or does not."""

    def __init__(self, *, knows_row: bool) -> None:
        self.knows_row = knows_row
        self.calls = self.values = 0

    def __call__(self, values: pa.BinaryArray) -> pa.Array:
        self.calls += 1
        self.values += len(values)
        found = values.to_pylist()
        for row, value in enumerate(found):
            if not value.isdigit():
                raise WrongRowError("no number", row) if self.knows_row else pa.ArrowInvalid("no number")
        return pa.array([int(value) for value in found], pa.int64())


VALUES = st.lists(st.sampled_from([b"1", b"22", b"333", b"x", b"", None]), max_size=60)


@given(values=VALUES, knows_row=st.booleans())
def test_wrong_values_are_found_and_no_other(values: list[bytes | None], knows_row: bool) -> None:
    array = pa.array([b"before", *values, b"behind"], pa.binary()).slice(1, len(values))
    typed, wrong = decode_values(array, Numbers(knows_row=knows_row), pa.int64())
    assert typed.type == pa.int64()
    assert typed.to_pylist() == [int(value) if value and value.isdigit() else None for value in values]
    assert wrong.to_pylist() == [None if value is None or value.isdigit() else value for value in values]


@pytest.mark.parametrize("knows_row", [True, False])
def test_the_cost_is_bounded(knows_row: bool) -> None:
    count = 4096
    for every, calls, reads in ((1, 1.3, 10), (2, 5, 30), (64, 0.4, 25), (count, 0.02, 6)):
        parser = Numbers(knows_row=knows_row)
        values = pa.array([b"x" if number % every == 0 else b"1" for number in range(count)], pa.binary())
        decode_values(values, parser, pa.int64())
        assert parser.calls <= calls * count, every
        assert parser.values <= reads * count, every


def test_a_row_that_is_not_that_of_the_value_is_not_believed() -> None:
    def parse(values: pa.BinaryArray) -> pa.Array:
        """Fails because of `two` with the row of the value after it, as if `two` had two rows."""
        found = values.to_pylist()
        if b"two" in found:
            raise WrongRowError("wrong", found.index(b"two") + 1)
        return pa.array(found)

    typed, wrong = decode_values(pa.array([b"a", b"two", b"b", b"c"]), parse, pa.binary())
    assert typed.to_pylist() == [b"a", None, b"b", b"c"]
    assert wrong.to_pylist() == [None, b"two", None, None]


def test_a_null_in_the_result_is_a_wrong_value() -> None:
    typed, wrong = decode_values(pa.array([b"a", b"b"]), lambda values: pa.array([None, 1]), pa.int64())
    assert (typed.to_pylist(), wrong.to_pylist()) == ([None, 1], [b"a", None])
