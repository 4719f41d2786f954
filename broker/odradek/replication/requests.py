"""What the server hands to `ReplicaManager` and gets back, and the port through which the in-sync set is changed.

Named tuples, because one of each is made per request or partition on the hot path. Results stand in the order of the
entries that they answer. Record memory of a request is borrowed: it is valid until `append` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from odradek.base.errors import RecordFault
from odradek.base.types import NO_BROKER, NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, TopicPartition
from odradek.log.values import LogSlice
from odradek.records.validate import AppendOrigin
from odradek.replication.resting import Rest


class AppendRequest(NamedTuple):
    """Record sets for some partitions. `acks`: 0 and 1 answer after the leader's write, -1 after the in-sync set's."""

    acks: int
    timeout_ms: int
    """Longest wait for the in-sync set."""
    entries: Sequence[tuple[TopicPartition, memoryview]]
    """Writable memory, as offsets and epochs are stamped in place."""
    origin: AppendOrigin = AppendOrigin.CLIENT
    zstd_allowed: bool = True
    """False below Produce version 7 (KIP-110)."""
    any_format: bool = False
    """True below Produce version 3: message sets of formats 0 and 1 may come, several entries long."""


class AppendResult(NamedTuple):
    """What became of one partition's records. The offsets stay known when only the acknowledgement failed."""

    topic_partition: TopicPartition
    error_code: int = 0
    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    """The stamped time of a LogAppendTime topic, else -1."""
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    record_count: int = 0
    """Records written, 0 for a duplicate or an error; for metrics."""
    leader_id: int = NO_BROKER
    leader_epoch: int = NO_EPOCH
    """The leader to turn to, with error 6 (KIP-951)."""
    record_errors: Sequence[tuple[int, str]] = ()
    """Number within the batch and sentence of each record at fault (KIP-467)."""
    size_bytes: int = 0
    """Of the records as they came, 0 if the log did not see them; for metrics."""
    converted: int = 0
    """Records that were written anew for another format or codec; for metrics."""
    fault: tuple[RecordFault, int] | None = None
    """Why the records were refused, as far as that is counted, and how many of them; for metrics."""


class Fetchable(Protocol):
    """What is asked of one partition: an entry of a Fetch request, or of a fetch session's memory."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, by name."""
        ...

    @property
    def topic_id(self) -> UUID:
        """`ZERO_UUID` below version 13."""
        ...

    @property
    def current_leader_epoch(self) -> int:
        """The epoch that the reader believes in, -1: does not say."""
        ...

    @property
    def fetch_offset(self) -> int:
        """First offset wanted."""
        ...

    @property
    def last_fetched_epoch(self) -> int:
        """Epoch of the record before `fetch_offset`, -1: does not say."""
        ...

    @property
    def log_start_offset(self) -> int:
        """A follower's own log start, -1 from consumers."""
        ...

    @property
    def max_bytes(self) -> int:
        """Bound for this partition."""
        ...


class FetchParams(NamedTuple):
    """Who fetches, and how long and how much."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    """Bound of the whole response; exceeded only so that one batch gets through."""
    replica_id: int = NO_BROKER
    """The follower that fetches; below 0 a consumer."""
    read_committed: bool = False
    leader_only: bool = True
    """False lets a consumer read from a follower (Fetch 11 and later, KIP-392)."""
    hard_max_bytes: bool = False
    """True below Fetch version 3: no bound gives way to a first batch. A larger one comes cut off (KIP-74)."""
    rack_id: str = ""
    """Where the consumer is: the leader may send it to a follower there. Needs `leader_only` to be false."""
    replica_epoch: int = NO_EPOCH
    """Life of the follower's broker (Fetch 15 and later, KIP-903), -1: does not say."""
    may_rest: bool = False
    """Whether results shall say how idle partitions stand, for a session to rest upon."""


class FetchResult(NamedTuple):
    """One partition's part of a fetch response."""

    error_code: int = 0
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: LogSlice | None = None
    diverging_epoch: tuple[int, int] | None = None
    """(leader epoch, end offset) to truncate to, when the follower's log parts from ours (KIP-595)."""
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of each; None unless `read_committed`."""
    leader_id: int = NO_BROKER
    leader_epoch: int = NO_EPOCH
    """The leader to turn to, with errors 6 and 74 (KIP-951)."""
    preferred_read_replica: int = NO_BROKER
    """The follower that a consumer shall read from instead (KIP-392)."""
    idle: Rest | None = None
    """How the partition stands, if the same read would give the same nothing until that changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedIsr:
    """The state of a partition after a change of its in-sync set was committed."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class IsrWriter(Protocol):
    """Commits in-sync sets: AlterPartition to the controller, or ZooKeeper where that is older than 2.7."""

    async def alter_isr(
        self, topic_partition: TopicPartition, leader_epoch: int, new_isr: tuple[int, ...], partition_epoch: int
    ) -> CommittedIsr:
        """The committed state, on condition of both epochs.

        Raises the `ProtocolError` of the partition's or the request's error code. Called one at a time per partition;
        the writer may batch calls of many partitions. The caller repeats it after a retriable error.
        """
        ...
