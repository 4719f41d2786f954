"""Commits and reads of a group's offsets by a consumer, with the identity that its member has at that moment.

`consumer` uses it. With the protocol of KIP-848 the coordinator refuses an earlier member epoch than the current one,
which a heartbeat that is in flight can have changed: the request is repeated with the epoch of the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from odradek.base.errors import ProtocolError, StaleMemberEpochError, UnknownMemberIdError
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import Cluster, Deadline
from odradek.client.consumer.member_contract import MembershipPort
from odradek.client.models import OffsetAndMetadata
from odradek.client.offsets import GroupMembership, commit_offsets, fetch_committed

T = TypeVar("T")

_NO_MEMBER: Final = GroupMembership()


class MemberOffsets:
    """The committed offsets of one group, for one consumer."""

    def __init__(self, cluster: Cluster, group_id: str, assigned: Callable[[], Collection[TopicPartition]]) -> None:
        """`assigned` returns the partitions of the consumer."""
        self._cluster: Final = cluster
        self._group_id: Final = group_id
        self._assigned: Final = assigned

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MembershipPort | None,
        *,
        waits_for_topics: bool,
    ) -> None:
        """Commit offsets as a member, or from outside the group. Tells the member if the coordinator refuses it.

        A commit that is repeated leaves out the partitions that the consumer has given up meanwhile. Raises the errors
        of `commit_offsets`, where `waits_for_topics` is described, and of `committing_identity`.
        """
        deadline = self._cluster.deadline("a commit of offsets")
        before = frozenset(self._assigned())

        async def attempt(identity: GroupMembership) -> None:
            given_up = before.difference(self._assigned())
            left = {partition: offset for partition, offset in offsets.items() if partition not in given_up}
            await commit_offsets(
                self._cluster,
                self._group_id,
                left,
                member=identity,
                deadline=deadline,
                waits_for_topics=waits_for_topics,
            )

        await self._repeating(attempt, member, deadline, (StaleMemberEpochError,))

    async def committed(
        self, partitions: Collection[TopicPartition], member: MembershipPort | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets. Waits for the end of open transactions with offsets of these partitions (KIP-447).

        With the protocol of KIP-848, the coordinator checks that `member` is one. Raises `UnknownMemberIdError` if it
        was removed.
        """
        deadline = self._cluster.deadline("reading committed offsets")
        checked = self._cluster.settings.group_protocol == "consumer"

        async def attempt(identity: GroupMembership) -> dict[TopicPartition, OffsetAndMetadata]:
            return await fetch_committed(
                self._cluster,
                self._group_id,
                partitions,
                member=identity if checked and identity.generation_id > 0 else None,
                require_stable=True,
                deadline=deadline,
            )

        if member is not None and (not checked or member.identity.generation_id <= 0):
            member = None
        # The next heartbeat decides whether a member is really unknown.
        return await self._repeating(attempt, member, deadline, (StaleMemberEpochError, UnknownMemberIdError))

    async def _repeating(
        self,
        request: Callable[[GroupMembership], Awaitable[T]],
        member: MembershipPort | None,
        deadline: Deadline,
        repeated: tuple[type[ProtocolError], ...],
    ) -> T:
        failures = 0
        while True:
            identity = _NO_MEMBER if member is None else member.committing_identity()
            try:
                return await request(identity)
            except ProtocolError as error:
                if member is None:
                    raise
                member.commit_failed(error)
                failures += 1
                pause_ms = self._cluster.backoff.delay_ms(failures, self._cluster.clock.random())
                if not isinstance(error, repeated) or pause_ms >= deadline.left_ms():
                    raise
            await self._cluster.clock.sleep_ms(pause_ms)
