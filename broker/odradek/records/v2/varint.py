"""Zigzag varints, the integers inside records (https://protobuf.dev/programming-guides/encoding/#signed-ints).

`v2/batch` and `v2/record` use it. Invariant: decoding reads at most ten bytes and never past the end of the
buffer.
"""

from __future__ import annotations

from typing import Final

from odradek.base.errors import CorruptMessageError

_MAX_BYTES: Final = 10


def _encode(value: int) -> bytes:
    # The shift gives all ones for a negative number, so that small negative numbers become small odd numbers.
    rest = (value << 1) ^ (value >> 63)
    output = bytearray()
    while rest > 0x7F:
        output.append(rest & 0x7F | 0x80)
        rest >>= 7
    output.append(rest)
    return bytes(output)


_SMALL: Final = tuple(_encode(value) for value in range(2048))
"""Encodings of small values: most lengths and deltas are small, and a lookup costs a tenth of the loop."""


def encode_varint(value: int) -> bytes:
    """Encode `value`, -2**63 .. 2**63 - 1, as a zigzag varint of one to ten bytes."""
    return _SMALL[value] if 0 <= value < 2048 else _encode(value)


def decode_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the value at `position` and the position after it. Raises `CorruptMessageError` if invalid."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        value = byte & 0x7F
        shift = 7
        for index in range(position + 1, position + _MAX_BYTES):
            byte = data[index]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1), index + 1
            shift += 7
    except IndexError:
        raise CorruptMessageError("a record ends inside a number") from None
    raise CorruptMessageError("a number in a record is longer than 64 bits")
