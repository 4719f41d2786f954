"""A member of a group under the protocol of KIP-848: the coordinator assigns, and heartbeats are the only requests.

`consumer` uses it as a `MembershipPort` with `group.protocol=consumer`. One task sends the heartbeats; `join` changes
the assignment. Each response can have a new target. A target is *waiting* until `join` has revoked what it lacks,
acknowledged that with a heartbeat, and added the rest; the newest target replaces one that waits. Partitions that stay
are not disturbed. The behaviour is that of the Java client of Apache Kafka 4.1.

    state     event                                                             next
    OUT       `join`                                                            JOINING
    JOINING   response with an epoch                                            IN
    JOINING   coordinator moved or loading, no response                         JOINING, repeats
    JOINING   FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID                            JOINING, repeats
    JOINING   TOPIC_AUTHORIZATION_FAILED                                        JOINING, repeats; raised by `join`
    JOINING   any other error                                                   OUT, raised by `join`
    JOINING   not polled for `max_poll_interval_ms`: it leaves                  OUT
    IN        response with another target, whose topics are known              IN, waiting
    IN        `join` while a target is waiting                                  IN, after `on_revoked`, `on_assigned`
    IN        coordinator moved or loading, no response                         IN, repeats with all fields
    IN        FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID                            LOST
    IN        TOPIC_AUTHORIZATION_FAILED                                        IN, repeats; `error`
    IN        any other error                                                   LOST, `error`
    IN        not polled for `max_poll_interval_ms`: it leaves                  LOST
    LOST      `join`, after the next poll                                       JOINING, after `on_lost`
    any       `leave`                                                           OUT

Heartbeats are sent in the states JOINING and IN. The member id stays the same as long as the object exists.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final
from uuid import UUID

from odradek.base.errors import ProtocolError, RebalanceInProgressError, UnknownMemberIdError, error_for
from odradek.base.ports import Clock
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import ANY_VERSION, Cluster
from odradek.client.consumer.consumer_protocol.heartbeat_errors import Reaction, explained, reaction_to
from odradek.client.consumer.consumer_protocol.heartbeat_fields import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    HeartbeatFields,
    TopicIdPartition,
    assigned_partitions,
    heartbeat_changes,
)
from odradek.client.consumer.member_contract import MemberEvents
from odradek.client.metadata import ClusterView
from odradek.client.offsets import GroupMembership
from odradek.protocol.codec import Message
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse

_LOG: Final = logging.getLogger(__name__)

_NO_EPOCH: Final = GroupMembership().generation_id
_REGEX_VERSION: Final = 1
"""First version of ConsumerGroupHeartbeat with a regular expression."""

Assignment = dict[TopicPartition, UUID]
"""Partitions with the ids of their topics."""


class JoinState(Enum):
    """State of the membership; see the table above."""

    OUT = "out"
    JOINING = "joining"
    IN = "in"
    LOST = "lost"


class ConsumerProtocolMember:
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
        self._beating: asyncio.Task[None] | None = None
        self._naming: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._state = JoinState.OUT
        self._member_id = new_member_id(self._clock)
        self._epoch = JOIN_EPOCH
        self._topics: tuple[str, ...] = ()
        self._regex: str | None = None
        self._owned: Assignment = {}
        """The assignment that the consumer knows."""
        self._target: frozenset[TopicIdPartition] = frozenset()
        self._names: dict[UUID, str] = {}
        self._waiting: Assignment | None = None
        """The part of the target with known topics; None if the consumer has it."""
        self._target_number = 0
        """Number of the target since the member joined; 0 before the first."""
        self._reached = 0
        """Number of the last target that was put into effect."""
        self._sent: HeartbeatFields | None = None
        self._due_ms = 0.0
        self._not_before_ms = 0.0
        self._failures = 0
        self._polled_ms = self._clock.monotonic_ms()
        self.error: ProtocolError | None = None
        """The error that ended the membership, or that the application must know."""
        cluster.on_change.append(self._look_at_topics)

    @property
    def state(self) -> JoinState:
        """State of the membership."""
        return self._state

    @property
    def needs_join(self) -> bool:
        """Whether `join` must be called."""
        return self._state is not JoinState.IN or self._waiting is not None

    @property
    def identity(self) -> GroupMembership:
        """The member epoch and the ids. The epoch is -1 if this is not a member now."""
        epoch = self._epoch if self._state is JoinState.IN else _NO_EPOCH
        return GroupMembership(epoch, self._member_id, self._settings.group_instance_id)

    def committing_identity(self) -> GroupMembership:
        """Return the identity for commits, if they are possible now. They are possible during a rebalance.

        Raises `UnknownMemberIdError` if the assignment was lost, and `RebalanceInProgressError` before the first one.
        """
        if self._state is JoinState.LOST:
            raise UnknownMemberIdError(
                f"the group {self._group_id} has removed this member: other members own its partitions"
            )
        if self._state is not JoinState.IN:
            raise RebalanceInProgressError(f"this consumer has not joined group {self._group_id} yet")
        return self.identity

    def commit_failed(self, error: ProtocolError) -> None:
        """Note that the coordinator refused a request with the member epoch. The next heartbeat tells the current one,
        or that the member was removed; it is sent at once."""
        if reaction_to(error) is not Reaction.REPEAT:
            self._due_ms = 0.0
            self._wake.set()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription by these topics."""
        self._topics = tuple(sorted(set(topics)))
        self._cluster.follow(self._topics)
        self._wake.set()

    def subscribe_regex(self, regex: str) -> None:
        """Subscribe to the topics that match a regular expression, which the coordinator resolves. Call this or
        `subscribe`, not both.

        Its syntax is that of RE2. It must match the whole name.
        """
        self._regex = regex
        self._wake.set()

    def polled(self) -> None:
        """Note that the application asked for records."""
        self._polled_ms = self._clock.monotonic_ms()
        self._changed.set()

    # Join

    async def join(self) -> None:
        """Join the group, or complete the waiting rebalance, with retries. Raises errors that are not retriable."""
        while True:
            self._changed.clear()
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            if self._state in (JoinState.OUT, JoinState.LOST) and not self._is_idle():
                await self._lose_all()
                self._begin()
            elif self._state is JoinState.IN and self._waiting is not None:
                await self._reconcile(self._waiting)
            elif self._state is JoinState.IN:
                return
            else:
                await self._changed.wait()

    def _begin(self) -> None:
        """Start to join. The task of the heartbeats does the rest."""
        self._state = JoinState.JOINING
        self._epoch = JOIN_EPOCH
        self._target, self._waiting, self._target_number, self._reached = frozenset(), None, 0, 0
        self._sent = None
        self._due_ms = self._not_before_ms = 0.0
        self._wake.set()
        if self._beating is None:
            self._beating = self._tasks.spawn(self._beat(), name=f"heartbeats of {self._group_id}")

    async def _lose_all(self) -> None:
        if self._owned:
            await self._events.on_lost(sorted(self._owned))
            self._owned = {}

    async def _reconcile(self, wanted: Assignment) -> None:
        """Bring the assignment to a target. Ends early if the member was removed or the target has changed."""
        revoked = sorted(self._owned.keys() - wanted.keys())
        if revoked:
            await self._events.on_revoked(revoked)
            self._owned = {each: topic_id for each, topic_id in self._owned.items() if each in wanted}
            # The coordinator gives the partitions to others as soon as it knows.
            self._wake.set()
        if self._state is not JoinState.IN or self._waiting != wanted:
            return
        added = sorted(wanted.keys() - self._owned.keys())
        self._owned = dict(wanted)
        await self._events.on_assigned(added)
        if self._state is JoinState.IN and self._waiting == wanted:
            self._waiting, self._reached = None, self._target_number
        self._wake.set()

    # Targets

    def _set_target(self, target: frozenset[TopicIdPartition]) -> None:
        if target != self._target or not self._target_number:
            self._target = target
            self._target_number += 1
            self._resolve()

    def _look_at_topics(self, view: ClusterView) -> None:
        if self._unnamed():
            self._resolve()

    def _unnamed(self) -> set[UUID]:
        return {topic_id for topic_id, _ in self._target if topic_id not in self._names}

    def _resolve(self) -> None:
        """Find the names of the target's topics. Partitions of unknown topics wait for the metadata."""
        wanted_ids = {topic_id for topic_id, _ in self._target}
        known = {topic.topic_id: topic.name for topic in self._cluster.view.topics.values()}
        names = {**known, **self._names}
        self._names = {topic_id: names[topic_id] for topic_id in wanted_ids if topic_id in names}
        found = {
            TopicPartition(self._names[topic_id], number): topic_id
            for topic_id, number in self._target
            if topic_id in self._names
        }
        unnamed = self._unnamed()
        is_new = self._reached != self._target_number and not unnamed
        if found != self._owned or is_new:
            self._waiting = found
            self._tell()
        else:
            self._waiting = None
        if unnamed and (self._naming is None or self._naming.done()):
            self._naming = self._tasks.spawn(self._name_topics(), name=f"topics of {self._group_id}")

    async def _name_topics(self) -> None:
        """Ask for the names of topics until they are known, or no longer assigned."""
        failures = 0
        while unnamed := self._unnamed():
            try:
                self._names.update(await self._cluster.topic_names(unnamed))
            except ProtocolError as error:
                if not error.retriable:
                    self.error = error
                    self._tell()
            if self._unnamed() != unnamed:
                failures = 0
                self._resolve()
            else:
                failures += 1
                await self._clock.sleep_ms(self._cluster.backoff.delay_ms(failures, self._clock.random()))

    def _tell(self) -> None:
        self._changed.set()
        self._on_news()

    # Heartbeats

    async def _beat(self) -> None:
        while True:
            self._wake.clear()
            due_ms = self._due_in_ms()
            if due_ms > 0:
                await self._wait_for_wake(due_ms)
            elif self._is_idle():
                await self._leave_idle()
            else:
                await self._send_heartbeat()

    def _due_in_ms(self) -> float:
        """Return the time until the next heartbeat, or until the member has not been polled for too long."""
        if self._state not in (JoinState.JOINING, JoinState.IN):
            return math.inf
        now_ms = self._clock.monotonic_ms()
        due_ms = self._due_ms if self._fields() == self._sent else 0.0
        idle_ms = self._polled_ms + self._settings.max_poll_interval_ms - now_ms
        return max(0.0, min(max(due_ms, self._not_before_ms) - now_ms, idle_ms))

    async def _wait_for_wake(self, due_ms: float) -> None:
        if math.isinf(due_ms):
            await self._wake.wait()
            return
        timer = self._clock.call_later(due_ms, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _is_idle(self) -> bool:
        return self._clock.monotonic_ms() - self._polled_ms >= self._settings.max_poll_interval_ms

    async def _leave_idle(self) -> None:
        _LOG.warning(
            "member %s leaves group %s: the application did not call getmany within max.poll.interval.ms",
            self._member_id,
            self._group_id,
        )
        await self._leave_group()
        self._lose()

    def _fields(self) -> HeartbeatFields:
        return HeartbeatFields(
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            rack_id=self._settings.client_rack or None,
            topics=self._topics,
            regex=self._regex,
            server_assignor=self._settings.group_remote_assignor,
            owned=tuple(sorted((topic_id, number) for (_, number), topic_id in self._owned.items())),
            reached=self._reached,
        )

    async def _send_heartbeat(self) -> None:
        fields, state, sent_ms = self._fields(), self._state, self._clock.monotonic_ms()
        changes = heartbeat_changes(fields, self._sent, joining=state is JoinState.JOINING)
        try:
            response = await self._ask(self._epoch, changes, lowest=_REGEX_VERSION if fields.regex is not None else 0)
        except ProtocolError as error:
            # The coordinator may have the fields of this request or not.
            self._sent = None
            if self._state is state:
                self._heartbeat_failed(explained(error, self._group_id, self._settings.group_instance_id, fields))
            return
        if self._state is state:
            self._sent, self._failures = fields, 0
            self._take(response, sent_ms)

    def _take(self, response: ConsumerGroupHeartbeatResponse, sent_ms: float) -> None:
        if response.member_id:
            # Version 0 allows the coordinator to choose the id.
            self._member_id = response.member_id
        self._epoch = response.member_epoch
        self._due_ms = sent_ms + response.heartbeat_interval_ms
        if self._state is JoinState.JOINING:
            self._state = JoinState.IN
            self._tell()
        if response.assignment is not None:
            self._set_target(assigned_partitions(response.assignment))

    def _heartbeat_failed(self, error: ProtocolError) -> None:
        reaction = reaction_to(error)
        self._failures += 1
        pause_ms = self._cluster.backoff.delay_ms(self._failures, self._clock.random())
        self._not_before_ms = self._clock.monotonic_ms() + pause_ms
        if reaction is Reaction.FIND_COORDINATOR:
            self._cluster.forget_coordinator(self._group_id)
        elif reaction is Reaction.JOIN_AGAIN and self._state is JoinState.IN:
            _LOG.info("group %s has removed member %s: %s", self._group_id, self._member_id, error)
            self._lose()
        elif reaction is Reaction.REPORT:
            self.error = error
            self._tell()
        elif reaction is Reaction.STOP:
            self.error = error
            self._lose()

    def _lose(self) -> None:
        self._state = JoinState.LOST if self._state is JoinState.IN or self._owned else JoinState.OUT
        self._target, self._waiting = frozenset(), None
        self._tell()

    async def _ask(self, epoch: int, fields: Message, *, lowest: int = 0) -> ConsumerGroupHeartbeatResponse:
        message = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "member_epoch": epoch,
            "instance_id": self._settings.group_instance_id,
            **fields,
        }
        response = await self._cluster.ask_coordinator(
            self._group_id, ConsumerGroupHeartbeatResponse, message, versions=(lowest, ANY_VERSION[1])
        )
        if response.error_code:
            text = response.error_message or f"group {self._group_id} refused a heartbeat"
            raise error_for(response.error_code, text)
        return response

    # Leave

    async def leave(self) -> None:
        """End the assignment, and leave the group if the coordinator can be reached."""
        if self._state is JoinState.LOST:
            await self._lose_all()
        elif self._owned:
            await self._events.on_revoked(sorted(self._owned))
            self._owned = {}
        # A heartbeat after the one that leaves would join the group again.
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait({beating})
        if self._state in (JoinState.JOINING, JoinState.IN):
            await self._leave_group()
        self._state = JoinState.OUT
        self._epoch = JOIN_EPOCH
        self._target, self._waiting = frozenset(), None

    async def _leave_group(self) -> None:
        epoch = LEAVE_EPOCH if self._settings.group_instance_id is None else LEAVE_STATIC_EPOCH
        try:
            await self._ask(epoch, {})
        except ProtocolError as error:
            _LOG.info("member %s could not leave group %s: %s", self._member_id, self._group_id, error)

    async def close(self) -> None:
        """Stop the heartbeats without leaving the group."""
        if self._look_at_topics in self._cluster.on_change:
            self._cluster.on_change.remove(self._look_at_topics)
        await self._tasks.close()


def new_member_id(clock: Clock) -> str:
    """Return an id like those of the Java client: a random UUID in base 64, which does not start with a dash."""
    while True:
        random = UUID(bytes=clock.token_bytes(16), version=4)
        found = base64.urlsafe_b64encode(random.bytes).decode().rstrip("=")
        if not found.startswith("-"):
            return found
