"""One member on its way to its target assignment: each state and each step."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from odradek.coordinator.groups.consumer.consumer_values import (
    NO_PARTITIONS,
    ConsumerMember,
    PartitionSet,
    ReconciliationState,
)
from odradek.coordinator.groups.consumer.reconciliation import reconcile

A, B = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = ReconciliationState


def of(*partitions: int, topic_id: UUID = A) -> PartitionSet:
    return {topic_id: frozenset(partitions)}


def member(
    epoch: int,
    assigned: PartitionSet = NO_PARTITIONS,
    state: ReconciliationState = STABLE,
    revoking: PartitionSet = NO_PARTITIONS,
) -> ConsumerMember:
    return ConsumerMember(
        member_id="m",
        rebalance_timeout_ms=1000,
        epoch=epoch,
        previous_epoch=epoch - 1,
        assigned=assigned,
        state=state,
        revoking=revoking,
    )


def all_free(_topic_id: UUID, _partition: int) -> bool:
    return True


def none_free(_topic_id: UUID, _partition: int) -> bool:
    return False


def test_a_stable_member_with_the_epoch_of_the_target_stays() -> None:
    before = member(5, of(1, 2))
    assert reconcile(before, 5, of(1, 2), None, all_free) is before
    assert reconcile(before, 5, of(1, 2), of(1, 2, 3), all_free) is before


def test_a_new_member_gets_free_partitions() -> None:
    after = reconcile(member(0), 3, of(1, 2), {}, all_free)
    assert after == replace(member(0), epoch=3, previous_epoch=0, assigned=of(1, 2))


def test_a_member_whose_partitions_stay_gets_the_epoch() -> None:
    before = member(5, of(1))
    assert reconcile(before, 7, of(1), None, all_free) == replace(before, epoch=7, previous_epoch=5)


def test_a_member_without_target_has_to_revoke_everything() -> None:
    before = member(5, of(1))
    after = reconcile(before, 6, {}, None, all_free)
    assert after == replace(before, state=UNREVOKED, assigned={}, revoking=of(1))


def test_a_member_that_loses_a_partition_keeps_its_epoch_and_gains_nothing() -> None:
    before = member(5, of(1, 2))
    after = reconcile(before, 6, of(2, 3), None, all_free)
    assert after == replace(before, state=UNREVOKED, assigned=of(2), revoking=of(1))


def test_partitions_that_the_member_reports_not_to_have_are_revoked_at_once() -> None:
    before = member(5, of(1, 2))
    after = reconcile(before, 6, of(2), of(2), all_free)
    assert after == replace(before, epoch=6, previous_epoch=5, assigned=of(2))


def test_revocation_is_awaited() -> None:
    before = member(5, of(2), UNREVOKED, of(1))
    assert reconcile(before, 6, of(2), None, all_free) is before
    assert reconcile(before, 6, of(2), of(1, 2), all_free) is before
    assert reconcile(before, 9, {}, of(1, 2), all_free) is before


def test_a_revocation_leads_to_the_epoch_and_new_partitions() -> None:
    before = member(5, of(2), UNREVOKED, of(1))
    after = reconcile(before, 6, {**of(2), **of(4, topic_id=B)}, of(2), all_free)
    assert after == replace(
        member(5), epoch=6, previous_epoch=5, assigned={A: frozenset({2}), B: frozenset({4})}, state=STABLE
    )


def test_a_revocation_may_lead_to_another_one() -> None:
    """The target has changed again meanwhile: the member gets the next epoch, but not that of the target."""
    before = member(5, of(2, 3), UNREVOKED, of(1))
    after = reconcile(before, 9, of(3), of(2, 3), all_free)
    assert after == replace(before, epoch=6, previous_epoch=5, assigned=of(3), revoking=of(2))


def test_a_partition_that_was_to_be_revoked_comes_back() -> None:
    before = member(5, of(2), UNREVOKED, of(1))
    after = reconcile(before, 7, of(1, 2), of(2), all_free)
    assert after == replace(member(5), epoch=7, previous_epoch=5, assigned=of(1, 2))


def test_partitions_that_others_have_are_awaited() -> None:
    def only_two(_topic_id: UUID, partition: int) -> bool:
        return partition == 2

    waiting = reconcile(member(5, of(1)), 6, of(1, 2, 3), None, only_two)
    assert waiting == replace(member(5), epoch=6, previous_epoch=5, assigned=of(1, 2), state=UNRELEASED)
    assert reconcile(waiting, 6, of(1, 2, 3), None, only_two) is waiting
    assert reconcile(waiting, 6, of(1, 2, 3), None, all_free) == replace(waiting, assigned=of(1, 2, 3), state=STABLE)


def test_a_waiting_member_follows_a_newer_target() -> None:
    waiting = member(6, of(1), UNRELEASED)
    assert reconcile(waiting, 8, of(1), None, none_free) == replace(waiting, epoch=8, previous_epoch=6, state=STABLE)
    assert reconcile(waiting, 8, of(4), None, none_free) == replace(
        waiting, state=UNREVOKED, assigned={}, revoking=of(1)
    )
