"""The codecs: round trips, bounds against bombs, refusals."""

from __future__ import annotations

import gzip
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
def test_truncated_data_is_corrupt(codec: Codec) -> None:
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
def test_inconsistent_xerial_blocks_are_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"fine") + tail, limit=1 << 20)


def test_snappy_block_that_claims_more_than_it_holds_is_corrupt() -> None:
    with pytest.raises(CorruptMessageError):
        decompress(Codec.SNAPPY, b"\x20\x0cabcd", limit=1 << 20)


# The header of a frame of version 1 with independent blocks of at most 64 KiB, and its checksum: XXH32 of the two bytes
# behind the magic number, and as the first Java clients took it, of the magic number too.
JAVA_HEADER, JAVA_OLD_HEADER = bytes.fromhex("04224d18604082"), bytes.fromhex("04224d1860401a")
EMPTY_LZ4 = bytes(4)


def test_lz4_headers_may_have_the_old_checksum_where_that_is_said() -> None:
    for frame in (JAVA_HEADER + EMPTY_LZ4, JAVA_OLD_HEADER + EMPTY_LZ4):
        assert decompress(Codec.LZ4, memoryview(frame), limit=10, old_frames=True) == b""
    with pytest.raises(CorruptMessageError):
        decompress(Codec.LZ4, JAVA_OLD_HEADER + EMPTY_LZ4, limit=10)
    with pytest.raises(CorruptMessageError):
        decompress(Codec.LZ4, JAVA_HEADER[:-1] + b"\x00" + EMPTY_LZ4, limit=10, old_frames=True)


@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "byte", "text"])
def test_old_lz4_frames_differ_by_their_header_s_checksum_alone(data: bytes) -> None:
    old, right = compress(Codec.LZ4, data, old_frames=True), compress(Codec.LZ4, data)
    assert [at for at in range(len(right)) if old[at] != right[at]] == [6]
    assert len(old) == len(right)
    assert decompress(Codec.LZ4, old, limit=len(data), old_frames=True) == data
    assert decompress(Codec.LZ4, right, limit=len(data), old_frames=True) == data


def test_old_lz4_headers_with_a_content_size() -> None:
    # Flags: version 1, independent blocks, content size; the checksums were taken with the reference implementation.
    descriptor = bytes.fromhex("6840") + (1).to_bytes(8, "little")
    block = b"\x01\x00\x00\x80x" + bytes(4)
    for checksum in (0x2C, 0xCF):
        frame = JAVA_HEADER[:4] + descriptor + bytes((checksum,)) + block
        assert decompress(Codec.LZ4, frame, limit=10, old_frames=True) == b"x"


@pytest.mark.parametrize("frame", [b"", JAVA_HEADER[:5], JAVA_HEADER[:6], b"\x04\x22\x4d\x18\x68" + bytes(8)])
def test_lz4_headers_that_are_cut_are_corrupt(frame: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        decompress(Codec.LZ4, frame, limit=10, old_frames=True)


def test_old_frames_mean_nothing_to_other_codecs() -> None:
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.ZSTD):
        packed = compress(codec, TEXT, old_frames=True)
        assert packed == compress(codec, TEXT)
        assert decompress(codec, packed, limit=len(TEXT), old_frames=True) == TEXT


def test_members_of_gzip_follow_each_other() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), limit=7) == b"one two"
    with pytest.raises(CorruptMessageError):
        decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), limit=6)


def test_lz4_as_other_writers_frame_it() -> None:
    for linked in (False, True):
        for checksum in (False, True):
            packer = cramjam.lz4.Compressor(level=1, content_checksum=checksum, block_linked=linked)
            packer.compress(TEXT)
            assert decompress(Codec.LZ4, bytes(packer.finish()), limit=len(TEXT)) == TEXT


# Text whose packed size tells how hard a codec tried.
VARIED = b"".join(b"%d departs %d for %d;" % (n * 7919 % 1000, n * n % 977, n % 13) for n in range(4000))
LEVELS = {
    Codec.GZIP: [-1, *range(1, 10)],
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: [-131072, -5, 0, 1, 3, 12, 22],
}


@pytest.mark.parametrize(("codec", "level"), [(codec, level) for codec, levels in LEVELS.items() for level in levels])
def test_every_level_of_kafka_is_one(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, VARIED, level), limit=len(VARIED)) == VARIED


def test_the_default_level_is_kafka_s() -> None:
    assert compress(Codec.GZIP, VARIED, -1) == compress(Codec.GZIP, VARIED)
    assert compress(Codec.LZ4, VARIED, 9) == compress(Codec.LZ4, VARIED)
    assert compress(Codec.ZSTD, VARIED, 3) == compress(Codec.ZSTD, VARIED)


def test_the_default_of_lz4_is_its_fast_method_and_all_other_levels_are_the_thorough_one_s() -> None:
    fast = len(compress(Codec.LZ4, VARIED))
    sizes = [len(compress(Codec.LZ4, VARIED, level)) for level in range(1, 18) if level != 9]
    assert max(sizes) < fast
    assert sizes[-1] < sizes[0]
