"""Brings one member of a consumer group closer to its target assignment (KIP-848).

A member first gives up what it should not have, and keeps its epoch until it reports that it has
(`UNREVOKED_PARTITIONS`). Then it gets the epoch of the target and those of its partitions that are free. While others
still have some, it waits for them (`UNRELEASED_PARTITIONS`), and is `STABLE` when it has all. Invariant: a partition is
assigned only if nobody else has it, and a member has a partition until it reports its partitions without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.coordinator.groups.consumer.consumer_values import (
    NO_PARTITIONS,
    ConsumerMember,
    PartitionSet,
    ReconciliationState,
)

IsFree = Callable[[UUID, int], bool]
"""Whether no other member has a partition, assigned or not yet revoked."""

_NOTHING: Final = frozenset[int]()


def reconcile(
    member: ConsumerMember, target_epoch: int, target: PartitionSet, owned: PartitionSet | None, is_free: IsFree
) -> ConsumerMember:
    """Return the next state of a member, or the same object if it cannot advance.

    `target_epoch` and `target` are the target assignment of the group and the member's part of it. `owned` are the
    partitions that the member reports, None if it does not report them. As long as it does not, nothing counts as
    revoked. A member in `UNREVOKED_PARTITIONS` that has revoked all gets the next epoch, and may have to revoke more.
    """
    if member.state is ReconciliationState.STABLE and member.epoch == target_epoch:
        return member
    epoch = member.epoch
    if member.state is ReconciliationState.UNREVOKED_PARTITIONS:
        if _may_own(owned, member.revoking):
            return member
        epoch += 1
    kept, revoking = _divided(member.assigned, target)
    if revoking and _may_own(owned, revoking):
        return _advanced(member, epoch, ReconciliationState.UNREVOKED_PARTITIONS, kept, revoking)
    assigned, is_waiting = _extended(kept, target, is_free)
    state = ReconciliationState.UNRELEASED_PARTITIONS if is_waiting else ReconciliationState.STABLE
    return _advanced(member, target_epoch, state, assigned, NO_PARTITIONS)


def _may_own(owned: PartitionSet | None, partitions: PartitionSet) -> bool:
    """Return whether a member that reports `owned` may still have one of these partitions."""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(owned.get(topic_id, _NOTHING)) for topic_id, numbers in partitions.items())


def _divided(assigned: PartitionSet, target: PartitionSet) -> tuple[PartitionSet, PartitionSet]:
    """Return the assigned partitions that are in the target, and those that are not."""
    kept, others = {}, {}
    for topic_id, numbers in assigned.items():
        wanted = target.get(topic_id, _NOTHING)
        if both := numbers & wanted:
            kept[topic_id] = both
        if rest := numbers - wanted:
            others[topic_id] = rest
    return kept, others


def _extended(kept: PartitionSet, target: PartitionSet, is_free: IsFree) -> tuple[PartitionSet, bool]:
    """Return the partitions with those of the target that are free, and whether others of the target are not."""
    assigned, is_waiting = dict(kept), False
    for topic_id, wanted in target.items():
        had = kept.get(topic_id, _NOTHING)
        missing = wanted - had
        free = frozenset(number for number in missing if is_free(topic_id, number))
        is_waiting = is_waiting or len(free) < len(missing)
        if free:
            assigned[topic_id] = had | free
    return assigned, is_waiting


def _advanced(
    member: ConsumerMember,
    epoch: int,
    state: ReconciliationState,
    assigned: PartitionSet,
    revoking: PartitionSet,
) -> ConsumerMember:
    """Return the member with these values. The previous epoch changes only with the epoch: it is accepted until the
    member has confirmed the new one."""
    previous_epoch = member.epoch if epoch != member.epoch else member.previous_epoch
    after = replace(
        member, epoch=epoch, previous_epoch=previous_epoch, state=state, assigned=assigned, revoking=revoking
    )
    return member if after == member else after
