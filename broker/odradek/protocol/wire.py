"""Primitives of the wire format: a bounds-checked `Reader` and an appending `Writer`.

The codec's compiled decoders and encoders use them, and parsers of small formats such as consumer protocol metadata and
state records.
Invariant of the reader: a length is checked against the remaining bytes before it is used, and the count of an array
against the minimum size of its elements, so the memory for a frame is limited to a small multiple of its size. Every
violation raises `MalformedFrameError`.
Formats: https://kafka.apache.org/protocol#protocol_types and KIP-482.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from odradek.base.errors import MalformedFrameError
from odradek.base.ports import Buffer
from odradek.base.types import ZERO_UUID

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UINT16: Final = Struct(">H")
_UINT32: Final = Struct(">I")
_FLOAT64: Final = Struct(">d")

MAX_STRING_BYTES: Final = 32767
"""Longest string. Compact strings keep the limit of the int16 length that they replace."""

DEFAULT_ELEMENT_BUDGET: Final = 1 << 18
"""Maximum number of array elements in a frame of a client. An element of one byte can need a few hundred bytes of
objects, so the size limit of a frame alone would not limit memory."""


class Reader:
    """Reads primitives from one frame, front to back.

    `data` is the frame; `position` is the next byte and may be moved; `elements_left` is the number of array elements
    that the frame may still have. Reading past the end raises `MalformedFrameError` and leaves `position` undefined.
    """

    __slots__ = ("data", "elements_left", "end", "position")

    def __init__(
        self, data: bytes | memoryview, position: int = 0, *, element_budget: int = DEFAULT_ELEMENT_BUDGET
    ) -> None:
        """Read `data` from `position` on. It is not copied, but byte strings taken from it are."""
        self.data: Final = data
        self.position = position
        self.end: Final = len(data)
        self.elements_left = element_budget

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return self.end - self.position

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        """Read several fixed-size fields at once; the layout must be big-endian."""
        position = self.position
        after = position + layout.size
        if after > self.end:
            raise MalformedFrameError(f"frame ends {after - self.end} bytes before the end of a fixed-size field")
        self.position = after
        return layout.unpack_from(self.data, position)

    def int8(self) -> int:
        """A signed byte."""
        return self.unpack(_INT8)[0]

    def int16(self) -> int:
        """A signed 16-bit integer."""
        return self.unpack(_INT16)[0]

    def int32(self) -> int:
        """A signed 32-bit integer."""
        return self.unpack(_INT32)[0]

    def int64(self) -> int:
        """A signed 64-bit integer."""
        return self.unpack(_INT64)[0]

    def uint16(self) -> int:
        """An unsigned 16-bit integer."""
        return self.unpack(_UINT16)[0]

    def uint32(self) -> int:
        """An unsigned 32-bit integer."""
        return self.unpack(_UINT32)[0]

    def float64(self) -> float:
        """A double."""
        return self.unpack(_FLOAT64)[0]

    def boolean(self) -> bool:
        """A byte; any value except zero is true, as in Kafka."""
        return self.int8() != 0

    def uuid(self) -> UUID:
        """Sixteen bytes; `ZERO_UUID` means none."""
        raw = self._take(16)
        value = UUID(bytes=bytes(raw))
        return ZERO_UUID if value == ZERO_UUID else value

    def uvarint(self) -> int:
        """An unsigned base-128 number of at most five bytes and 32 bits."""
        position = self.position
        if position < self.end and (byte := self.data[position]) < 0x80:
            self.position = position + 1
            return byte
        return self._base128(32)

    def varint(self) -> int:
        """A zig-zag number of 32 bits."""
        raw = self._base128(32)
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        """A zig-zag number of 64 bits."""
        raw = self._base128(64)
        return (raw >> 1) ^ -(raw & 1)

    def _base128(self, bits: int) -> int:
        position = self.position
        data = self.data
        end = self.end
        value = shift = 0
        while shift < bits:
            if position >= end:
                raise MalformedFrameError("frame ends inside a variable-length number")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    break
                self.position = position
                return value
            shift += 7
        raise MalformedFrameError(f"variable-length number has more than {bits} bits")

    def _take(self, length: int) -> bytes | memoryview:
        """The next `length` bytes; `length` must not be negative."""
        position = self.position
        after = position + length
        if after > self.end:
            raise MalformedFrameError(f"length {length} exceeds the {self.end - position} bytes that remain")
        self.position = after
        return self.data[position:after]

    def _text(self, length: int) -> str:
        if length > MAX_STRING_BYTES:
            raise MalformedFrameError(f"string of {length} bytes: at most {MAX_STRING_BYTES} are allowed")
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedFrameError("string is not UTF-8") from error

    def string(self) -> str:
        """A string with an int16 length."""
        value = self.nullable_string()
        if value is None:
            raise MalformedFrameError("null where a string is required")
        return value

    def nullable_string(self) -> str | None:
        """A string with an int16 length; -1 is null."""
        length = self.int16()
        if length >= 0:
            return self._text(length)
        if length == -1:
            return None
        raise MalformedFrameError(f"invalid string length {length}")

    def compact_string(self) -> str:
        """A string with its length plus one as an unsigned varint."""
        value = self.compact_nullable_string()
        if value is None:
            raise MalformedFrameError("null where a string is required")
        return value

    def compact_nullable_string(self) -> str | None:
        """A string with its length plus one as an unsigned varint; 0 is null."""
        length = self.uvarint()
        return self._text(length - 1) if length else None

    def blob(self) -> bytes:
        """Bytes with an int32 length; the result is a copy."""
        value = self.nullable_blob()
        if value is None:
            raise MalformedFrameError("null where bytes are required")
        return value

    def nullable_blob(self) -> bytes | None:
        """Bytes with an int32 length, -1 is null; the result is a copy."""
        length = self.int32()
        if length >= 0:
            return bytes(self._take(length))
        if length == -1:
            return None
        raise MalformedFrameError(f"invalid length {length} of bytes")

    def compact_blob(self) -> bytes:
        """Bytes with their length plus one as an unsigned varint; the result is a copy."""
        value = self.compact_nullable_blob()
        if value is None:
            raise MalformedFrameError("null where bytes are required")
        return value

    def compact_nullable_blob(self) -> bytes | None:
        """Bytes with their length plus one as an unsigned varint, 0 is null; the result is a copy."""
        length = self.uvarint()
        return bytes(self._take(length - 1)) if length else None

    def array_length(self, element_bytes: int = 1) -> int:
        """Count of an array, -1 for null. `element_bytes`: minimum size of an element, at least 1."""
        count = self.int32()
        if count < -1:
            raise MalformedFrameError(f"invalid array length {count}")
        return self._checked_count(count, element_bytes)

    def compact_array_length(self, element_bytes: int = 1) -> int:
        """Count of a compact array, -1 for null. `element_bytes`: minimum size of an element, at least 1."""
        return self._checked_count(self.uvarint() - 1, element_bytes)

    def _checked_count(self, count: int, element_bytes: int) -> int:
        if count > 0:
            if count * element_bytes > self.end - self.position:
                raise MalformedFrameError(
                    f"array of {count} elements exceeds the {self.end - self.position} bytes that remain"
                )
            self.elements_left -= count
            if self.elements_left < 0:
                raise MalformedFrameError("frame has more array elements than allowed in one frame")
        return count

    def raw(self, length: int) -> bytes:
        """Return a copy of the next `length` bytes, as for a tagged field. Raises `MalformedFrameError`."""
        return bytes(self._take(length))

    def skip_tagged_fields(self) -> None:
        """Skip a section of tagged fields (KIP-482): unknown tags are ignored."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self._take(self.uvarint())

    def expect_end(self) -> None:
        """Raise `MalformedFrameError` if bytes follow the last field."""
        if self.position != self.end:
            raise MalformedFrameError(f"{self.end - self.position} bytes follow the last field")


class Writer:
    """Appends primitives to one growing buffer, `data`. Values out of range raise `ValueError` or `struct.error`."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        """Start empty."""
        self.data: Final = bytearray()

    def raw(self, value: Buffer) -> None:
        """Bytes as they are."""
        self.data.extend(value)

    def pack(self, layout: Struct, *values: int) -> None:
        """Several fixed-size fields at once."""
        self.data.extend(layout.pack(*values))

    def int8(self, value: int) -> None:
        """A signed byte."""
        self.data.extend(_INT8.pack(value))

    def int16(self, value: int) -> None:
        """A signed 16-bit integer."""
        self.data.extend(_INT16.pack(value))

    def int32(self, value: int) -> None:
        """A signed 32-bit integer."""
        self.data.extend(_INT32.pack(value))

    def int64(self, value: int) -> None:
        """A signed 64-bit integer."""
        self.data.extend(_INT64.pack(value))

    def uint16(self, value: int) -> None:
        """An unsigned 16-bit integer."""
        self.data.extend(_UINT16.pack(value))

    def uint32(self, value: int) -> None:
        """An unsigned 32-bit integer."""
        self.data.extend(_UINT32.pack(value))

    def float64(self, value: float) -> None:
        """A double."""
        self.data.extend(_FLOAT64.pack(value))

    def boolean(self, value: bool) -> None:
        """A byte, 0 or 1."""
        self.data.append(1 if value else 0)

    def uuid(self, value: UUID) -> None:
        """Sixteen bytes."""
        self.data.extend(value.bytes)

    def uvarint(self, value: int) -> None:
        """An unsigned base-128 number of 32 bits."""
        self.data.extend(uvarint(value))

    def varint(self, value: int) -> None:
        """A zig-zag number of 32 bits."""
        if not -(1 << 31) <= value < 1 << 31:
            raise ValueError(f"{value} does not fit 32 bits")
        self.data.extend(base128((value << 1) ^ (value >> 31)))

    def varlong(self, value: int) -> None:
        """A zig-zag number of 64 bits."""
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{value} does not fit 64 bits")
        self.data.extend(base128((value << 1) ^ (value >> 63)))

    def string(self, value: str | None) -> None:
        """A string with an int16 length; None becomes -1."""
        self.data.extend(legacy_string(value))

    def compact_string(self, value: str | None) -> None:
        """A string with its length plus one as an unsigned varint; None becomes 0."""
        self.data.extend(compact_string(value))

    def blob(self, value: Buffer | None) -> None:
        """Bytes with an int32 length; None becomes -1."""
        if value is None:
            self.int32(-1)
        else:
            self.int32(len(value))
            self.data.extend(value)

    def compact_blob(self, value: Buffer | None) -> None:
        """Bytes with their length plus one as an unsigned varint; None becomes 0."""
        if value is None:
            self.data.append(0)
        else:
            self.uvarint(len(value) + 1)
            self.data.extend(value)

    def array_length(self, count: int) -> None:
        """Count of an array; -1 for null."""
        self.int32(count)

    def compact_array_length(self, count: int) -> None:
        """Count of a compact array; -1 for null."""
        self.uvarint(count + 1)

    def no_tagged_fields(self) -> None:
        """An empty section of tagged fields."""
        self.data.append(0)


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def base128(value: int) -> bytes:
    """A non-negative number in groups of seven bits, the lowest first."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0:
        raise ValueError(f"{value} is negative")
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uvarint(value: int) -> bytes:
    """An unsigned base-128 number of 32 bits; `ValueError` outside."""
    if value >> 32:
        raise ValueError(f"{value} does not fit 32 unsigned bits")
    return base128(value)


def legacy_string(value: str | None) -> bytes:
    """A string with an int16 length, None as -1; `ValueError` above `MAX_STRING_BYTES`."""
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(raw)} bytes: at most {MAX_STRING_BYTES} are allowed")
    return _INT16.pack(len(raw)) + raw


def compact_string(value: str | None) -> bytes:
    """A string with its length plus one as an unsigned varint, None as 0; `ValueError` above `MAX_STRING_BYTES`."""
    if value is None:
        return b"\x00"
    raw = value.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(raw)} bytes: at most {MAX_STRING_BYTES} are allowed")
    return base128(len(raw) + 1) + raw


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned base-128 number of 32 bits and the position after it, for parsers that keep the position.

    Raises `IndexError` past the end, and `MalformedFrameError` if it is too long.
    """
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, position + 1
    raise MalformedFrameError("variable-length number has more than 32 bits")


def after_tagged_fields(data: Buffer, position: int) -> int:
    """Return the position after a section of tagged fields, all of which are ignored.

    Raises `IndexError` or `MalformedFrameError` past the end.
    """
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise MalformedFrameError(f"tagged field of {size} bytes exceeds the frame")
    return position
