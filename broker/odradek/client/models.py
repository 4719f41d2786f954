"""What the clients hand to their callers: frozen values, no behaviour. Timestamps are milliseconds since 1970 UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from odradek.base.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]
KeyValueTime = tuple[bytes | None, bytes | None, int]
"""One record of a bulk send: key, value, timestamp in ms."""


class RecordMetadata(NamedTuple):
    """Where a record went."""

    topic: str
    partition: int
    offset: int
    """-1 with acks=0, and for a duplicate so old that the broker forgot its offset."""
    timestamp: int
    """The broker's append time for topics stamped that way, else what was sent."""


class BatchMetadata(NamedTuple):
    """Where a batch went."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    timestamp: int
    """The broker's append time, or -1 where the records keep theirs."""


class SendResult(NamedTuple):
    """What became of a bulk send: everything was acknowledged."""

    records: int
    batches: tuple[BatchMetadata, ...]


class ConsumerRecord(NamedTuple):
    """A record with its place."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    """0 create time, 1 log append time, -1 none."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int
    leader_epoch: int = NO_EPOCH


class AbortedTransaction(NamedTuple):
    """A transaction whose records do not count, from its first offset to its marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFetch:
    """Whole batches of one partition as its leader keeps them."""

    topic_partition: TopicPartition
    records: bytes | memoryview
    """v2 batches, compressed as they are; the first may begin below the wanted offset."""
    fetch_offset: int
    """The offset that was asked for: records below it are to be skipped."""
    next_offset: int
    """Where the next fetch begins; `fetch_offset` when `records` is empty."""
    high_watermark: int
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted: tuple[AbortedTransaction, ...] = ()
    """With read_committed: transactions in this range that were aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. -1 leaves a number to the broker's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()
    assignments: tuple[tuple[int, ...], ...] = ()
    """Replicas of partitions 0, 1, ...; the numbers above must then be -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker as clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic and its partitions in order."""

    name: str
    topic_id: UUID = ZERO_UUID
    internal: bool = False
    partitions: tuple[PartitionDescription, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster; `controller_id` is -1 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


class ConfigResource(NamedTuple):
    """What has configurations. Types: 2 topic, 4 broker, 8 broker logger."""

    resource_type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic's configurations."""
        return cls(2, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """A broker's configurations; None for the default of the whole cluster."""
        return cls(4, "" if broker_id is None else str(broker_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A configuration's value and where it comes from (DescribeConfigs: 1 topic, 4 static broker, 5 default ...)."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False
    config_type: int = 0
    documentation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One step of IncrementalAlterConfigs (KIP-339)."""

    name: str
    value: str | None
    operation: int = 0
    """0 set, 1 delete, 2 append, 3 subtract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a list; `state` is empty where the broker is too old to say."""

    group_id: str
    protocol_type: str
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of a group and what it reads."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group: state (Empty, PreparingRebalance, CompletingRebalance, Stable, Dead), assignor, members, coordinator."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...] = ()


class ListedOffset(NamedTuple):
    """An answer of ListOffsets; offset -1 when no record matches."""

    offset: int
    timestamp: int = NO_TIMESTAMP
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """A replica on disk. `offset_lag`: how far behind the high watermark. `future`: a move between directories."""

    size_bytes: int
    offset_lag: int = 0
    future: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A broker's log directory; the error code is not 0 when it is offline. Totals are -1 where unknown."""

    path: str
    error_code: int = 0
    replicas: dict[TopicPartition, ReplicaSize] = field(default_factory=dict)
    total_bytes: int = -1
    usable_bytes: int = -1
