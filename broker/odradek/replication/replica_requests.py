"""Requests and results of `ReplicaManager`, and the port through which the ISR is changed.

Those of appends are plain classes, because the hot path creates one per request or partition, and in the compiled form
such a class is created and read in a fraction of the time of a named tuple. Results are in the order of the
entries. The record memory of a request is borrowed: it is valid until `append` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from odradek.base.errors import RecordFault
from odradek.base.types import NO_BROKER, NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, TopicPartition
from odradek.log.producers.verification import VerificationGuard
from odradek.log.values import LogSlice
from odradek.records.checks.validate import AppendOrigin
from odradek.replication.sessions.resting import Rest

NO_GUARDS: Final[Mapping[TopicPartition, VerificationGuard]] = {}


class AppendRequest:
    """Record sets for some partitions.

    `acks`: 0 is answered after the leader's write, 1 after it and the flush that `flush.messages` may require, -1 when
    this holds for every member of the ISR.
    """

    __slots__ = ("acks", "any_format", "entries", "guards", "needs_guards", "origin", "timeout_ms", "zstd_allowed")

    def __init__(
        self,
        acks: int,
        timeout_ms: int,
        entries: Sequence[tuple[TopicPartition, memoryview]],
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        zstd_allowed: bool = True,
        any_format: bool = False,
        guards: Mapping[TopicPartition, VerificationGuard] = NO_GUARDS,
        needs_guards: bool = False,
    ) -> None:
        """`timeout_ms`: maximum wait for the ISR or the flush."""
        self.acks: Final = acks
        self.timeout_ms: Final = timeout_ms
        self.entries: Final = entries
        """Writable memory, because offsets and epochs are stamped in place."""
        self.origin: Final = origin
        self.zstd_allowed: Final = zstd_allowed
        """False below Produce version 7 (KIP-110)."""
        self.any_format: Final = any_format
        """True below Produce version 3, which may contain message sets of formats 0 and 1, with several entries."""
        self.guards: Final = guards
        """The guards of the verifications that have succeeded (`PartitionLog.begin_verification`)."""
        self.needs_guards: Final = needs_guards
        """Whether a batch may open a transaction only with a guard."""


class AppendResult:
    """Result of one partition. The offsets are also set if only the acknowledgement failed."""

    __slots__ = (
        "converted",
        "error_code",
        "error_message",
        "fault",
        "first_offset",
        "last_offset",
        "leader_epoch",
        "leader_id",
        "log_append_time_ms",
        "log_start_offset",
        "record_count",
        "record_errors",
        "size_bytes",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        error_code: int = 0,
        *,
        first_offset: int = NO_OFFSET,
        last_offset: int = NO_OFFSET,
        log_append_time_ms: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
        error_message: str | None = None,
        record_count: int = 0,
        leader_id: int = NO_BROKER,
        leader_epoch: int = NO_EPOCH,
        record_errors: Sequence[tuple[int, str]] = (),
        size_bytes: int = 0,
        converted: int = 0,
        fault: tuple[RecordFault, int] | None = None,
    ) -> None:
        """The defaults are those of an append that failed."""
        self.topic_partition: Final = topic_partition
        self.error_code = error_code
        """Set later if only the acknowledgement fails."""
        self.first_offset: Final = first_offset
        self.last_offset: Final = last_offset
        self.log_append_time_ms: Final = log_append_time_ms
        """The append time if the topic uses LogAppendTime, else -1."""
        self.log_start_offset: Final = log_start_offset
        self.error_message: Final = error_message
        self.record_count: Final = record_count
        """Number of records written, 0 for a duplicate or an error; for metrics."""
        self.leader_id: Final = leader_id
        self.leader_epoch: Final = leader_epoch
        """The current leader, with error 6 (KIP-951)."""
        self.record_errors: Final = record_errors
        """Index within the batch and error message of each invalid record (KIP-467)."""
        self.size_bytes: Final = size_bytes
        """Size of the records as received, 0 if the log did not see them; for metrics."""
        self.converted: Final = converted
        """Number of records converted to another format or codec; for metrics."""
        self.fault: Final = fault
        """Why records were refused, if metrics count that reason, and how many of them."""


class Fetchable(Protocol):
    """The requested state of one partition: an entry of a Fetch request or of a fetch session."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name."""
        ...

    @property
    def topic_id(self) -> UUID:
        """`ZERO_UUID` below version 13."""
        ...

    @property
    def current_leader_epoch(self) -> int:
        """Leader epoch known to the reader; -1: not specified."""
        ...

    @property
    def fetch_offset(self) -> int:
        """First requested offset."""
        ...

    @property
    def last_fetched_epoch(self) -> int:
        """Epoch of the record before `fetch_offset`; -1: not specified."""
        ...

    @property
    def log_start_offset(self) -> int:
        """Log start offset of a follower; -1 from consumers."""
        ...

    @property
    def max_bytes(self) -> int:
        """Maximum bytes for this partition."""
        ...


class FetchParams(NamedTuple):
    """Who fetches, and the limits of time and size."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    """Limit of the whole response; only a single first batch may exceed it."""
    replica_id: int = NO_BROKER
    """The follower that fetches; below 0 for a consumer."""
    read_committed: bool = False
    leader_only: bool = True
    """False allows a consumer to read from a follower (Fetch 11 and later, KIP-392)."""
    hard_max_bytes: bool = False
    """True below Fetch version 3: a first batch may not exceed the limits either and is truncated (KIP-74)."""
    rack_id: str = ""
    """Rack of the consumer: the leader may redirect it to a follower there. Requires `leader_only` to be false."""
    replica_epoch: int = NO_EPOCH
    """Broker epoch of the follower (Fetch 15 and later, KIP-903); -1: not specified."""
    may_rest: bool = False
    """Whether results include the state of idle partitions, so that session entries can rest."""


class FetchResult(NamedTuple):
    """The result of one partition in a fetch."""

    error_code: int = 0
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: LogSlice | None = None
    diverging_epoch: tuple[int, int] | None = None
    """(leader epoch, end offset) to truncate to, if the follower's log diverges from the leader's (KIP-595)."""
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of each; None unless `read_committed`."""
    leader_id: int = NO_BROKER
    leader_epoch: int = NO_EPOCH
    """The current leader, with errors 6 and 74 (KIP-951)."""
    preferred_read_replica: int = NO_BROKER
    """The follower from which the consumer should read instead (KIP-392)."""
    idle: Rest | None = None
    """State of the partition, if the same read returns nothing until that state changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedIsr:
    """The state of a partition after a committed ISR change."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class IsrWriter(Protocol):
    """Commits ISR changes: with AlterPartition to the controller, or in ZooKeeper if the protocol is older than 2.7."""

    async def alter_isr(
        self, topic_partition: TopicPartition, leader_epoch: int, new_isr: tuple[int, ...], partition_epoch: int
    ) -> CommittedIsr:
        """Commit an ISR if both epochs still match. Returns the committed state.

        Raises the `ProtocolError` for the error code of the partition or the request. Called one at a time per
        partition; the writer may batch calls for many partitions. The caller retries after a retriable error.
        """
        ...
