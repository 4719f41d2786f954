"""Record batches: the fixed header, what is stamped into it, and how a batch is built.

Raw record sets enter, as memory that the caller lends; headers as named tuples and finished batches leave. The log, the
fetch path, the coordinators and the clients call it. Invariant: nothing here looks at a single record of a batch that
is read, so the cost of a batch is one unpacked header and one CRC, whatever it holds.

Format: https://kafka.apache.org/documentation/#recordbatch (magic 2). The CRC-32C covers everything from the
attributes on, so base offset and leader epoch may be stamped in place without touching it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from odradek.base.errors import CorruptMessageError, RecordFault
from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.compression import Codec, compress
from odradek.records.varint import encode_varint

HEADER_SIZE: Final = 61
MAGIC: Final = 2

_HEADER: Final = Struct(">qiibIhiqqqhii")
UNPACK_FIELDS: Final = _HEADER.unpack_from
"""The fields of a `BatchHeader` as they lie in memory, for who checks them all by itself; others `read_header`."""
_LENGTH_END: Final = 12
"""`batch_length` counts what follows itself."""
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
"""The next offset has to exist too."""
_SEQUENCE_MASK: Final = 0x7FFF_FFFF
_CODECS: Final = tuple(Codec)

Headers = Sequence[tuple[str, bytes | None]]


class TimestampType(IntEnum):
    """What a record's timestamp says: nothing, when its producer made it, or when the leader appended it."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlType(IntEnum):
    """How a transaction ended: the type in the key of a control record."""

    ABORT = 0
    COMMIT = 1


class BatchHeader(NamedTuple):
    """The header of one batch, field for field as it lies in memory; timestamps in milliseconds."""

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
        """Bytes of the whole batch, header included."""
        return _LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, as the producer counted it: compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Compression of the records; `CorruptMessageError` when the attributes name none that exists."""
        index = self.attributes & CODEC_MASK
        if index >= len(_CODECS):
            raise CorruptMessageError(f"the batch at offset {self.base_offset} names an unknown codec, {index}")
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
        """Whether it holds a transaction's end instead of records for consumers."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones or its marker; None while that is open (KIP-534).

        It stands where the base timestamp does, and the records' deltas count from it.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, which wraps to 0 after 2**31 - 1; -1 when there is none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`.

    `CorruptMessageError` when fewer than 61 bytes are there or a field cannot be true. The rest of the batch need not
    be in `buffer`: compare `position + header.size`.
    """
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptMessageError(f"a batch header takes {HEADER_SIZE} bytes, only {len(buffer) - position} are there")
    # As many fields as the format has: this is read for every batch, and what a named tuple does beyond takes as long.
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptMessageError(f"record format {header.magic} is not read here, only {MAGIC}")
    if header.batch_length < _MIN_BATCH_LENGTH:
        raise CorruptMessageError(f"batch length {header.batch_length} is less than a header takes")
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


def iterate(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; an incomplete one at the end, as fetches may cut it, ends the walk."""
    position = 0
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        following = position + header.size
        if following > end:
            return
        yield position, header
        position = following


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """`CorruptMessageError` unless the whole batch is in `buffer` and its CRC-32C fits."""
    end = position + _LENGTH_END + header.batch_length
    if end > len(buffer):
        raise CorruptMessageError(f"the batch at offset {header.base_offset} is cut short")
    actual = crc32c(memoryview(buffer)[position + _ATTRIBUTES_AT : end])
    if actual != header.crc:
        raise CorruptMessageError(
            f"the batch at offset {header.base_offset} has CRC {actual:#010x} but claims {header.crc:#010x}",
            fault=RecordFault.CRC,
        )


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `position`; neither is under the CRC."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Turn the batch into one of log-append time `timestamp_ms`, with a new CRC; the records stay as they are."""
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    covered = memoryview(buffer)[position + _ATTRIBUTES_AT : position + header.size]
    _CRC.pack_into(buffer, position + _CRC_AT, crc32c(covered))


class BatchBuilder:
    """Gathers records of one partition into one batch.

    Bounded by `limit_bytes` of the batch before compression; only a first record may exceed it alone.
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
        """`level` is the codec's own measure of effort, None its default."""
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
        """Records so far."""
        return self._record_count

    @property
    def size_bytes(self) -> int:
        """Size of the batch if it were built now without compression."""
        return self._size_bytes

    @property
    def max_timestamp_ms(self) -> int:
        """The newest timestamp so far, -1 when empty."""
        return self._max_timestamp_ms

    def append(self, key: bytes | None, value: bytes | None, *, timestamp_ms: int, headers: Headers = ()) -> bool:
        """Add a record; False, and nothing changed, when it does not fit behind those that are there."""
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
        """The finished batch; may be called again with other values. `ValueError` when there is no record."""
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
    """A batch of `header`, with its length and CRC made to fit, and the records section as it is (packed or not)."""
    header = header._replace(batch_length=_MIN_BATCH_LENGTH + len(records))
    head = _HEADER.pack(*header)
    crc = crc32c(records, crc32c(head[_ATTRIBUTES_AT:]))
    return b"".join((head[:_CRC_AT], _CRC.pack(crc), head[_ATTRIBUTES_AT:], records))


def assemble_pieces(header: BatchHeader, pieces: Iterable[Buffer]) -> bytearray:
    """The same of a records section in pieces, which are copied once."""
    batch = bytearray().join((bytes(HEADER_SIZE), *pieces))
    _HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - _LENGTH_END))
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return batch


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


_CONTROL_KEY: Final = Struct(">hh")
_END_TRANSACTION_VALUE: Final = Struct(">hi")


def control_batch(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
) -> bytes:
    """The marker that ends a transaction (KIP-98): one control record, versions 0 of key and value."""
    builder = BatchBuilder(limit_bytes=0)
    builder.append(
        _CONTROL_KEY.pack(0, control_type), _END_TRANSACTION_VALUE.pack(0, coordinator_epoch), timestamp_ms=timestamp_ms
    )
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_control_type(key: bytes | None) -> ControlType | None:
    """Which end a control record's key means; None for types that are not a transaction's end.

    `CorruptMessageError` when the key is too short. Newer key versions only append fields.
    """
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptMessageError("a control record's key is shorter than its version and type")
    _, number = _CONTROL_KEY.unpack_from(key)
    return ControlType(number) if number in (ControlType.ABORT, ControlType.COMMIT) else None


def read_coordinator_epoch(value: bytes | None) -> int:
    """The transaction coordinator's epoch in a marker's value; `CorruptMessageError` when it is too short."""
    if value is None or len(value) < _END_TRANSACTION_VALUE.size:
        raise CorruptMessageError("a transaction marker's value is shorter than its version and epoch")
    epoch: int = _END_TRANSACTION_VALUE.unpack_from(value)[1]
    return epoch
