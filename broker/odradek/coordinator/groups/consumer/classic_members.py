"""The requests of classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848).

During a migration, a consumer group has members that use the classic protocol. The coordinator computes their
assignments, too. A classic member reports its partitions with JoinGroup, and gets its partitions with SyncGroup. Its
generation is its member epoch. The member joins again when Heartbeat tells it so: the group has a newer epoch, or the
member has to give up partitions, or the partitions for which it waits are free.

As in `consumer_rules`, the functions return the next state, and one that raises an error changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from odradek.base.errors import (
    NONE,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MalformedFrameError,
    MemberIdRequiredError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownServerError,
)
from odradek.coordinator.groups.consumer import consumer_rules
from odradek.coordinator.groups.consumer.consumer_values import (
    NO_PARTITIONS,
    ClassicMetadata,
    ClassicProtocol,
    ConsumerGroupImage,
    ConsumerMember,
    ReconciliationState,
    RuleContext,
)
from odradek.coordinator.groups.consumer.migration import (
    decode_message,
    encode_assignment,
    names_by_id,
    partitions_by_id,
)
from odradek.coordinator.groups.group_kinds import CONSUMER_PROTOCOL_TYPE
from odradek.coordinator.groups.group_requests import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberCheck,
    SyncRequest,
    SyncResult,
)
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription


def join(
    state: ConsumerGroupImage, request: JoinRequest, new_member_id: str, context: RuleContext
) -> tuple[ConsumerGroupImage, JoinResult]:
    """Handle JoinGroup of a new or rejoining classic member. `new_member_id`: its id if it does not have one.

    Raises `RebalanceInProgressError` if all members have left, `GroupMaxSizeReachedError`,
    `InconsistentGroupProtocolError`, `UnknownMemberIdError` and `FencedInstanceIdError`, and `UnknownServerError` for a
    malformed subscription, as Kafka does.
    """
    if state.is_empty:
        raise RebalanceInProgressError(f"All members have left group {request.group_id!r}: join again.")
    member_id = request.member_id or new_member_id
    holder = None if request.instance_id is None else consumer_rules.holder_of(state, request.instance_id)
    if holder is None and member_id not in state.members:
        consumer_rules.check_size(state, request.group_id, context.settings)
    _check_protocols(state, request)
    if request.requires_known_member_id and request.member_id == UNKNOWN_MEMBER_ID:
        return state, JoinResult(member_id=member_id, error_code=MemberIdRequiredError.code)
    subscription = _subscription(request)
    before, member = _joining(state, request, member_id, holder)
    updated = _updated(member, request, subscription)
    owned = partitions_by_id(
        ((topic.topic, topic.partitions) for topic in subscription.owned_partitions), context.topics
    )
    after = consumer_rules.advance(before, updated, owned, context)
    return after, JoinResult(
        member_id=member_id,
        generation=after.members[member_id].epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0][0],
    )


def _check_protocols(state: ConsumerGroupImage, request: JoinRequest) -> None:
    names = {name for name, _ in request.protocols}
    for member in state.members.values():
        if member.classic is not None:
            names &= {protocol.name for protocol in member.classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise InconsistentGroupProtocolError(
            f"The member supports no protocol that all classic members of group {request.group_id!r} support, or is "
            f"not a consumer: its protocol type is {request.protocol_type!r}."
        )


def _subscription(request: JoinRequest) -> ConsumerProtocolSubscription:
    # A consumer sends the same subscription for each of its assignors, except for their own data.
    try:
        return decode_message(ConsumerProtocolSubscription, request.protocols[0][1])
    except MalformedFrameError as error:
        raise UnknownServerError(f"The subscription of a member is malformed: {error}") from error


def _joining(
    state: ConsumerGroupImage, request: JoinRequest, member_id: str, holder: ConsumerMember | None
) -> tuple[ConsumerGroupImage, ConsumerMember]:
    """Return the member that joins, and the state in which it has taken the place of the static member before it."""
    if request.instance_id is not None and request.member_id != UNKNOWN_MEMBER_ID:
        return state, consumer_rules.find_member(state, member_id, request.instance_id)
    if holder is not None:
        return consumer_rules.replaced(state, holder, member_id)
    present = state.members.get(member_id)
    # `_updated` takes everything else from the request.
    return state, ConsumerMember(member_id=member_id, rebalance_timeout_ms=0) if present is None else present


def _updated(
    member: ConsumerMember, request: JoinRequest, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=frozenset(subscription.topics),
        regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMetadata(
            session_timeout_ms=request.session_timeout_ms,
            protocols=tuple(ClassicProtocol(name, metadata) for name, metadata in request.protocols),
        ),
    )


def find_classic(state: ConsumerGroupImage, check: MemberCheck) -> ConsumerMember:
    """Return the classic member that sent a request.

    Raises `UnknownMemberIdError`, `FencedInstanceIdError`, and `IllegalGenerationError` if the generation is not its
    member epoch.
    """
    member = consumer_rules.find_member(state, check.member_id, check.instance_id)
    _check_classic(member)
    if check.generation != member.epoch:
        raise IllegalGenerationError(
            f"The generation of member {member.member_id!r} is {member.epoch}, not {check.generation}."
        )
    return member


def _check_classic(member: ConsumerMember) -> None:
    if member.classic is None:
        raise UnknownMemberIdError(f"Member {member.member_id!r} does not use the classic protocol.")


def sync(state: ConsumerGroupImage, request: SyncRequest) -> SyncResult:
    """Handle SyncGroup: return the partitions that the member may read.

    Raises the errors of `find_classic`, `InconsistentGroupProtocolError` for another protocol than JoinGroup returned,
    and `RebalanceInProgressError` if the member has to join again first.
    """
    member = find_classic(state, request.member)
    assert member.classic is not None
    name, subscription = member.classic.protocols[0]
    for given, own in ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol_name, name)):
        if given is not None and given != own:
            raise InconsistentGroupProtocolError(
                f"The protocol of member {member.member_id!r} is {own!r}, not {given!r}."
            )
    # A member that has to revoke partitions learns here which ones, and then joins again by itself.
    if state.epoch > member.epoch and member.state is not ReconciliationState.UNREVOKED_PARTITIONS:
        raise RebalanceInProgressError(f"Group {request.member.group_id!r} rebalances: join again.")
    return SyncResult(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode_assignment(member.assigned, names_by_id(state), subscription),
    )


def must_rejoin(state: ConsumerGroupImage, member: ConsumerMember) -> bool:
    """Whether a classic member has to join again: it is behind the group, has to give up partitions, or can get all
    partitions for which it waits."""
    if member.epoch < state.epoch or member.state is ReconciliationState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not ReconciliationState.UNRELEASED_PARTITIONS:
        return False
    is_free = consumer_rules.freedom(state, member.member_id)
    target = state.target.get(member.member_id, NO_PARTITIONS)
    return all(is_free(topic_id, number) for topic_id, numbers in target.items() for number in numbers)


def leave(
    members: Sequence[LeavingMember], state: ConsumerGroupImage, context: RuleContext
) -> tuple[ConsumerGroupImage, list[LeaveResult]]:
    """Handle LeaveGroup of classic members, and of static members that an administrator names by their instance ids."""
    removed: list[str] = []
    results: list[LeaveResult] = []
    for leaving in members:
        member_id, code = leaving.member_id, NONE
        try:
            member_id = _leaving(state, leaving).member_id
        except ProtocolError as error:
            code = error.code
        else:
            removed.append(member_id)
        results.append(LeaveResult(member_id=member_id, instance_id=leaving.instance_id, error_code=code))
    return consumer_rules.remove(state, removed, context), results


def _leaving(state: ConsumerGroupImage, leaving: LeavingMember) -> ConsumerMember:
    if leaving.instance_id is not None and leaving.member_id == UNKNOWN_MEMBER_ID:
        holder = consumer_rules.holder_of(state, leaving.instance_id)
        if holder is None:
            raise UnknownMemberIdError(f"The group has no member with the instance id {leaving.instance_id!r}.")
        return holder
    member = consumer_rules.find_member(state, leaving.member_id, leaving.instance_id)
    _check_classic(member)
    return member


def has_consumers(members: Iterable[ConsumerMember]) -> bool:
    """Whether one of the members does not use the classic protocol."""
    return any(member.classic is None for member in members)
