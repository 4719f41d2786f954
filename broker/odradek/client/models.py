"""Results of the clients as frozen values. Timestamps are milliseconds since 1970 UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from odradek.base.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]
KeyValueTime = tuple[bytes | None, bytes | None, int]
"""One record for `send_many`: key, value, timestamp in milliseconds."""


class RecordMetadata(NamedTuple):
    """Partition, offset and timestamp of a sent record."""

    topic: str
    partition: int
    offset: int
    """-1 with acks=0, and for a duplicate that is too old for the broker to know its offset."""
    timestamp: int
    """The broker's append time if the topic uses LogAppendTime, else the timestamp of the record."""


class BatchMetadata(NamedTuple):
    """Partition, offset and timestamp of a sent batch."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    timestamp: int
    """The broker's append time; -1 if the topic uses CreateTime."""


class SendResult(NamedTuple):
    """The result of `send_many`: all records were acknowledged."""

    records: int
    batches: tuple[BatchMetadata, ...]


class ConsumerRecord(NamedTuple):
    """A record with its partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    """0: create time, 1: log append time, -1: none."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next offset to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp of the first record at or after a time."""

    offset: int
    timestamp: int
    leader_epoch: int = NO_EPOCH


class AbortedTransaction(NamedTuple):
    """An aborted transaction, from its first offset to its marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFetch:
    """Whole batches of one partition, as its leader stores them."""

    topic_partition: TopicPartition
    records: bytes | memoryview
    """Batches in format 2, possibly compressed. The first may start below the requested offset."""
    fetch_offset: int
    """The requested offset: skip records below it."""
    next_offset: int
    """Offset of the next fetch; `fetch_offset` if `records` is empty."""
    high_watermark: int
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted: tuple[AbortedTransaction, ...] = ()
    """With read_committed: the aborted transactions in this range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. -1 means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()
    assignments: tuple[tuple[int, ...], ...] = ()
    """Replicas of the partitions 0, 1, ...; `partitions` and `replication_factor` must then be -1."""


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
    """A resource with configurations. Types: 2 topic, 4 broker, 8 broker logger."""

    resource_type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Return the resource of a topic."""
        return cls(2, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """Return the resource of a broker; None for the defaults of all brokers."""
        return cls(4, "" if broker_id is None else str(broker_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A configuration entry with its source (DescribeConfigs: 1 topic, 4 static broker, 5 default, ...)."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False
    config_type: int = 0
    documentation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One operation of IncrementalAlterConfigs (KIP-339)."""

    name: str
    value: str | None
    operation: int = 0
    """0 set, 1 delete, 2 append, 3 subtract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a list. `state` is empty if the broker is too old to return it."""

    group_id: str
    protocol_type: str
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of a group and its assignment."""

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
    """A result of ListOffsets. The offset is -1 if no record matches."""

    offset: int
    timestamp: int = NO_TIMESTAMP
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """A replica on disk. `offset_lag`: records behind the high watermark. `future`: the target of a move."""

    size_bytes: int
    offset_lag: int = 0
    future: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A broker's log directory. The error code is not 0 if it is offline. Totals are -1 if unknown."""

    path: str
    error_code: int = 0
    replicas: dict[TopicPartition, ReplicaSize] = field(default_factory=dict)
    total_bytes: int = -1
    usable_bytes: int = -1
