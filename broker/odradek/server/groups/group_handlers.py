"""FindCoordinator, and the APIs of the members of groups and of whole groups.

The handlers convert between requests of all versions and the group coordinator: fields that a version lacks are filled
in, and responses have the fields of all versions. `coordinator/groups/group_coordinator` makes the decisions. The
handlers raise the error of a whole request, unless its response contains more than the error. `offset_handlers` has the
APIs of committed offsets, `heartbeats` has Heartbeat.
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
)
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.cluster import MetadataCache
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_requests import (
    DescribedGroup,
    JoinRequest,
    JoinResult,
    LeavingMember,
    MemberCheck,
    Protocols,
    SyncRequest,
)
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from odradek.protocol.messages.membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from odradek.security.acls.model import ResourceType
from odradek.server.authorization.authorizer import NOT_REQUESTED, all_operations
from odradek.server.dispatch import Handler, RequestContext, route

logger = logging.getLogger(__name__)

EnsureTopic = Callable[[str], Awaitable[object]]
"""Creates an internal topic if it does not exist. May be called concurrently. Raises an error if it cannot."""

GROUP_KEY_TYPE: Final = 0
TRANSACTION_KEY_TYPE: Final = 1

SEVERAL_KEYS_SINCE: Final = 4
"""First FindCoordinator version with several keys (KIP-699)."""

REBALANCE_TIMEOUT_SINCE: Final = 1
"""First JoinGroup version with a rebalance timeout. Earlier versions use the session timeout for it."""

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


class GroupHandlers:
    """Handlers that use the group coordinator and the metadata image."""

    def __init__(
        self,
        *,
        groups: GroupCoordinator,
        transactions: Callable[[str], TopicPartition],
        view: MetadataCache,
        ensure_topic: EnsureTopic,
    ) -> None:
        """`transactions` returns the partition of `__transaction_state` that has a transactional id. `ensure_topic`
        creates the internal topics when the first client looks up a coordinator."""
        self._groups = groups
        self._transactions = transactions
        self._view = view
        self._ensure_topic = ensure_topic
        self._reported: dict[str, str] = {}
        """The latest reported error of each topic that could not be created."""

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(FindCoordinatorRequest, self.find_coordinator),
                route(JoinGroupRequest, self.join_group),
                route(SyncGroupRequest, self.sync_group),
                route(LeaveGroupRequest, self.leave_group),
                route(ListGroupsRequest, self.list_groups),
                route(DescribeGroupsRequest, self.describe_groups),
                route(DeleteGroupsRequest, self.delete_groups),
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
        if key_type == GROUP_KEY_TYPE:
            partition = self._groups.partition_for(key)
        elif key_type == TRANSACTION_KEY_TYPE:
            partition = self._transactions(key)
        else:
            raise InvalidRequestError(f"Coordinator type {key_type} does not exist.")
        if partition.topic not in self._view.image.topics:
            try:
                await self._ensure_topic(partition.topic)
            except ProtocolError as error:
                self._report(partition.topic, error)
        leader = self._view.image.leader_endpoint(partition, context.listener)
        if leader is None:
            raise CoordinatorNotAvailableError(f"{partition} has no leader yet.")
        node_id, endpoint = leader
        return node_id, endpoint.host, endpoint.port

    def _report(self, topic: str, error: ProtocolError) -> None:
        """Log an error once: clients repeat FindCoordinator many times per second."""
        if self._reported.get(topic) != str(error):
            self._reported[topic] = str(error)
            logger.warning("%s cannot be created: %s", topic, error)

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
                    member=MemberCheck(
                        group_id=request.group_id,
                        member_id=request.member_id,
                        instance_id=request.group_instance_id,
                        generation=request.generation_id,
                    ),
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
