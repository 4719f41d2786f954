"""Types of Fetch requests and responses, and the encoding that both share.

`hotpath_fetch_request` and `hotpath_fetch_response` build on it.
Versions 0 to 17: throttle time from 1, a limit for the whole response from 3 (KIP-74), isolation levels and aborted
transactions from 4 (KIP-98), log start offsets from 5, sessions from 7 (KIP-227), leader epochs from 9 (KIP-320), rack
from 11 (KIP-392), flexible and diverging epochs from 12 (KIP-595), topic ids from 13 (KIP-516), replica state from 15
(KIP-903). Tagged fields that are not used here (cluster id, replica directory, node endpoints, snapshot id) are skipped
and never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from odradek.base.errors import MalformedFrameError
from odradek.base.ports import Buffer, FileRegion, Part
from odradek.base.types import ZERO_UUID
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.wire import Reader, base128, compact_string, legacy_string

FLEXIBLE_SINCE: Final = API_TABLE[ApiKey.FETCH].flexible_since
THROTTLE_SINCE: Final = 1
MAX_BYTES_SINCE: Final = 3
ISOLATION_SINCE: Final = 4
LOG_START_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
LEADER_EPOCH_SINCE: Final = 9
RACK_SINCE: Final = 11
TOPIC_ID_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15

_INT32: Final = Struct(">i")


class FetchEntry(NamedTuple):
    """One partition of a Fetch request, by name up to version 12 and by id later. Unknown epochs are -1.

    `log_start_offset` is that of the follower, or -1 from a consumer.
    """

    topic: str | None
    topic_id: UUID | None
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class ForgottenPartition(NamedTuple):
    """A partition that is removed from an incremental fetch session."""

    topic: str | None
    topic_id: UUID | None
    partition: int


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request; it does not refer to its frame. `replica_id` is -1 from consumers."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    entries: list[FetchEntry]
    isolation_level: int = 0
    replica_id: int = -1
    replica_epoch: int = -1
    session_id: int = 0
    session_epoch: int = -1
    forgotten: list[ForgottenPartition] = field(default_factory=list)
    rack_id: str = ""


class FetchedPartition(NamedTuple):
    """One partition of a Fetch response.

    `aborted_transactions`: (producer id, first offset) for read_committed, None otherwise. `diverging_epoch`: (epoch,
    end offset) to which the follower must truncate. `current_leader`: (broker id, epoch), sent with a leadership error.
    `records` can be a region of a file in a row to be encoded; decoded records are in memory.
    """

    topic: str | None
    topic_id: UUID | None
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Part = b""
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None

    @property
    def held(self) -> Buffer:
        """Return the records of a row that has them in memory. Raises `TypeError` if they are in a file."""
        records = self.records
        if isinstance(records, FileRegion):
            raise TypeError(f"the records of {self.topic}-{self.partition} are in {records.file.path}, not in memory")
        return records


@dataclass(slots=True)
class FetchResponse:
    """A Fetch response as a client or follower decodes it. Records are slices of its frame."""

    partitions: list[FetchedPartition]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0


@lru_cache(maxsize=4096)
def _topic_id(raw: bytes) -> UUID:
    """Return a cached UUID: the same ids come with every request, and creating a UUID costs ten times the lookup."""
    value = UUID(bytes=raw)
    return ZERO_UUID if value == ZERO_UUID else value


def topic_id_at(frame: bytes | memoryview, position: int) -> UUID:
    raw = bytes(frame[position : position + 16])
    if len(raw) != 16:
        raise MalformedFrameError("frame ends inside a topic id")
    return _topic_id(raw)


def read_topic(version: int, reader: Reader) -> tuple[str | None, UUID | None]:
    """Read the id or the name of a topic, depending on the version."""
    if version >= TOPIC_ID_SINCE:
        position = reader.position
        reader.position += 16
        return None, topic_id_at(reader.data, position)
    return (reader.compact_string() if version >= FLEXIBLE_SINCE else reader.string()), None


def required(count: int) -> int:
    if count < 0:
        raise MalformedFrameError("null where an array is required")
    return count


class Form(NamedTuple):
    """How a version encodes strings, counts and the end of a struct."""

    text: Callable[[str | None], bytes]
    length: Callable[[int], bytes]
    tail: bytes


def _compact_count(count: int) -> bytes:
    return base128(count + 1)


LEGACY: Final = Form(legacy_string, _INT32.pack, b"")
COMPACT: Final = Form(compact_string, _compact_count, b"\x00")


def encoded_topic(version: int, form: Form, topic: str | None, topic_id: UUID | None) -> bytes:
    if version >= TOPIC_ID_SINCE:
        if topic_id is None:
            raise ValueError(f"Fetch version {version} needs the id of topic {topic}")
        return topic_id.bytes
    if topic is None:
        raise ValueError(f"Fetch version {version} needs the name of topic {topic_id}")
    return form.text(topic)


_Row = TypeVar("_Row", FetchEntry, ForgottenPartition, FetchedPartition)


def grouped(rows: Sequence[_Row]) -> list[list[_Row]]:
    """Group consecutive rows of the same topic."""
    groups: list[list[_Row]] = []
    last: object = None
    for row in rows:
        topic = (row[0], row[1])
        if topic == last:
            groups[-1].append(row)
        else:
            groups.append([row])
            last = topic
    return groups
