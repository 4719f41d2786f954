"""The values of the records that the load writes, and the entries of its ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ordeal.records import ForeignRecordError, entry_of, read_acks, read_value, value_of

PARTITIONS = st.integers(0, 2**16 - 1)


@given(PARTITIONS, st.integers(0, 2**64 - 1))
def test_a_value_names_its_place(partition: int, number: int) -> None:
    assert read_value(value_of(partition, number)) == (partition, number)


@given(PARTITIONS, st.integers(0, 2**64 - 1), st.integers(0, 13), st.integers(1, 255))
def test_a_damaged_value_is_foreign(partition: int, number: int, place: int, flip: int) -> None:
    value = bytearray(value_of(partition, number))
    value[place] ^= flip
    with pytest.raises(ForeignRecordError):
        read_value(bytes(value))


@pytest.mark.parametrize("value", [None, b"", b"x" * 13, value_of(1, 2) + b"x"])
def test_other_values_are_foreign(value: bytes | None) -> None:
    with pytest.raises(ForeignRecordError):
        read_value(value)


@given(
    st.lists(
        st.tuples(PARTITIONS, st.integers(0, 2**32 - 1), st.integers(-1, 2**62), st.floats(0, 1e9, allow_nan=False))
    ),
    st.integers(0, 21),
)
def test_entries_come_back_and_a_torn_one_is_left_out(entries: list[tuple[int, int, int, float]], torn: int) -> None:
    content = b"".join(entry_of(*entry) for entry in entries) + b"x" * torn
    assert [tuple(entry) for entry in read_acks(content).tolist()] == entries
