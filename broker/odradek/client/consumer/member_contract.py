"""The contract between the consumer and its membership in a group, which either group protocol fulfils.

`Consumer` uses a member only through `MembershipPort`, and a member tells the consumer about its assignment only
through `MemberEvents`. The setting `group.protocol` chooses the class: `GroupMember` for the classic protocol.

Rules that hold for every member:

- The assignment is a set of partitions that begins empty. `on_assigned` adds partitions, `on_revoked` and `on_lost`
  remove them. No event names a partition twice, or one that stays.
- Events are only called inside `join` and `leave`, one at a time. `join` runs in a task of the consumer, which can be
  cancelled at any await. The next `join` or `leave` must then begin from the assignment as the events have set it.
- The consumer waits in an event until the application is in one of its methods, because only then the records that it
  has returned are processed. An event can therefore take up to `max.poll.interval.ms`, during which the member must
  send its heartbeats.
- Partitions that no event has removed are read on while `join` runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from odradek.base.errors import ProtocolError
from odradek.base.types import TopicPartition
from odradek.client.offsets import GroupMembership


class MemberEvents(Protocol):
    """What a member tells its consumer. Each list is sorted; a change without partitions need not be reported."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Give up these partitions. `committing_identity` must still allow a commit of their positions."""
        ...

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop these partitions. Other members may own them already, so their positions cannot be committed."""
        ...

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Add these partitions, without those that the member has kept. The list may be empty.

        Called at the end of each rebalance. `committing_identity` must already allow commits.
        """
        ...


class MembershipPort(Protocol):
    """A member of a group. Its constructor takes the cluster, the group id, the events and `on_news`.

    `on_news` is a function without arguments. A member calls it when a background task has set `needs_join` or `error`,
    so that a waiting `getmany` returns to `join`.
    """

    error: ProtocolError | None
    """An error that ended the membership. The consumer raises it in `getmany`, sets None, and joins again later."""

    @property
    def needs_join(self) -> bool:
        """Whether `join` must be called: this is no member, or a rebalance is waiting."""
        ...

    @property
    def identity(self) -> GroupMembership:
        """The generation or member epoch, and the ids. Always available."""
        ...

    def committing_identity(self) -> GroupMembership:
        """Return the identity for commits, if they are possible now.

        Raises `UnknownMemberIdError` if the assignment was lost, and `RebalanceInProgressError` before the first one
        and during a rebalance.
        """
        ...

    def commit_failed(self, error: ProtocolError) -> None:
        """Note that the coordinator refused a commit of this member."""
        ...

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription. Called again for a pattern whenever other topics match it."""
        ...

    def polled(self) -> None:
        """Note that the application asked for records, which it must do every `max.poll.interval.ms`."""
        ...

    async def join(self) -> None:
        """Join the group, or complete the waiting rebalance, with retries. Raises errors that are not retriable.

        Returns when the assignment is in effect. `needs_join` can be true again at once.
        """
        ...

    async def leave(self) -> None:
        """Report the end of the assignment, then leave the group. Does not raise if the coordinator cannot be asked."""
        ...

    async def close(self) -> None:
        """End all tasks without leaving the group. Idempotent."""
        ...
