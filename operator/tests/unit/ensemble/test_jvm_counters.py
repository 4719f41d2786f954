"""Counters of the JVM, from files in both byte orders and from damaged files. The live test reads a real file."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.ensemble.jvm_counters import Collections, LayoutError, collections, counters

VALUES: dict[str, int | str] = {
    "sun.os.hrt.frequency": 1_000_000_000,
    "sun.gc.collector.0.name": "Copy",
    "sun.gc.collector.0.invocations": 12,
    "sun.gc.collector.0.time": 1_500_000_000,
    "sun.gc.collector.1.name": "MSC",
    "sun.gc.collector.1.invocations": 0,
    "sun.gc.collector.1.time": 0,
}


def made(values: dict[str, int | str], order: str = "<") -> bytes:
    """Return a file in the format of the JVM."""
    body = b""
    for name, value in values.items():
        label = name.encode() + b"\0"
        label += bytes(-len(label) % 8)
        text = value.encode() + b"\0" if isinstance(value, str) else b""
        data = text + bytes(-len(text) % 8) if isinstance(value, str) else struct.pack(f"{order}q", value)
        head = struct.pack(
            f"{order}iii4Bi",
            20 + len(label) + len(data),
            20,
            len(text),
            ord("B") if text else ord("J"),
            0,
            0,
            0,
            20 + len(label),
        )
        body += head + label + data
    start = b"\xca\xfe\xc0\xc0" + bytes([1 if order == "<" else 0, 2, 0, 1])
    return start + struct.pack(f"{order}iiqii", 32 + len(body), 0, 0, 32, len(values)) + body


@pytest.mark.parametrize("order", ["<", ">"])
def test_encoded_values_are_read(order: str) -> None:
    assert counters(made(VALUES, order)) == VALUES


def test_the_time_of_collections_is_in_seconds() -> None:
    assert collections(VALUES) == [Collections("Copy", 12, 1.5), Collections("MSC", 0, 0.0)]


def test_without_a_frequency_there_is_no_time() -> None:
    assert collections({**VALUES, "sun.os.hrt.frequency": 0}) == []
    assert collections({}) == []


@pytest.mark.parametrize("data", [b"", b"\xca\xfe\xc0\xc0", bytes(64), made(VALUES)[:5] + b"\1" + made(VALUES)[6:]])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(LayoutError):
        counters(data)


def test_an_entry_without_length_is_refused() -> None:
    data = bytearray(made(VALUES))
    data[32:36] = bytes(4)
    with pytest.raises(LayoutError):
        counters(bytes(data))


@given(st.data())
def test_a_damaged_file_gives_values_or_a_layout_error(data: st.DataObject) -> None:
    damaged = bytearray(made(VALUES))
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    try:
        found = counters(bytes(damaged[:cut]))
    except LayoutError:
        return
    assert all(isinstance(value, int | str) for value in found.values())
    collections(found)
