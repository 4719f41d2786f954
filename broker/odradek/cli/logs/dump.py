"""`odradek log dump`: prints the content of a log's files with the fields and texts of Kafka's DumpLogSegments.

`cli/logs/command` prints the `Line` values of a file as text or JSON, then the `Complaints`. Nothing is written, and
only one window of a log is in memory. Invariant: for valid segments, indexes and producer snapshots, the text equals
the standard output of DumpLogSegments 3.9.1 (`tests/golden/log`). Other small files, which that tool does not support,
are printed in the same style.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from odradek.base.errors import CorruptMessageError, ProtocolError, StorageError
from odradek.base.ports import File
from odradek.cli.logs.decoders import LogDecoder
from odradek.cli.logs.files import (
    FILES,
    OFFSET_CHECKPOINTS,
    UNPACKED_LIMIT_BYTES,
    Entry,
    LogToolError,
    Walk,
    base_offset_of,
    read_whole,
)
from odradek.compression import decompress
from odradek.log import checkpoints
from odradek.log.producers.producer_snapshot import INT32_MAX, unpack_snapshot
from odradek.log.segments.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from odradek.log.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from odradek.log.segments.transaction_index import TRANSACTION_ENTRY_VERSION, TransactionIndex
from odradek.records.formats import check_entry, iterate_entries, iterate_records, read_entry
from odradek.records.legacy.message_set import timestamp_type_of
from odradek.records.v2.batch import (
    HEADER_SIZE,
    BatchHeader,
    TimestampType,
    read_control_type,
    read_coordinator_epoch,
)
from odradek.records.v2.record import Record

_T = TypeVar("_T")

ALL_BYTES: Final = (1 << 31) - 1
RECORD_MARK: Final = "|"

_STAMP_NAMES: Final = {
    TimestampType.NONE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_OFFSET_ENTRY: Final = Struct(">iI")
_TIME_ENTRY: Final = Struct(">qi")
_OLD_VALUE_AT: Final = (22, 30)
"""Position of the value's length in a message without a key, by format."""


class Maybe(NamedTuple):
    """A number that may be missing, formatted like Java's OptionalLong."""

    value: int | None

    def __str__(self) -> str:
        """Return the text in Kafka's output."""
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a dump: a text, or named fields, with a prefix if it is part of the previous line."""

    kind: str
    """Type of the line, for programs: file, start, batch, record, entry, …"""
    fields: Mapping[str, object] = field(default_factory=dict)
    message: str = ""
    mark: str = ""
    ending: str = ""

    def text(self) -> str:
        """The text that Kafka's tool prints."""
        text = self.message or " ".join(f"{name}: {_shown(value)}" for name, value in self.fields.items())
        return f"{self.mark} {text}{self.ending}" if self.mark else f"{text}{self.ending}"

    def plain(self) -> dict[str, object]:
        """The fields for JSON; times are `timestampType` and `timestamp`, whatever their type."""
        plain: dict[str, object] = {"kind": self.kind}
        for name, value in self.fields.items():
            if name in _STAMP_NAMES.values():
                plain |= {"timestampType": name, "timestamp": value}
            else:
                plain[name] = value.value if isinstance(value, Maybe) else value
        if self.message and not self.fields:
            plain["text"] = self.message
        return plain


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)


@dataclass(slots=True)
class Complaints:
    """Problems found while files are dumped. Those in `notes` are not errors.

    Gaps between offsets are not errors, because compaction leaves them. Neither is an empty index of an active segment.
    """

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _lists: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def listed(self, heading: str, path: Path, detail: str, *, fault: bool = True) -> None:
        """Add a detail to a list that is printed once per file, under its heading."""
        details = self._lists.get((heading, str(path)))
        if details is None:
            details = self._lists[heading, str(path)] = []
        details.append(detail)
        (self.faults if fault else self.notes).append(detail)

    def fault(self, path: Path, reason: str) -> None:
        """Add a fault of a whole file."""
        self.faults.append(f"{path}: {reason}")
        self._lists[f"{path}: {reason}", ""] = []

    def lines(self) -> Iterator[str]:
        """Yield the lines to print after the dump."""
        for (heading, path), details in self._lists.items():
            yield f"{heading}{path}"
            yield from (f"  {detail}" for detail in details)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What to show and to check."""

    deep: bool = False
    decoder: LogDecoder | None = None
    """Formats keys and values; None to omit them."""
    sanity_only: bool = False
    verify_only: bool = False
    max_bytes: int = ALL_BYTES
    skip_record_metadata: bool = False


def dump_file(path: Path, options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    """Yield the lines of one file. Raises `StorageError`; problems in its content go to `complaints`."""
    yield Line("file", {"file": str(path)}, message=f"Dumping {path}")
    dump = _SMALL_FILES.get(path.name) or _BY_SUFFIX.get(path.suffix)
    if dump is None:
        supported = f"{', '.join(_BY_SUFFIX)} and {', '.join(sorted(_SMALL_FILES))}"
        raise LogToolError(f"{path} is not a supported file: the supported names end with {supported}")
    yield from dump(path, options, complaints)


# Segments


def _dump_log(path: Path, options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    base_offset = base_offset_of(path)
    yield Line("start", {"startOffset": base_offset}, message=f"Log starting offset: {base_offset}")
    walk = Walk(path, limit_bytes=options.max_bytes)
    previous = -1
    for entry in walk:
        fault = _fault(entry)
        yield _entry_line(entry, is_valid=fault is None)
        if fault is not None:
            complaints.listed("Batches that are damaged in ", path, f"Position {entry.position}: {fault}")
        if not options.deep:
            continue
        try:
            for record, line in _record_lines(entry, options):
                if previous not in (-1, record.offset - 1):
                    detail = f"{previous} is followed by {record.offset}"
                    complaints.listed("Non-consecutive offsets in ", path, detail, fault=False)
                previous = record.offset
                yield line
        except ProtocolError as error:
            complaints.listed("Records that cannot be read in ", path, f"Position {entry.position}: {error}")
    trailing = walk.size - walk.end
    if trailing and options.max_bytes >= FILES.size(str(path)):
        yield Line(
            "trailing",
            {"invalidBytes": trailing},
            message=f"Found {trailing} invalid bytes at the end of {path.name}",
        )
        complaints.fault(path, f"from position {walk.end} on: {walk.problem}")


def _entry_line(entry: Entry, *, is_valid: bool) -> Line:
    header = entry.header
    stamp = _STAMP_NAMES[timestamp_type_of(header)]
    fields: dict[str, object] = {"offset": header.last_offset} if header.magic < 2 else _batch_fields(header)
    fields |= {
        "position": entry.position,
        stamp: header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": _codec_name(header),
        "crc": header.crc,
        "isvalid": is_valid,
    }
    return Line("batch", fields)


def _batch_fields(header: BatchHeader) -> dict[str, object]:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": Maybe(header.delete_horizon_ms),
    }


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except CorruptMessageError:
        return f"unknown({header.attributes & 7})"


def _fault(entry: Entry) -> str | None:
    try:
        check_entry(entry.content, 0, entry.header)
    except CorruptMessageError as error:
        return str(error)
    return None


def _record_lines(entry: Entry, options: DumpOptions) -> Iterator[tuple[Record, Line]]:
    header = entry.header
    checksums = iter(_checksums(entry)) if header.magic < 2 else None
    for record in iterate_records(entry.content, 0, header, limit=UNPACKED_LIMIT_BYTES):
        fields: dict[str, object] = {}
        if not options.skip_record_metadata:
            fields = _metadata(header, record)
            if checksums is not None:
                # The unbalanced brace is a typo in Kafka's tool, and parsers of its output expect it.
                fields |= {"isValid": True, "crc": f"{next(checksums)}}}"}
        if options.decoder is not None and not header.is_control:
            key, payload = options.decoder(record)
            if key is not None:
                fields["key"] = key
            if payload is not None:
                fields["payload"] = payload
        yield record, Line("record", fields, mark=RECORD_MARK)


def _metadata(header: BatchHeader, record: Record) -> dict[str, object]:
    fields: dict[str, object] = {
        "offset": record.offset,
        _STAMP_NAMES[timestamp_type_of(header)]: record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if header.magic >= 2:
        fields["sequence"] = _sequence(header, record)
        fields["headerKeys"] = [name for name, _ in record.headers]
    if header.is_control:
        kind = read_control_type(record.key)
        if kind is not None:
            fields["endTxnMarker"] = kind.name
            fields["coordinatorEpoch"] = read_coordinator_epoch(record.value)
    return fields


def _sequence(header: BatchHeader, record: Record) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + record.offset - header.base_offset) & INT32_MAX


def _checksums(entry: Entry) -> list[int]:
    """Return the CRC of each message in the entry: its own, or those of the messages in a wrapper."""
    header, content = entry.header, entry.content
    if not header.codec:
        return [header.crc]
    length_at = _OLD_VALUE_AT[header.magic]
    key_bytes = max(int.from_bytes(content[length_at - 4 : length_at], "big", signed=True), 0)
    packed = content[length_at + key_bytes + 4 :]
    inner = decompress(header.codec, packed, limit=UNPACKED_LIMIT_BYTES, old_frames=True)
    return [message.crc for _, message in iterate_entries(inner)]


# Indexes


def _dump_index(path: Path, options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    content, base_offset = FILES.read(str(path)), base_offset_of(path)
    entries = _offset_entries(content)
    if not entries:
        yield Line("empty", {"entries": 0}, message=f"{path} is empty.")
        return
    if options.sanity_only:
        yield from _sanity(path, content, OFFSET_ENTRY_BYTES, complaints)
        return
    log = FILES.open(str(_log_of(path)), read_only=True)
    for place, (relative, position) in enumerate(entries):
        # Unused space of an active segment's index: Kafka allocates it in advance and truncates it at a clean stop.
        if relative == 0 and place > 0:
            return
        offset = base_offset + relative
        found = _last_offset_at(log, position)
        if found != offset:
            detail = f"Index offset: {offset}, log offset: {found}"
            complaints.listed("Mismatches in :", path, detail, fault=any(content))
        if not options.verify_only:
            yield Line("entry", {"offset": offset, "position": position})


def _last_offset_at(log: File, position: int) -> int:
    """Return the last offset of the entry at a position; -1 if none begins there."""
    try:
        return read_entry(log.pread(HEADER_SIZE, position)).last_offset
    except CorruptMessageError:
        return -1


def _offset_entries(content: bytes) -> list[tuple[int, int]]:
    whole = len(content) - len(content) % OFFSET_ENTRY_BYTES
    return list(_OFFSET_ENTRY.iter_unpack(content[:whole]))


def _log_of(path: Path) -> Path:
    return path.with_name(file_name(base_offset_of(path), LOG_SUFFIX))


def _sanity(path: Path, content: bytes, entry_bytes: int, complaints: Complaints) -> Iterator[Line]:
    """Check the last entry and the length. A broker rebuilds an index at start if one of them is wrong."""
    if len(content) % entry_bytes:
        complaints.fault(path, f"{len(content)} bytes are not a multiple of the entry size, {entry_bytes} bytes")
        return
    if entry_bytes == TIME_ENTRY_BYTES and content:
        first, last = _TIME_ENTRY.unpack_from(content), _TIME_ENTRY.unpack(content[-entry_bytes:])
        if last[0] < first[0]:
            complaints.fault(path, f"the last timestamp, {last[0]}, is less than the first, {first[0]}")
            return
        relative = last[1]
    else:
        relative = _OFFSET_ENTRY.unpack(content[-entry_bytes:])[0] if content else 0
    if relative < 0:
        complaints.fault(path, f"the last offset is {-relative} below the base offset")
        return
    yield Line("sane", {"sane": True}, message=f"{path} passed sanity check.")


def _dump_time_index(path: Path, options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    content, base_offset = FILES.read(str(path)), base_offset_of(path)
    if options.sanity_only:
        yield from _sanity(path, content, TIME_ENTRY_BYTES, complaints)
        return
    whole = len(content) - len(content) % TIME_ENTRY_BYTES
    entries = [(timestamp, base_offset + relative) for timestamp, relative in _TIME_ENTRY.iter_unpack(content[:whole])]
    batches = _Batches(_log_of(path))
    previous = -1
    for place, (timestamp, offset) in enumerate(entries):
        if offset == base_offset and place > 0:
            return
        header = batches.ending_at_or_above(offset)
        last = -1 if header is None else header.last_offset
        if header is None or last != offset:
            detail = f"Indexed offset: {offset}, found log offset: {last}"
            complaints.listed("The following indexed offsets are not found in the log: ", path, detail)
        else:
            if header.max_timestamp != timestamp:
                detail = f"Index timestamp: {timestamp}, log timestamp: {header.max_timestamp}"
                complaints.listed("Found timestamp mismatch in :", path, detail, fault=any(content))
            if previous >= timestamp:
                detail = f"Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
                complaints.listed("Found out of order timestamp in :", path, detail)
        if not options.verify_only:
            yield Line("entry", {"timestamp": timestamp, "offset": offset})
        previous = timestamp


class _Batches:
    """Headers of a log in order, looked up by increasing offsets."""

    def __init__(self, path: Path) -> None:
        self._entries = iter(Walk(path))
        self._current: BatchHeader | None = None

    def ending_at_or_above(self, offset: int) -> BatchHeader | None:
        while self._current is None or self._current.last_offset < offset:
            entry = next(self._entries, None)
            if entry is None:
                return None
            self._current = entry.header
        return self._current


def _dump_transaction_index(path: Path, _options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    index = TransactionIndex.decode(FILES.read(str(path)))
    if index is None:
        complaints.fault(
            path, "it is not a valid transaction index: its size, a version or the order of its entries is wrong"
        )
        return
    for producer_id, first, last, stable in index.entries():
        fields = {"version": TRANSACTION_ENTRY_VERSION, "producerId": producer_id, "firstOffset": first}
        yield Line("entry", {**fields, "lastOffset": last, "lastStableOffset": stable})


# Producers, small files


def _dump_snapshot(path: Path, _options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    content = FILES.read(str(path))
    try:
        entries, _ = unpack_snapshot(content)
    except CorruptMessageError as error:
        complaints.fault(path, str(error))
        return
    for entry in entries:
        transaction, last = entry.transaction_first_offset, entry.last_batch
        fields: dict[str, object] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": Maybe(None if transaction < 0 else transaction),
            "lastTimestamp": entry.last_timestamp,
        }
        if entry.last_offset >= 0:
            fields |= {
                "firstSequence": last.first_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.offset_delta,
                "timestamp": last.timestamp,
            }
        yield Line("producer", fields, ending="" if entry.last_offset >= 0 else " ")


def _dump_offset_checkpoint(path: Path, _options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    content = read_whole(path)
    # Kafka leaves the file empty until it writes the first offset.
    offsets = _decoded(lambda: checkpoints.decode_offsets(content, str(path)), path, complaints) if content else {}
    for topic_partition, offset in (offsets or {}).items():
        topic, partition = topic_partition
        yield Line("entry", {"topic": topic, "partition": partition, "offset": offset})


def _dump_epochs(path: Path, _options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    content = read_whole(path)
    for epoch, start in _decoded(lambda: checkpoints.decode_epochs(content, str(path)), path, complaints) or ():
        yield Line("entry", {"epoch": epoch, "startOffset": start})


def _dump_topic_id(path: Path, _options: DumpOptions, complaints: Complaints) -> Iterator[Line]:
    content = read_whole(path)
    topic_id = _decoded(lambda: checkpoints.decode_partition_metadata(content, str(path)), path, complaints)
    if topic_id is not None:
        written = checkpoints.encode_partition_metadata(topic_id).decode().rpartition(" ")[2]
        yield Line("topic", {"topicId": written, "uuid": str(topic_id)})


def _dump_text(path: Path, _options: DumpOptions, _complaints: Complaints) -> Iterator[Line]:
    for line in read_whole(path).decode("utf-8", "replace").splitlines():
        yield Line("text", message=line)


def _decoded(decode: Callable[[], _T], path: Path, complaints: Complaints) -> _T | None:
    try:
        return decode()
    except StorageError as error:
        complaints.fault(path, str(error))
        return None


_Dump = Callable[[Path, DumpOptions, Complaints], Iterator[Line]]

_BY_SUFFIX: Final[dict[str, _Dump]] = {
    LOG_SUFFIX: _dump_log,
    INDEX_SUFFIX: _dump_index,
    TIME_INDEX_SUFFIX: _dump_time_index,
    TRANSACTION_INDEX_SUFFIX: _dump_transaction_index,
    SNAPSHOT_SUFFIX: _dump_snapshot,
}
_SMALL_FILES: Final[dict[str, _Dump]] = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, _dump_offset_checkpoint),
    checkpoints.LEADER_EPOCH_FILE: _dump_epochs,
    checkpoints.PARTITION_METADATA_FILE: _dump_topic_id,
    checkpoints.META_PROPERTIES_FILE: _dump_text,
    checkpoints.CLEAN_SHUTDOWN_FILE: _dump_text,
}
