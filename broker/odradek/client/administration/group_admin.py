"""Consumer groups for the admin client: list, describe, delete, and read, set and delete committed offsets.

`Admin` inherits these methods. Each request goes to the coordinator of the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.base.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    ProtocolError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import LATEST_TIMESTAMP, NO_BROKER, TopicPartition
from odradek.client.admin_kinds import ConsumerGroupState
from odradek.client.administration.admin_parts import (
    AdminPart,
    as_group,
    check_answer,
    described_consumer_group,
    described_group,
)
from odradek.client.cluster_client import ANY_VERSION
from odradek.client.metadata import topics_of
from odradek.client.models import ConsumerGroupDescription, GroupDescription, GroupLag, GroupListing, OffsetAndMetadata
from odradek.client.offsets import commit_each, fetch_committed, list_offsets
from odradek.client.record_times import record_times
from odradek.protocol.codec import Message
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse
from odradek.protocol.messages.groups import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse
from odradek.protocol.messages.offsets import OffsetDeleteResponse

_WITH_STATES: Final = 4
"""First version of ListGroups with a filter by state (KIP-518, Kafka 2.6)."""
_WITH_TYPES: Final = 5
"""First version of ListGroups with a filter by type (KIP-848, Kafka 3.8)."""

_REFUSALS: Final = {
    GroupIdNotFoundError.code: "group {} does not exist",
    NonEmptyGroupError.code: "group {} has members",
}


class GroupAdmin(AdminPart):
    """Lists, describes and deletes groups, and changes their committed offsets."""

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Return all groups, sorted by id, or only those with one of these states and types. Asks every broker for the
        groups that it coordinates.

        States are those of `GroupDescription`; types are `classic` and `consumer`. Case does not matter. Raises
        `UnsupportedVersionError` if a broker is too old for the filter: Kafka 2.6 has states, Kafka 3.8 types.
        """
        message: Message = {"states_filter": list(states), "types_filter": list(types)}
        at_least = _WITH_TYPES if message["types_filter"] else _WITH_STATES if message["states_filter"] else 0

        async def of(node: int) -> list[GroupListing]:
            async def attempt() -> list[GroupListing]:
                versions = (at_least, ANY_VERSION[1])
                response = await self._cluster.ask(node, ListGroupsResponse, message, versions=versions)
                check_answer(response.error_code, None, f"broker {node} cannot list its groups")
                return [
                    GroupListing(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        state=ConsumerGroupState(group.group_state),
                        group_type=group.group_type,
                    )
                    for group in response.groups
                ]

            return await self._retrying(attempt, "listing groups")

        answers = await asyncio.gather(*(of(node) for node in self._cluster.view.nodes))
        return sorted((group for answer in answers for group in answer), key=lambda group: group.group_id)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return the state, the members and their assignments of each group, of either type. An unknown group has the
        state Dead.
        """
        group_ids = list(group_ids)
        found = await asyncio.gather(*(self._describe_group(group_id) for group_id in group_ids))
        return dict(zip(group_ids, found, strict=True))

    async def _describe_group(self, group_id: str) -> GroupDescription:
        try:
            return as_group(await self._describe_consumer_group(group_id))
        except (GroupIdNotFoundError, UnsupportedVersionError):
            return await self._describe_classic_group(group_id)

    async def describe_consumer_groups(self, group_ids: Iterable[str]) -> dict[str, ConsumerGroupDescription]:
        """Return each group with its epochs, members, and their current and target assignments (KIP-848).

        Raises `GroupIdNotFoundError` if a group does not exist or is not of the type `consumer`, and
        `UnsupportedVersionError` if its coordinator is too old.
        """
        group_ids = list(group_ids)
        found = await asyncio.gather(*(self._describe_consumer_group(group_id) for group_id in group_ids))
        return dict(zip(group_ids, found, strict=True))

    async def _describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        async def attempt() -> ConsumerGroupDescription:
            coordinator = await self._cluster.coordinator(group_id)
            message: Message = {"group_ids": [group_id], "include_authorized_operations": False}
            response = await self._cluster.ask_coordinator(group_id, ConsumerGroupDescribeResponse, message)
            group = response.groups[0]
            self._check_group(group.error_code, group_id)
            return described_consumer_group(group, coordinator)

        return await self._retrying(attempt, f"describing group {group_id}")

    async def _describe_classic_group(self, group_id: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            coordinator = await self._cluster.coordinator(group_id)
            message: Message = {"groups": [group_id], "include_authorized_operations": False}
            response = await self._cluster.ask_coordinator(group_id, DescribeGroupsResponse, message)
            group = response.groups[0]
            if group.error_code == GroupIdNotFoundError.code:
                return GroupDescription(
                    group_id=group_id,
                    state=ConsumerGroupState.DEAD,
                    protocol_type="",
                    protocol="",
                    coordinator=coordinator,
                )
            self._check_group(group.error_code, group_id)
            return described_group(group, coordinator)

        return await self._retrying(attempt, f"describing group {group_id}")

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups with their committed offsets, one after the other. Stops at the first error.

        Raises `NonEmptyGroupError` if a group has members, and `GroupIdNotFoundError`.
        """
        for group_id in group_ids:
            await self._delete_group(group_id)

    async def _delete_group(self, group_id: str) -> None:
        async def attempt() -> None:
            message: Message = {"groups_names": [group_id]}
            response = await self._cluster.ask_coordinator(group_id, DeleteGroupsResponse, message)
            self._check_group(response.results[0].error_code, group_id)

        await self._retrying(attempt, f"deleting group {group_id}")

    def _check_group(self, code: int, group_id: str) -> None:
        text = _REFUSALS.get(code, "the coordinator refused the request for group {}")
        try:
            check_answer(code, None, text.format(group_id))
        except ProtocolError as error:
            if error.retriable:
                self._cluster.forget_coordinator(group_id)
            raise

    # Offsets

    async def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group, for these partitions or for all.

        The result lacks partitions for which nothing is committed.
        """
        deadline = self._cluster.deadline(f"reading the offsets of group {group_id}")
        return await fetch_committed(self._cluster, group_id, partitions, deadline=deadline)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Set committed offsets of a group without members; a group that does not exist is created (KIP-396).

        Returns the error of each partition; None means success. The offsets need not exist in the log. Raises
        `UnknownMemberIdError` if the group has members, `GroupAuthorizationFailedError`, and other errors of the group
        as a whole.
        """
        positions = {
            partition: OffsetAndMetadata(position) if isinstance(position, int) else position
            for partition, position in offsets.items()
        }
        deadline = self._cluster.deadline(f"setting the offsets of group {group_id}")
        return await commit_each(self._cluster, group_id, positions, deadline=deadline)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Delete committed offsets of a group (KIP-496). A partition without one counts as success.

        Returns the error of each partition; None means success, and `GroupSubscribedToTopicError` that a member is
        subscribed to the topic. Raises `GroupIdNotFoundError`, `NonEmptyGroupError` if the group has members that are
        not consumers, and other errors of the group as a whole.
        """
        wanted = list(partitions)
        message: Message = {
            "group_id": group_id,
            "topics": [
                {"name": topic, "partitions": [{"partition_index": number} for number in numbers]}
                for topic, numbers in grouped_by_topic(wanted).items()
            ],
        }

        async def attempt() -> dict[TopicPartition, ProtocolError | None]:
            response = await self._cluster.ask_coordinator(group_id, OffsetDeleteResponse, message)
            self._check_group(response.error_code, group_id)
            codes = {
                TopicPartition(topic.name, item.partition_index): item.error_code
                for topic in response.topics
                for item in topic.partitions
            }
            return {partition: _deletion_error(group_id, partition, code) for partition, code in codes.items()}

        return await self._retrying(attempt, f"deleting offsets of group {group_id}") if wanted else {}

    async def group_lag(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, with_time: bool = True
    ) -> dict[TopicPartition, GroupLag]:
        """Return how far a group is behind in these partitions, or in all that have a committed offset.

        For the time, the batch of the first unread record is fetched from each partition with lag, which needs the
        right Read on the topic. `with_time=False` omits it.
        """
        wanted = None if partitions is None else list(partitions)
        committed = await self.group_offsets(group_id, wanted)
        places = sorted(committed if wanted is None else set(wanted))
        if not places:
            return {}
        deadline = self._cluster.deadline(f"reading the lag of group {group_id}")
        view = await self._cluster.fresh_view(topics_of(places), deadline)
        served = [partition for partition in places if view.leader(partition) != NO_BROKER]
        # Ends are read after commits: an end that is older than a commit would hide lag.
        listed = await list_offsets(self._cluster, dict.fromkeys(served, LATEST_TIMESTAMP), deadline=deadline)
        ends = {partition: found.offset for partition, found in listed.items()}
        lags = {partition: GroupLag(committed.get(partition), ends.get(partition)) for partition in places}
        behind = {place: lag.committed.offset for place, lag in lags.items() if lag.committed and lag.records}
        times = await record_times(self._cluster, behind, deadline=deadline) if with_time else {}
        now_ms = self._cluster.clock.wall_ms()
        return {
            partition: lag._replace(time_ms=_age_ms(lag, partition, times, now_ms)) for partition, lag in lags.items()
        }


def _deletion_error(group_id: str, partition: TopicPartition, code: int) -> ProtocolError | None:
    if not code:
        return None
    text = f"the offset of group {group_id} for {partition} cannot be deleted"
    if code == GroupSubscribedToTopicError.code:
        text = f"a member of group {group_id} is subscribed to topic {partition.topic}"
    elif code == UnknownTopicOrPartitionError.code:
        text = f"there is no partition {partition}"
    return error_for(code, text)


def _age_ms(
    lag: GroupLag, partition: TopicPartition, times: Mapping[TopicPartition, int | None], now_ms: int
) -> int | None:
    if lag.records == 0:
        return 0
    if partition not in times:
        return None
    timestamp_ms = times[partition]
    return 0 if timestamp_ms is None else max(0, now_ms - timestamp_ms)
