"""A consumer group in memory: its committed state, the queue of its operations, and the timers of its members.

`group_shard` creates it, when a member joins or the log is loaded, and submits operations. An operation is a function
from the present state to the next one (`consumer_rules`). The group applies it, appends the difference of the two
states, and answers when the records are committed.

Invariants: the state changes only when its records are committed. One append is in progress at a time; what arrives
meanwhile waits, and is then applied together, in order, as one append. No answer tells of a change that is not
committed. After an append that failed, or whose outcome is unknown, the group first repairs the log, so that it agrees
with the state in memory again (`leftover_records`), and appends nothing else before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from odradek.base.errors import (
    NONE,
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    MessageTooLargeError,
    NetworkError,
    ProtocolError,
    RebalanceInProgressError,
    RecordListTooLargeError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownServerError,
    UnsupportedVersionError,
)
from odradek.base.ports import Clock, Timer
from odradek.base.types import Offset
from odradek.coordinator.append_errors import COMMON_ERRORS, ErrorTable, translated
from odradek.coordinator.coordinator_ports import KeyValue, RecordLog, Respond
from odradek.coordinator.groups.consumer import classic_members, consumer_rules, consumer_views
from odradek.coordinator.groups.consumer.classic_members import has_consumers
from odradek.coordinator.groups.consumer.classic_waits import RETRY_MS, Awaited, ClassicWaits
from odradek.coordinator.groups.consumer.cluster_topics import ClusterTopics
from odradek.coordinator.groups.consumer.consumer_values import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NEW_GROUP,
    ConsumerGroupImage,
    ConsumerGroupPhase,
    ConsumerGroupSettings,
    ConsumerMember,
    DescribedConsumerGroup,
    HeartbeatResult,
    MemberHeartbeat,
    ReconciliationState,
    RuleContext,
)
from odradek.coordinator.groups.consumer.leftover_records import TOO_LARGE, LeftoverRecords
from odradek.coordinator.groups.consumer.migration import can_downgrade, downgraded
from odradek.coordinator.groups.consumer.subscriptions import effective_topics
from odradek.coordinator.groups.group_events import GroupEvents
from odradek.coordinator.groups.group_kinds import CONSUMER_GROUP_TYPE, CONSUMER_PROTOCOL_TYPE, ExpiryRule
from odradek.coordinator.groups.group_offsets import GroupOffsets
from odradek.coordinator.groups.group_records import GroupValue, encode_group_value
from odradek.coordinator.groups.group_requests import (
    CommitRequest,
    DescribedGroup,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    ListedGroup,
    MemberCheck,
    SyncRequest,
    SyncResult,
)

logger = logging.getLogger(__name__)

_APPEND_ERRORS: Final[ErrorTable] = {
    **COMMON_ERRORS,
    NetworkError: CoordinatorNotAvailableError,
    RequestTimedOutError: CoordinatorNotAvailableError,
    MessageTooLargeError: UnknownServerError,
    RecordListTooLargeError: UnknownServerError,
}
"""Errors for members. After COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR, they send their heartbeat again."""

Result = TypeVar("Result")
Operation = Callable[[ConsumerGroupImage, RuleContext], tuple[ConsumerGroupImage, Result]]
"""Returns the next state and the result. If it raises a `ProtocolError`, it changes nothing and only it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupServices:
    """What the consumer groups of a partition share."""

    settings: ConsumerGroupSettings
    clock: Clock
    log: RecordLog
    topics: ClusterTopics
    events: GroupEvents
    classic_max_size: int
    """Maximum number of members of a classic group."""
    group_value_version: int
    """Version of the record of a classic group."""
    on_downgrade: Callable[[ConsumerGroup, ConsumerGroupImage, GroupValue], None]
    """Called when a classic group has replaced a consumer group in the log. Gets the last state of the group."""


class _Change(NamedTuple):
    """The effect of operations that are applied together."""

    state: ConsumerGroupImage
    seen_topics: object
    further: Sequence[Callable[[], Sequence[KeyValue]]]
    """Return the further records of the operations, at the time of the append."""
    answers: Sequence[tuple[Respond[Any], Any]]
    downgrade: tuple[ConsumerGroupImage, GroupValue] | None
    """The last state, and the classic group that takes its place."""


class _Queued(NamedTuple):
    operation: Operation[Any]
    respond: Respond[Any]
    records: Callable[[], Sequence[KeyValue]]
    reads_topics: bool
    may_describe: Callable[[str], bool]


@dataclass(slots=True)
class _Session:
    """The time until which a member is alive, and the timer that looks at it."""

    deadline_ms: float
    timer: Timer


def _no_records() -> Sequence[KeyValue]:
    return ()


def _all_topics(_name: str) -> bool:
    return True


class ConsumerGroup:
    """One group."""

    group_type: ClassVar = CONSUMER_GROUP_TYPE
    protocol_type: Final = CONSUMER_PROTOCOL_TYPE

    def __init__(
        self,
        group_id: str,
        services: ConsumerGroupServices,
        state: ConsumerGroupImage = NEW_GROUP,
        *,
        offsets: GroupOffsets | None = None,
        leftover: Iterable[bytes] = (),
    ) -> None:
        """Create a group with the state in the log, and start the timers of its members.

        `leftover`: keys whose records in the log do not agree with the state, such as that of an empty classic group.
        The first append corrects them.
        """
        self.group_id: Final = group_id
        self.state = state
        self.offsets: Final = GroupOffsets() if offsets is None else offsets
        self._services: Final = services
        self._waiting: list[_Queued] = []
        self._is_appending = False
        self._leftover: Final = LeftoverRecords(group_id, services.log, leftover)
        self._must_repair = False
        """Whether an append failed since the log and the state agreed."""
        self._seen_topics: object = None
        """The version of the metadata at which the group has looked."""
        self._sessions: Final[dict[str, _Session]] = {}
        self._rebalances: Final[dict[str, Timer]] = {}
        """Timers of the members that have to revoke partitions."""
        self._waits: Final = ClassicWaits(group_id, services.clock, self._remove)
        self._closed: ProtocolError | None = None
        self._watch({}, state.members)

    def __repr__(self) -> str:
        """Return id, phase, epoch and members, for logs and tests."""
        return (
            f"<consumer group {self.group_id!r} {self.phase.value} epoch {self.state.epoch} of {[*self.state.members]}>"
        )

    # State

    @property
    def phase(self) -> ConsumerGroupPhase:
        """The state in ListGroups and ConsumerGroupDescribe."""
        return ConsumerGroupPhase.DEAD if self.is_dead else consumer_views.phase(self.state)

    @property
    def is_dead(self) -> bool:
        """Whether the group was closed."""
        return self._closed is not None

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.state.is_empty

    @property
    def member_count(self) -> int:
        """Number of members."""
        return len(self.state.members)

    @property
    def is_busy(self) -> bool:
        """Whether an append is in progress, so that operations wait."""
        return self._is_appending

    @property
    def is_uncertain(self) -> bool:
        """Whether the log may have records that do not belong to the state."""
        return bool(self._leftover)

    @property
    def has_records(self) -> bool:
        """Whether the log has, or may have, records of the group."""
        return self.is_uncertain or self.state != NEW_GROUP

    @property
    def is_unused(self) -> bool:
        """Whether the group has no state that must be kept."""
        return not (self._is_appending or self._waiting or self.has_records) and self.offsets.is_idle

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Topics to which the members subscribe, by name or by a regular expression."""
        state = self.state
        return frozenset().union(*(effective_topics(member, state.regexes) for member in state.members.values()))

    # Operations

    def submit(
        self,
        operation: Operation[Result],
        respond: Respond[Result],
        *,
        records: Callable[[], Sequence[KeyValue]] = _no_records,
        reads_topics: bool = False,
        may_describe: Callable[[str], bool] = _all_topics,
    ) -> None:
        """Apply an operation as soon as no append is in progress. `respond` gets its result when it is committed.

        `records` returns further records of the append, at its time. `reads_topics`: the operation takes changes of the
        metadata into account. `may_describe`: see `RuleContext`.
        """
        if self._closed is not None:
            respond(self._closed)
            return
        self._waiting.append(_Queued(operation, respond, records, reads_topics, may_describe))
        self._run()

    def heartbeat(
        self,
        request: MemberHeartbeat,
        respond: Respond[HeartbeatResult],
        may_describe: Callable[[str], bool] = _all_topics,
    ) -> None:
        """Handle ConsumerGroupHeartbeat of a member that joins, stays or leaves. A member that stays is alive for
        another session timeout. `may_describe`: whether the client may see a topic."""
        is_leaving = request.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

        def apply(state: ConsumerGroupImage, context: RuleContext) -> tuple[ConsumerGroupImage, HeartbeatResult]:
            if is_leaving:
                consumer_rules.check_heartbeat(request, context.settings)
                return consumer_rules.leave(state, request.member_id, request.instance_id, request.epoch, context)
            after, result = consumer_rules.heartbeat(state, request, context)
            self._extend(after.members[result.member_id])  # Even if the records cannot be stored.
            return after, result

        self.submit(apply, respond, reads_topics=not is_leaving, may_describe=may_describe)

    # Requests of classic members

    def join(self, request: JoinRequest, new_member_id: str, respond: Respond[JoinResult]) -> None:
        """Handle JoinGroup of a classic member. The member must then send SyncGroup within its rebalance timeout.
        `new_member_id`: the id of a member without one."""

        def apply(state: ConsumerGroupImage, context: RuleContext) -> tuple[ConsumerGroupImage, JoinResult]:
            after, result = classic_members.join(state, request, new_member_id, context)
            if result.error_code == NONE:
                self._extend(after.members[result.member_id])
            return after, result

        def joined(outcome: JoinResult | ProtocolError) -> None:
            if isinstance(outcome, JoinResult) and outcome.member_id in self.state.members:
                self._waits.forget(outcome.member_id)
                self._waits.start(outcome.member_id, Awaited.SYNC, request.rebalance_timeout_ms)
            respond(outcome)

        # Changes of topics that match regular expressions are left to heartbeats, which have the permissions.
        self.submit(apply, joined, reads_topics=not self.state.regexes)

    def sync(self, request: SyncRequest, respond: Respond[SyncResult]) -> None:
        """Handle SyncGroup of a classic member."""
        member_id = request.member.member_id

        def apply(state: ConsumerGroupImage, context: RuleContext) -> tuple[ConsumerGroupImage, SyncResult]:
            try:
                result = classic_members.sync(state, request)
            except RebalanceInProgressError:
                self._waits.start(member_id, Awaited.JOIN, state.members[member_id].rebalance_timeout_ms)
                raise
            self._extend(state.members[member_id])
            return state, result

        def synced(outcome: SyncResult | ProtocolError) -> None:
            if isinstance(outcome, SyncResult):
                self._waits.end(member_id, Awaited.SYNC)
            respond(outcome)

        self.submit(apply, synced)

    def classic_heartbeat(self, check: MemberCheck) -> None:
        """Handle Heartbeat of a classic member, with the committed state. Raises the errors of
        `classic_members.find_classic`, and `RebalanceInProgressError` if the member must join again."""
        if self._closed is not None:
            raise self._closed
        member = classic_members.find_classic(self.state, check)
        self._extend(member)
        if self.is_uncertain and not self._is_appending:
            self.submit(lambda state, _: (state, None), lambda _: None)  # The log must get what the answer tells.
        if classic_members.must_rejoin(self.state, member):
            self._waits.start(member.member_id, Awaited.JOIN, member.rebalance_timeout_ms)
            raise RebalanceInProgressError(f"Group {self.group_id!r} rebalances: join again.")

    def leave(self, members: Sequence[LeavingMember], respond: Respond[list[LeaveResult]]) -> None:
        """Handle LeaveGroup of classic members, or of static members that an administrator removes."""
        self.submit(partial(classic_members.leave, members), respond)

    def _run(self) -> None:
        while self._waiting and not self._is_appending:
            batch, self._waiting = self._waiting, []
            self._apply(batch)

    def _apply(self, batch: Sequence[_Queued]) -> None:
        state, version = self.state, self._services.topics.version
        answers: list[tuple[Respond[Any], Any]] = []
        further: list[Callable[[], Sequence[KeyValue]]] = []
        has_looked = False
        for queued in batch:
            try:
                state, result = queued.operation(state, self._context(queued, version))
            except ProtocolError as error:
                result = error
            except Exception:
                # A bug must not leave the other operations without an answer.
                logger.exception("%r: an operation failed", self)
                result = UnknownServerError("The broker failed to handle the request: see its log.")
            else:
                further.append(queued.records)
                has_looked |= queued.reads_topics
            answers.append((queued.respond, result))
        seen = version if has_looked else self._seen_topics
        downgrade = self._downgrade(state)
        change = _Change(NEW_GROUP if downgrade else state, seen, further, answers, downgrade)
        if self._must_repair:
            self._is_appending = True
            self._leftover.repair(self.state, partial(self._repaired, change))
        else:
            self._append(change)

    def _repaired(self, change: _Change, error: ProtocolError | None) -> None:
        self._is_appending = False
        error = error or self._closed
        if error is None:
            self._must_repair = False
            self._append(change)
        else:
            self._fail(change, error)
        self._run()

    def _append(self, change: _Change) -> None:
        records = self._leftover.records(self.state, change.state)
        if change.downgrade is not None:
            value = encode_group_value(change.downgrade[1], self._services.group_value_version)
            records.append((self._leftover.classic_key, value))
        keys = [key for key, _ in records]
        records.extend(chain.from_iterable(further() for further in change.further))
        if not records:
            self._commit(change.state, change.seen_topics)
            _answer(change.answers)
            return
        self._is_appending = True
        self._services.log.append(records, partial(self._appended, change, keys))

    def _downgrade(self, state: ConsumerGroupImage) -> tuple[ConsumerGroupImage, GroupValue] | None:
        """Return the classic group, if the last member of the consumer protocol has left others behind."""
        services = self._services
        had_consumers = state is not self.state and has_consumers(self.state.members.values())
        if not had_consumers or has_consumers(state.members.values()):
            return None
        if not can_downgrade(state, (), services.settings, services.classic_max_size):
            return None
        return state, downgraded(state, (), now_ms=services.clock.wall_ms())

    def _context(self, queued: _Queued, version: object) -> RuleContext:
        return RuleContext(
            settings=self._services.settings,
            topics=self._services.topics,
            now_ms=self._services.clock.wall_ms(),
            topics_changed=queued.reads_topics and version is not self._seen_topics,
            may_describe=queued.may_describe,
        )

    def _appended(self, change: _Change, keys: Sequence[bytes], outcome: Offset | ProtocolError) -> None:
        self._is_appending = False
        if isinstance(outcome, ProtocolError):
            if not isinstance(outcome, TOO_LARGE):
                self._leftover.add(keys)
            self._must_repair = self.is_uncertain
            self._fail(change, outcome)
        else:
            self._leftover.clear()
            self._commit(change.state, change.seen_topics)
            if change.downgrade is not None:
                logger.info("%r becomes a classic group, because its last member of the consumer protocol left", self)
                self._services.on_downgrade(self, *change.downgrade)
            _answer(change.answers)
        self._run()

    def _fail(self, change: _Change, error: ProtocolError) -> None:
        logger.warning("%r: a change was not stored: %s", self, error)
        answer = translated(error, _APPEND_ERRORS)
        _answer([(respond, answer) for respond, _ in change.answers])

    def _commit(self, state: ConsumerGroupImage, seen: object) -> None:
        before, self.state, self._seen_topics = self.state, state, seen
        self._services.events.consumer_rebalances += max(0, state.epoch - before.epoch)
        if self._closed is None and state.members is not before.members:
            self._watch(before.members, state.members)

    def close(self, error: ProtocolError) -> None:
        """End the group, because it was removed or has moved. Waiting operations get the error. Idempotent."""
        if self._closed is not None:
            return
        self._closed = error
        for session in self._sessions.values():
            session.timer.cancel()
        for timer in self._rebalances.values():
            timer.cancel()
        self._sessions.clear()
        self._rebalances.clear()
        self._waits.close()
        waiting, self._waiting = self._waiting, []
        _answer([(queued.respond, error) for queued in waiting])

    # Timers

    def _watch(self, before: Mapping[str, ConsumerMember], after: Mapping[str, ConsumerMember]) -> None:
        """Start and stop timers for the members that have changed."""
        for member_id in before.keys() - after.keys():
            self._stop_rebalance(member_id)
            self._waits.forget(member_id)
            session = self._sessions.pop(member_id, None)
            if session is not None:
                session.timer.cancel()
        for member_id, member in after.items():
            old = before.get(member_id)
            if old is member or old == member:
                continue
            if member_id not in self._sessions:
                self._start_session(member_id, self._session_timeout_ms(member))
            self._stop_rebalance(member_id)
            if member.state is ReconciliationState.UNREVOKED_PARTITIONS:
                self._start_rebalance(member_id, member.epoch, member.rebalance_timeout_ms)

    def _session_timeout_ms(self, member: ConsumerMember) -> int:
        classic = member.classic
        return self._services.settings.session_timeout_ms if classic is None else classic.session_timeout_ms

    def _extend(self, member: ConsumerMember) -> None:
        """Let a member be alive for another session timeout."""
        session = self._sessions.get(member.member_id)
        if session is not None:
            session.deadline_ms = self._services.clock.monotonic_ms() + self._session_timeout_ms(member)

    def _start_session(self, member_id: str, timeout_ms: float) -> None:
        clock = self._services.clock
        timer = clock.call_later(timeout_ms, partial(self._session_due, member_id))
        self._sessions[member_id] = _Session(clock.monotonic_ms() + timeout_ms, timer)

    def _session_due(self, member_id: str) -> None:
        session, clock = self._sessions[member_id], self._services.clock
        left_ms = session.deadline_ms - clock.monotonic_ms()
        if left_ms > 0:
            session.timer = clock.call_later(left_ms, partial(self._session_due, member_id))
            return
        logger.info("%r: member %s did not send a heartbeat in time", self, member_id)

        def is_overdue(_member: ConsumerMember) -> bool:
            return session.deadline_ms <= clock.monotonic_ms()

        def removed(outcome: ProtocolError | None) -> None:
            if self._sessions.get(member_id) is session:
                delay_ms = max(session.deadline_ms - clock.monotonic_ms(), RETRY_MS)
                session.timer = clock.call_later(delay_ms, partial(self._session_due, member_id))

        self._remove(member_id, is_overdue, removed)

    def _start_rebalance(self, member_id: str, epoch: int, timeout_ms: float) -> None:
        due = partial(self._rebalance_due, member_id, epoch)
        self._rebalances[member_id] = self._services.clock.call_later(timeout_ms, due)

    def _stop_rebalance(self, member_id: str) -> None:
        timer = self._rebalances.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def _rebalance_due(self, member_id: str, epoch: int) -> None:
        timer = self._rebalances[member_id]
        logger.info("%r: member %s did not revoke its partitions in time", self, member_id)

        def is_behind(member: ConsumerMember) -> bool:
            return member.epoch == epoch and member.state is ReconciliationState.UNREVOKED_PARTITIONS

        def removed(outcome: ProtocolError | None) -> None:
            if self._rebalances.get(member_id) is timer:
                self._start_rebalance(member_id, epoch, RETRY_MS)

        self._remove(member_id, is_behind, removed)

    def _remove(
        self, member_id: str, is_due: Callable[[ConsumerMember], bool], respond: Callable[[ProtocolError | None], None]
    ) -> None:
        """Remove a member if it is still due when no append is in progress."""

        def apply(state: ConsumerGroupImage, context: RuleContext) -> tuple[ConsumerGroupImage, None]:
            member = state.members.get(member_id)
            if member is None or not is_due(member):
                return state, None
            return consumer_rules.remove(state, (member_id,), context), None

        self.submit(apply, respond)

    # Offsets

    def check_commit(self, request: CommitRequest) -> None:
        """Raise an error unless the client may commit offsets: a member with its present epoch, and anyone while the
        group is empty. Members use version 9 or later, which knows the errors."""
        check = request.member
        member = self.state.members.get(check.member_id)
        if member is not None and member.classic is None and not request.supports_member_epochs:
            raise UnsupportedVersionError("Members of a consumer group commit with OffsetCommit 9 or later.")
        self._check_member(check)

    def check_transactional_commit(self, check: MemberCheck) -> None:
        """Raise an error unless the client may commit offsets. Versions before 3 cannot name the member.

        As producers do not know STALE_MEMBER_EPOCH, they get `IllegalGenerationError` for another epoch.
        """
        try:
            self._check_member(check, is_transactional=True)
        except StaleMemberEpochError as error:
            raise IllegalGenerationError(str(error)) from error

    def check_fetch(self, check: MemberCheck) -> None:
        """Raise an error if the member does not exist or has another epoch."""
        self._check_member(check)

    def _check_member(self, check: MemberCheck, *, is_transactional: bool = False) -> None:
        consumer_rules.check_commit(
            self.state, check.member_id, check.instance_id, check.generation, is_transactional=is_transactional
        )

    def expiry(self) -> ExpiryRule:
        """Return how offsets expire: some time after their commit, unless a member subscribes to the topic."""
        return ExpiryRule(keep_topics=self.subscribed_topics)

    # Views

    def listing(self) -> ListedGroup:
        """Return the group for ListGroups."""
        return consumer_views.listing(self.group_id, self.state)

    def describe(self) -> DescribedGroup:
        """Return the group for DescribeGroups, which shows only classic groups. As in Kafka, others are Dead there."""
        return DescribedGroup(group_id=self.group_id, state=ConsumerGroupPhase.DEAD.value)

    def describe_members(self) -> DescribedConsumerGroup:
        """Return the group for ConsumerGroupDescribe."""
        return consumer_views.describe(self.group_id, self.state, self._services.settings)


def _answer(answers: Iterable[tuple[Respond[Any], Any]]) -> None:
    for respond, answer in answers:
        respond(answer)
