"""Guards of the APIs whose requests name several kinds of resources, or whose answers must be filtered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar, cast
from uuid import UUID

from odradek.base.errors import (
    NONE,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)
from odradek.base.types import NO_EPOCH, NO_OFFSET
from odradek.protocol.codec import Message
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.fetch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochRequestOffsetForLeaderTopic
from odradek.protocol.messages.groups import DescribeGroupsRequest, FindCoordinatorRequest, ListGroupsRequest
from odradek.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.produce import InitProducerIdRequest
from odradek.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    DeleteTopicsRequest,
    DeleteTopicsRequestDeleteTopicState,
)
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.server.authorization.guards import Access, Items, Proceed, joined, refusal, rows_of

TOPIC_CONFIG: Final = 2
"""Type of a topic in requests about configurations. All other types are about the cluster."""

SEVERAL_KEYS_SINCE: Final = 4
"""First FindCoordinator version with several keys (KIP-699)."""
SEVERAL_GROUPS_SINCE: Final = 8
"""First OffsetFetch version with several groups (KIP-709)."""
COORDINATOR_KINDS: Final = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
"""Types of the keys of FindCoordinator."""

_NO_TOPIC: Final = refusal(AclOperation.DESCRIBE, ResourceType.TOPIC)
_NO_GROUP: Final = refusal(AclOperation.DESCRIBE, ResourceType.GROUP)

# Topics


CREATED: Final[Items[CreateTopicsRequest, CreateTopicsRequestCreatableTopic]] = Items(
    of=lambda request: request.topics,
    name=lambda topic: topic.name,
    keep=lambda request, topics: replace(request, topics=topics),
    answers="topics",
)


async def create_topics(access: Access, request: CreateTopicsRequest, proceed: Proceed[CreateTopicsRequest]) -> Message:
    """Require Create on the cluster or on each topic. The settings of a new topic need DescribeConfigs on it."""
    denied: frozenset[str] = frozenset()
    if not access.allows_cluster(AclOperation.CREATE, is_logged=False):
        names = dict.fromkeys(topic.name for topic in request.topics)
        denied = access.denied(AclOperation.CREATE, ResourceType.TOPIC, names)
    error = refusal(AclOperation.CREATE, ResourceType.TOPIC)
    answer = await CREATED.serve(access, request, proceed, denied, error)
    rows = rows_of(answer, "topics")
    made = [str(row["name"]) for row in rows if row["error_code"] == NONE]
    hidden = access.denied(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, made, is_logged=False)
    without: Message = {
        "topic_config_error_code": TopicAuthorizationFailedError.code,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": (),
    }
    return {**answer, "topics": [{**row, **without} if row["name"] in hidden else row for row in rows]}


async def delete_topics(access: Access, request: DeleteTopicsRequest, proceed: Proceed[DeleteTopicsRequest]) -> Message:
    """Require Delete on each topic. The answer names a topic that is given by its id only with Describe."""
    names = {topic.topic_id: access.image.topic_name(topic.topic_id) for topic in request.topics if topic.name is None}

    def name_of(topic: DeleteTopicsRequestDeleteTopicState) -> str | None:
        return topic.name if topic.name is not None else names[topic.topic_id]

    asked = dict.fromkeys([*filter(None, map(name_of, request.topics)), *request.topic_names])
    denied = access.denied(AclOperation.DELETE, ResourceType.TOPIC, asked)
    if not denied:
        return await proceed(request)
    served = replace(
        request,
        topics=tuple(topic for topic in request.topics if name_of(topic) not in denied),
        topic_names=tuple(name for name in request.topic_names if name not in denied),
    )
    refused = replace(
        request,
        topics=tuple(topic for topic in request.topics if name_of(topic) in denied),
        topic_names=tuple(name for name in request.topic_names if name in denied),
    )
    failed = access.failure(refused, refusal(AclOperation.DELETE, ResourceType.TOPIC))
    shown = denied - access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, denied, is_logged=False)
    found = {topic_id: name for topic_id, name in names.items() if name in shown}
    rows = [
        {**row, "name": found.get(cast(UUID, row["topic_id"]), row["name"])} for row in rows_of(failed, "responses")
    ]
    failed = {**failed, "responses": rows}
    return failed if not (served.topics or served.topic_names) else joined(await proceed(served), failed, "responses")


EPOCHS: Final[Items[OffsetForLeaderEpochRequest, OffsetForLeaderEpochRequestOffsetForLeaderTopic]] = Items(
    of=lambda request: request.topics,
    name=lambda topic: topic.topic,
    keep=lambda request, topics: replace(request, topics=topics),
    answers="topics",
)


async def leader_epochs(
    access: Access, request: OffsetForLeaderEpochRequest, proceed: Proceed[OffsetForLeaderEpochRequest]
) -> Message:
    """Require ClusterAction, which followers have, or Describe on each topic (KIP-320)."""
    denied: frozenset[str] = frozenset()
    if not access.allows_cluster(AclOperation.CLUSTER_ACTION, is_logged=False):
        names = dict.fromkeys(topic.topic for topic in request.topics)
        denied = access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    return await EPOCHS.serve(access, request, proceed, denied, _NO_TOPIC)


# Configurations

_Configs = TypeVar("_Configs", DescribeConfigsRequest, AlterConfigsRequest, IncrementalAlterConfigsRequest)
_Resource = (
    DescribeConfigsRequestResource | AlterConfigsRequestResource | IncrementalAlterConfigsRequestAlterConfigsResource
)


def _with_resources(request: _Configs, resources: Iterable[_Resource]) -> _Configs:
    return replace(request, resources=tuple(resources))  # type: ignore[arg-type]  # those of the same request


async def _configs(
    access: Access, operation: AclOperation, request: _Configs, proceed: Proceed[_Configs], answers: str
) -> Message:
    resources: tuple[_Resource, ...] = request.resources
    topics = dict.fromkeys(item.resource_name for item in resources if item.resource_type == TOPIC_CONFIG)
    denied = access.denied(operation, ResourceType.TOPIC, topics)
    is_for_cluster = any(item.resource_type != TOPIC_CONFIG for item in resources)
    is_cluster_denied = is_for_cluster and not access.allows_cluster(operation)

    def is_denied(item: _Resource) -> bool:
        return item.resource_name in denied if item.resource_type == TOPIC_CONFIG else is_cluster_denied

    refused = [item for item in resources if is_denied(item)]
    if not refused:
        return await proceed(request)
    failed: list[Message] = []
    for is_topic, kind in ((True, ResourceType.TOPIC), (False, ResourceType.CLUSTER)):
        those = [item for item in refused if (item.resource_type == TOPIC_CONFIG) is is_topic]
        failed += rows_of(access.failure(_with_resources(request, those), refusal(operation, kind)), answers)
    served = [item for item in resources if not is_denied(item)]
    message: Message = {"throttle_time_ms": 0, answers: failed}
    return message if not served else joined(await proceed(_with_resources(request, served)), message, answers)


async def describe_configs(
    access: Access, request: DescribeConfigsRequest, proceed: Proceed[DescribeConfigsRequest]
) -> Message:
    """Require DescribeConfigs on each topic, and on the cluster for all other resources."""
    return await _configs(access, AclOperation.DESCRIBE_CONFIGS, request, proceed, "results")


async def alter_configs(access: Access, request: AlterConfigsRequest, proceed: Proceed[AlterConfigsRequest]) -> Message:
    """Require AlterConfigs on each topic, and on the cluster for all other resources."""
    return await _configs(access, AclOperation.ALTER_CONFIGS, request, proceed, "responses")


async def incremental_alter_configs(
    access: Access, request: IncrementalAlterConfigsRequest, proceed: Proceed[IncrementalAlterConfigsRequest]
) -> Message:
    """Require the same as for AlterConfigs."""
    return await _configs(access, AclOperation.ALTER_CONFIGS, request, proceed, "responses")


# Groups and their offsets


async def find_coordinator(
    access: Access, request: FindCoordinatorRequest, proceed: Proceed[FindCoordinatorRequest]
) -> Message:
    """Require Describe on each group or transactional id. The handler answers types that do not exist."""
    kind = COORDINATOR_KINDS.get(request.key_type)
    if kind is None:
        return await proceed(request)
    error = refusal(AclOperation.DESCRIBE, kind)
    if access.context.api_version < SEVERAL_KEYS_SINCE:
        access.require(AclOperation.DESCRIBE, kind, request.key)
        return await proceed(request)
    denied = access.denied(AclOperation.DESCRIBE, kind, dict.fromkeys(request.coordinator_keys))
    return await _KEYS.serve(access, request, proceed, denied, error)


_KEYS: Final[Items[FindCoordinatorRequest, str]] = Items(
    of=lambda request: request.coordinator_keys,
    name=lambda key: key,
    keep=lambda request, keys: replace(request, coordinator_keys=keys),
    answers="coordinators",
)

DESCRIBED: Final[Items[DescribeGroupsRequest, str]] = Items(
    of=lambda request: request.groups,
    name=lambda group: group,
    keep=lambda request, groups: replace(request, groups=groups),
    answers="groups",
)


async def describe_groups(
    access: Access, request: DescribeGroupsRequest, proceed: Proceed[DescribeGroupsRequest]
) -> Message:
    """Require Describe on each group. The authorized operations are those of the client."""
    denied = access.denied(AclOperation.DESCRIBE, ResourceType.GROUP, dict.fromkeys(request.groups))
    answer = await DESCRIBED.serve(access, request, proceed, denied, _NO_GROUP)
    if not request.include_authorized_operations:
        return answer
    rows = [
        {**row, "authorized_operations": access.operations(ResourceType.GROUP, str(row["group_id"]))}
        if row["error_code"] == NONE
        else row
        for row in rows_of(answer, "groups")
    ]
    return {**answer, "groups": rows}


_DESCRIBED_CONSUMERS: Final[Items[ConsumerGroupDescribeRequest, str]] = Items(
    of=lambda request: request.group_ids,
    name=lambda group: group,
    keep=lambda request, groups: replace(request, group_ids=groups),
    answers="groups",
)
_HIDDEN_TOPICS: Final = "Not authorized: the group has topics for which the operation Describe is required."


async def consumer_group_heartbeat(
    access: Access, request: ConsumerGroupHeartbeatRequest, proceed: Proceed[ConsumerGroupHeartbeatRequest]
) -> Message:
    """Require Read on the group and Describe on each topic that the member names."""
    access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
    names = dict.fromkeys(request.subscribed_topic_names or ())
    if access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names):
        raise _NO_TOPIC
    return await proceed(request)


async def consumer_group_describe(
    access: Access, request: ConsumerGroupDescribeRequest, proceed: Proceed[ConsumerGroupDescribeRequest]
) -> Message:
    """Require Describe on each group, and on the topics that its members have or should have."""
    denied = access.denied(AclOperation.DESCRIBE, ResourceType.GROUP, dict.fromkeys(request.group_ids))
    answer = await _DESCRIBED_CONSUMERS.serve(access, request, proceed, denied, _NO_GROUP)
    rows = rows_of(answer, "groups")
    topics = {str(row["group_id"]): _assigned_topics(row) for row in rows if row["error_code"] == NONE}
    names = dict.fromkeys(name for of_group in topics.values() for name in of_group)
    hidden = access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names, is_logged=False)
    error = TopicAuthorizationFailedError(_HIDDEN_TOPICS)
    shown: list[Message] = []
    for row in rows:
        group_id = str(row["group_id"])
        if row["error_code"] == NONE and not hidden.isdisjoint(topics[group_id]):
            shown += rows_of(access.failure(replace(request, group_ids=(group_id,)), error), "groups")
        elif row["error_code"] == NONE and request.include_authorized_operations:
            shown.append({**row, "authorized_operations": access.operations(ResourceType.GROUP, group_id)})
        else:
            shown.append(row)
    return {**answer, "groups": shown}


def _assigned_topics(group: Message) -> frozenset[str]:
    return frozenset(
        str(topic["topic_name"])
        for member in rows_of(group, "members")
        for field in ("assignment", "target_assignment")
        for topic in rows_of(cast(Message, member[field]), "topic_partitions")
    )


async def list_groups(access: Access, request: ListGroupsRequest, proceed: Proceed[ListGroupsRequest]) -> Message:
    """Return the groups that the client may describe; all of them with Describe on the cluster."""
    answer = await proceed(request)
    if access.allows_cluster(AclOperation.DESCRIBE, is_logged=False):
        return answer
    rows = rows_of(answer, "groups")
    names = [str(row["group_id"]) for row in rows]
    hidden = access.denied(AclOperation.DESCRIBE, ResourceType.GROUP, names, is_logged=False)
    return {**answer, "groups": [row for row in rows if row["group_id"] not in hidden]}


COMMITTED: Final[Items[OffsetCommitRequest, OffsetCommitRequestTopic]] = Items(
    of=lambda request: request.topics,
    name=lambda topic: topic.name,
    keep=lambda request, topics: replace(request, topics=topics),
    answers="topics",
)


async def offset_commit(access: Access, request: OffsetCommitRequest, proceed: Proceed[OffsetCommitRequest]) -> Message:
    """Require Read on the group and on each topic."""
    access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
    names = dict.fromkeys(topic.name for topic in request.topics)
    denied = access.denied(AclOperation.READ, ResourceType.TOPIC, names)
    error = refusal(AclOperation.READ, ResourceType.TOPIC)
    return await COMMITTED.serve(access, request, proceed, denied, error)


async def offset_delete(access: Access, request: OffsetDeleteRequest, proceed: Proceed[OffsetDeleteRequest]) -> Message:
    """Require Delete on the group and Read on each topic."""
    access.require(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    names = dict.fromkeys(topic.name for topic in request.topics)
    denied = access.denied(AclOperation.READ, ResourceType.TOPIC, names)
    if not denied:
        return await proceed(request)
    served = tuple(topic for topic in request.topics if topic.name not in denied)
    answer = await proceed(replace(request, topics=served))
    code = TopicAuthorizationFailedError.code
    failed = [
        {
            "name": topic.name,
            "partitions": [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions],
        }
        for topic in request.topics
        if topic.name in denied
    ]
    return joined(answer, {"topics": failed}, "topics")


async def offset_fetch(access: Access, request: OffsetFetchRequest, proceed: Proceed[OffsetFetchRequest]) -> Message:
    """Require Describe on each group and each topic that the client names. Others are left out of the answer."""
    if access.context.api_version >= SEVERAL_GROUPS_SINCE:
        return await _fetch_of_groups(access, request, proceed)
    access.require(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id)
    if request.topics is None:
        answer = await proceed(request)
        return {**answer, "topics": _visible(access, rows_of(answer, "topics"))}
    denied = _denied_topics(access, request.topics)
    served = tuple(topic for topic in request.topics if topic.name not in denied)
    answer = await proceed(replace(request, topics=served))
    return joined(answer, {"topics": _refused_offsets(request.topics, denied)}, "topics")


async def _fetch_of_groups(
    access: Access, request: OffsetFetchRequest, proceed: Proceed[OffsetFetchRequest]
) -> Message:
    names = dict.fromkeys(group.group_id for group in request.groups)
    denied_groups = access.denied(AclOperation.DESCRIBE, ResourceType.GROUP, names)
    kept: list[OffsetFetchRequestGroup] = []
    denied: list[frozenset[str]] = []
    for group in request.groups:
        if group.group_id not in denied_groups:
            of_group = _denied_topics(access, group.topics or ())
            topics = None if group.topics is None else tuple(one for one in group.topics if one.name not in of_group)
            kept.append(replace(group, topics=topics))
            denied.append(of_group)
    answer = await proceed(replace(request, groups=tuple(kept)))
    asked = {group.group_id: group.topics for group in request.groups}
    rows: list[Message] = []
    for row, of_group in zip(rows_of(answer, "groups"), denied, strict=True):
        wanted = asked[str(row["group_id"])]
        topics_of_row = rows_of(row, "topics")
        if wanted is None:
            rows.append({**row, "topics": _visible(access, topics_of_row)})
        else:
            rows.append({**row, "topics": [*topics_of_row, *_refused_offsets(wanted, of_group)]})
    code = GroupAuthorizationFailedError.code
    rows += [{"group_id": name, "topics": (), "error_code": code} for name in names if name in denied_groups]
    return {**answer, "groups": rows}


_OffsetTopics = Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics]


def _denied_topics(access: Access, topics: _OffsetTopics) -> frozenset[str]:
    return access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, dict.fromkeys(topic.name for topic in topics))


def _visible(access: Access, rows: list[Message]) -> list[Message]:
    names = [str(row["name"]) for row in rows]
    hidden = access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names, is_logged=False)
    return [row for row in rows if row["name"] not in hidden]


def _refused_offsets(topics: _OffsetTopics, denied: frozenset[str]) -> list[Message]:
    nothing = {
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_EPOCH,
        "metadata": "",
        "error_code": TopicAuthorizationFailedError.code,
    }
    return [
        {"name": topic.name, "partitions": [{"partition_index": each, **nothing} for each in topic.partition_indexes]}
        for topic in topics
        if topic.name in denied
    ]


# Producers


async def init_producer_id(
    access: Access, request: InitProducerIdRequest, proceed: Proceed[InitProducerIdRequest]
) -> Message:
    """Require Write on the transactional id. Without one, IdempotentWrite on the cluster or Write on any topic suffices
    (KIP-679)."""
    if request.transactional_id is not None:
        access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    elif not access.allows_cluster(AclOperation.IDEMPOTENT_WRITE, is_logged=False) and not access.allows_any(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        raise refusal(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    return await proceed(request)
