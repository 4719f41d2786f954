"""Compresses and decompresses the records of batches with the codecs of Kafka.

`records` calls it with the records section of a batch, or the value of a wrapper. Invariant: `decompress` never
allocates an output buffer larger than `limit`, whatever size the input declares.

Kafka uses these variants of the formats:

- snappy: the snappy-java stream format (xerial framing): a header of 16 bytes, then blocks, each with a big-endian
  length and raw snappy data. A raw block without framing can be read, too: librdkafka and early clients send it.
- lz4: the frame format with independent blocks of 64 KiB (the Java reader rejects linked blocks), without content size.
  In record format 0 the header checksum is wrong: the first Java clients included the magic number of the frame, and
  readers of format 0 expect that (KIP-57).
- gzip: several members in a row are read as one stream.

The levels are those of Kafka (KIP-390): gzip -1 (the default) and 1..9, lz4 1..17, zstd -131072..22.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import cramjam

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer


class Codec(IntEnum):
    """The codec of a batch, as in the three lowest bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEAD: Final = XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
"""Magic, version and lowest compatible version of the snappy-java stream format."""

_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
"""Block size of snappy-java; readers allocate a block at a time."""

_LZ4_DEFAULT_LEVEL: Final = 9
"""Kafka's default level. It selects the fast algorithm; all other levels select the high compression algorithm."""

_LZ4_FAST: Final = 0
_LZ4_MIN_HIGH_LEVEL: Final = 2
_LZ4_MAX_HIGH_LEVEL: Final = 12
"""Levels of the library: below 2 it uses the fast algorithm, and levels above 12 equal 12."""

_LZ4_FRAME_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_FLAG: Final = 0x08
_LZ4_SHORT_HEADER: Final = 6
_LZ4_LONG_HEADER: Final = 14
"""Number of bytes before the header checksum, without and with a content size."""

_GZIP_DEFAULT_LEVEL: Final = -1

_DECOMPRESS_INTO: Final = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
_FULL_BUFFER: Final = "write whole buffer"
"""In the error of a full buffer. The library raises the same class for invalid data; only the texts differ."""

_FIRST_GUESS_BYTES: Final = 64 * 1024
_GUESS_GROWTH: Final = 4


def compress(codec: Codec, data: Buffer, level: int | None = None, *, old_frames: bool = False) -> bytes:
    """Return `data` compressed with `codec`. `level` None is the codec's default; snappy has no levels.

    `old_frames`: write lz4 with the wrong header checksum of record format 0.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, None if level == _GZIP_DEFAULT_LEVEL else level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            frame = _compress_lz4(data, _LZ4_DEFAULT_LEVEL if level is None else level)
            return _with_old_checksum(frame) if old_frames else frame
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level))


def decompress(codec: Codec, data: Buffer, *, limit: int, old_frames: bool = False) -> bytes:
    """Return `data` decompressed. Raises `CorruptMessageError` if it is invalid or decompresses to above `limit` bytes.

    `old_frames`: accept both lz4 header checksums, as in record formats 0 and 1.
    """
    match codec:
        case Codec.NONE:
            if len(data) > limit:
                raise _too_large(codec, limit)
            return bytes(data)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        case Codec.LZ4 if old_frames:
            return _decompress_guessing(codec, _with_right_checksum(data), limit)
        case _:
            return _decompress_guessing(codec, data, limit)


def decompress_into(codec: Codec, data: Buffer, output: memoryview) -> int | None:
    """Decompress into `output` and return the number of bytes; None if it is too small, and its content is undefined.

    Allocates no other buffer. Raises `CorruptMessageError` if the data is invalid.
    """
    if codec is Codec.NONE:
        if len(data) > len(output):
            return None
        output[: len(data)] = data
        return len(data)
    if codec is Codec.SNAPPY:
        return _snappy_into(memoryview(data), output)
    try:
        return int(_DECOMPRESS_INTO[codec](data, output))
    except cramjam.DecompressionError as error:
        if _FULL_BUFFER in str(error):
            return None
        raise _corrupt(codec, error) from error


def _too_large(codec: Codec, limit: int) -> CorruptMessageError:
    return CorruptMessageError(f"{codec.name.lower()} data decompresses to more than the limit of {limit} bytes")


def _corrupt(codec: Codec, reason: object) -> CorruptMessageError:
    return CorruptMessageError(f"{codec.name.lower()} data cannot be decompressed: {reason}")


def _compress_lz4(data: Buffer, level: int) -> bytes:
    if level == _LZ4_DEFAULT_LEVEL:
        level = _LZ4_FAST
    else:
        level = min(max(level, _LZ4_MIN_HIGH_LEVEL), _LZ4_MAX_HIGH_LEVEL)
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(data))
    return bytes(packer.finish())


def _lz4_header_end(frame: Buffer) -> int:
    """Return the position of the header checksum; 0 if this is not a frame, or the header is incomplete."""
    if len(frame) <= _LZ4_SHORT_HEADER or bytes(frame[: len(_LZ4_FRAME_MAGIC)]) != _LZ4_FRAME_MAGIC:
        return 0
    end = _LZ4_LONG_HEADER if frame[len(_LZ4_FRAME_MAGIC)] & _LZ4_CONTENT_SIZE_FLAG else _LZ4_SHORT_HEADER
    return end if end < len(frame) else 0


def _lz4_checksum(header: bytes) -> int:
    return _xxh32_short(header) >> 8 & 0xFF


def _with_old_checksum(frame: bytes) -> bytes:
    end = _lz4_header_end(frame)
    return b"".join((frame[:end], bytes((_lz4_checksum(frame[:end]),)), frame[end + 1 :]))


def _with_right_checksum(frame: Buffer) -> Buffer:
    """Return the frame with the correct header checksum, which the lz4 library requires."""
    end = _lz4_header_end(frame)
    header = bytes(frame[:end])
    if not end or frame[end] != _lz4_checksum(header):
        return frame
    right = _lz4_checksum(header[len(_LZ4_FRAME_MAGIC) :])
    return b"".join((header, bytes((right,)), frame[end + 1 :]))


_XXH_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_XXH_SHORT: Final = 16
_U32: Final = 0xFFFFFFFF


def _xxh32_short(data: bytes) -> int:
    """Return XXH32 with seed 0 of less than 16 bytes (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).

    Raises `ValueError` for longer input, which needs another first step. The header of a frame is always shorter.
    """
    if len(data) >= _XXH_SHORT:
        raise ValueError(f"{len(data)} bytes are too many: the maximum is {_XXH_SHORT - 1}")
    _, prime2, prime3, prime4, prime5 = _XXH_PRIMES
    whole = len(data) & ~3
    hashed = prime5 + len(data)
    for start in range(0, whole, 4):
        hashed = hashed + int.from_bytes(data[start : start + 4], "little") * prime3 & _U32
        hashed = _rotate_left(hashed, 17) * prime4 & _U32
    for byte in data[whole:]:
        hashed = hashed + byte * prime5 & _U32
        hashed = _rotate_left(hashed, 11) * _XXH_PRIMES[0] & _U32
    hashed = (hashed ^ hashed >> 15) * prime2 & _U32
    hashed = (hashed ^ hashed >> 13) * prime3 & _U32
    return hashed ^ hashed >> 16


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _U32


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEAD]
    for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_guessing(codec: Codec, data: Buffer, limit: int) -> bytes:
    """Decompress into a buffer that grows from a guessed size up to `limit`.

    The headers of these three formats may omit the decompressed size, or declare a wrong one. The library stops at the
    end of its buffer, so a decompression bomb costs at most `limit` bytes. With geometric growth, all failed attempts
    together cost less than a third of the last one.
    """
    decompress = _DECOMPRESS_INTO[codec]
    capacity = min(limit, max(_FIRST_GUESS_BYTES, _GUESS_GROWTH * len(data)))
    while True:
        output = bytearray(capacity)
        try:
            length = decompress(data, output)
        except cramjam.DecompressionError as error:
            if _FULL_BUFFER not in str(error):
                raise _corrupt(codec, error) from error
            if capacity >= limit:
                raise _too_large(codec, limit) from error
            capacity = min(limit, capacity * _GUESS_GROWTH)
        else:
            return bytes(memoryview(output)[:length])


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    blocks = _xerial_blocks(view) if bytes(view[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC else iter((view,))
    parts: list[bytes] = []
    total = 0
    for block in blocks:
        part = _decompress_raw_snappy(block, limit - total, limit)
        total += len(part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_into(view: memoryview, output: memoryview) -> int | None:
    blocks = _xerial_blocks(view) if bytes(view[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC else iter((view,))
    filled = 0
    try:
        for block in blocks:
            length = cramjam.snappy.decompress_raw_len(block)
            if length > len(output) - filled:
                return None
            written = cramjam.snappy.decompress_raw_into(block, output[filled : filled + length])
            if written != length:
                raise _corrupt(Codec.SNAPPY, f"a block has {written} bytes, but declares {length}")
            filled += length
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from error
    return filled


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks of a snappy-java stream. Several streams with their headers may follow each other."""
    position = 0
    while position < len(view):
        if bytes(view[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(XERIAL_HEAD)
            if position > len(view):
                raise _corrupt(Codec.SNAPPY, "the stream header is incomplete")
            continue
        start = position + 4
        end = start + int.from_bytes(view[position:start], "big")
        if start > len(view) or end > len(view):
            raise _corrupt(Codec.SNAPPY, "a block is incomplete")
        yield view[start:end]
        position = end


def _decompress_raw_snappy(block: memoryview, room: int, limit: int) -> bytes:
    try:
        length = cramjam.snappy.decompress_raw_len(block)
        if length > room:
            raise _too_large(Codec.SNAPPY, limit)
        output = bytearray(length)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from error
    if written != length:
        raise _corrupt(Codec.SNAPPY, f"a block has {written} bytes, but declares {length}")
    return bytes(output)
