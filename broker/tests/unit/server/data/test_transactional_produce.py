"""Produce with a transactional id: verification, order, and every way in which a wait ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from odradek.base.errors import (
    NONE,
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidTransactionStateError,
    NetworkError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.server.data import transactional_produce
from odradek_testkit.clients.transactional_writes import (
    ID,
    PID,
    T0,
    T1,
    T2,
    ProduceLab,
    batch_of,
    code_of,
    explore_with,
    settle,
)

Play = Callable[..., None]
NO_RECORDS: Final = TopicPartition("t", 3)
Explore = Callable[..., None]


@pytest.fixture
def explore(play: Play) -> Explore:
    """Runs a scenario with a `ProduceLab`."""
    return explore_with(play)


@pytest.mark.parametrize("acks", [1, -1])
def test_the_first_batch_of_a_transaction_waits_for_its_verification(explore: Explore, acks: int) -> None:
    async def scenario(lab: ProduceLab) -> None:
        first = lab.send((T0, batch_of(0)), acks=acks)
        await settle()
        (question,) = lab.verifier.questions
        assert question.writer == TransactionalWriter(ID, PID, 0)
        assert question.partitions == (T0,)
        assert (lab.sequences(), lab.waiting, first.done()) == ([], 1, False)
        question.answer()
        part = (await first)[T0]
        assert (part.error_code, part.base_offset) == (NONE, 0)
        # The transaction is open now.
        assert await code_of(lab.send((T0, batch_of(1)), acks=acks)) == NONE
        assert len(lab.verifier.questions) == 1
        assert lab.sequences() == [0, 1]
        lab.end()
        again = lab.send((T0, batch_of(2)), acks=acks)
        await settle()
        lab.verifier.questions[1].answer()
        assert await code_of(again) == NONE

    explore(scenario)


def test_pipelined_requests_join_the_verification_in_order(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        sent = [lab.send((T0, batch_of(number, value=b"%03d" % number * 500))) for number in range(5)]
        await settle()
        (question,) = lab.verifier.questions
        assert lab.waiting == 5
        question.answer()
        assert [(await each)[T0].base_offset for each in sent] == [0, 1, 2, 3, 4]
        assert lab.sequences() == [0, 1, 2, 3, 4]
        content = lab.server.replicas.partition(T0).log.read(0, max_bytes=1 << 20).load()
        assert [content.count(b"%03d" % number * 500) for number in range(5)] == [1] * 5, "copied from the frames"

    explore(scenario)


def test_requests_that_a_response_lets_in_do_not_overtake(explore: Explore) -> None:
    """A connection reads on when it has answered; that happens while waiting records are being appended."""

    async def scenario(lab: ProduceLab) -> None:
        peer, count = lab.server.connect(), 150
        sent = [lab.send((T0, batch_of(number)), (T1, batch_of(number)), peer=peer) for number in range(count)]
        await settle()
        assert 0 < lab.waiting < 2 * count, "the connection limits the requests in flight"
        lab.verifier.questions[0].answer()
        for each in sent:
            assert [part.error_code for part in (await each).values()] == [NONE, NONE]
        assert lab.sequences(T0) == lab.sequences(T1) == list(range(count))
        assert len(lab.verifier.questions) == 1

    explore(scenario)


RETRIED: Final = [
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NetworkError,
]


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        *((9, error.code, NotEnoughReplicasError.code) for error in RETRIED),
        (11, ProducerFencedError.code, InvalidProducerEpochError.code),
        (11, InvalidProducerEpochError.code, InvalidProducerEpochError.code),
        (11, ClusterAuthorizationFailedError.code, InvalidTransactionStateError.code),
        (11, InvalidProducerIdMappingError.code, InvalidProducerIdMappingError.code),
        (11, InvalidTransactionStateError.code, InvalidTransactionStateError.code),
        (11, TransactionAbortableError.code, TransactionAbortableError.code),
        (10, TransactionAbortableError.code, InvalidTransactionStateError.code),
        (3, TransactionAbortableError.code, InvalidTransactionStateError.code),
    ],
)
def test_errors_of_the_coordinator_are_translated(explore: Explore, version: int, code: int, expected: int) -> None:
    async def scenario(lab: ProduceLab) -> None:
        sent = [lab.send((T0, batch_of(number)), version=version) for number in range(2)]
        await settle()
        lab.verifier.questions[0].answer(code)
        assert [await code_of(each) for each in sent] == [expected] * 2
        assert lab.sequences() == []

    explore(scenario)


def test_after_a_retriable_error_the_lowest_sequence_opens_the_transaction(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        await lab.send((T0, batch_of(0, producer_id=8, is_transactional=False)))
        first = lab.send((T0, batch_of(5)))
        await settle()
        lab.verifier.questions[0].answer(NotCoordinatorError.code)
        assert await code_of(first) == NotEnoughReplicasError.code
        early = lab.send((T0, batch_of(6)))
        await settle()
        lab.verifier.questions[1].answer()
        assert await code_of(early) == OutOfOrderSequenceError.code
        repeated = [lab.send((T0, batch_of(number))) for number in (5, 6)]
        await settle()
        lab.verifier.questions[2].answer()
        assert [await code_of(each) for each in repeated] == [NONE] * 2

    explore(scenario)


def test_a_transaction_that_ends_during_the_verification_is_not_opened_again(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        late = lab.send((T0, batch_of(0)))
        await settle()
        lab.end()
        new = lab.send((T0, batch_of(0, epoch=0)))
        await settle()
        assert len(lab.verifier.questions) == 2, "it must not use a verification that began before the marker"
        assert lab.waiting == 2
        lab.verifier.questions[1].answer()
        await settle()
        assert not new.done(), "the order of the connection is kept"
        lab.verifier.questions[0].answer()
        assert await code_of(late) == InvalidTransactionStateError.code
        assert await code_of(new) == NONE

    explore(scenario)


def test_a_time_out_fences_the_producer_that_waits(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        late = lab.send((T0, batch_of(0)))
        await settle()
        lab.end(epoch=1)
        lab.verifier.questions[0].answer()
        assert await code_of(late) == InvalidTransactionStateError.code
        again = lab.send((T0, batch_of(0)))
        await settle()
        lab.verifier.questions[1].answer()
        assert await code_of(again) == InvalidProducerEpochError.code

    explore(scenario)


def test_another_connection_does_not_share_a_verification(explore: Explore) -> None:
    """The first request may have been delayed until its transaction had ended."""

    async def scenario(lab: ProduceLab) -> None:
        late = lab.send((T0, batch_of(0)))
        await settle()
        new = lab.send((T0, batch_of(0)), peer=lab.server.connect())
        await settle()
        assert len(lab.verifier.questions) == 2
        lab.verifier.questions[0].answer(InvalidTransactionStateError.code)
        lab.verifier.questions[1].answer()
        assert await code_of(late) == InvalidTransactionStateError.code
        assert await code_of(new) == NONE

    explore(scenario)


def test_another_epoch_does_not_share_a_verification(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        old, new = lab.send((T0, batch_of(0))), lab.send((T0, batch_of(0, epoch=1)))
        await settle()
        assert [question.writer.producer_epoch for question in lab.verifier.questions] == [0, 1]
        lab.verifier.questions[0].answer(ProducerFencedError.code)
        lab.verifier.questions[1].answer()
        assert [await code_of(old), await code_of(new)] == [InvalidProducerEpochError.code, NONE]

    explore(scenario)


def test_a_request_is_answered_once_with_all_its_partitions(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        opening = lab.send((T0, batch_of(0)))
        await settle()
        lab.verifier.questions[0].answer()
        await opening
        gone = TopicPartition("gone", 0)
        mixed = lab.send(
            (T0, batch_of(1)), (T1, batch_of(0)), (T2, batch_of(0)), (gone, batch_of(0)), (NO_RECORDS, None)
        )
        await settle()
        assert lab.sequences(T0) == [0, 1], "only partitions that need a verification wait"
        assert lab.verifier.questions[1].partitions == (T1, T2)
        behind = lab.send((T0, batch_of(2)), (T2, batch_of(1)))
        await settle()
        assert (mixed.done(), behind.done(), lab.waiting) == (False, False, 3)
        lab.verifier.questions[1].outcome.set_result({T1: InvalidTransactionStateError.code, T2: NONE})
        answer = await mixed
        assert {each: part.error_code for each, part in answer.items()} == {
            T0: NONE,
            T1: InvalidTransactionStateError.code,
            T2: NONE,
            gone: UnknownTopicOrPartitionError.code,
            NO_RECORDS: InvalidRecordError.code,
        }
        assert {each: part.base_offset for each, part in (await behind).items()} == {T0: 2, T2: 1}
        assert len(lab.verifier.questions) == 2

    explore(scenario)


def test_batches_without_a_transaction_need_no_verification(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        assert await code_of(lab.send((T0, batch_of(0, is_transactional=False)))) == NONE
        mixed = lab.send((T0, batch_of(1, is_transactional=False)), (T1, batch_of(0)))
        await settle()
        (question,) = lab.verifier.questions
        assert question.partitions == (T1,)
        question.answer()
        assert [part.error_code for part in (await mixed).values()] == [NONE, NONE]

    explore(scenario)


def test_a_transaction_needs_a_transactional_id(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        code = await code_of(lab.send((T0, batch_of(0)), transactional_id=None))
        assert code == TransactionalIdAuthorizationFailedError.code
        assert not lab.verifier.questions

    explore(scenario)


def test_a_request_has_one_producer(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        answer = await lab.send((T0, batch_of(0)), (T1, batch_of(0, epoch=1)))
        assert [part.error_code for part in answer.values()] == [InvalidProducerIdMappingError.code] * 2
        assert not lab.verifier.questions

    explore(scenario)


@pytest.mark.parametrize("damage", [slice(0, 40), slice(0, -1)])
def test_damaged_records_are_refused(explore: Explore, damage: slice) -> None:
    async def scenario(lab: ProduceLab) -> None:
        sent = lab.send((T0, batch_of(0)[damage]))
        await settle()
        for question in lab.verifier.questions:
            question.answer()
        assert await code_of(sent) != NONE
        assert lab.sequences() == []

    explore(scenario)


def test_verification_can_be_switched_off(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        assert await code_of(lab.send((T0, batch_of(0)))) == NONE
        assert not lab.verifier.questions

    explore(scenario, settings={"transaction.partition.verification.enable": "false"})


def test_it_is_switched_off_while_records_wait(explore: Explore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(lab: ProduceLab) -> None:
        first = lab.send((T0, batch_of(0)))
        await settle()
        monkeypatch.setattr(lab.server.data.transactions, "_is_enabled", lambda: False)
        behind, elsewhere = lab.send((T0, batch_of(1))), lab.send((T1, batch_of(0)))
        assert await code_of(lab.send((T2, batch_of(0)), peer=lab.server.connect()), T2) == NONE
        await settle()
        assert (behind.done(), lab.waiting, lab.sequences(T1)) == (False, 2, [0])
        lab.verifier.questions[0].answer()
        assert [await code_of(first), await code_of(behind)] == [NONE, NONE]
        assert await code_of(elsewhere, T1) == NONE

    explore(scenario)


def test_a_closed_connection_leaves_nothing(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        peer = lab.server.connect()
        sent = [lab.send((T0, batch_of(number)), peer=peer) for number in range(2)]
        await settle()
        peer.abort()
        for each in sent:
            with pytest.raises(NetworkError):
                await each
        lab.verifier.questions[0].answer()
        await settle()
        assert lab.sequences() == [0, 1]

    explore(scenario)


@pytest.mark.parametrize("code", [NONE, InvalidTransactionStateError.code])
def test_without_acks_nothing_is_answered(explore: Explore, code: int) -> None:
    async def scenario(lab: ProduceLab) -> None:
        peer = lab.server.connect()
        silent = lab.send((T0, batch_of(0)), peer=peer, acks=0)
        await settle()
        lab.verifier.questions[0].answer(code)
        await settle()
        assert peer.is_aborted is (code != NONE)
        peer.abort()
        with pytest.raises(NetworkError):
            await silent
        assert len(lab.sequences()) == (not code)

    explore(scenario)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_new_leader_epoch_ends_the_wait(explore: Explore, epoch: int) -> None:
    """Even if this broker leads again: records of another leader may have come between."""

    async def scenario(lab: ProduceLab) -> None:
        peer = lab.server.connect()
        sent = [lab.send((T0, batch_of(number)), peer=peer) for number in range(2)]
        await settle()
        for each in range(1, epoch + 1):
            leader = [2, 1] if each == 1 else [1, 2]
            await lab.server.announce("t", {0: leader}, leader_epoch=each, brokers=(1, 2))
        behind = lab.send((T0, batch_of(2)), peer=peer)
        await settle()
        for question in lab.verifier.questions:
            question.answer()
        assert [await code_of(each) for each in sent] == [NotLeaderOrFollowerError.code] * 2
        expected = {1: NotLeaderOrFollowerError.code, 2: OutOfOrderSequenceError.code}
        assert await code_of(behind) == expected[epoch]

    explore(scenario)


def test_records_above_the_limit_do_not_wait(explore: Explore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_produce, "WAITING_BYTES", 2 * len(batch_of(0)))

    async def scenario(lab: ProduceLab) -> None:
        for first in (0, 2):
            sent = [lab.send((T0, batch_of(first + number)), (T1, None)) for number in range(3)]
            await settle()
            assert lab.waiting == 2
            lab.verifier.questions[-1].answer()
            codes = [await code_of(each, T0) for each in sent]
            assert codes == [NONE, NONE, NotEnoughReplicasError.code]
            lab.end()
        assert lab.sequences() == [0, 1, 2, 3]

    explore(scenario)


def test_a_broker_that_stops_answers_what_waits(explore: Explore) -> None:
    async def scenario(lab: ProduceLab) -> None:
        sent = [lab.send((T0, batch_of(0))), lab.send((T1, batch_of(0)))]
        await asyncio.sleep(0)
        await lab.server.data.transactions.close()
        assert await code_of(sent[0], T0) == NotEnoughReplicasError.code
        assert await code_of(sent[1], T1) == NotEnoughReplicasError.code

    explore(scenario)


def test_a_bug_of_the_verifier_is_answered(explore: Explore, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(lab: ProduceLab) -> None:
        sent, other = lab.send((T0, batch_of(0))), lab.send((T1, batch_of(0)))
        await settle()
        with caplog.at_level(logging.CRITICAL):
            lab.verifier.questions[0].outcome.set_exception(ZeroDivisionError())
            lab.verifier.questions[1].outcome.set_result({})
            assert await code_of(sent) == UnknownServerError.code
            assert await code_of(other, T1) == UnknownServerError.code

    explore(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_requests_in_any_order_keep_the_order_of_their_batches(explore: Explore, seed: int) -> None:
    """Two producers with three partitions, whose verifications take any time."""

    async def scenario(lab: ProduceLab) -> None:
        source = Random(seed)
        partitions = (T0, T1, T2)
        sent: list[asyncio.Task[Any]] = []
        peers = [lab.server.connect(), lab.server.connect()]
        next_sequence = dict.fromkeys([(each, producer) for each in partitions for producer in (0, 1)], 0)
        expected: dict[tuple[TopicPartition, int], list[int]] = {key: [] for key in next_sequence}

        def produce(producer: int) -> None:
            chosen = source.sample(partitions, source.randint(1, 3))
            parts = []
            for each in chosen:
                sequence = next_sequence[each, producer]
                next_sequence[each, producer] += 1
                expected[each, producer].append(sequence)
                parts.append((each, batch_of(sequence, producer_id=PID + producer)))
            sent.append(lab.send(*parts, peer=peers[producer], transactional_id=f"{ID}-{producer}"))

        answered = [0, 0]

        def answer(producer: int) -> None:
            asked = [each for each in lab.verifier.questions if each.writer.producer_id == PID + producer]
            if answered[producer] < len(asked):
                asked[answered[producer]].answer()
                answered[producer] += 1

        for _ in range(150):
            source.choice((produce, produce, answer))(source.randrange(2))
            if source.random() < 0.5:
                await asyncio.sleep(0)
        while not all(each.done() for each in sent):
            answer(0)
            answer(1)
            await settle()
        for each in sent:
            assert {part.error_code for part in each.result().values()} == {NONE}
        for (each, producer), sequences in expected.items():
            assert lab.sequences(each, PID + producer) == sequences

    explore(scenario)
