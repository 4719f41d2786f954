"""Encoding of `.snapshot` files: producer state at an offset, in the format of Kafka's ProducerStateManager.

`producer_state` and `odradek log dump` use it. Layout: version int16, CRC-32C of the rest uint32, number of entries
int32, the entries, then the appendix.

The appendix is an extension. Kafka stores only the last batch of each producer. After a restart it takes the repeat of
an earlier batch for a gap; the producer then starts again under another epoch, and what it repeats is duplicated.
Therefore the batches before the last follow the entries: a magic number of 4 bytes, the number of batches int32, and
each batch with its producer id. Kafka ignores what follows its entries but includes it in the CRC. Snapshots that Kafka
writes have no appendix.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import crc32c

from odradek.base.errors import CorruptMessageError

INT32_MAX: Final = 2**31 - 1
SNAPSHOT_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_APPENDIX_MARK: Final = b"ODK1"
_APPENDIX_HEAD: Final = struct.Struct(">4si")
_APPENDIX_BATCH: Final = struct.Struct(">qiqiq")


class RememberedBatch(NamedTuple):
    """A batch that its producer may send again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record; sequences wrap from 2**31 - 1 to 0."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + INT32_MAX + 1


class SnapshotEntry(NamedTuple):
    """One producer. An offset or sequence of -1 means that there is no such batch, or no open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int

    @property
    def last_batch(self) -> RememberedBatch:
        """Its last batch; valid only if `last_offset` is not -1."""
        return RememberedBatch(self.last_sequence, self.last_offset, self.offset_delta, self.last_timestamp)


def pack_snapshot(entries: Sequence[SnapshotEntry], earlier: Sequence[tuple[int, RememberedBatch]]) -> bytes:
    """Encode a whole file. `earlier` are batches before the last of each producer, oldest first."""
    parts = [_COUNT.pack(len(entries)), *(_ENTRY.pack(*entry) for entry in entries)]
    if earlier:
        parts.append(_APPENDIX_HEAD.pack(_APPENDIX_MARK, len(earlier)))
        parts += [_APPENDIX_BATCH.pack(producer_id, *batch) for producer_id, batch in earlier]
    body = b"".join(parts)
    return _HEAD.pack(SNAPSHOT_VERSION, crc32c.crc32c(body)) + body


def unpack_snapshot(content: bytes) -> tuple[list[SnapshotEntry], Mapping[int, Sequence[RememberedBatch]]]:
    """Decode the entries, and for each producer the batches before its last, oldest first.

    Raises `CorruptMessageError` for an invalid version, size or CRC.
    """
    head = _HEAD.size
    if len(content) < head + _COUNT.size:
        raise CorruptMessageError(f"a producer snapshot of {len(content)} bytes is too short")
    version, crc = _HEAD.unpack_from(content)
    (count,) = _COUNT.unpack_from(content, head)
    body = memoryview(content)[head:]
    if version != SNAPSHOT_VERSION or crc32c.crc32c(body) != crc:
        raise CorruptMessageError(f"a producer snapshot has a wrong CRC or the unsupported version {version}")
    end = _COUNT.size + count * _ENTRY.size
    if count < 0 or len(body) < end:
        raise CorruptMessageError(f"a producer snapshot is too short for its {count} entries")
    entries = [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size : end])]
    return entries, _appendix(body[end:])


def _appendix(content: memoryview) -> Mapping[int, Sequence[RememberedBatch]]:
    """Decode the batches before the last of each producer; empty if Kafka wrote the snapshot."""
    if not content:
        return {}
    mark, count = _APPENDIX_HEAD.unpack_from(content) if len(content) >= _APPENDIX_HEAD.size else (b"", 0)
    if mark != _APPENDIX_MARK or len(content) != _APPENDIX_HEAD.size + count * _APPENDIX_BATCH.size:
        raise CorruptMessageError(f"a producer snapshot has an invalid appendix of {len(content)} bytes")
    return _by_producer(_APPENDIX_BATCH.iter_unpack(content[_APPENDIX_HEAD.size :]))


def _by_producer(packed: Iterable[tuple[int, int, int, int, int]]) -> dict[int, list[RememberedBatch]]:
    found: dict[int, list[RememberedBatch]] = {}
    for producer_id, *batch in packed:
        found.setdefault(producer_id, []).append(RememberedBatch(*batch))
    return found
