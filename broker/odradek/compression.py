"""The codecs of record batches: one call to pack a batch's records, one to unpack them within a bound.

Bytes of the records section of a batch enter and leave; `records/batch` and `records/record` call it. Invariant: a
call to `decompress` never holds an output buffer larger than its `limit`, whatever the input claims about itself.

What Java clients write differs from each codec's plain form, so it is fixed here:

- snappy: xerial framing (the snappy-java stream format): a 16-byte head, then blocks of a big-endian length and raw
  snappy each. A raw block without the framing is read too, as librdkafka and early clients send it.
- lz4: the frame format with independent blocks (the Java reader refuses linked ones), without content size.
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

_LZ4_FAST_LEVEL: Final = 1
"""Below 3 the lz4 library uses its fast method, which is also the Java client's default."""

_FIRST_GUESS_BYTES: Final = 64 * 1024
_GUESS_GROWTH: Final = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` packed with `codec`; `level` None is the codec's default, and snappy has no levels."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, _LZ4_FAST_LEVEL if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level))


def decompress(codec: Codec, data: Buffer, *, limit: int) -> bytes:
    """`data` unpacked; `CorruptMessageError` when it is no `codec` data, or would come to more than `limit` bytes."""
    match codec:
        case Codec.NONE:
            if len(data) > limit:
                raise _too_large(codec, limit)
            return bytes(data)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        case _:
            return _decompress_guessing(codec, data, limit)


def _too_large(codec: Codec, limit: int) -> CorruptMessageError:
    return CorruptMessageError(f"{codec.name.lower()} data unpacks to more than the {limit} bytes allowed")


def _corrupt(codec: Codec, reason: object) -> CorruptMessageError:
    return CorruptMessageError(f"{codec.name.lower()} data cannot be unpacked: {reason}")


def _compress_lz4(data: Buffer, level: int) -> bytes:
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(data))
    return bytes(packer.finish())


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
