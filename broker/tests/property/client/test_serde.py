"""murmur2 compared with a direct implementation of its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.client.producer.partitioning import murmur2, partition_of_key


def slow_murmur2(data: bytes) -> int:
    """Return MurmurHash2 (Austin Appleby) with the Java client's seed, computed byte by byte."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    position = 0
    while len(data) - position >= 4:
        k = sum(data[position + shift] << (8 * shift) for shift in range(4))
        k = k * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
        position += 4
    rest = data[position:]
    for shift in reversed(range(len(rest))):
        h ^= rest[shift] << (8 * shift)
    if rest:
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ (h >> 15)


@given(data=st.binary(max_size=40), count=st.integers(1, 1_000))
def test_murmur2(data: bytes, count: int) -> None:
    assert murmur2(data) == slow_murmur2(data)
    assert 0 <= partition_of_key(data, count) < count
