"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the APIs of consumer groups (KIP-848).

The handlers convert between requests and the group coordinator, which makes the decisions. A member names partitions by
the id of their topic. Responses also have the names, which come from the metadata image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.base.errors import NONE, ProtocolError
from odradek.base.ports import Clock
from odradek.cluster import MetadataCache
from odradek.coordinator.groups.consumer.consumer_values import (
    JOIN_EPOCH,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    MemberHeartbeat,
    PartitionSet,
)
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.server.authorization.authorizer import NOT_REQUESTED, Authorizer, all_operations
from odradek.server.authorization.guards import Access, rows_of
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import failure

OWN_MEMBER_ID_SINCE: Final = 1
"""First ConsumerGroupHeartbeat version whose members generate their ids themselves (KIP-1082)."""

UNCHANGED: Final = -1
"""Rebalance timeout in a heartbeat that means that it has not changed."""

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""Types of members in ConsumerGroupDescribe (KIP-1099)."""

_MEMBER_ID_BYTES: Final = 16


class ConsumerGroupHandlers:
    """Handlers that use the group coordinator and the metadata image."""

    def __init__(
        self,
        *,
        groups: GroupCoordinator,
        view: MetadataCache,
        clock: Clock,
        heartbeat_interval_ms: int,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`clock` provides randomness for member ids. `heartbeat_interval_ms`: how often members send heartbeats.
        Without an `authorizer`, everyone may see every topic."""
        self._groups = groups
        self._view = view
        self._clock = clock
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._authorizer = authorizer

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(ConsumerGroupHeartbeatRequest, self.heartbeat),
                route(ConsumerGroupDescribeRequest, self.describe),
            ]
        )

    async def heartbeat(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Message:
        """Handle ConsumerGroupHeartbeat: the member joins, stays or leaves, and learns its epoch and assignment."""
        if not request.member_id and context.api_version < OWN_MEMBER_ID_SINCE and request.member_epoch == JOIN_EPOCH:
            member_id = UUID(bytes=self._clock.token_bytes(_MEMBER_ID_BYTES), version=4)
            request = replace(request, member_id=str(member_id))
        result = await self._groups.consumer_heartbeat(_heartbeat(context, request), self._visibility(context))
        assignment = result.assignment
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "error_message": None,
            "member_id": result.member_id,
            "member_epoch": result.epoch,
            "heartbeat_interval_ms": self._heartbeat_interval_ms,
            "assignment": None if assignment is None else {"topic_partitions": _partitions(assignment)},
        }

    def _visibility(self, context: RequestContext) -> Callable[[str], bool]:
        """Return a function that tells whether the client may see a topic that matches its regular expression."""
        if self._authorizer is None:
            return lambda _: True
        access = Access(self._authorizer, context, self._view.image)
        return lambda name: access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_logged=False)

    async def describe(self, context: RequestContext, request: ConsumerGroupDescribeRequest) -> Message:
        """Handle ConsumerGroupDescribe: return the states and members of consumer groups."""
        group_ids = dict.fromkeys(request.group_ids)
        return {
            "throttle_time_ms": 0,
            "groups": [await self._describe(context, request, group_id) for group_id in group_ids],
        }

    async def _describe(self, context: RequestContext, request: ConsumerGroupDescribeRequest, group_id: str) -> Message:
        operations = all_operations(ResourceType.GROUP) if request.include_authorized_operations else NOT_REQUESTED
        try:
            return self._described(await self._groups.describe_consumer_group(group_id), operations)
        except ProtocolError as error:
            failed = failure(context.api_key, context.api_version, replace(request, group_ids=(group_id,)), error)
            assert failed is not None, "the API has an answer for each group"
            return rows_of(failed, "groups")[0]

    def _described(self, group: DescribedConsumerGroup, operations: int) -> Message:
        return {
            "error_code": NONE,
            "error_message": None,
            "group_id": group.group_id,
            "group_state": group.state,
            "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor_name": group.assignor,
            "members": [self._member(described) for described in group.members],
            "authorized_operations": operations,
        }

    def _member(self, described: DescribedConsumerMember) -> Message:
        member = described.member
        return {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topics),
            "subscribed_topic_regex": member.regex,
            "assignment": self._assignment(member.assigned),
            "target_assignment": self._assignment(described.target),
            "member_type": CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        }

    def _assignment(self, partitions: PartitionSet) -> Message:
        """Return partitions with the names of their topics. Deleted topics are left out."""
        image = self._view.image
        named = ((image.topic_name(topic_id), topic_id, numbers) for topic_id, numbers in partitions.items())
        return {
            "topic_partitions": [
                {"topic_id": topic_id, "topic_name": name, "partitions": sorted(numbers)}
                for name, topic_id, numbers in named
                if name is not None
            ]
        }


def _heartbeat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> MemberHeartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return MemberHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if request.rebalance_timeout_ms == UNCHANGED else request.rebalance_timeout_ms,
        topics=None if names is None else frozenset(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else _owned(owned),
        client_id=context.client_id or "",
        # The text of a Java InetAddress without a host name, as for classic members.
        client_host=f"/{context.client_host}",
    )


def _owned(topics: Iterable[ConsumerGroupHeartbeatRequestTopicPartitions]) -> PartitionSet:
    found: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return found


def _partitions(partitions: PartitionSet) -> list[Message]:
    return [{"topic_id": topic_id, "partitions": sorted(numbers)} for topic_id, numbers in partitions.items()]
