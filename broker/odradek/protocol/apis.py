"""The API table: which requests this broker supports, in which versions, and the form of their headers.

The codec, the network and the server's dispatch look up header versions, message classes and whether requests may be
pipelined. Invariant: a version in the table has the behaviour of that version, because clients rely on the versions
that a broker announces (KIP-35). The ranges are those of Apache Kafka 3.9 in ZooKeeper mode, and for consumer groups
(KIP-848) and transaction version 2 (KIP-890) those of Apache Kafka 4.1; `docs/migrating-from-kafka.md` lists the
differences, with reasons. Private APIs are ours. Message classes are imported on first use, for a quick start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from odradek.base.errors import UnsupportedVersionError
from odradek.protocol.keys import ApiKey
from odradek.protocol.messages import MODULE_OF

__all__ = ["API_TABLE", "NEVER_FLEXIBLE", "Api", "ApiKey", "api", "knows_private_apis"]

_OWN_SOFTWARE: Final = "odradek"
"""Beginning of the software names of the clients that know the private APIs."""

NEVER_FLEXIBLE: Final = 32767
"""`flexible_since` of an API without flexible versions (KIP-482)."""


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the table.

    `internal` marks cluster actions: only brokers and the controller send them. `pipelined` allows several requests of
    one connection to be handled before the first is answered; all others are handled one at a time, as Kafka does.
    `private` marks APIs that Kafka does not have: for all clients but those of this project they do not exist.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    flexible_since: int = NEVER_FLEXIBLE
    internal: bool = False
    pipelined: bool = False
    private: bool = False

    def serves(self, version: int) -> bool:
        """Whether this broker supports the version."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields (KIP-482)."""
        return version >= self.flexible_since

    def request_header_version(self, version: int) -> int:
        """0 has no client id (ControlledShutdown 0 only), 1 has one, 2 has tagged fields as well."""
        if self.key is ApiKey.CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        """0 has the correlation id only, 1 has tagged fields as well.

        ApiVersions always has 0: a client reads its response before it knows the broker's versions (KIP-511).
        """
        return 1 if version >= self.flexible_since and self.key is not ApiKey.API_VERSIONS else 0

    @property
    def request_type(self) -> type[Any]:
        """The class of its requests."""
        return _message_type(self.name, "Request")

    @property
    def response_type(self) -> type[Any]:
        """The class of its responses."""
        return _message_type(self.name, "Response")

    @property
    def is_exempt_from_quotas(self) -> bool:
        """Whether senders are never throttled, as in Kafka: what they send is the work of the cluster.

        WriteTxnMarkers is not internal, because administrators abort hanging transactions with it (KIP-664).
        """
        return self.internal or self.key is ApiKey.WRITE_TXN_MARKERS

    def check(self, version: int) -> None:
        """Raise `UnsupportedVersionError` if the version is not supported."""
        if not self.serves(version):
            raise UnsupportedVersionError(
                f"{self.name} version {version} is not supported, only {self.min_version} to {self.max_version}"
            )


def _table(*rows: Api) -> Mapping[ApiKey, Api]:
    return MappingProxyType({row.key: row for row in rows})


API_TABLE: Final[Mapping[ApiKey, Api]] = _table(
    Api(ApiKey.PRODUCE, "Produce", 0, 12, 9, pipelined=True),
    Api(ApiKey.FETCH, "Fetch", 0, 17, 12),
    Api(ApiKey.LIST_OFFSETS, "ListOffsets", 0, 9, 6),
    Api(ApiKey.METADATA, "Metadata", 0, 12, 9),
    Api(ApiKey.LEADER_AND_ISR, "LeaderAndIsr", 0, 7, 4, internal=True),
    Api(ApiKey.STOP_REPLICA, "StopReplica", 0, 4, 2, internal=True),
    Api(ApiKey.UPDATE_METADATA, "UpdateMetadata", 0, 8, 6, internal=True),
    Api(ApiKey.CONTROLLED_SHUTDOWN, "ControlledShutdown", 0, 3, 3, internal=True),
    Api(ApiKey.OFFSET_COMMIT, "OffsetCommit", 0, 9, 8),
    Api(ApiKey.OFFSET_FETCH, "OffsetFetch", 0, 9, 6),
    Api(ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 3),
    Api(ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 6),
    Api(ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 4),
    Api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
    Api(ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 4),
    Api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 5, 5),
    Api(ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 3),
    Api(ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1),
    Api(ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 3),
    Api(ApiKey.CREATE_TOPICS, "CreateTopics", 0, 7, 5),
    Api(ApiKey.DELETE_TOPICS, "DeleteTopics", 0, 6, 4),
    Api(ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
    Api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 5, 2),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 0, 4, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 3),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3),
    Api(ApiKey.END_TXN, "EndTxn", 0, 5, 3),
    Api(ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 0, 1, 1),
    Api(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 3),
    Api(ApiKey.DESCRIBE_ACLS, "DescribeAcls", 0, 3, 2),
    Api(ApiKey.CREATE_ACLS, "CreateAcls", 0, 3, 2),
    Api(ApiKey.DELETE_ACLS, "DeleteAcls", 0, 3, 2),
    Api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 0, 4, 4),
    Api(ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 0, 2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 0, 4, 2),
    Api(ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
    Api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 0, 3, 2),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 0, 2, 2),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 0, 2, 2),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 0, 3, 2),
    Api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
    Api(ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 0, 0),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
    Api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
    Api(ApiKey.ALTER_PARTITION, "AlterPartition", 0, 3, 0, internal=True),
    Api(ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 1, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 1, 0),
    Api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 1, 0),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", 0, 0, 0, internal=True),
    Api(ApiKey.PREPARE_TXN, "PrepareTxn", 0, 0, 0, private=True),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
)
"""The supported APIs by key, in the order of Kafka's own response as far as that is ordered. Private ones are last."""


def knows_private_apis(software_name: str) -> bool:
    """Whether a client with this name in ApiVersions (KIP-511) gets the private APIs: a client of this project."""
    return software_name.startswith(_OWN_SOFTWARE)


def api(key: int) -> Api:
    """Return the row of an API key. Raises `UnsupportedVersionError` if the key is unknown or not supported."""
    row = API_TABLE.get(key)  # type: ignore[call-overload]  # an int finds its IntEnum
    if row is None:
        raise UnsupportedVersionError(f"API key {key} is not supported")
    found: Api = row
    return found


@cache
def _message_type(name: str, direction: str) -> type[Any]:
    """Import and return one message class."""
    found: type[Any] = getattr(import_module(f"odradek.protocol.messages.{MODULE_OF[name]}"), name + direction)
    return found
