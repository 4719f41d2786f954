"""A member of a group under the classic protocol: joins, assigns if it leads, sends heartbeats, leaves.

`consumer` uses it as a `MembershipPort`. Invariants: the member is never in two generations; it reports the end of an
assignment before another member can have the partition; a member that is not polled in time leaves the group.

With the eager protocol, the member gives up its whole assignment before it joins. With the cooperative protocol
(KIP-429), it keeps the assignment, and after the rebalance gives up only the partitions that move. It then joins again,
so that their new owners get them. The protocol is cooperative if all configured assignors support that.

    state     event                                                        next
    OUT       `join`                                                       JOINING
    JOINING   joined and synced                                            IN
    JOINING   MEMBER_ID_REQUIRED: uses the new id                          JOINING
    JOINING   UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: drops the id          JOINING
    JOINING   REBALANCE_IN_PROGRESS, coordinator moved, no response        JOINING
    JOINING   any other error, cancellation                                OUT, raised
    IN        error in an event after the rebalance                        STALE, raised
    IN        heartbeat: REBALANCE_IN_PROGRESS; topics changed             STALE
    IN        heartbeat: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION             LOST
    IN        not polled for `max_poll_interval_ms`: it leaves             LOST
    STALE     `join`                                                       JOINING, eager: after `on_revoked`
    LOST      `join`                                                       JOINING, after `on_lost`
    IN        partitions were revoked after a cooperative rebalance        STALE
    any       `leave`                                                      OUT
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from odradek.base.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NotCoordinatorError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.assignor_values import Assignment, Member, Previous
from odradek.client.consumer.assignors import ASSIGNORS, is_cooperative
from odradek.client.consumer.group_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.client.consumer.member_contract import MemberEvents
from odradek.client.metadata import ClusterView
from odradek.client.offsets import GroupMembership
from odradek.protocol.codec import Response
from odradek.protocol.messages.membership import (
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    SyncGroupResponse,
)

_LOG: Final = logging.getLogger(__name__)

_NO_GENERATION: Final = -1
_JOIN_SLACK_MS: Final = 5_000
"""Added to the rebalance timeout as the timeout of a JoinGroup response."""

_LOST_ERRORS: Final = (UnknownMemberIdError, IllegalGenerationError)
_MOVED_ERRORS: Final = (NotCoordinatorError, CoordinatorNotAvailableError)


class MemberState(Enum):
    """State of the membership; see the table above."""

    OUT = "out"
    JOINING = "joining"
    IN = "in"
    STALE = "stale"
    LOST = "lost"


class GroupMember:
    """One member of a group. Call `join` whenever `needs_join` is true; `close` is idempotent."""

    def __init__(self, cluster: Cluster, group_id: str, events: MemberEvents, *, on_news: Callable[[], None]) -> None:
        """`on_news` is called when a background task has set `needs_join` or `error`."""
        self._cluster = cluster
        self._settings: Final = cluster.settings
        self._clock: Final = cluster.clock
        self._group_id: Final = group_id
        self._events = events
        self._on_news = on_news
        self._tasks = TaskOwner()
        self._beating = False
        self._topics: tuple[str, ...] = ()
        self._joined_topics: tuple[str, ...] = ()
        """The topics in the last JoinGroup request."""
        self._is_cooperative: Final = is_cooperative(self._settings.partition_assignment_strategy)
        self._previous = Previous()
        self._owned: tuple[TopicPartition, ...] = ()
        """The assignment that the consumer knows, sorted."""
        self._state = MemberState.OUT
        self._member_id = ""
        self._generation_id = _NO_GENERATION
        self._polled_ms = self._clock.monotonic_ms()
        self._led_counts: dict[str, int] | None = None
        self.error: ProtocolError | None = None
        """The error that ended the membership permanently."""
        cluster.on_change.append(self._look_at_topics)

    @property
    def state(self) -> MemberState:
        """State of the membership."""
        return self._state

    @property
    def needs_join(self) -> bool:
        """Whether `join` must be called."""
        return self._state is not MemberState.IN

    @property
    def identity(self) -> GroupMembership:
        """The identity for commits."""
        return GroupMembership(self._generation_id, self._member_id, self._settings.group_instance_id)

    def committing_identity(self) -> GroupMembership:
        """Return the identity for commits, if they are possible now.

        Raises `UnknownMemberIdError` if the assignment was lost, and `RebalanceInProgressError` while there is none. A
        commit without a generation would be accepted like one from outside the group, and overwrite the commits of the
        new owners.
        """
        if self._state is MemberState.LOST:
            raise UnknownMemberIdError(
                f"the group {self._group_id} has removed this member: other members own its partitions"
            )
        if self._state not in (MemberState.IN, MemberState.STALE):
            raise RebalanceInProgressError(f"this consumer has not joined group {self._group_id} yet")
        return self.identity

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics with the next `join`."""
        topics = tuple(sorted(set(topics)))
        if topics != self._topics:
            self._topics = topics
            self._cluster.follow(topics)
            self._stale()

    def polled(self) -> None:
        """Note that the application asked for records."""
        self._polled_ms = self._clock.monotonic_ms()

    def commit_failed(self, error: ProtocolError) -> None:
        """Note that a commit was rejected. The generation may have ended."""
        if isinstance(error, _LOST_ERRORS):
            self._lose()
        elif isinstance(error, RebalanceInProgressError):
            self._stale()

    def _stale(self) -> None:
        if self._state is MemberState.IN:
            self._state = MemberState.STALE
            self._on_news()

    def _lose(self, *, keep_id: bool = False) -> None:
        self._generation_id = _NO_GENERATION
        if not keep_id:
            self._member_id = ""
        if self._state in (MemberState.IN, MemberState.STALE):
            self._state = MemberState.LOST
            self._on_news()

    # Join

    async def join(self) -> None:
        """Join the current generation, with retries. Raises errors that are not retriable."""
        if self._state is MemberState.IN:
            return
        failures = 0
        try:
            while True:
                await self._before_join()
                self._state = MemberState.JOINING
                try:
                    partitions = await self._join_and_sync()
                    break
                except ProtocolError as error:
                    failures = self._after_failure(error, failures)
                if failures:
                    await self._clock.sleep_ms(self._cluster.backoff.delay_ms(failures, self._clock.random()))
            self._state = MemberState.IN
            if not self._beating:
                self._beating = True
                self._tasks.spawn(self._beat(), name=f"heartbeat of {self._group_id}")
            await self._after_join(tuple(sorted(partitions)))
        except BaseException:
            if self._state is MemberState.JOINING:
                self._state = MemberState.OUT
            else:
                # The consumer did not complete the change of the assignment. The next rebalance begins with it.
                self._stale()
            raise

    async def _before_join(self) -> None:
        """Give up the partitions that the member must not have during the rebalance."""
        if self._is_cooperative and self._generation_id != _NO_GENERATION:
            await self._give_up([each for each in self._owned if each.topic not in self._topics])
        else:
            await self._give_up(self._owned)

    async def _after_join(self, assigned: tuple[TopicPartition, ...]) -> None:
        """Report how the assignment has changed."""
        if self._joined_topics != self._topics:
            self._stale()
        if not {partition.topic for partition in assigned} <= set(self._topics):
            # The subscription has changed meanwhile. The next rebalance takes it into account, as in the Java client.
            return
        self._previous = Previous(assigned, self._generation_id)
        revoked = [partition for partition in self._owned if partition not in assigned]
        if revoked:
            await self._give_up(revoked)
            self._stale()
        # While the application commits, the group may remove this member.
        if self._state is not MemberState.LOST:
            added = [partition for partition in assigned if partition not in self._owned]
            self._owned = assigned
            await self._events.on_assigned(added)

    async def _give_up(self, partitions: Sequence[TopicPartition]) -> None:
        """Report that partitions are no longer assigned, if there are any."""
        if partitions and self._generation_id == _NO_GENERATION:
            await self._events.on_lost(partitions)
        elif partitions:
            await self._events.on_revoked(partitions)
        self._owned = tuple(partition for partition in self._owned if partition not in partitions)

    def _after_failure(self, error: ProtocolError, failures: int) -> int:
        """Return the new number of consecutive failures, 0 to retry at once. Raises errors that are not retriable."""
        if isinstance(error, MemberIdRequiredError | RebalanceInProgressError):
            return 0
        if isinstance(error, _LOST_ERRORS):
            self._lose(keep_id=isinstance(error, IllegalGenerationError))
            return failures + 1
        if isinstance(error, _MOVED_ERRORS):
            self._cluster.forget_coordinator(self._group_id)
        if isinstance(error, FencedInstanceIdError):
            self._lose(keep_id=True)
        if not error.retriable:
            raise error
        return failures + 1

    async def _join_and_sync(self) -> Sequence[TopicPartition]:
        response = await self._ask(
            JoinGroupResponse, self._join_message(), self._settings.max_poll_interval_ms + _JOIN_SLACK_MS
        )
        if response.error_code == MemberIdRequiredError.code:
            self._member_id = response.member_id
        self._check(response.error_code, "join")
        self._member_id = response.member_id
        self._generation_id = response.generation_id
        protocol = response.protocol_name or ""
        assignments: list[dict[str, object]] = []
        self._led_counts = None
        if response.leader == response.member_id:
            assignment = await self._assign(protocol, response.members)
            if not response.skip_assignment:
                assignments = [
                    {"member_id": member, "assignment": encode_assignment(partitions)}
                    for member, partitions in assignment.items()
                ]
        synced = await self._ask(
            SyncGroupResponse,
            {
                **self._own_fields(),
                "protocol_type": PROTOCOL_TYPE,
                "protocol_name": protocol,
                "assignments": assignments,
            },
            self._settings.max_poll_interval_ms + _JOIN_SLACK_MS,
        )
        self._check(synced.error_code, "sync")
        return decode_assignment(synced.assignment)

    def _join_message(self) -> dict[str, object]:
        self._joined_topics = self._topics
        return {
            "group_id": self._group_id,
            "session_timeout_ms": self._settings.session_timeout_ms,
            "rebalance_timeout_ms": self._settings.max_poll_interval_ms,
            "member_id": self._member_id,
            "group_instance_id": self._settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [
                {"name": name, "metadata": encode_subscription(self._subscription(name))}
                for name in self._settings.partition_assignment_strategy
            ],
            "reason": None,
        }

    def _subscription(self, assignor: str) -> Subscription:
        return Subscription(
            topics=self._topics,
            user_data=ASSIGNORS[assignor].user_data(self._previous),
            owned=self._owned,
            generation_id=self._generation_id,
            rack_id=self._settings.client_rack or None,
        )

    def _own_fields(self) -> dict[str, object]:
        return {
            "group_id": self._group_id,
            "generation_id": self._generation_id,
            "member_id": self._member_id,
            "group_instance_id": self._settings.group_instance_id,
        }

    async def _ask(self, expected: type[Response], message: dict[str, object], timeout_ms: float) -> Response:
        timeout_ms = max(timeout_ms, self._settings.request_timeout_ms)
        return await self._cluster.ask_coordinator(self._group_id, expected, message, timeout_ms=timeout_ms)

    def _check(self, code: int, what: str) -> None:
        if code:
            raise error_for(code, f"group {self._group_id} refused a {what}")

    async def _assign(self, protocol: str, members: Sequence[JoinGroupResponseMember]) -> Assignment:
        """As the leader, return the assignment of each member."""
        if protocol not in ASSIGNORS:
            raise InconsistentGroupProtocolError(
                f"group {self._group_id} chose the assignor {protocol!r}, which this client does not have"
            )
        assignor = ASSIGNORS[protocol]
        wanting = []
        for member in members:
            subscription = decode_subscription(member.metadata)
            owned, generation_id = assignor.previous(subscription)
            wanting.append(
                Member(
                    member.member_id,
                    subscription.topics,
                    member.group_instance_id,
                    owned or (),
                    generation_id,
                    subscription.rack_id,
                )
            )
        topics = {topic for member in wanting for topic in member.topics}
        self._cluster.follow(topics)
        view = await self._cluster.fresh_view(topics)
        self._led_counts = _counts(view, topics)
        return assignor.assign(wanting, self._led_counts, _racks(view, topics))

    def _look_at_topics(self, view: ClusterView) -> None:
        """As the leader, join again if topics of the group were created or deleted, or have more partitions."""
        counts = self._led_counts
        if counts is not None and self._state is MemberState.IN and _counts(view, counts) != counts:
            self._stale()

    # Heartbeats

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep_ms(self._settings.heartbeat_interval_ms)
            if self._state not in (MemberState.IN, MemberState.STALE):
                continue
            if self._clock.monotonic_ms() - self._polled_ms > self._settings.max_poll_interval_ms:
                _LOG.warning(
                    "member %s leaves group %s: the application did not call getmany within max.poll.interval.ms",
                    self._member_id,
                    self._group_id,
                )
                await self._leave_group()
                self._lose()
                continue
            try:
                response = await self._ask(HeartbeatResponse, self._own_fields(), self._settings.request_timeout_ms)
                self._check(response.error_code, "heartbeat")
            except ProtocolError as error:
                self._after_heartbeat(error)

    def _after_heartbeat(self, error: ProtocolError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self._stale()
        elif isinstance(error, _LOST_ERRORS):
            self._lose()
        elif isinstance(error, _MOVED_ERRORS):
            self._cluster.forget_coordinator(self._group_id)
        elif not error.retriable:
            self.error = error
            self._lose(keep_id=isinstance(error, FencedInstanceIdError))
            self._on_news()

    # Leave

    async def leave(self) -> None:
        """End the assignment, and leave the group if the coordinator can be reached."""
        if self._owned and self._generation_id != _NO_GENERATION:
            # The coordinator accepts commits until a rebalance ends, and checks the generation.
            self._state = MemberState.STALE
        await self._give_up(self._owned)
        await self._leave_group()
        self._member_id = ""
        self._generation_id = _NO_GENERATION
        self._state = MemberState.OUT

    async def _leave_group(self) -> None:
        # A static member does not leave: if it restarts within the session timeout, there is no rebalance.
        if not self._member_id or self._settings.group_instance_id is not None:
            return
        message: dict[str, object] = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "members": [{"member_id": self._member_id, "group_instance_id": None, "reason": None}],
        }
        try:
            await self._ask(LeaveGroupResponse, message, self._settings.request_timeout_ms)
        except ProtocolError as error:
            _LOG.info("member %s could not leave group %s: %s", self._member_id, self._group_id, error)

    async def close(self) -> None:
        """Stop the heartbeats without leaving the group."""
        if self._look_at_topics in self._cluster.on_change:
            self._cluster.on_change.remove(self._look_at_topics)
        await self._tasks.close()


def _racks(view: ClusterView, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
    """Return the racks of the replicas of each partition."""
    found = {}
    for name in topics:
        topic = view.topics.get(name)
        for partition in () if topic is None else topic.partitions.values():
            nodes = [view.nodes[replica] for replica in partition.replicas if replica in view.nodes]
            racks = frozenset(node.rack for node in nodes if node.rack)
            found[TopicPartition(name, partition.partition)] = racks
    return found


def _counts(view: ClusterView, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each topic; 0 for a topic that does not exist."""
    found = {}
    for name in topics:
        topic = view.topics.get(name)
        missing = topic is None or topic.error_code == UnknownTopicOrPartitionError.code
        found[name] = 0 if topic is None or missing else len(topic.partitions)
    return found
