"""Compares the detected formats in a Fetch response with a scan of all entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.compression import Codec
from odradek.records.conversion.down import converted_down
from odradek.records.formats import iterate_entries
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder
from odradek.server.data.conversion import holds_newer


def entry(magic: int, offset: int, values: list[bytes], codec: Codec) -> bytes:
    if magic < 2:
        messages = [(offset + number, 5, None, value) for number, value in enumerate(values)]
        return encode_set(messages, magic=magic, codec=codec)
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for value in values:
        builder.append(None, value, timestamp_ms=5)
    batch = bytearray(builder.build())
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


logs = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.binary(max_size=40), min_size=1, max_size=4),
        st.sampled_from([Codec.NONE, Codec.GZIP]),
    ),
    min_size=1,
    max_size=6,
)


def written(parts: list[tuple[int, list[bytes], Codec]]) -> bytes:
    out = b""
    offset = 0
    for magic, values, codec in parts:
        out += entry(magic, offset, values, codec)
        offset += len(values)
    return out


@given(logs, st.integers(0, 1), st.integers(0, 300))
def test_newer_formats_are_detected_and_removed_by_a_conversion(
    parts: list[tuple[int, list[bytes], Codec]], magic: int, cut: int
) -> None:
    data = written(parts)
    data = data[: max(0, len(data) - cut)]
    found = {header.magic for _, header in iterate_entries(data)}
    assert holds_newer(data, magic) is any(each > magic for each in found)
    converted, _ = converted_down(data, magic, 0)
    whole = list(iterate_entries(converted))
    assert not holds_newer(converted, magic)
    assert sum(header.size for _, header in whole) == len(converted)
    assert bool(whole) is bool(found)
    # It may be larger than the original only by its first entry, which becomes one message for each record.
    assert len(converted) <= len(data) or len(whole) <= len(parts[0][1])


@given(st.binary(max_size=200), st.integers(0, 1))
def test_the_quick_check_handles_any_bytes(data: bytes, magic: int) -> None:
    assert holds_newer(data, magic) in (True, False)
    assert not holds_newer(data[:16], magic)
