"""The rules of consumer groups (KIP-848): what a heartbeat, a departure or a removal changes.

`consumer_group` calls these functions with the committed state of a group. They return the next state, and the records
are the difference. A function that raises an error changes nothing. The rules are those of Apache Kafka 4.1, except
that a member that was fenced may join again before its session expires (KAFKA-19233), a static member may repeat its
join, and one that comes back fits into a full group.

A heartbeat has four steps: find or create the member; raise the epoch of the group if members, subscriptions or topics
have changed; compute the target assignment of that epoch; move the member towards it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final
from uuid import UUID

from odradek.base.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InvalidRequestError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from odradek.coordinator.groups.consumer.consumer_assignors import ASSIGNORS, Subscriber
from odradek.coordinator.groups.consumer.consumer_values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    ConsumerGroupImage,
    ConsumerGroupSettings,
    ConsumerMember,
    HeartbeatResult,
    MemberHeartbeat,
    PartitionSet,
    ReconciliationState,
    ResolvedRegex,
    RuleContext,
)
from odradek.coordinator.groups.consumer.reconciliation import reconcile
from odradek.coordinator.groups.consumer.subscriptions import (
    check_regex,
    effective_topics,
    is_stale,
    resolve,
    subscribed_shapes,
)

NO_MEMBER_EPOCH: Final = -1
"""Member epoch of a commit by a client that is not a member."""


def heartbeat(
    state: ConsumerGroupImage, request: MemberHeartbeat, context: RuleContext
) -> tuple[ConsumerGroupImage, HeartbeatResult]:
    """Handle the heartbeat of a member that joins, joins again or stays.

    Raises the errors of `check_heartbeat`, and `UnknownMemberIdError`, `FencedMemberEpochError`,
    `FencedInstanceIdError`, `UnreleasedInstanceIdError`, `GroupMaxSizeReachedError`, `InvalidRegularExpressionError`.
    """
    check_heartbeat(request, context.settings)
    if request.epoch == JOIN_EPOCH:
        before, member = _joining(state, request, context)
    else:
        before, member = state, _known(state, request)
    updated = _updated(member, request)
    if updated.regex is not None and updated.regex != member.regex:
        check_regex(updated.regex)
    after = advance(before, updated, request.owned, context)
    reconciled = after.members[updated.member_id]
    is_told = _is_full(request) or request.epoch < member.epoch or reconciled.assigned != member.assigned
    result = HeartbeatResult(
        member_id=reconciled.member_id,
        epoch=reconciled.epoch,
        assignment=reconciled.assigned if is_told else None,
    )
    return after, result


def advance(
    before: ConsumerGroupImage, member: ConsumerMember, owned: PartitionSet | None, context: RuleContext
) -> ConsumerGroupImage:
    """Return the state in which a member has its present subscription and is as close to its target as possible.

    `member` is new or has changed since `before`. `owned` are the partitions that it reports, None if it does not.
    """
    after = _subscribed(before, member, context)
    if after.epoch > after.assignment_epoch:
        after = _assigned(after, context.settings)
    return _with_member(after, _reconciled(after, member, owned))


def leave(
    state: ConsumerGroupImage, member_id: str, instance_id: str | None, epoch: int, context: RuleContext
) -> tuple[ConsumerGroupImage, HeartbeatResult]:
    """Handle the heartbeat of a member that leaves.

    With `LEAVE_STATIC_EPOCH`, a static member keeps its place until its session expires: its partitions wait for a
    member with the same instance id. With `LEAVE_EPOCH`, the member is removed.

    Raises `UnknownMemberIdError`, and `FencedInstanceIdError` if another member has the instance id.
    """
    member = find_member(state, member_id, instance_id)
    if epoch == LEAVE_STATIC_EPOCH and member.is_static:
        # The process has stopped, so it does not read the partitions any more that it had to revoke.
        away = replace(member, epoch=LEAVE_STATIC_EPOCH, state=ReconciliationState.STABLE, revoking=NO_PARTITIONS)
        return _with_member(state, away), HeartbeatResult(member_id=member_id, epoch=LEAVE_STATIC_EPOCH)
    return remove(state, (member.member_id,), context), HeartbeatResult(member_id=member_id, epoch=LEAVE_EPOCH)


def remove(state: ConsumerGroupImage, member_ids: Collection[str], context: RuleContext) -> ConsumerGroupImage:
    """Remove members whose session or rebalance timeout expired. Unknown ids are ignored.

    The epoch of the group grows, and the next heartbeat computes a target assignment without these members. Changes of
    topics are left to that heartbeat, too, because regular expressions are resolved with the permissions of its client.
    """
    gone = {member_id for member_id in member_ids if member_id in state.members}
    if not gone:
        return state
    members = {member_id: member for member_id, member in state.members.items() if member_id not in gone}
    target = {member_id: partitions for member_id, partitions in state.target.items() if member_id not in gone}
    regexes = _kept(state.regexes, _regexes(members.values()))
    return replace(
        state,
        epoch=state.epoch + 1,
        members=MappingProxyType(members),
        target=MappingProxyType(target),
        regexes=regexes,
        topics=subscribed_shapes(_all_topics(members.values(), regexes), context),
    )


def check_commit(
    state: ConsumerGroupImage, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool = False
) -> None:
    """Check that a client may commit offsets: the member with its current epoch, or any client if there are no members.

    A transactional commit may name no member (TxnOffsetCommit before version 3).

    Raises `UnknownMemberIdError`, `FencedInstanceIdError`, `StaleMemberEpochError`, and `IllegalGenerationError` for a
    member that uses the classic protocol.
    """
    if epoch < 0 and state.is_empty:
        return
    if is_transactional and epoch == NO_MEMBER_EPOCH and not member_id and instance_id is None:
        return
    if instance_id is not None:
        _check_not_fenced(holder_of(state, instance_id), member_id, instance_id)
    member = state.members.get(member_id)
    if member is None:
        raise UnknownMemberIdError(f"The group has no member with the id {member_id!r}.")
    if epoch == member.epoch:
        return
    if member.classic is not None:
        raise IllegalGenerationError(f"The generation of member {member_id!r} is {member.epoch}, not {epoch}.")
    raise StaleMemberEpochError(f"The epoch of member {member_id!r} is {member.epoch}, not {epoch}.")


def check_heartbeat(request: MemberHeartbeat, settings: ConsumerGroupSettings) -> None:
    """Check what does not depend on the group, for heartbeats that join, stay or leave.

    Raises `InvalidRequestError` or `UnsupportedAssignorError`.
    """
    for name, value in (
        ("group id", request.group_id),
        ("member id", request.member_id),
        ("instance id", request.instance_id),
        ("rack id", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"The {name} of a consumer group heartbeat is empty.")
    if request.epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise InvalidRequestError(f"A heartbeat with the epoch {LEAVE_STATIC_EPOCH} has no instance id.")
    elif request.epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError(f"The member epoch {request.epoch} is invalid.")
    if request.assignor is not None and request.assignor not in settings.assignors:
        raise UnsupportedAssignorError(
            f"The assignor {request.assignor!r} is not supported. Supported are {', '.join(settings.assignors)}."
        )


def _check_join(request: MemberHeartbeat) -> None:
    if request.rebalance_timeout_ms is None:
        raise InvalidRequestError("A member that joins a consumer group must send its rebalance timeout.")
    if request.owned is None or request.owned:
        raise InvalidRequestError("A member that joins a consumer group must send an empty list of partitions.")
    if request.topics is None and request.regex is None:
        raise InvalidRequestError("A member that joins a consumer group must send topic names or a regular expression.")


# Members


def _joining(
    state: ConsumerGroupImage, request: MemberHeartbeat, context: RuleContext
) -> tuple[ConsumerGroupImage, ConsumerMember]:
    """Return the member that joins, and the state in which it has taken the place of the static member before it."""
    holder = None if request.instance_id is None else holder_of(state, request.instance_id)
    present = holder if holder is not None else state.members.get(request.member_id)
    if present is None:
        check_size(state, request.group_id, context.settings)
        # `_updated` takes everything else from the request.
        return state, ConsumerMember(member_id=request.member_id, rebalance_timeout_ms=0)
    is_away = present.epoch == LEAVE_STATIC_EPOCH
    if present.member_id == request.member_id and not is_away:
        return state, present
    if not is_away and present.classic is None:
        raise UnreleasedInstanceIdError(
            f"Member {present.member_id!r} has the instance id {request.instance_id!r} and has not left group "
            f"{request.group_id!r}."
        )
    return replaced(state, present, request.member_id)


def check_size(state: ConsumerGroupImage, group_id: str, settings: ConsumerGroupSettings) -> None:
    """Raise `GroupMaxSizeReachedError` if no other member fits into the group."""
    if len(state.members) >= settings.max_size:
        raise GroupMaxSizeReachedError(f"Group {group_id!r} has {len(state.members)} members, which is the maximum.")


def replaced(
    state: ConsumerGroupImage, present: ConsumerMember, member_id: str
) -> tuple[ConsumerGroupImage, ConsumerMember]:
    """Give the place of a static member, with its assignment, to the member that has now its instance id.

    Returns the next state and the member in it, which has epoch 0.
    """
    member = replace(present, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    members = {key: value for key, value in state.members.items() if key != present.member_id}
    members[member_id] = member
    target = {key: value for key, value in state.target.items() if key != present.member_id}
    target[member_id] = state.target.get(present.member_id, NO_PARTITIONS)
    return replace(state, members=MappingProxyType(members), target=MappingProxyType(target)), member


def _known(state: ConsumerGroupImage, request: MemberHeartbeat) -> ConsumerMember:
    """Return the member that stays, after a check of its epoch."""
    member = find_member(state, request.member_id, request.instance_id)
    if request.epoch == member.epoch:
        return member
    # The response with the current epoch may have been lost. Then the member cannot own more than it was given.
    if request.epoch == member.previous_epoch < member.epoch and _is_subset(request.owned, member.assigned):
        return member
    raise FencedMemberEpochError(
        f"The epoch of member {member.member_id!r} is {member.epoch}, not {request.epoch}: the member must give up its "
        "partitions and join again."
    )


def find_member(state: ConsumerGroupImage, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that sent a request. Raises `UnknownMemberIdError`, or `FencedInstanceIdError` if another
    member has the instance id."""
    if instance_id is not None:
        holder = holder_of(state, instance_id)
        if holder is None:
            raise UnknownMemberIdError(f"The group has no member with the instance id {instance_id!r}.")
        _check_not_fenced(holder, member_id, instance_id)
    member = state.members.get(member_id)
    if member is None:
        raise UnknownMemberIdError(f"The group has no member with the id {member_id!r}.")
    return member


def holder_of(state: ConsumerGroupImage, instance_id: str) -> ConsumerMember | None:
    """Return the member with an instance id."""
    return next((member for member in state.members.values() if member.instance_id == instance_id), None)


def _check_not_fenced(holder: ConsumerMember | None, member_id: str, instance_id: str) -> None:
    if holder is not None and holder.member_id != member_id:
        raise FencedInstanceIdError(f"Member {holder.member_id!r} has the instance id {instance_id!r} now.")


def _updated(member: ConsumerMember, request: MemberHeartbeat) -> ConsumerMember:
    """Return the member with the fields that the heartbeat has."""
    updated = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=member.topics if request.topics is None else request.topics,
        regex=member.regex if request.regex is None else request.regex or None,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms
        ),
        assignor=member.assignor if request.assignor is None else request.assignor,
        classic=None,
    )
    return member if updated == member else updated


def _with_member(state: ConsumerGroupImage, member: ConsumerMember) -> ConsumerGroupImage:
    if state.members.get(member.member_id) is member:
        return state
    return replace(state, members=MappingProxyType({**state.members, member.member_id: member}))


# The four steps


def _subscribed(before: ConsumerGroupImage, member: ConsumerMember, context: RuleContext) -> ConsumerGroupImage:
    """Return the state with the member. Its epoch is higher if members, subscriptions or topics have changed."""
    known = before.members.get(member.member_id)
    state = _with_member(before, member)
    is_same = known is not None and known.topics == member.topics and known.regex == member.regex
    is_resolved = member.regex is None or member.regex in state.regexes
    # A classic member resolves no expression: this takes the permissions of a client that subscribes to it.
    needs_resolving = member.classic is None and is_stale(state.regexes, context)
    if is_same and is_resolved and not context.topics_changed and not needs_resolving:
        return state
    wanted = _regexes(state.members.values())
    regexes = resolve(state.regexes, wanted, context) if member.classic is None else _kept(state.regexes, wanted)
    topics = subscribed_shapes(_all_topics(state.members.values(), regexes), context)
    is_changed = (
        known is None
        or topics != state.topics
        or effective_topics(known, state.regexes) != effective_topics(member, regexes)
        or any(regex in regexes and regexes[regex].topics != found.topics for regex, found in state.regexes.items())
    )
    return replace(
        state,
        epoch=state.epoch + is_changed,
        regexes=regexes,
        topics=topics if is_changed else state.topics,
    )


def _assigned(state: ConsumerGroupImage, settings: ConsumerGroupSettings) -> ConsumerGroupImage:
    """Return the state with the target assignment of its epoch."""
    ids: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
    subscribers: dict[str, Subscriber] = {}
    for member_id, member in state.members.items():
        # Most members of a group have the same subscription.
        subscription = (member.topics, member.regex)
        topics = ids.get(subscription)
        if topics is None:
            names = effective_topics(member, state.regexes)
            topics = frozenset(state.topics[name].topic_id for name in names if name in state.topics)
            ids[subscription] = topics
        subscribers[member_id] = Subscriber(
            topics=topics,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            current=state.target.get(member_id, NO_PARTITIONS),
        )
    shapes = {shape.topic_id: shape for shape in state.topics.values()}
    assignment = ASSIGNORS[preferred_assignor(state.members.values(), settings)](subscribers, shapes)
    target = {member_id: assignment.get(member_id, NO_PARTITIONS) for member_id in state.members}
    return replace(state, assignment_epoch=state.epoch, target=MappingProxyType(target))


def preferred_assignor(members: Iterable[ConsumerMember], settings: ConsumerGroupSettings) -> str:
    """Return the assignor that most members prefer; the default if no member prefers one. The first of the settings
    wins a tie."""
    votes = Counter(member.assignor for member in members if member.assignor is not None)
    return max(settings.assignors, key=lambda name: votes[name])


def _reconciled(state: ConsumerGroupImage, member: ConsumerMember, owned: PartitionSet | None) -> ConsumerMember:
    """Move a member towards its target as far as possible now."""
    if member.state is ReconciliationState.STABLE and member.epoch == state.assignment_epoch:
        return member
    target = state.target.get(member.member_id, NO_PARTITIONS)
    return reconcile(member, state.assignment_epoch, target, owned, freedom(state, member.member_id))


def freedom(state: ConsumerGroupImage, member_id: str) -> Callable[[UUID, int], bool]:
    """Return a function that says whether no other member has a partition."""
    taken: dict[UUID, set[int]] | None = None

    def is_free(topic_id: UUID, partition: int) -> bool:
        nonlocal taken
        # Only members that gain partitions need the table, which costs a look at all members.
        if taken is None:
            taken = {}
            for other in state.members.values():
                if other.member_id != member_id:
                    for partitions in (other.assigned, other.revoking):
                        for topic, numbers in partitions.items():
                            taken.setdefault(topic, set()).update(numbers)
        return partition not in taken.get(topic_id, ())

    return is_free


def _kept(regexes: Mapping[str, ResolvedRegex], wanted: Collection[str]) -> Mapping[str, ResolvedRegex]:
    kept = {regex: resolved for regex, resolved in regexes.items() if regex in wanted}
    return regexes if len(kept) == len(regexes) else MappingProxyType(kept)


def _regexes(members: Iterable[ConsumerMember]) -> frozenset[str]:
    return frozenset(member.regex for member in members if member.regex is not None)


def _all_topics(members: Iterable[ConsumerMember], regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    names: set[str] = set()
    for member in members:
        names |= effective_topics(member, regexes)
    return frozenset(names)


def _is_full(request: MemberHeartbeat) -> bool:
    """Whether the heartbeat has all fields: the member joins, or repeats everything because a response was lost."""
    has_subscription = request.topics is not None or request.regex is not None
    return request.epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms is not None and has_subscription and request.owned is not None
    )


def _is_subset(owned: PartitionSet | None, assigned: PartitionSet) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items()
    )
