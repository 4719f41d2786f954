"""Limits and encodings of the primitives."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from uuid import UUID

import pytest

from odradek.base.errors import MalformedFrameError
from odradek.base.types import ZERO_UUID
from odradek.protocol.wire import Reader, Writer, after_tagged_fields, base128, read_uvarint, uvarint

Read = Callable[[Reader], object]


@pytest.mark.parametrize(
    ("raw", "read", "expected"),
    [
        ("ff", Reader.int8, -1),
        ("8000", Reader.int16, -(2**15)),
        ("ffff", Reader.uint16, 65_535),
        ("7fffffff", Reader.int32, 2**31 - 1),
        ("ffffffff", Reader.uint32, 2**32 - 1),
        ("8000000000000000", Reader.int64, -(2**63)),
        ("3ff8000000000000", Reader.float64, 1.5),
        ("00", Reader.boolean, False),
        ("07", Reader.boolean, True),
        ("00" * 15 + "07", Reader.uuid, UUID(int=7)),
        ("00", Reader.uvarint, 0),
        ("ac02", Reader.uvarint, 300),
        ("ffffffff0f", Reader.uvarint, 2**32 - 1),
        ("ffffffff0f", Reader.varint, -(2**31)),
        ("feffffff0f", Reader.varint, 2**31 - 1),
        ("01", Reader.varint, -1),
        ("ffffffffffffffffff01", Reader.varlong, -(2**63)),
        ("0002c3bc", Reader.string, "ü"),
        ("ffff", Reader.nullable_string, None),
        ("03c3bc", Reader.compact_string, "ü"),
        ("00", Reader.compact_nullable_string, None),
        ("01", Reader.compact_nullable_string, ""),
        ("00000001aa", Reader.blob, b"\xaa"),
        ("ffffffff", Reader.nullable_blob, None),
        ("02aa", Reader.compact_blob, b"\xaa"),
        ("00", Reader.compact_nullable_blob, None),
        ("ffffffff", Reader.array_length, -1),
        ("00", Reader.compact_array_length, -1),
        ("0000000100", lambda reader: reader.array_length(), 1),
    ],
)
def test_values(raw: str, read: Read, expected: object) -> None:
    assert read(Reader(bytes.fromhex(raw))) == expected
    assert read(Reader(memoryview(bytearray.fromhex(raw)))) == expected


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("", Reader.int8),
        ("000000", Reader.int32),
        ("00" * 15, Reader.uuid),
        ("", Reader.uvarint),
        ("80", Reader.uvarint),
        ("ffffffff1f", Reader.uvarint),
        ("808080808000", Reader.uvarint),
        ("ffffffffffffffffff03", Reader.varlong),
        ("0003c3bc", Reader.string),
        ("ffff", Reader.string),
        ("fffe", Reader.nullable_string),
        ("0001ff", Reader.string),
        ("00", Reader.compact_string),
        ("05c3bc", Reader.compact_string),
        ("ffffffff0f", Reader.compact_string),
        ("818002" + "61" * 32_768, Reader.compact_string),
        ("00000002aa", Reader.blob),
        ("fffffffe", Reader.nullable_blob),
        ("ffffffff", Reader.blob),
        ("7fffffffaa", Reader.blob),
        ("00", Reader.compact_blob),
        ("fffffffe", Reader.array_length),
        ("0000000200", Reader.array_length),
        ("7fffffff0000", Reader.array_length),
        ("0000000200000000", lambda reader: reader.array_length(4)),
        ("ffffffff0f0000", Reader.compact_array_length),
        ("0101", Reader.skip_tagged_fields),
        ("01000500", Reader.skip_tagged_fields),
        ("00", Reader.expect_end),
    ],
)
def test_violations(raw: str, read: Read) -> None:
    with pytest.raises(MalformedFrameError):
        read(Reader(bytes.fromhex(raw)))


def test_the_longest_string_is_accepted() -> None:
    writer = Writer()
    writer.compact_string("a" * 32_767)
    writer.string("b" * 32_767)
    reader = Reader(bytes(writer.data))

    assert (len(reader.compact_string()), len(reader.string()), reader.remaining) == (32_767, 32_767, 0)
    with pytest.raises(ValueError, match="32768"):
        writer.string("a" * 32_768)
    with pytest.raises(ValueError, match="32768"):
        writer.compact_string("a" * 32_768)


def test_elements_are_counted_over_the_whole_frame() -> None:
    reader = Reader(bytes.fromhex("00000003") * 2 + bytes(10), element_budget=5)

    assert reader.array_length() == 3
    with pytest.raises(MalformedFrameError, match="more array elements"):
        reader.array_length()


def test_zero_ids_are_the_constant() -> None:
    assert Reader(bytes(16)).uuid() is ZERO_UUID


def test_unknown_tagged_fields_are_skipped() -> None:
    raw = bytes.fromhex("02" + "0003aabbcc" + "ac0201ff" + "2a")
    reader = Reader(raw)
    reader.skip_tagged_fields()

    assert reader.int8() == 42
    assert after_tagged_fields(raw, 0) == len(raw) - 1


@pytest.mark.parametrize("raw", ["0100", "0100ff", "01000500", "ffffffff0f"])
def test_tagged_fields_do_not_leave_the_frame(raw: str) -> None:
    with pytest.raises((MalformedFrameError, IndexError)):
        after_tagged_fields(bytes.fromhex(raw), 0)


def test_a_number_of_too_many_bits_is_refused() -> None:
    for raw in ("ffffffff1f", "ffffffffff01"):
        with pytest.raises(MalformedFrameError):
            read_uvarint(bytes.fromhex(raw), 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_numbers_out_of_range_are_not_written(value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        uvarint(value)


@pytest.mark.parametrize(("method", "value"), [("varint", 2**31), ("varint", -(2**31) - 1), ("varlong", 2**63)])
def test_zig_zag_numbers_out_of_range_are_not_written(method: str, value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        getattr(Writer(), method)(value)


def test_negative_numbers_have_no_base_128_form() -> None:
    with pytest.raises(ValueError, match="negative"):
        base128(-1)


def test_several_fields_at_once() -> None:
    layout = Struct(">hi")
    writer = Writer()
    writer.pack(layout, 1, 2)
    writer.raw(b"\x03")
    reader = Reader(bytes(writer.data))

    assert (reader.unpack(layout), reader.int8()) == ((1, 2), 3)
