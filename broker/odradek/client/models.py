"""Arguments and results of the clients. All are immutable. Timestamps are milliseconds since 1970 UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from odradek.base.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers of a record: name and value. A name may occur several times."""
KeyValueTime = tuple[bytes | None, bytes | None, int]
"""A record for `send_many`: key, value, and timestamp in milliseconds since 1970 UTC."""


class RecordMetadata(NamedTuple):
    """Where a sent record was appended."""

    topic: str
    partition: int
    offset: int
    """-1 if unknown: with acks=0, and for a duplicate that is too old for the broker to know its offset."""
    timestamp: int
    """Milliseconds since 1970 UTC: the append time if the topic uses LogAppendTime, else the record's timestamp."""


class BatchMetadata(NamedTuple):
    """Where a batch of records was appended."""

    topic: str
    partition: int
    base_offset: int
    """Offset of its first record; -1 if unknown, as in `RecordMetadata`."""
    record_count: int
    timestamp: int
    """Milliseconds since 1970 UTC: the append time if the topic uses LogAppendTime, else -1."""


class SendResult(NamedTuple):
    """The result of `send_many` after all records were acknowledged."""

    records: int
    """Number of records."""
    batches: tuple[BatchMetadata, ...]
    """The batches that contain them, possibly with records of other calls."""


class ConsumerRecord(NamedTuple):
    """A record that was read, with its topic, partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970 UTC; -1 if the record has none."""
    timestamp_type: int
    """0: the producer's time, 1: the broker's append time, -1: no timestamp."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class OffsetAndMetadata(NamedTuple):
    """A committed offset."""

    offset: int
    """Offset of the next record to read."""
    metadata: str = ""
    """Text of the application."""
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the last record that was read; -1 if unknown."""


class GroupMetadata(NamedTuple):
    """A group, and the member on whose behalf a producer commits offsets in a transaction (KIP-447).

    The coordinator refuses the offsets of a member that is no longer in the group. The defaults are those of a consumer
    that is not a member; then nothing is checked.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    """Id of a static member; None for a dynamic one."""


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp of the first record at or after a time."""

    offset: int
    timestamp: int
    """Milliseconds since 1970 UTC."""
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the record; -1 if unknown."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction of one producer in a partition. It ends at the producer's next abort marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFetch:
    """Whole batches of one partition, as its leader stores them. `iterate_records` decodes them."""

    topic_partition: TopicPartition
    records: bytes | memoryview
    """Batches, possibly compressed, including control batches. The first may start below `fetch_offset`."""
    fetch_offset: int
    """The requested offset. Records below it must be skipped."""
    next_offset: int
    """Offset of the next fetch; `fetch_offset` if `records` is empty."""
    high_watermark: int
    """Offset after the last replicated record."""
    last_stable_offset: int = NO_OFFSET
    """Offset of the first record of an open transaction, else the high watermark; -1 if unknown."""
    log_start_offset: int = NO_OFFSET
    """The first offset of the partition; -1 if unknown."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """With `read_committed`, the aborted transactions in this range. Their records must be skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int = -1
    """Number of partitions; -1 for the broker's `num.partitions`."""
    replication_factor: int = -1
    """Number of replicas of each partition; -1 for the broker's `default.replication.factor`."""
    configs: tuple[tuple[str, str], ...] = ()
    """Properties of the topic, such as `("retention.ms", "86400000")`."""
    assignments: tuple[tuple[int, ...], ...] = ()
    """Broker ids of the replicas of the partitions 0, 1, and so on. Empty: the controller chooses the brokers.
    Otherwise `partitions` and `replication_factor` must be -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A live broker with its address for this client."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition with its leader and replicas, all given as broker ids."""

    partition: int
    leader: int
    """-1 while there is no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    """The preferred leader comes first."""
    isr: tuple[int, ...]
    """The in-sync replicas."""
    offline_replicas: tuple[int, ...] = ()
    """Replicas on brokers or log directories that are offline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with its partitions in order."""

    name: str
    topic_id: UUID = ZERO_UUID
    internal: bool = False
    partitions: tuple[PartitionDescription, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """A cluster with its live brokers."""

    cluster_id: str | None
    controller_id: int
    """Broker id of the controller; -1 while there is none."""
    brokers: tuple[BrokerDescription, ...]


class ConfigResource(NamedTuple):
    """A topic or broker whose configuration can be described or changed. Create it with `topic` or `broker`."""

    resource_type: int
    """2: topic, 4: broker, 8: the loggers of a broker."""
    name: str
    """Name of the topic or id of the broker; empty for the defaults of all brokers."""

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Return the resource of a topic."""
        return cls(2, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """Return the resource of a broker, or by default that of the dynamic defaults of all brokers."""
        return cls(4, "" if broker_id is None else str(broker_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A property of a resource with its value."""

    name: str
    value: str | None
    """None if the property is sensitive or has no value."""
    source: int
    """1: topic, 2: dynamic, of this broker, 3: dynamic default of all brokers, 4: the broker's file, 5: default."""
    read_only: bool = False
    """Whether a change takes a restart of the broker."""
    sensitive: bool = False
    config_type: int = 0
    """1: boolean, 2: string, 3: int, 4: short, 5: long, 6: double, 7: list, 8: class, 9: password, 0: unknown."""
    documentation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A change of one property (KIP-339)."""

    name: str
    value: str | None
    operation: int = 0
    """0: set, 1: delete, so that the default applies, 2: append to a list, 3: remove from a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in the result of `list_groups`."""

    group_id: str
    protocol_type: str
    """`consumer` for groups of consumers; empty without members that joined."""
    state: str = ""
    """As in `GroupDescription`; empty if the broker is too old to return it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    """Id of a static member; None for a dynamic one."""
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...] = ()
    """The partitions that the member reads; empty if the group is not one of consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its members."""

    group_id: str
    state: str
    """Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."""
    protocol_type: str
    protocol: str
    """Name of the assignor, such as `range`; empty unless the group is stable."""
    coordinator: int
    """Broker id of the coordinator."""
    members: tuple[MemberDescription, ...] = ()


class ListedOffset(NamedTuple):
    """An offset that was looked up by time or by name."""

    offset: int
    """-1 if there is no such record."""
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970 UTC of the record; -1 for `earliest` and `latest`."""
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the record; -1 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """The size of a replica in a log directory."""

    size_bytes: int
    offset_lag: int = 0
    """How many offsets the replica is behind the high watermark, or a future replica behind the current one."""
    future: bool = False
    """Whether this is a copy that replaces the replica in another log directory when it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A log directory of a broker."""

    path: str
    error_code: int = 0
    """0 if it is online, else Kafka's error code, such as 56 for a disk error."""
    replicas: dict[TopicPartition, ReplicaSize] = field(default_factory=dict)
    total_bytes: int = -1
    """Size of the file system; -1 if unknown."""
    usable_bytes: int = -1
    """Free space of the file system; -1 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenDescription:
    """A delegation token (KIP-48) with its secret. Principals are texts, such as `User:alice`."""

    token_id: str
    """What a client with the token has as its user name."""
    hmac: bytes = field(repr=False)
    """The secret. A client has it, in base64, as its password."""
    owner: str
    """As whom clients log in with the token."""
    requester: str
    """Who created it."""
    renewers: tuple[str, ...] = ()
    """Who may renew it, besides the owner."""
    issue_timestamp: int
    expiry_timestamp: int
    """When it expires unless it is renewed."""
    max_timestamp: int
    """After this time, it cannot be renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """A transactional id in the result of `list_transactions`."""

    transactional_id: str
    state: str
    """As in `TransactionDescription`."""
    producer_id: int
    coordinator: int
    """Broker id of the coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id with its current or last transaction."""

    transactional_id: str
    state: str
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or PrepareEpochFence."""
    coordinator: int
    """Broker id of the coordinator."""
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    """Time after which the coordinator aborts the transaction."""
    start_timestamp: int = NO_TIMESTAMP
    """When the transaction began, in milliseconds since 1970 UTC; -1 without a transaction."""
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions in the transaction; while it ends, only those without a marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDescription:
    """An idempotent or transactional producer, as the leader of a partition knows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """Sequence number of its last record; -1 if that was a marker."""
    last_timestamp: int
    """Timestamp of its last batch, in milliseconds since 1970 UTC."""
    coordinator_epoch: int
    """Epoch of the coordinator that wrote its last marker; -1 without one."""
    transaction_start_offset: int = NO_OFFSET
    """First offset of its open transaction in the partition; -1 without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """A transaction that is open in a partition although its coordinator will not end it (KIP-664)."""

    topic_partition: TopicPartition
    producer: ProducerDescription
    transactional_id: str | None = None
    """The transactional id that has the producer id; None if no coordinator knows one."""
