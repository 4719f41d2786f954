"""Record batches of format 2: reads, stamps and builds them.

The log, the fetch path, the coordinators and the clients use it on record sets in borrowed memory. Invariant: reading a
batch never looks at a single record, so its cost is one header and one CRC, whatever the batch contains.

Format: https://kafka.apache.org/documentation/#recordbatch (magic 2). The CRC-32C covers everything from the attributes
on, so base offset and leader epoch can be stamped in place without changing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from odradek.base.errors import CorruptMessageError, RecordFault
from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.compression import Codec, compress
from odradek.records.v2.varint import encode_varint

HEADER_SIZE: Final = 61
MAGIC: Final = 2

_HEADER: Final = Struct(">qiibIhiqqqhii")
UNPACK_FIELDS: Final = _HEADER.unpack_from
"""Unpacks the raw fields of a `BatchHeader`, for callers that validate all of them; others use `read_header`."""
_LENGTH_END: Final = 12
"""`batch_length` counts the bytes after itself."""
_LEADER_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35

_MIN_BATCH_LENGTH: Final = HEADER_SIZE - _LENGTH_END
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

_MAX_OFFSET: Final = (1 << 63) - 2
"""The next offset must be representable, too."""
_SEQUENCE_MASK: Final = 0x7FFF_FFFF
_CODECS: Final = tuple(Codec)

Headers = Sequence[tuple[str, bytes | None]]


class TimestampType(IntEnum):
    """Who set a record's timestamp: nobody, the producer when it created the record, or the leader on append."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlType(IntEnum):
    """How a transaction ended: the type in the key of a control record."""

    ABORT = 0
    COMMIT = 1


class BatchHeader(NamedTuple):
    """The header of one batch, with the fields of the binary format in order; timestamps are in milliseconds."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, including the header."""
        return _LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record as the producer sent it; compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Compression of the records. Raises `CorruptMessageError` if the attributes contain an unknown codec."""
        index = self.attributes & CODEC_MASK
        if index >= len(_CODECS):
            raise CorruptMessageError(f"the batch at offset {self.base_offset} has the unknown codec {index}")
        return _CODECS[index]

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch contains a transaction marker instead of records for consumers."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the batch's tombstones or marker; None if that is not set yet (KIP-534).

        It is stored as the base timestamp, and the timestamp deltas of the records are relative to it.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, which wraps to 0 after 2**31 - 1; -1 if there is none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`.

    Raises `CorruptMessageError` if there are fewer than 61 bytes or a field is invalid. The rest of the batch need not
    be in `buffer`: compare `position + header.size`.
    """
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptMessageError(
            f"a batch header has {HEADER_SIZE} bytes, but only {len(buffer) - position} are available"
        )
    # The number of fields is fixed; the checks of a NamedTuple call would double the cost, for every batch.
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptMessageError(f"record format {header.magic} is not supported here, only {MAGIC}")
    if header.batch_length < _MIN_BATCH_LENGTH:
        raise CorruptMessageError(f"batch length {header.batch_length} is less than the size of a header")
    if (
        not 0 <= header.base_offset <= _MAX_OFFSET - header.last_offset_delta
        or header.last_offset_delta < 0
        or header.record_count < 0
    ):
        raise CorruptMessageError(
            f"impossible offsets or count: base offset {header.base_offset}, last offset delta "
            f"{header.last_offset_delta}, count {header.record_count}"
        )
    return header


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise `CorruptMessageError` unless the whole batch is in `buffer` and its CRC-32C is correct."""
    end = position + _LENGTH_END + header.batch_length
    if end > len(buffer):
        raise CorruptMessageError(f"the batch at offset {header.base_offset} is incomplete")
    actual = crc32c(memoryview(buffer)[position + _ATTRIBUTES_AT : end])
    if actual != header.crc:
        raise CorruptMessageError(
            f"the batch at offset {header.base_offset} has CRC {actual:#010x}, but its header has {header.crc:#010x}",
            fault=RecordFault.CRC,
        )


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `position`; the CRC covers neither."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Set the log append time of the batch to `timestamp_ms` and update the CRC; the records do not change."""
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    covered = memoryview(buffer)[position + _ATTRIBUTES_AT : position + header.size]
    _CRC.pack_into(buffer, position + _CRC_AT, crc32c(covered))


class BatchBuilder:
    """Collects records of one partition into one batch.

    `limit_bytes` limits the uncompressed size of the batch; only a single first record may exceed it.
    """

    __slots__ = (
        "_base_timestamp_ms",
        "_codec",
        "_level",
        "_limit_bytes",
        "_max_timestamp_ms",
        "_parts",
        "_record_count",
        "_size_bytes",
    )

    def __init__(self, *, codec: Codec = Codec.NONE, limit_bytes: int, level: int | None = None) -> None:
        """`level` is the compression level of the codec; None for its default."""
        self._codec = codec
        self._level = level
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._record_count = 0
        self._size_bytes = HEADER_SIZE
        self._base_timestamp_ms = 0
        self._max_timestamp_ms = -1

    @property
    def record_count(self) -> int:
        """Number of records so far."""
        return self._record_count

    @property
    def size_bytes(self) -> int:
        """Size of the batch if it were built now without compression."""
        return self._size_bytes

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp so far; -1 if empty."""
        return self._max_timestamp_ms

    def append(self, key: bytes | None, value: bytes | None, *, timestamp_ms: int, headers: Headers = ()) -> bool:
        """Add a record. Returns False, and changes nothing, if it does not fit after the existing records."""
        count = self._record_count
        if count == 0:
            self._base_timestamp_ms = timestamp_ms
        body = b"".join(
            (
                b"\x00",
                encode_varint(timestamp_ms - self._base_timestamp_ms),
                encode_varint(count),
                _NULL if key is None else encode_varint(len(key)),
                key or b"",
                _NULL if value is None else encode_varint(len(value)),
                value or b"",
                _encode_headers(headers) if headers else b"\x00",
            )
        )
        prefix = encode_varint(len(body))
        size = self._size_bytes + len(prefix) + len(body)
        if size > self._limit_bytes and count:
            return False
        self._parts += (prefix, body)
        self._record_count = count + 1
        self._size_bytes = size
        if timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        return True

    def build(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytes:
        """Return the batch; may be called again with other values. Raises `ValueError` if there is no record."""
        if not self._record_count:
            raise ValueError("a batch needs at least one record")
        records = b"".join(self._parts)
        if self._codec:
            records = compress(self._codec, records, self._level)
        attributes = int(self._codec)
        if is_transactional:
            attributes |= TRANSACTIONAL_FLAG
        if is_control:
            attributes |= CONTROL_FLAG
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=_MIN_BATCH_LENGTH + len(records),
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=self._record_count - 1,
            base_timestamp=self._base_timestamp_ms,
            max_timestamp=self._max_timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self._record_count,
        )
        return assemble(header, records)


_NULL: Final = encode_varint(-1)


def assemble(header: BatchHeader, records: Buffer) -> bytes:
    """Build a batch from `header` and a records section (compressed or not); sets the length and the CRC."""
    header = header._replace(batch_length=_MIN_BATCH_LENGTH + len(records))
    head = _HEADER.pack(*header)
    crc = crc32c(records, crc32c(head[_ATTRIBUTES_AT:]))
    return b"".join((head[:_CRC_AT], _CRC.pack(crc), head[_ATTRIBUTES_AT:], records))


def assemble_pieces(header: BatchHeader, pieces: Iterable[Buffer]) -> bytearray:
    """Build a batch like `assemble`, from a records section in pieces, which are copied once."""
    batch = bytearray().join((bytes(HEADER_SIZE), *pieces))
    write_header(batch, header)
    return batch


def write_header(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Write `header` into the space before the records section of `batch`; sets the length and the CRC."""
    _HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - _LENGTH_END))
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


_CONTROL_KEY: Final = Struct(">hh")
_END_TRANSACTION_VALUE: Final = Struct(">hi")


def read_control_type(key: bytes | None) -> ControlType | None:
    """Return how the transaction ended, from a control record's key; None for other types of control records.

    Raises `CorruptMessageError` if the key is too short. Newer key versions only append fields.
    """
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptMessageError("a control record's key is shorter than its version and type")
    _, number = _CONTROL_KEY.unpack_from(key)
    return ControlType(number) if number in (ControlType.ABORT, ControlType.COMMIT) else None


def read_coordinator_epoch(value: bytes | None) -> int:
    """Return the coordinator epoch in a marker's value. Raises `CorruptMessageError` if the value is too short."""
    if value is None or len(value) < _END_TRANSACTION_VALUE.size:
        raise CorruptMessageError("a transaction marker's value is shorter than its version and epoch")
    epoch: int = _END_TRANSACTION_VALUE.unpack_from(value)[1]
    return epoch
