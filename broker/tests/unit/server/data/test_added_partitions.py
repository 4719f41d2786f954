"""Produce version 12: the leader has the partitions added to the transaction (transaction version 2, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.errors import (
    NONE,
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    TransactionAbortableError,
)
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek_testkit.clients.transactional_writes import (
    ID,
    PID,
    T0,
    ProduceLab,
    batch_of,
    code_of,
    explore_with,
    settle,
)

Explore = Callable[..., None]


@pytest.fixture
def explore(play: Callable[..., None]) -> Explore:
    """Runs a scenario with a `ProduceLab`."""
    return explore_with(play)


def test_version_12_adds_the_partition(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        first = lab.send((T0, batch_of(0)), version=12)
        second = lab.send((T0, batch_of(1)), version=12)
        await settle()
        assert [question.writer for question in lab.verifier.questions] == [TransactionalWriter(ID, PID, 0, adds=True)]
        lab.verifier.questions[0].answer()
        assert await code_of(first) == NONE
        assert await code_of(second) == NONE
        third = lab.send((T0, batch_of(2)), version=12)
        assert await code_of(third) == NONE
        assert len(lab.verifier.questions) == 1, "the transaction has records in the partition"

    explore(scenario)


def test_partitions_are_added_although_verification_is_off(explore: Explore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(lab: ProduceLab) -> None:
        monkeypatch.setattr(lab.server.data.transactions, "_is_enabled", lambda: False)
        sent = lab.send((T0, batch_of(0)), version=12)
        await settle()
        lab.verifier.questions[0].answer()
        assert await code_of(sent) == NONE

    explore(scenario)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ConcurrentTransactionsError.code, ConcurrentTransactionsError.code),
        (NotCoordinatorError.code, NotEnoughReplicasError.code),
        (ProducerFencedError.code, InvalidProducerEpochError.code),
        (TransactionAbortableError.code, TransactionAbortableError.code),
    ],
)
def test_errors_of_an_addition(explore: Explore, code: int, expected: int) -> None:
    async def scenario(lab: ProduceLab) -> None:
        sent = lab.send((T0, batch_of(0)), version=12)
        await settle()
        lab.verifier.questions[0].answer(code)
        assert await code_of(sent) == expected
        assert lab.sequences() == []

    explore(scenario)


def test_the_next_transaction_waits_for_the_marker_of_the_last_one(explore: Explore) -> None:
    """Its first records arrive before the marker. They must become part of neither transaction before the answer."""

    async def scenario(lab: ProduceLab) -> None:
        first = lab.send((T0, batch_of(0)), version=12)
        await settle()
        lab.verifier.questions[0].answer()
        assert await code_of(first) == NONE
        following = [lab.send((T0, batch_of(number, epoch=1)), version=12) for number in range(2)]
        await settle()
        assert [question.writer.producer_epoch for question in lab.verifier.questions] == [0, 1]
        lab.end(epoch=1)
        lab.verifier.questions[1].answer()
        await settle()
        assert not any(each.done() for each in following), "the guard is older than the marker"
        assert len(lab.verifier.questions) == 3
        lab.verifier.questions[2].answer()
        assert [await code_of(each) for each in following] == [NONE, NONE]
        assert lab.sequences() == [0, 0, 1]
        assert lab.waiting == 0

    explore(scenario)


def test_a_delayed_write_of_an_ended_transaction_is_refused(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        late = lab.send((T0, batch_of(0)), version=12)
        await settle()
        lab.end(epoch=1)
        lab.verifier.questions[0].answer()
        await settle()
        lab.verifier.questions[1].answer(ProducerFencedError.code)
        assert await code_of(late) == InvalidProducerEpochError.code

    explore(scenario)
