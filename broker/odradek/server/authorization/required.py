"""The rights that each API requires, as in Kafka 3.9 with ZooKeeper. docs/security.md shows this table to users.

Produce, Fetch, Metadata and DescribeCluster check their rights in their handlers, since they serve, or show, a part of
what they are asked for. All other APIs have a guard in front of their handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.fetch import (
    DeleteRecordsRequest,
    DeleteRecordsRequestTopic,
    ListOffsetsRequest,
    ListOffsetsRequestTopic,
)
from odradek.protocol.messages.groups import DeleteGroupsRequest
from odradek.protocol.messages.produce import DescribeProducersRequest, DescribeProducersRequestTopicRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsRequestTopic
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.security.acls.nodes import kafka_name
from odradek.server.authorization import item_guards, token_guards, transaction_guards
from odradek.server.authorization.guards import Guard, Items, on_cluster, on_each, on_one, unguarded


@dataclass(frozen=True, slots=True)
class ApiRights:
    """What a client must be allowed to do."""

    guard: Guard
    rights: tuple[tuple[AclOperation, ResourceType], ...] = ()
    note: str = ""
    """What the rights alone do not tell."""

    @property
    def text(self) -> str:
        """The rights in words, for the table of the guide."""
        rights = [f"{kafka_name(operation)} on {_NAMES[kind]}" for operation, kind in self.rights]
        return "; ".join(filter(None, [", ".join(rights), self.note])) or "none"


_NAMES: Final = {
    ResourceType.TOPIC: "the topic",
    ResourceType.GROUP: "the group",
    ResourceType.CLUSTER: "the cluster",
    ResourceType.TRANSACTIONAL_ID: "the transactional id",
    ResourceType.DELEGATION_TOKEN: "the token",
    ResourceType.USER: "the owner",
}


def _cluster(operation: AclOperation) -> ApiRights:
    return ApiRights(on_cluster(operation), ((operation, ResourceType.CLUSTER),))


def _member() -> ApiRights:
    """A member of a group."""
    guard = on_one(AclOperation.READ, ResourceType.GROUP, lambda request: request.group_id)
    return ApiRights(guard, ((AclOperation.READ, ResourceType.GROUP),))


def _each(operation: AclOperation, kind: ResourceType, items: Items[Any, Any]) -> ApiRights:
    return ApiRights(on_each(operation, kind, items), ((operation, kind),))


_LISTED: Final[Items[ListOffsetsRequest, ListOffsetsRequestTopic]] = Items(
    of=lambda request: request.topics,
    name=lambda topic: topic.name,
    keep=lambda request, topics: replace(request, topics=topics),
    answers="topics",
)
_TRIMMED: Final[Items[DeleteRecordsRequest, DeleteRecordsRequestTopic]] = Items(
    of=lambda request: request.topics,
    name=lambda topic: topic.name,
    keep=lambda request, topics: replace(request, topics=topics),
    answers="topics",
)
_EXTENDED: Final[Items[CreatePartitionsRequest, CreatePartitionsRequestTopic]] = Items(
    of=lambda request: request.topics,
    name=lambda topic: topic.name,
    keep=lambda request, topics: replace(request, topics=topics),
    answers="results",
)
_PRODUCERS: Final[Items[DescribeProducersRequest, DescribeProducersRequestTopicRequest]] = Items(
    of=lambda request: request.topics,
    name=lambda topic: topic.name,
    keep=lambda request, topics: replace(request, topics=topics),
    answers="topics",
)
_DELETED_GROUPS: Final[Items[DeleteGroupsRequest, str]] = Items(
    of=lambda request: request.groups_names,
    name=lambda group: group,
    keep=lambda request, groups: replace(request, groups_names=groups),
    answers="results",
)

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTION: Final = ResourceType.TRANSACTIONAL_ID
_ONLY_BROKERS: Final = _cluster(AclOperation.CLUSTER_ACTION)
_NOTHING: Final = ApiRights(unguarded)
_OF_RENEWERS: Final = ApiRights(unguarded, note="only the owner and the renewers of the token")

REQUIRED: Final[Mapping[ApiKey, ApiRights]] = {
    ApiKey.PRODUCE: ApiRights(unguarded, ((AclOperation.WRITE, _TOPIC),)),
    ApiKey.FETCH: ApiRights(
        unguarded, ((AclOperation.READ, _TOPIC),), "a follower: ClusterAction on the cluster instead"
    ),
    ApiKey.LIST_OFFSETS: _each(AclOperation.DESCRIBE, _TOPIC, _LISTED),
    ApiKey.METADATA: ApiRights(
        unguarded,
        ((AclOperation.DESCRIBE, _TOPIC),),
        "a topic that it creates: Create on the cluster or the topic",
    ),
    ApiKey.LEADER_AND_ISR: _ONLY_BROKERS,
    ApiKey.STOP_REPLICA: _ONLY_BROKERS,
    ApiKey.UPDATE_METADATA: _ONLY_BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: _ONLY_BROKERS,
    ApiKey.OFFSET_COMMIT: ApiRights(
        item_guards.offset_commit, ((AclOperation.READ, _GROUP), (AclOperation.READ, _TOPIC))
    ),
    ApiKey.OFFSET_FETCH: ApiRights(
        item_guards.offset_fetch, ((AclOperation.DESCRIBE, _GROUP), (AclOperation.DESCRIBE, _TOPIC))
    ),
    ApiKey.FIND_COORDINATOR: ApiRights(
        item_guards.find_coordinator,
        ((AclOperation.DESCRIBE, _GROUP), (AclOperation.DESCRIBE, _TRANSACTION)),
        "one of them, by the type of the key",
    ),
    ApiKey.JOIN_GROUP: _member(),
    ApiKey.HEARTBEAT: ApiRights(unguarded, ((AclOperation.READ, _GROUP),)),
    ApiKey.LEAVE_GROUP: _member(),
    ApiKey.SYNC_GROUP: _member(),
    ApiKey.DESCRIBE_GROUPS: ApiRights(item_guards.describe_groups, ((AclOperation.DESCRIBE, _GROUP),)),
    ApiKey.LIST_GROUPS: ApiRights(
        item_guards.list_groups,
        note="lists the groups with Describe; all with Describe on the cluster",
    ),
    ApiKey.SASL_HANDSHAKE: _NOTHING,
    ApiKey.API_VERSIONS: _NOTHING,
    ApiKey.CREATE_TOPICS: ApiRights(
        item_guards.create_topics,
        ((AclOperation.CREATE, _CLUSTER),),
        "or Create on the topic; DescribeConfigs on the topic to get its settings",
    ),
    ApiKey.DELETE_TOPICS: ApiRights(item_guards.delete_topics, ((AclOperation.DELETE, _TOPIC),)),
    ApiKey.DELETE_RECORDS: _each(AclOperation.DELETE, _TOPIC, _TRIMMED),
    ApiKey.INIT_PRODUCER_ID: ApiRights(
        item_guards.init_producer_id,
        ((AclOperation.WRITE, _TRANSACTION),),
        "without a transactional id: IdempotentWrite on the cluster or Write on any topic",
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiRights(
        item_guards.leader_epochs, ((AclOperation.DESCRIBE, _TOPIC),), "or ClusterAction on the cluster"
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiRights(
        transaction_guards.add_partitions,
        ((AclOperation.WRITE, _TRANSACTION), (AclOperation.WRITE, _TOPIC)),
        "a broker: ClusterAction on the cluster instead",
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiRights(
        transaction_guards.add_offsets, ((AclOperation.WRITE, _TRANSACTION), (AclOperation.READ, _GROUP))
    ),
    ApiKey.END_TXN: ApiRights(
        on_one(AclOperation.WRITE, _TRANSACTION, lambda request: request.transactional_id),
        ((AclOperation.WRITE, _TRANSACTION),),
    ),
    ApiKey.WRITE_TXN_MARKERS: ApiRights(
        transaction_guards.write_markers, ((AclOperation.ALTER, _CLUSTER),), "or ClusterAction on the cluster"
    ),
    ApiKey.TXN_OFFSET_COMMIT: ApiRights(
        transaction_guards.offset_commit,
        ((AclOperation.WRITE, _TRANSACTION), (AclOperation.READ, _GROUP), (AclOperation.READ, _TOPIC)),
    ),
    ApiKey.DESCRIBE_ACLS: _cluster(AclOperation.DESCRIBE),
    ApiKey.CREATE_ACLS: _cluster(AclOperation.ALTER),
    ApiKey.DELETE_ACLS: _cluster(AclOperation.ALTER),
    ApiKey.DESCRIBE_CONFIGS: ApiRights(
        item_guards.describe_configs,
        ((AclOperation.DESCRIBE_CONFIGS, _TOPIC),),
        "other resources: DescribeConfigs on the cluster",
    ),
    ApiKey.ALTER_CONFIGS: ApiRights(
        item_guards.alter_configs,
        ((AclOperation.ALTER_CONFIGS, _TOPIC),),
        "other resources: AlterConfigs on the cluster",
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(AclOperation.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(AclOperation.DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: _NOTHING,
    ApiKey.CREATE_PARTITIONS: _each(AclOperation.ALTER, _TOPIC, _EXTENDED),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiRights(
        token_guards.create_token,
        ((AclOperation.CREATE_TOKENS, ResourceType.USER),),
        "for the client itself: none",
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: _OF_RENEWERS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _OF_RENEWERS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiRights(
        token_guards.describe_tokens,
        note="shows the client's own tokens; others with Describe on the token or DescribeTokens on the owner",
    ),
    ApiKey.DELETE_GROUPS: _each(AclOperation.DELETE, _GROUP, _DELETED_GROUPS),
    ApiKey.ELECT_LEADERS: _cluster(AclOperation.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiRights(
        item_guards.incremental_alter_configs,
        ((AclOperation.ALTER_CONFIGS, _TOPIC),),
        "other resources: AlterConfigs on the cluster",
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(AclOperation.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(AclOperation.DESCRIBE),
    ApiKey.OFFSET_DELETE: ApiRights(
        item_guards.offset_delete, ((AclOperation.DELETE, _GROUP), (AclOperation.READ, _TOPIC))
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(AclOperation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(AclOperation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(AclOperation.ALTER),
    ApiKey.ALTER_PARTITION: _ONLY_BROKERS,
    ApiKey.UPDATE_FEATURES: _cluster(AclOperation.ALTER),
    ApiKey.DESCRIBE_CLUSTER: ApiRights(unguarded, note="the authorized operations: Describe on the cluster"),
    ApiKey.DESCRIBE_PRODUCERS: _each(AclOperation.READ, _TOPIC, _PRODUCERS),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiRights(
        transaction_guards.describe_transactions,
        ((AclOperation.DESCRIBE, _TRANSACTION),),
        "shows the topics with Describe",
    ),
    ApiKey.LIST_TRANSACTIONS: ApiRights(
        transaction_guards.list_transactions, note="lists the transactional ids with Describe"
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: _ONLY_BROKERS,
    ApiKey.PREPARE_TXN: ApiRights(
        on_one(AclOperation.WRITE, _TRANSACTION, lambda request: request.transactional_id),
        ((AclOperation.WRITE, _TRANSACTION),),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiRights(
        item_guards.consumer_group_heartbeat,
        ((AclOperation.READ, _GROUP), (AclOperation.DESCRIBE, _TOPIC)),
        "a regular expression matches the topics with Describe",
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiRights(
        item_guards.consumer_group_describe, ((AclOperation.DESCRIBE, _GROUP), (AclOperation.DESCRIBE, _TOPIC))
    ),
}

GUARDS: Final[Mapping[ApiKey, Guard]] = {key: required.guard for key, required in REQUIRED.items()}
