"""Builds the batches of the accumulator: appends many records at once and can change the sequence numbers.

`accumulator` and `sender` use it. Invariant: records are compressed once; if the producer id or the sequence of a batch
changes, the bytes of its records stay the same.
"""

from __future__ import annotations

from typing import Final

from odradek.base.ports import Buffer
from odradek.base.types import NO_TIMESTAMP
from odradek.client.models import Headers, KeyValueTime
from odradek.client.producer.sequences import Numbers
from odradek.compression import Codec
from odradek.records.v2.batch import HEADER_SIZE, BatchBuilder, assemble, read_header
from odradek.records.v2.encode import EncodedRecords, ProducerNumbers

CODECS: Final = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
"""Codec of each value of `compression.type`."""


class ClientBatchBuilder:
    """One batch of at most `limit_bytes` before compression, or of a single larger record."""

    __slots__ = ("_builder", "_built", "_is_transactional")

    def __init__(self, codec: Codec, limit_bytes: int, *, is_transactional: bool = False) -> None:
        """The batch is empty at first. `is_transactional` marks it as part of a transaction (KIP-98)."""
        self._is_transactional = is_transactional
        self._builder = BatchBuilder(codec=codec, limit_bytes=limit_bytes)
        self._built: bytes | None = None

    @property
    def record_count(self) -> int:
        """Number of records."""
        return self._builder.record_count

    @property
    def size_bytes(self) -> int:
        """Uncompressed size."""
        return self._builder.size_bytes

    @property
    def max_timestamp_ms(self) -> int:
        """The newest timestamp, or -1 without records."""
        return self._builder.max_timestamp_ms if self._builder.record_count else NO_TIMESTAMP

    def append(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers) -> bool:
        """Append a record. Returns False without appending if it does not fit. An empty batch accepts any record."""
        self._built = None
        return self._builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)

    def append_many(self, records: list[KeyValueTime], start: int) -> int:
        """Append records from `start` on while they fit. Returns the index of the first that was not appended."""
        self._built = None
        append = self._builder.append
        for index in range(start, len(records)):
            key, value, timestamp_ms = records[index]
            if not append(key, value, timestamp_ms=timestamp_ms):
                return index
        return len(records)

    def build(self, numbers: Numbers) -> bytes:
        """Return the batch with these numbers. Can be called again with other numbers."""
        producer_id, epoch, base_sequence = numbers
        if self._built is None:
            self._built = self._builder.build(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=base_sequence,
                is_transactional=self._is_transactional,
            )
            return self._built
        header = read_header(self._built)
        if (header.producer_id, header.producer_epoch, header.base_sequence) != numbers:
            header = header._replace(producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence)
            self._built = assemble(header, memoryview(self._built)[HEADER_SIZE:])
        return self._built


class EncodedBatchBuilder:
    """A batch that the caller of the producer has encoded. No record can be added to it."""

    __slots__ = ("_is_transactional", "_records")

    def __init__(self, records: EncodedRecords, *, is_transactional: bool = False) -> None:
        """`is_transactional` marks it as part of a transaction (KIP-98)."""
        self._records = records
        self._is_transactional = is_transactional

    @property
    def record_count(self) -> int:
        """Number of records."""
        return self._records.record_count

    @property
    def size_bytes(self) -> int:
        """Size as it is sent, because this is what is in memory."""
        return self._records.size_bytes

    def append(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers) -> bool:
        """Return False: the batch is complete."""
        return False

    def append_many(self, records: list[KeyValueTime], start: int) -> int:
        """Return `start`: the batch is complete."""
        return start

    def build(self, numbers: Numbers) -> Buffer:
        """Return the batch with these numbers. Can be called again with other numbers."""
        return self._records.build(ProducerNumbers(*numbers, self._is_transactional))
