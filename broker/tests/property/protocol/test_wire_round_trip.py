"""`Reader` reads everything that `Writer` writes, and both agree with kio's primitives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import readers

from odradek.base.errors import MalformedFrameError
from odradek.protocol.wire import Reader, Writer, read_uvarint


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


FORMS: list[tuple[str, str, st.SearchStrategy[Any], Any]] = [
    ("int8", "int8", signed(8), readers.read_int8),
    ("int16", "int16", signed(16), readers.read_int16),
    ("int32", "int32", signed(32), readers.read_int32),
    ("int64", "int64", signed(64), readers.read_int64),
    ("uint16", "uint16", st.integers(0, 2**16 - 1), readers.read_uint16),
    ("uint32", "uint32", st.integers(0, 2**32 - 1), readers.read_uint32),
    ("float64", "float64", st.floats(allow_nan=False), readers.read_float64),
    ("boolean", "boolean", st.booleans(), readers.read_boolean),
    ("uvarint", "uvarint", st.integers(0, 2**32 - 1), readers.read_unsigned_varint),
    ("varint", "varint", signed(32), readers.read_signed_varint),
    ("varlong", "varlong", signed(64), readers.read_signed_varlong),
    ("string", "nullable_string", st.none() | st.text(), readers.read_nullable_legacy_string),
    ("compact_string", "compact_nullable_string", st.none() | st.text(), readers.read_compact_string_nullable),
    ("blob", "nullable_blob", st.none() | st.binary(), readers.read_nullable_legacy_bytes),
    (
        "compact_blob",
        "compact_nullable_blob",
        st.none() | st.binary(),
        readers.read_compact_string_as_bytes_nullable,
    ),
]


@pytest.mark.parametrize(("write", "read", "values", "judge"), FORMS, ids=[form[0] for form in FORMS])
@given(data=st.data())
def test_round_trip(write: str, read: str, values: st.SearchStrategy[Any], judge: Any, data: st.DataObject) -> None:
    value = data.draw(values)
    writer = Writer()
    getattr(writer, write)(value)
    raw = bytes(writer.data)
    reader = Reader(raw)

    assert getattr(reader, read)() == value
    assert reader.remaining == 0
    assert judge(raw, 0) == (value, len(raw))


@given(st.integers(0, 2**32 - 1))
def test_both_readers_of_numbers_agree(value: int) -> None:
    writer = Writer()
    writer.uvarint(value)

    assert read_uvarint(writer.data, 0) == (value, len(writer.data))


@given(st.binary(max_size=40), st.sampled_from([form[1] for form in FORMS]))
def test_any_bytes_give_a_value_or_an_error(raw: bytes, read: str) -> None:
    reader = Reader(raw)
    try:
        getattr(reader, read)()
    except MalformedFrameError:
        return
    assert 0 <= reader.position <= len(raw)
