"""The codecs of record batches: one call to pack a batch's records, one to unpack them within a bound.

Bytes of the records section of a batch enter and leave; `v2/batch` and `v2/record` call it. Invariant: a
call to `decompress` never holds an output buffer larger than its `limit`, whatever the input claims about itself.

What Java clients write differs from each codec's plain form, so it is fixed here:

- snappy: xerial framing (the snappy-java stream format): a 16-byte head, then blocks of a big-endian length and raw
  snappy each. A raw block without the framing is read too, as librdkafka and early clients send it.
- lz4: the frame format with independent blocks of 64 KiB (the Java reader refuses linked ones), without content size.
  In record format 0 the header's checksum is wrong on purpose: the first Java clients took it over the frame's magic
  number too, so that is what readers of format 0 were made for (KIP-57).
- gzip: several members in a row are read as one.

Levels are those of Kafka (KIP-390): gzip -1 (the default) and 1..9, lz4 1..17, zstd -131072..22.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import cramjam

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer


class Codec(IntEnum):
    """Compression of a batch: the three lowest attribute bits."""

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
"""The level that Kafka calls the default. It stands for the fast method; all others are the thorough one's."""

_LZ4_FAST: Final = 0
_LZ4_LEAST_THOROUGH: Final = 2
_LZ4_MOST_THOROUGH: Final = 12
"""Levels of the library: below 2 is its fast method, and above 12 nothing changes."""

_LZ4_FRAME_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_FLAG: Final = 0x08
_LZ4_SHORT_HEADER: Final = 6
_LZ4_LONG_HEADER: Final = 14
"""Bytes before the header's checksum without and with a content size."""

_GZIP_DEFAULT_LEVEL: Final = -1

_FIRST_GUESS_BYTES: Final = 64 * 1024
_GUESS_GROWTH: Final = 4


def compress(codec: Codec, data: Buffer, level: int | None = None, *, old_frames: bool = False) -> bytes:
    """`data` packed with `codec`; `level` None is the codec's default, and snappy has no levels.

    `old_frames`: lz4 with the wrong header checksum that record format 0 has.
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
    """`data` unpacked; `CorruptMessageError` when it is no `codec` data, or would come to more than `limit` bytes.

    `old_frames`: an lz4 header may have either checksum, as in record formats 0 and 1.
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


def _too_large(codec: Codec, limit: int) -> CorruptMessageError:
    return CorruptMessageError(f"{codec.name.lower()} data unpacks to more than the {limit} bytes allowed")


def _corrupt(codec: Codec, reason: object) -> CorruptMessageError:
    return CorruptMessageError(f"{codec.name.lower()} data cannot be unpacked: {reason}")


def _compress_lz4(data: Buffer, level: int) -> bytes:
    if level == _LZ4_DEFAULT_LEVEL:
        level = _LZ4_FAST
    else:
        level = min(max(level, _LZ4_LEAST_THOROUGH), _LZ4_MOST_THOROUGH)
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(data))
    return bytes(packer.finish())


def _lz4_header_end(frame: Buffer) -> int:
    """Where the header's checksum stands; 0 when this is no frame, or not even a whole header."""
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
    """The frame as the lz4 library reads it: where the old, wrong checksum stands, the right one is put."""
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
    """XXH32 with seed 0 of less than 16 bytes (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).

    `ValueError` for longer input: that begins with another step, and a frame's header never is.
    """
    if len(data) >= _XXH_SHORT:
        raise ValueError(f"{len(data)} bytes are not less than {_XXH_SHORT}")
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
    """Unpack into a buffer that grows from a guess up to `limit`.

    The headers of these three formats need not tell the size, and where they do they may lie. The library stops at the
    end of the buffer that it is given, so a bomb costs at most `limit` bytes; geometric growth keeps the repeated work
    below a third of the last try.
    """
    unpack_into = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec].decompress_into
    capacity = min(limit, max(_FIRST_GUESS_BYTES, _GUESS_GROWTH * len(data)))
    while True:
        output = bytearray(capacity)
        try:
            length = unpack_into(data, output)
        except cramjam.DecompressionError as error:
            # The library has one class for "output full" and "garbage". Only a full buffer says "write".
            if "write whole buffer" not in str(error):
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


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """The raw blocks of a snappy-java stream; streams may follow each other, each with its own head."""
    position = 0
    while position < len(view):
        if bytes(view[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(XERIAL_HEAD)
            if position > len(view):
                raise _corrupt(Codec.SNAPPY, "the stream head is cut short")
            continue
        start = position + 4
        end = start + int.from_bytes(view[position:start], "big")
        if start > len(view) or end > len(view):
            raise _corrupt(Codec.SNAPPY, "a block is cut short")
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
        raise _corrupt(Codec.SNAPPY, f"{written} bytes came out where {length} were announced")
    return bytes(output)
