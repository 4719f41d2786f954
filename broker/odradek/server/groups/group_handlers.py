"""FindCoordinator, the APIs of consumer groups, and InitProducerId.

The handlers convert between requests of all versions and the coordinators: fields that a version lacks are filled in,
and responses have the fields of all versions. `coordinator/groups/group_coordinator` makes the decisions. The handlers
raise the error of a whole request, unless its response contains more than the error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from odradek.base.errors import (
    NONE,
    CoordinatorNotAvailableError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    ProtocolError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import (
    GROUP_METADATA_TOPIC,
    NO_BROKER,
    NO_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_ID,
    TopicPartition,
)
from odradek.cluster import MetadataCache
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_requests import (
    CommitRequest,
    DescribedGroup,
    FetchedOffset,
    JoinRequest,
    JoinResult,
    LeavingMember,
    MemberCheck,
    OffsetToCommit,
    Protocols,
    SyncRequest,
)
from odradek.coordinator.producer_ids import ProducerIds
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from odradek.protocol.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from odradek.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.produce import InitProducerIdRequest
from odradek.security.acls.model import ResourceType
from odradek.server.authorization.authorizer import NOT_REQUESTED, all_operations
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.groups.zookeeper_offsets import ZooKeeperOffsets

logger = logging.getLogger(__name__)

EnsureTopic = Callable[[str], Awaitable[object]]
"""Creates an internal topic if it does not exist. May be called concurrently. Raises an error if it cannot."""

GROUP_KEY_TYPE: Final = 0
TRANSACTION_KEY_TYPE: Final = 1

SEVERAL_KEYS_SINCE: Final = 4
"""First FindCoordinator version with several keys (KIP-699)."""

REBALANCE_TIMEOUT_SINCE: Final = 1
"""First JoinGroup version with a rebalance timeout. Earlier versions use the session timeout for it."""

SEVERAL_GROUPS_SINCE: Final = 8
"""First OffsetFetch version with several groups (KIP-709)."""

MEMBER_ID_REQUIRED_SINCE: Final = 4
"""First JoinGroup version whose clients join again with the id in the response (KIP-394)."""

NULLABLE_PROTOCOL_SINCE: Final = 7
"""First JoinGroup version in which the protocol name may be null (KIP-559)."""

SKIP_ASSIGNMENT_SINCE: Final = 9
"""First JoinGroup version with `skip_assignment` (KIP-814)."""

SYNC_PROTOCOL_SINCE: Final = 5
"""First SyncGroup version in which protocol type and name are required (KIP-559)."""

BATCHED_LEAVE_SINCE: Final = 3
"""First LeaveGroup version with several members (KIP-345)."""

COORDINATED_OFFSETS_SINCE: Final = 1
"""First versions of OffsetCommit and OffsetFetch that use `__consumer_offsets`. Version 0 uses ZooKeeper."""

BROKERS_RETENTION: Final = -1
"""Retention time in OffsetCommit versions 2 to 4 that means that there is none."""

BROKERS_TIME: Final = -1
"""Commit time in OffsetCommit version 1 that means that there is none."""

NO_TRANSACTIONS: Final = (
    "This broker does not support transactions: remove transactional.id from the settings of the producer."
)


class CoordinationHandlers:
    """Handlers that use the group coordinator, the producer ids and the metadata image."""

    def __init__(
        self,
        *,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        view: MetadataCache,
        ensure_topic: EnsureTopic,
        zookeeper_offsets: ZooKeeperOffsets,
    ) -> None:
        """`ensure_topic` creates `__consumer_offsets` when the first client looks up a coordinator."""
        self._groups = groups
        self._producer_ids = producer_ids
        self._view = view
        self._ensure_topic = ensure_topic
        self._zookeeper_offsets = zookeeper_offsets

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(FindCoordinatorRequest, self.find_coordinator),
                route(JoinGroupRequest, self.join_group),
                route(SyncGroupRequest, self.sync_group),
                route(HeartbeatRequest, self.heartbeat),
                route(LeaveGroupRequest, self.leave_group),
                route(OffsetCommitRequest, self.offset_commit),
                route(OffsetFetchRequest, self.offset_fetch),
                route(ListGroupsRequest, self.list_groups),
                route(DescribeGroupsRequest, self.describe_groups),
                route(DeleteGroupsRequest, self.delete_groups),
                route(OffsetDeleteRequest, self.offset_delete),
                route(InitProducerIdRequest, self.init_producer_id),
            ]
        )

    # FindCoordinator

    async def find_coordinator(self, context: RequestContext, request: FindCoordinatorRequest) -> Message:
        """Handle FindCoordinator: for one key up to version 3, for several from version 4 on (KIP-699)."""
        if context.api_version >= SEVERAL_KEYS_SINCE:
            found = [
                {"key": key, **await self._coordinator(context, request.key_type, key)}
                for key in request.coordinator_keys
            ]
            return {"throttle_time_ms": 0, "coordinators": found}
        found_one = await self._coordinator(context, request.key_type, request.key)
        # As in Kafka, versions with one key have the message "NONE" if there is no error.
        message = found_one["error_message"] or "NONE"
        return {"throttle_time_ms": 0, **found_one, "error_message": message}

    async def _coordinator(self, context: RequestContext, key_type: int, key: str) -> dict[str, object]:
        try:
            node_id, host, port = await self._locate(context, key_type, key)
        except ProtocolError as error:
            nowhere = {"node_id": NO_BROKER, "host": "", "port": -1}
            return {**nowhere, "error_code": error.code, "error_message": str(error)}
        return {
            "node_id": node_id,
            "host": host,
            "port": port,
            "error_code": NONE,
            "error_message": "",
        }

    async def _locate(self, context: RequestContext, key_type: int, key: str) -> tuple[int, str, int]:
        if key_type == TRANSACTION_KEY_TYPE:
            # Of the codes that Kafka may return here, clients treat only authorization errors as final. For any other
            # code, librdkafka retries until its own timeout.
            raise TransactionalIdAuthorizationFailedError(NO_TRANSACTIONS)
        if key_type != GROUP_KEY_TYPE:
            raise InvalidRequestError(f"Coordinator type {key_type} does not exist.")
        if GROUP_METADATA_TOPIC not in self._view.image.topics:
            try:
                await self._ensure_topic(GROUP_METADATA_TOPIC)
            except ProtocolError as error:
                logger.warning("%s cannot be created: %s", GROUP_METADATA_TOPIC, error)
        partition = self._groups.partition_for(key)
        leader = self._view.image.leader_endpoint(partition, context.listener)
        if leader is None:
            raise CoordinatorNotAvailableError(f"{partition} has no leader yet.")
        node_id, endpoint = leader
        return node_id, endpoint.host, endpoint.port

    # Members

    async def join_group(self, context: RequestContext, request: JoinGroupRequest) -> Message:
        """Handle JoinGroup. The response is sent when the next generation begins."""
        try:
            result = await self._groups.join(_join_request(context, request))
        except ProtocolError as error:
            result = JoinResult(error_code=error.code, member_id=request.member_id)
        no_name = None if context.api_version >= NULLABLE_PROTOCOL_SINCE else ""
        return {
            "throttle_time_ms": 0,
            "error_code": result.error_code,
            "generation_id": result.generation,
            "protocol_type": result.protocol_type,
            "protocol_name": no_name if result.protocol_name is None else result.protocol_name,
            "leader": result.leader,
            "skip_assignment": result.skip_assignment,
            "member_id": result.member_id,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "metadata": member.metadata,
                }
                for member in result.members
            ],
        }

    async def sync_group(self, context: RequestContext, request: SyncGroupRequest) -> Message:
        """Handle SyncGroup: return the member's assignment."""
        is_incomplete = request.protocol_type is None or request.protocol_name is None
        try:
            if context.api_version >= SYNC_PROTOCOL_SINCE and is_incomplete:
                raise InconsistentGroupProtocolError("The protocol type and the protocol name are required.")
            result = await self._groups.sync(
                SyncRequest(
                    member=_member_check(request, request.generation_id),
                    protocol_type=request.protocol_type,
                    protocol_name=request.protocol_name,
                    assignments={item.member_id: item.assignment for item in request.assignments},
                )
            )
        except ProtocolError as error:
            return {
                "throttle_time_ms": 0,
                "error_code": error.code,
                "protocol_type": None,
                "protocol_name": None,
                "assignment": b"",
            }
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "protocol_type": result.protocol_type,
            "protocol_name": result.protocol_name,
            "assignment": result.assignment,
        }

    async def heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> Message:
        """Handle Heartbeat."""
        await self._groups.heartbeat(_member_check(request, request.generation_id))
        return {"throttle_time_ms": 0, "error_code": NONE}

    async def leave_group(self, context: RequestContext, request: LeaveGroupRequest) -> Message:
        """Handle LeaveGroup: for one member up to version 2, for several from version 3 on."""
        if context.api_version >= BATCHED_LEAVE_SINCE:
            leaving = [
                LeavingMember(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    reason=member.reason,
                )
                for member in request.members
            ]
        else:
            leaving = [LeavingMember(member_id=request.member_id)]
        results = await self._groups.leave(request.group_id, leaving)
        is_single = context.api_version < BATCHED_LEAVE_SINCE
        return {
            "throttle_time_ms": 0,
            "error_code": results[0].error_code if is_single else NONE,
            "members": [
                {
                    "member_id": result.member_id,
                    "group_instance_id": result.instance_id,
                    "error_code": result.error_code,
                }
                for result in results
            ],
        }

    # Offsets

    async def offset_commit(self, context: RequestContext, request: OffsetCommitRequest) -> Message:
        """Handle OffsetCommit: store the offsets of partitions that exist."""
        codes: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, OffsetToCommit] = {}
        retention_ms = request.retention_time_ms
        image = self._view.image
        for topic in request.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                commit_ms = partition.commit_timestamp
                if image.partition(topic_partition) is None:
                    codes[topic_partition] = UnknownTopicOrPartitionError.code
                else:
                    offsets[topic_partition] = OffsetToCommit(
                        offset=partition.committed_offset,
                        metadata=partition.committed_metadata or "",
                        leader_epoch=partition.committed_leader_epoch,
                        retention_ms=None if retention_ms == BROKERS_RETENTION else retention_ms,
                        commit_timestamp_ms=None if commit_ms == BROKERS_TIME else commit_ms,
                    )
        if offsets and context.api_version < COORDINATED_OFFSETS_SINCE:
            numbers = {partition: (given.offset, given.metadata) for partition, given in offsets.items()}
            codes |= await self._zookeeper_offsets.commit(request.group_id, numbers)
        elif offsets:
            codes |= await self._commit(request, offsets)
        return {"throttle_time_ms": 0, "topics": _coded_topics(request.topics, codes)}

    async def _commit(
        self, request: OffsetCommitRequest, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> Mapping[TopicPartition, int]:
        check = _member_check(request, request.generation_id_or_member_epoch)
        try:
            return await self._groups.commit(CommitRequest(member=check, offsets=offsets))
        except ProtocolError as error:
            return dict.fromkeys(offsets, error.code)

    async def offset_fetch(self, context: RequestContext, request: OffsetFetchRequest) -> Message:
        """Handle OffsetFetch: for one group up to version 7, for several from version 8 on (KIP-709)."""
        if context.api_version < COORDINATED_OFFSETS_SINCE:
            return await self._fetch_from_zookeeper(request)
        require_stable = request.require_stable
        if context.api_version >= SEVERAL_GROUPS_SINCE:
            groups = [await self._fetch_group(group, require_stable) for group in request.groups]
            return {"throttle_time_ms": 0, "groups": groups}
        if request.topics is None:
            fetched = await self._groups.fetch(request.group_id, None, require_stable=require_stable)
        else:
            fetched = await self._groups.fetch(request.group_id, _wanted(request.topics), require_stable=require_stable)
        return {"throttle_time_ms": 0, "topics": _fetched_topics(fetched), "error_code": NONE}

    async def _fetch_from_zookeeper(self, request: OffsetFetchRequest) -> Message:
        wanted = _wanted(request.topics or ())
        image = self._view.image
        known = [partition for partition in wanted if image.partition(partition) is not None]
        kept = await self._zookeeper_offsets.fetch(request.group_id, known)
        unknown = FetchedOffset(offset=NO_OFFSET, error_code=UnknownTopicOrPartitionError.code)
        fetched = dict.fromkeys(wanted, unknown)
        fetched |= {key: FetchedOffset(offset=one.offset, error_code=one.error_code) for key, one in kept.items()}
        return {"topics": _fetched_topics(fetched)}

    async def _fetch_group(self, group: OffsetFetchRequestGroup, require_stable: bool) -> Message:
        wanted = None if group.topics is None else _wanted(group.topics)
        try:
            fetched = await self._groups.fetch(group.group_id, wanted, require_stable=require_stable)
        except ProtocolError as error:
            return {"group_id": group.group_id, "topics": [], "error_code": error.code}
        return {"group_id": group.group_id, "topics": _fetched_topics(fetched), "error_code": NONE}

    async def offset_delete(self, context: RequestContext, request: OffsetDeleteRequest) -> Message:
        """Handle OffsetDelete: delete offsets of partitions that exist, unless a member subscribes to the topic
        (KIP-496)."""
        wanted = [
            TopicPartition(topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]
        image = self._view.image
        existing = [partition for partition in wanted if image.partition(partition) is not None]
        codes = dict.fromkeys(wanted, UnknownTopicOrPartitionError.code)
        codes |= await self._groups.delete_offsets(request.group_id, existing)
        return {"error_code": NONE, "throttle_time_ms": 0, "topics": _coded_topics(request.topics, codes)}

    # Whole groups

    async def list_groups(self, context: RequestContext, request: ListGroupsRequest) -> Message:
        """Handle ListGroups: return the groups that this broker coordinates."""
        found = await self._groups.list(states=request.states_filter, types=request.types_filter)
        return {
            "throttle_time_ms": 0,
            "error_code": found.error_code,
            "groups": [
                {
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type,
                    "group_state": group.state,
                    "group_type": group.group_type,
                }
                for group in found.groups
            ],
        }

    async def describe_groups(self, context: RequestContext, request: DescribeGroupsRequest) -> Message:
        """Handle DescribeGroups: return the states and members of groups."""
        operations = all_operations(ResourceType.GROUP) if request.include_authorized_operations else NOT_REQUESTED
        return {
            "throttle_time_ms": 0,
            "groups": [await self._describe(group_id, operations) for group_id in request.groups],
        }

    async def _describe(self, group_id: str, operations: int) -> Message:
        try:
            return _described(await self._groups.describe(group_id), NONE, operations)
        except ProtocolError as error:
            return _described(DescribedGroup(group_id=group_id, state=""), error.code, NOT_REQUESTED)

    async def delete_groups(self, context: RequestContext, request: DeleteGroupsRequest) -> Message:
        """Handle DeleteGroups: delete empty groups and their offsets."""
        group_ids = list(dict.fromkeys(request.groups_names))
        codes = await asyncio.gather(*map(self._delete, group_ids))
        results = [{"group_id": group_id, "error_code": code} for group_id, code in zip(group_ids, codes, strict=True)]
        return {"throttle_time_ms": 0, "results": results}

    async def _delete(self, group_id: str) -> int:
        try:
            await self._groups.delete(group_id)
        except ProtocolError as error:
            return error.code
        return NONE

    # Producers

    async def init_producer_id(self, context: RequestContext, request: InitProducerIdRequest) -> Message:
        """Handle InitProducerId: allocate a producer id with epoch 0 for an idempotent producer (KIP-98)."""
        try:
            new_id = await self._new_producer_id(request)
        except ProtocolError as error:
            return {
                "throttle_time_ms": 0,
                "error_code": error.code,
                "producer_id": NO_PRODUCER_ID,
                "producer_epoch": NO_EPOCH,
            }
        return {"throttle_time_ms": 0, "error_code": NONE, "producer_id": new_id, "producer_epoch": 0}

    async def _new_producer_id(self, request: InitProducerIdRequest) -> int:
        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_EPOCH
        if request.transactional_id == "":
            raise InvalidRequestError("The transactional id is empty.")
        if has_id != has_epoch:
            raise InvalidRequestError("Give both a producer id and an epoch, or neither.")
        if request.transactional_id is not None:
            raise TransactionalIdAuthorizationFailedError(NO_TRANSACTIONS)
        # A producer with an id gets a new one: without a transactional id, nothing proves that the id belongs to it.
        return await self._producer_ids.next()


def _member_check(request: HeartbeatRequest | OffsetCommitRequest | SyncGroupRequest, generation: int) -> MemberCheck:
    return MemberCheck(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=generation,
    )


def _join_request(context: RequestContext, request: JoinGroupRequest) -> JoinRequest:
    has_rebalance_timeout = context.api_version >= REBALANCE_TIMEOUT_SINCE
    instance_id = request.group_instance_id
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=instance_id,
        client_id=context.client_id or "",
        # The text of a Java InetAddress without a host name. Tools show it unchanged.
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=_protocols(request.protocols),
        requires_known_member_id=context.api_version >= MEMBER_ID_REQUIRED_SINCE and instance_id is None,
        supports_skipping_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
        reason=request.reason,
    )


def _protocols(items: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """Return a member's protocols. If two have the same name, the first is used."""
    found: dict[str, bytes] = {}
    for item in items:
        found.setdefault(item.name, item.metadata)
    return tuple(found.items())


def _coded_topics(
    topics: Iterable[OffsetCommitRequestTopic | OffsetDeleteRequestTopic], codes: Mapping[TopicPartition, int]
) -> list[Message]:
    """Return the topics and partitions of a request with the error code of each partition."""
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": partition.partition_index,
                    "error_code": codes[TopicPartition(topic.name, partition.partition_index)],
                }
                for partition in topic.partitions
            ],
        }
        for topic in topics
    ]


def _wanted(topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]


def _fetched_topics(fetched: Mapping[TopicPartition, FetchedOffset]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for (topic, number), offset in fetched.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": number,
                "committed_offset": offset.offset,
                "committed_leader_epoch": offset.leader_epoch,
                "metadata": offset.metadata,
                "error_code": offset.error_code,
            }
        )
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def _described(group: DescribedGroup, code: int, operations: int) -> Message:
    return {
        "error_code": code,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
        "authorized_operations": operations,
    }
