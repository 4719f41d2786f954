"""Appends of transactions on a leader: guards of their verification, and markers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.base.errors import InvalidTransactionStateError, TransactionCoordinatorFencedError
from odradek.base.types import TopicPartition
from odradek.log.producers.verification import VerificationGuard
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.replica_requests import NO_GUARDS, AppendRequest, AppendResult
from odradek_testkit.logs import batch, marker
from odradek_testkit.loop import VirtualClock
from odradek_testkit.replicas import LED, MemoryBroker, assume

PID = 7
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
Play = Callable[..., None]


def append(
    replicas: ReplicaManager,
    *entries: tuple[TopicPartition, memoryview],
    guards: Mapping[TopicPartition, VerificationGuard] = NO_GUARDS,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> list[AppendResult]:
    answers: list[list[AppendResult]] = []
    replicas.append(AppendRequest(-1, 1000, entries, origin, guards=guards, needs_guards=True), answers.append)
    (results,) = answers
    return results


def transactional(sequence: int = 0) -> memoryview:
    return batch(b"v", producer_id=PID, producer_epoch=0, base_sequence=sequence, is_transactional=True)


def test_each_partition_needs_its_own_guard(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, LED, TP, OTHER)
        guard = broker.partition(TP).log.begin_verification(PID, 0, 0)
        assert guard is not None
        results = append(broker.replicas, (TP, transactional()), (OTHER, transactional()), guards={TP: guard})
        assert [result.error_code for result in results] == [0, InvalidTransactionStateError.code]
        (result,) = append(broker.replicas, (TP, transactional(1)))
        assert result.first_offset == 1

    play(scenario)


def test_markers_of_an_older_coordinator_are_refused(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, LED, TP, OTHER)

        def end(coordinator_epoch: int) -> list[int]:
            entries = [
                (each, marker(ControlType.ABORT, producer_id=PID, coordinator_epoch=coordinator_epoch))
                for each in (TP, OTHER)
            ]
            return [one.error_code for one in append(broker.replicas, *entries, origin=AppendOrigin.COORDINATOR)]

        assert end(3) == [0, 0]
        assert end(3) == [0, 0]
        assert end(2) == [TransactionCoordinatorFencedError.code] * 2
        assert broker.partition(TP).high_watermark == 2

    play(scenario)
