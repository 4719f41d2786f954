"""A transaction opens in a log only with the guard of its verification (KIP-890)."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.base.errors import InvalidProducerEpochError, InvalidTransactionStateError, OutOfOrderSequenceError
from odradek.log.partition_log import PartitionLog
from odradek.log.producers.producer_snapshot import INT32_MAX
from odradek.log.producers.verification import MAX_GUARDS, VerificationGuard, Verifications
from odradek.log.values import AppendInfo
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import batch, marker, open_log
from odradek_testkit.loop import ManualClock

PID = 7


@pytest.fixture
def log(files: MemoryFiles, clock: ManualClock) -> PartitionLog:
    return open_log(files, clock)


def append(
    log: PartitionLog, sequence: int, guard: VerificationGuard | None = None, *, epoch: int = 0, **options: Any
) -> AppendInfo:
    records = batch(b"v", producer_id=PID, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    return log.append_as_leader(records, leader_epoch=0, guard=guard, **{"needs_guard": True} | options)


def end(log: PartitionLog, epoch: int = 0) -> None:
    ending = marker(ControlType.ABORT, producer_id=PID, producer_epoch=epoch)
    log.append_as_leader(ending, leader_epoch=0, origin=AppendOrigin.COORDINATOR)


def begin(log: PartitionLog, sequence: int = 0, *, epoch: int = 0) -> VerificationGuard:
    guard = log.begin_verification(PID, epoch, sequence)
    assert guard is not None
    return guard


def test_a_transaction_does_not_open_without_a_guard(log: PartitionLog) -> None:
    with pytest.raises(InvalidTransactionStateError, match="was not part of an open transaction"):
        append(log, 0)
    with pytest.raises(InvalidTransactionStateError):
        append(log, 0, VerificationGuard(0, 0, 0))
    assert log.log_end_offset == 0


def test_without_verification_it_opens_without_a_guard(log: PartitionLog) -> None:
    append(log, 0, needs_guard=False)
    assert log.first_unstable_offset == 0


def test_an_open_transaction_needs_no_guard(log: PartitionLog) -> None:
    append(log, 0, begin(log))
    assert log.begin_verification(PID, 0, 1) is None
    append(log, 1)
    append(log, 2, VerificationGuard(0, 0, 0))


def test_all_batches_of_one_verification_have_its_guard(log: PartitionLog) -> None:
    guard = begin(log, 0)
    assert begin(log, 1) is guard
    append(log, 0, guard)
    append(log, 1, guard)


def test_a_marker_ends_the_verification(log: PartitionLog) -> None:
    guard = begin(log)
    end(log)
    with pytest.raises(InvalidTransactionStateError):
        append(log, 0, guard)
    new = begin(log)
    assert new is not guard
    with pytest.raises(InvalidTransactionStateError):
        append(log, 0, guard)
    append(log, 0, new)


def test_the_guard_of_an_ended_transaction_opens_no_other(log: PartitionLog) -> None:
    guard = begin(log)
    append(log, 0, guard)
    end(log)
    with pytest.raises(InvalidTransactionStateError):
        append(log, 1, guard)


def test_a_repeat_is_answered_without_a_guard(log: PartitionLog) -> None:
    append(log, 0, begin(log))
    end(log)
    assert append(log, 0).duplicate


def test_a_batch_waits_for_its_refused_predecessor(log: PartitionLog) -> None:
    append(log, 0, begin(log))
    end(log)
    guard = begin(log, 1)
    assert begin(log, 2) is guard
    with pytest.raises(OutOfOrderSequenceError):
        append(log, 2, guard)
    append(log, 1, guard)


def test_the_lowest_sequence_decides_for_a_producer_without_state(log: PartitionLog) -> None:
    log.append_as_leader(batch(b"other"), leader_epoch=0)
    guard = begin(log, 6)
    assert begin(log, 5) is guard
    with pytest.raises(OutOfOrderSequenceError, match="sent 5 before"):
        append(log, 6, guard)
    append(log, 5, guard)


def test_a_later_epoch_begins_its_own_sequence(log: PartitionLog) -> None:
    guard = begin(log, 0, epoch=0)
    assert begin(log, 3, epoch=1) is guard
    begin(log, 0, epoch=0)
    assert (guard.producer_epoch, guard.lowest_sequence) == (1, 3)


def test_sequences_wrap(log: PartitionLog) -> None:
    guard = begin(log, INT32_MAX)
    begin(log, 0)
    assert guard.lowest_sequence == INT32_MAX
    log.append_as_leader(batch(b"other"), leader_epoch=0)
    append(log, INT32_MAX, guard)
    append(log, 0, guard)


def test_an_old_epoch_is_reported_before_its_sequence(log: PartitionLog) -> None:
    end(log, epoch=2)
    guard = begin(log, 0, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        append(log, 4, guard, epoch=1)


def test_other_batches_need_no_guard(log: PartitionLog) -> None:
    log.append_as_leader(batch(b"a"), leader_epoch=0, needs_guard=True)
    idempotent = batch(b"a", producer_id=PID, producer_epoch=0, base_sequence=0)
    log.append_as_leader(idempotent, leader_epoch=0, needs_guard=True)
    end(log)


def test_a_coordinator_needs_a_guard_and_has_no_sequence(log: PartitionLog) -> None:
    def commit(guard: VerificationGuard | None) -> None:
        append(log, -1, guard, origin=AppendOrigin.COORDINATOR)

    with pytest.raises(InvalidTransactionStateError):
        commit(None)
    guard = begin(log, -1)
    commit(guard)
    commit(guard)
    end(log)
    with pytest.raises(InvalidTransactionStateError):
        commit(guard)


def test_a_follower_that_copies_a_marker_drops_the_guard(log: PartitionLog) -> None:
    guard = begin(log)
    log.append_as_follower(marker(ControlType.ABORT, producer_id=PID))
    assert begin(log) is not guard


def test_a_truncation_drops_the_guards(log: PartitionLog) -> None:
    log.append_as_leader(batch(b"a"), leader_epoch=0)
    guard = begin(log)
    log.truncate_to(0)
    assert begin(log) is not guard


def test_guards_expire_with_idle_producers(log: PartitionLog, clock: ManualClock) -> None:
    guard = begin(log)
    log.expire_producers(clock.wall_ms() + 999, 1000)
    assert begin(log) is guard
    log.expire_producers(clock.wall_ms() + 1000, 1000)
    assert begin(log) is not guard


def test_the_oldest_guard_makes_room() -> None:
    verifications = Verifications()
    guards = [verifications.begin(producer_id, 0, 0, 0) for producer_id in range(MAX_GUARDS + 1)]
    assert len(verifications) == MAX_GUARDS
    assert not verifications.is_current(0, guards[0])
    assert verifications.is_current(1, guards[1])
    assert verifications.is_current(MAX_GUARDS, guards[-1])
