"""The codecs: round trips, bounds against bombs, refusals."""

from __future__ import annotations

import struct
import tracemalloc

import cramjam
import pytest

from odradek.base.errors import CorruptMessageError
from odradek.compression import XERIAL_HEAD, Codec, compress, decompress

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"departure UA 1545 EWR IAH;" * 8000


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "byte", "text"])
def test_round_trip_within_its_own_size(codec: Codec, data: bytes) -> None:
    frame = memoryview(b"ahead" + compress(codec, memoryview(data)))[5:]
    assert decompress(codec, frame, limit=len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_above_the_limit_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptMessageError, match=str(len(TEXT) - 1)):
        decompress(codec, compress(codec, TEXT), limit=len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("garbage", [b"", b"\x05", b"not packed at all", b"\xff" * 64])
def test_garbage_is_corrupt(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        decompress(codec, garbage, limit=1 << 20)


@pytest.mark.parametrize("codec", PACKED)
def test_cut_short_is_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptMessageError):
        decompress(codec, compress(codec, TEXT)[:-5], limit=1 << 20)


@pytest.mark.parametrize("codec", PACKED)
def test_bomb_costs_no_more_than_the_limit(codec: Codec) -> None:
    limit = 1 << 20
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMessageError):
            decompress(codec, bomb, limit=limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * limit


def test_level_changes_the_effort() -> None:
    for codec in (Codec.GZIP, Codec.ZSTD, Codec.LZ4):
        low, high = compress(codec, TEXT[:5000] + bytes(range(256)) * 40, 1), compress(codec, TEXT, 9)
        assert decompress(codec, low, limit=1 << 20) != decompress(codec, high, limit=1 << 20)
        assert len(compress(codec, TEXT, 9)) <= len(compress(codec, TEXT, 1))


def test_lz4_blocks_are_independent_without_sizes() -> None:
    flags = compress(Codec.LZ4, TEXT)[4]
    version, independent, content_size, content_checksum = flags >> 6, flags & 0x20, flags & 0x08, flags & 0x04
    assert (version, bool(independent), content_size, content_checksum) == (1, True, 0, 0)


def test_raw_snappy_without_framing_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), limit=len(TEXT)) == TEXT


def test_snappy_is_written_in_xerial_blocks_that_each_stand_alone() -> None:
    frame = compress(Codec.SNAPPY, TEXT)
    assert frame.startswith(XERIAL_HEAD)
    position, blocks = len(XERIAL_HEAD), []
    while position < len(frame):
        (length,) = struct.unpack_from(">i", frame, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(frame[position + 4 : position + 4 + length])))
        position += 4 + length
    assert b"".join(blocks) == TEXT
    assert len(blocks) > 1


def test_xerial_streams_may_follow_each_other() -> None:
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"one ") * 2, limit=100) == b"one one "


@pytest.mark.parametrize("tail", [b"\x00", b"\x00\x00\x00\x09abc", b"\xff\xff\xff\xff", XERIAL_HEAD[:10]])
def test_xerial_blocks_that_lie_are_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"fine") + tail, limit=1 << 20)


def test_snappy_block_that_claims_more_than_it_holds_is_corrupt() -> None:
    with pytest.raises(CorruptMessageError):
        decompress(Codec.SNAPPY, b"\x20\x0cabcd", limit=1 << 20)
