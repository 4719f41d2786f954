"""The API table: which requests this broker serves, in which versions, and how their headers look.

Enters: an API key and a version, from a frame or from code. Leaves: the entry that tells header versions, entity types
and how the network may schedule the request. Called by the codec, the network and the server's dispatch.
Invariant: a version in the table is served with the behaviour of that version, because a client believes what it is
told (KIP-35). Ranges are those of Apache Kafka 3.9 in ZooKeeper mode; `docs/migrating-from-kafka.md` lists the requests
that are not served, with reasons. Entity types load on first use: importing every version of every API at start would
cost most of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from odradek.base.errors import UnsupportedVersionError


class ApiKey(IntEnum):
    """Every API key of Apache Kafka 3.9 in ZooKeeper mode; https://kafka.apache.org/protocol#protocol_api_keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


NEVER_FLEXIBLE: Final = 32767
"""`flexible_since` of an API that has no flexible version (KIP-482)."""


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the table.

    `internal` marks cluster actions: only brokers and the controller send them. `pipelined` allows several requests of
    one connection to be handled before the first is answered; all others are handled one at a time, as Kafka does.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    flexible_since: int = NEVER_FLEXIBLE
    internal: bool = False
    pipelined: bool = False

    def serves(self, version: int) -> bool:
        """Whether this broker handles the version."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields (KIP-482)."""
        return version >= self.flexible_since

    def request_header_version(self, version: int) -> int:
        """0 without a client id (ControlledShutdown 0 only), 1 with one, 2 with tagged fields too."""
        if self.key is ApiKey.CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        """0 for the correlation id alone, 1 with tagged fields.

        ApiVersions always has 0: a client reads its response before it knows what the broker speaks (KIP-511).
        """
        return 1 if version >= self.flexible_since and self.key is not ApiKey.API_VERSIONS else 0

    def request_type(self, version: int) -> type[Any]:
        """The entity type of a request; `UnsupportedVersionError` when the version is not served."""
        return _entity_type(self._checked(version), version, "request")

    def response_type(self, version: int) -> type[Any]:
        """The entity type of a response; `UnsupportedVersionError` when the version is not served."""
        return _entity_type(self._checked(version), version, "response")

    def _checked(self, version: int) -> ApiKey:
        if not self.serves(version):
            raise UnsupportedVersionError(
                f"{self.name} version {version} is not served, only {self.min_version} to {self.max_version}"
            )
        return self.key


def _table(*rows: Api) -> Mapping[ApiKey, Api]:
    return MappingProxyType({row.key: row for row in rows})


API_TABLE: Final[Mapping[ApiKey, Api]] = _table(
    Api(ApiKey.PRODUCE, "Produce", 0, 11, 9, pipelined=True),
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
    Api(ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 3),
    Api(ApiKey.CREATE_TOPICS, "CreateTopics", 0, 7, 5),
    Api(ApiKey.DELETE_TOPICS, "DeleteTopics", 0, 6, 4),
    Api(ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
    Api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 5, 2),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 0, 4, 4),
    Api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 0, 4, 4),
    Api(ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 0, 2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 0, 4, 2),
    Api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
    Api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
    Api(ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 0, 0),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
    Api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0),
    Api(ApiKey.ALTER_PARTITION, "AlterPartition", 0, 3, 0, internal=True),
    Api(ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 1, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 1, 0),
    Api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", 0, 0, 0, internal=True),
)
"""What this broker serves, by API key, in the order of the keys as far as Kafka's own answer has it."""

_KIO_SINCE: Final[Mapping[ApiKey, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: 3,
        ApiKey.FETCH: 4,
        ApiKey.LIST_OFFSETS: 1,
        ApiKey.OFFSET_COMMIT: 2,
        ApiKey.OFFSET_FETCH: 1,
        ApiKey.CREATE_TOPICS: 2,
        ApiKey.DELETE_TOPICS: 1,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
        ApiKey.DESCRIBE_CONFIGS: 1,
        ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
        ApiKey.DESCRIBE_LOG_DIRS: 1,
        ApiKey.ALTER_PARTITION: 2,
    }
)
"""First version that kio has, where Kafka has older ones; those are `legacy`'s (KIP-896 removed them from Kafka 4)."""

_INTERBROKER: Final = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
)


def api(key: int) -> Api:
    """The row of a raw API key; `UnsupportedVersionError` for a key that is unknown or not served."""
    row = API_TABLE.get(key)  # type: ignore[call-overload]  # an int finds its IntEnum
    if row is None:
        raise UnsupportedVersionError(f"API key {key} is not served")
    found: Api = row
    return found


@lru_cache(maxsize=1024)
def _entity_type(key: ApiKey, version: int, direction: str) -> type[Any]:
    """Import and return one entity type; what Kafka 4 dropped comes from `interbroker` and `legacy`."""
    if key in _INTERBROKER or version < _KIO_SINCE.get(key, 0):
        own = import_module(f"odradek.protocol.{'interbroker' if key in _INTERBROKER else 'legacy'}")
        made: type[Any] = own.entity_type(key, version, direction)
        return made
    module = import_module(f"kio.schema.{key.name.lower()}.v{version}.{direction}")
    found: type[Any] = getattr(module, API_TABLE[key].name + direction.capitalize())
    return found
