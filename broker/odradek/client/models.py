"""Arguments and results of the clients. All are immutable. Timestamps are milliseconds since 1970 UTC."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from odradek.base.errors import ConfigError
from odradek.base.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, TopicPartition
from odradek.client.admin_kinds import (
    ConfigOperation,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    ConsumerGroupState,
    TransactionalIdState,
)
from odradek.records.v2.batch import TimestampType

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers of a record: name and value. A name may occur several times."""
HeadersToSend = Sequence[tuple[str, bytes | None]]
"""Headers of a record to send, in a list or tuple."""
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
    """A record that a consumer returned. Key and value are bytes, or what the deserializers returned; None if the
    record has none.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970 UTC; -1 if the record has none."""
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: Headers = ()


class OffsetAndMetadata(NamedTuple):
    """A committed offset."""

    offset: int
    """Offset of the next record to read."""
    metadata: str = ""
    """Text of the application."""
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the last record that was read; -1 if unknown."""


class SubscriptionPattern(NamedTuple):
    """A regular expression that brokers resolve, for `Consumer.subscribe` with `group.protocol=consumer` (KIP-848).

    Its syntax is that of RE2. A topic whose whole name matches it is read, also if it is created later.
    """

    pattern: str


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
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the last batch; -1 if unknown."""
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
    """What has a configuration. Create it with `topic`, `broker` or `broker_logger`."""

    resource_type: ConfigResourceType
    name: str
    """Name of the topic or id of the broker; empty for the defaults of all brokers."""

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Return the resource of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """Return the resource of a broker, or by default that of the dynamic defaults of all brokers."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def broker_logger(cls, broker_id: int) -> ConfigResource:
        """Return the resource of the levels of a broker's loggers (KIP-412)."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(broker_id))


class ConfigSynonym(NamedTuple):
    """A value that a property has, or would have without those of the synonyms before it (KIP-226)."""

    name: str
    """The property that has this value, such as `log.retention.hours` for `log.retention.ms`."""
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A property of a resource with its value."""

    name: str
    value: str | None
    """None if the property is sensitive or has no value."""
    source: ConfigSource
    read_only: bool = False
    """Whether a change takes a restart of the broker."""
    sensitive: bool = False
    config_type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()
    """All values in the order of their precedence, the effective one first; empty unless requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A change of one property (KIP-339)."""

    name: str
    value: str | None
    operation: int = ConfigOperation.SET
    """A `ConfigOperation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in the result of `list_groups`."""

    group_id: str
    protocol_type: str
    """`consumer` for groups of consumers; empty without members that joined."""
    state: ConsumerGroupState = ConsumerGroupState.UNKNOWN
    group_type: str = ""
    """`classic` or `consumer` (KIP-848); empty if the broker is too old to return it (Kafka 3.8)."""


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
    state: ConsumerGroupState
    protocol_type: str
    protocol: str
    """Name of the assignor, such as `range`; empty unless the group is stable."""
    coordinator: int
    """Broker id of the coordinator."""
    members: tuple[MemberDescription, ...] = ()
    group_type: str = "classic"
    """`classic` or `consumer` (KIP-848). `describe_consumer_groups` has more about a group of the type `consumer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """A member of a group of the type `consumer` (KIP-848)."""

    member_id: str
    group_instance_id: str | None
    """Id of a static member; None for a dynamic one."""
    rack_id: str | None
    client_id: str
    client_host: str
    member_epoch: int
    """Group epoch whose target the member has reached, as far as other members had revoked its partitions."""
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    """Regular expression of the subscription; None without one."""
    assignment: tuple[TopicPartition, ...] = ()
    """The partitions that the member reads, or is still revoking."""
    target_assignment: tuple[TopicPartition, ...] = ()
    """The partitions that the member is to read."""
    is_classic: bool | None = None
    """Whether the member uses the classic protocol, during an upgrade of the group; None if the broker is too old to
    return it (Kafka 4.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """A group of the type `consumer` with its members (KIP-848)."""

    group_id: str
    state: ConsumerGroupState
    group_epoch: int
    """Grows with every change of members, subscriptions or topics."""
    assignment_epoch: int
    """Group epoch of the target assignment."""
    assignor: str
    """Name of the coordinator's assignor, such as `uniform`."""
    coordinator: int
    """Broker id of the coordinator."""
    members: tuple[ConsumerGroupMember, ...] = ()


class GroupLag(NamedTuple):
    """How far a group is behind in one partition."""

    committed: OffsetAndMetadata | None
    """The committed offset; None if there is none."""
    end_offset: int | None
    """The high watermark, also for groups that read with `read_committed`, as in Kafka's tools; None if the partition
    does not exist or has no leader."""
    time_ms: int | None = None
    """The age of the first record that the group has not read, by its timestamp, in milliseconds; never negative. 0 if
    there is no such record; None if the age is unknown."""

    @property
    def records(self) -> int | None:
        """Number of offsets from the committed one to the end, including those of transaction markers; never negative.
        None if one of the two is unknown.
        """
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed.offset)


class ListedOffset(NamedTuple):
    """An offset that was looked up by time or by name."""

    offset: int
    """-1 if there is no such record."""
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970 UTC of the record; -1 for `earliest` and `latest`."""
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the record; -1 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """A reassignment in progress (KIP-455)."""

    replicas: tuple[int, ...]
    """All replicas for the time being: the old and the new ones."""
    adding: tuple[int, ...]
    """Replicas that are not in sync yet, or were not before."""
    removing: tuple[int, ...]
    """Replicas that are removed at the end."""


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
    state: TransactionalIdState
    producer_id: int
    coordinator: int
    """Broker id of the coordinator."""


_PREPARED_TIMEOUT_MS: Final = 2**31 - 1
"""Timeout by which a coordinator shows that an open transaction is prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """What is needed to commit or abort a prepared transaction, from any client (after KIP-939).

    A producer returns it, `Admin.commit_prepared` and `Admin.abort_prepared` take it. It stands for one transaction and
    never for a later one.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    """Epoch of the producer id."""

    def to_json(self) -> str:
        """Return the value as a short JSON object, to be stored until the decision."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the value that `to_json` has written. Raises `ConfigError` for any other text."""
        try:
            found = json.loads(text)
            kinds = {name: type(value) for name, value in found.items()}
        except (ValueError, AttributeError) as error:
            raise ConfigError(f"{text!r} is not a prepared transaction") from error
        if kinds != {"transactional_id": str, "producer_id": int, "epoch": int}:
            raise ConfigError(f"{text!r} is not a prepared transaction")
        return cls(**found)

    def __str__(self) -> str:
        """For messages."""
        return f"the transaction of {self.transactional_id} (producer id {self.producer_id}, epoch {self.epoch})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id with its current or last transaction."""

    transactional_id: str
    state: TransactionalIdState
    coordinator: int
    """Broker id of the coordinator."""
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    """Time after which the coordinator aborts the transaction, unless it is prepared."""
    start_timestamp: int = NO_TIMESTAMP
    """When the transaction began, in milliseconds since 1970 UTC; -1 without a transaction."""
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions in the transaction; while it ends, only those without a marker."""

    @property
    def prepared(self) -> PreparedTransaction | None:
        """How to end the transaction if it is prepared, else None.

        A coordinator reports it as Ongoing, with the largest possible timeout, to all clients.
        """
        if self.state != TransactionalIdState.ONGOING or self.timeout_ms != _PREPARED_TIMEOUT_MS:
            return None
        return PreparedTransaction(
            transactional_id=self.transactional_id, producer_id=self.producer_id, epoch=self.producer_epoch
        )


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
