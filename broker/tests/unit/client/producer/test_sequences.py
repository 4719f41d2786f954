"""Idempotence: sequence numbers and verdicts."""

from __future__ import annotations

import pytest

from odradek.client.producer.sequences import (
    UNNUMBERED,
    Numbers,
    PartitionSequences,
    ProducerIdentity,
    Verdict,
    judge_plain,
)

GAP, DUPLICATE, OLD_EPOCH, UNKNOWN_PRODUCER, NETWORK, TOO_LARGE = 45, 46, 47, 59, 13, 10


class Batch:
    def __init__(self, record_count: int = 10) -> None:
        self.numbers = UNNUMBERED
        self.record_count = record_count


def three() -> tuple[PartitionSequences, list[Batch]]:
    sequences = PartitionSequences()
    sequences.adopt(ProducerIdentity(7, 0))
    batches = [Batch(), Batch(), Batch()]
    for batch in batches:
        sequences.number(batch)
    return sequences, batches


def test_numbers_are_consecutive_and_do_not_change() -> None:
    sequences, batches = three()
    assert [batch.numbers for batch in batches] == [Numbers(7, 0, 0), Numbers(7, 0, 10), Numbers(7, 0, 20)]
    sequences.number(batches[0])
    assert batches[0].numbers == Numbers(7, 0, 0)


def test_numbers_wrap_around() -> None:
    sequences = PartitionSequences()
    sequences.adopt(ProducerIdentity(7, 0))
    first, second = Batch(2**31 - 5), Batch(10)
    third = Batch()
    for batch in (first, second, third):
        sequences.number(batch)
    assert (second.numbers.base_sequence, third.numbers.base_sequence) == (2**31 - 5, 5)


@pytest.mark.parametrize(
    ("position", "code", "verdict"),
    [
        (0, 0, Verdict.ACKNOWLEDGE),
        (1, 0, Verdict.ACKNOWLEDGE),
        (0, DUPLICATE, Verdict.ACKNOWLEDGE),
        (1, GAP, Verdict.RETRY),
        (2, UNKNOWN_PRODUCER, Verdict.RETRY),
        (0, NETWORK, Verdict.RETRY),
        (0, TOO_LARGE, Verdict.FAIL),
        (1, OLD_EPOCH, Verdict.FAIL),
        (0, 12_345, Verdict.FAIL),
    ],
)
def test_verdicts_that_keep_the_numbers(position: int, code: int, verdict: Verdict) -> None:
    sequences, batches = three()
    numbers = [batch.numbers for batch in batches]
    assert sequences.judge(batches[position], code, numbers[position]) is verdict
    assert [batch.numbers for batch in batches] == numbers
    assert (batches[position] in sequences.outstanding) is (verdict is Verdict.RETRY)


@pytest.mark.parametrize("code", [GAP, UNKNOWN_PRODUCER])
def test_a_gap_before_the_oldest_renumbers_all(code: int) -> None:
    sequences, batches = three()
    sent = [batch.numbers for batch in batches]
    sequences.judge(batches[0], 0, sent[0])
    assert sequences.judge(batches[1], code, sent[1]) is Verdict.RETRY
    assert [batch.numbers for batch in batches[1:]] == [UNNUMBERED, UNNUMBERED]
    # The response for the other batch, which was sent with its old numbers, changes nothing.
    for late in (code, OLD_EPOCH):
        assert sequences.judge(batches[2], late, sent[2]) is Verdict.RETRY
    for batch in batches[1:]:
        sequences.number(batch)
    assert [batch.numbers for batch in batches[1:]] == [Numbers(7, 1, 0), Numbers(7, 1, 10)]


def test_the_last_epoch_needs_a_new_producer_id() -> None:
    sequences = PartitionSequences()
    sequences.adopt(ProducerIdentity(7, 32_767))
    batch = Batch()
    sequences.number(batch)
    sequences.judge(batch, GAP, batch.numbers)
    assert sequences.needs_identity
    sequences.adopt(ProducerIdentity(8, 0))
    sequences.number(batch)
    assert batch.numbers == Numbers(8, 0, 0)


def test_a_fenced_producer_needs_a_new_id() -> None:
    sequences, batches = three()
    sequences.judge(batches[0], OLD_EPOCH, batches[0].numbers)
    assert sequences.needs_identity


def test_numbering_without_an_identity_is_a_bug() -> None:
    with pytest.raises(ValueError, match="producer id"):
        PartitionSequences().number(Batch())


@pytest.mark.parametrize(
    ("code", "verdict"),
    [(0, Verdict.ACKNOWLEDGE), (6, Verdict.RETRY), (NETWORK, Verdict.RETRY), (GAP, Verdict.FAIL), (-1, Verdict.FAIL)],
)
def test_without_idempotence_the_class_of_the_error_decides(code: int, verdict: Verdict) -> None:
    assert judge_plain(code) is verdict


def test_numbers_are_proven_by_the_first_acknowledgement_of_an_epoch() -> None:
    sequences, batches = three()
    assert not sequences.is_proven
    sequences.judge(batches[0], NETWORK, batches[0].numbers)
    assert not sequences.is_proven
    sequences.judge(batches[0], 0, batches[0].numbers)
    assert sequences.is_proven
    sequences.judge(batches[1], GAP, batches[1].numbers)
    assert not sequences.is_proven, "the next epoch begins"
    late = batches[2].numbers
    sequences.number(batches[1])
    sequences.number(batches[2])
    sequences.judge(batches[2], DUPLICATE, Numbers(7, 0, 20))
    assert not sequences.is_proven, f"a response for {late} of the old epoch proves nothing"
    sequences.judge(batches[1], 0, batches[1].numbers)
    assert sequences.is_proven


def test_the_window_covers_the_batches_that_a_broker_remembers() -> None:
    """A new leader may acknowledge later batches before the old leader responds for the oldest."""
    sequences = PartitionSequences()
    sequences.adopt(ProducerIdentity(7, 0))
    first = Batch()
    sequences.number(first)
    assert sequences.window == 1
    sequences.judge(first, 0, first.numbers)
    batches = [Batch() for _ in range(5)]
    for index, batch in enumerate(batches):
        assert sequences.window == 5 > index
        sequences.number(batch)
    for acknowledged, batch in enumerate(batches[1:], start=1):
        sequences.judge(batch, 0, batch.numbers)
        assert sequences.window == len(sequences.outstanding) == 5 - acknowledged
    sequences.judge(batches[0], DUPLICATE, batches[0].numbers)
    assert (sequences.window, sequences.outstanding) == (5, ())


def test_a_renumbered_partition_has_its_full_window_again() -> None:
    sequences, batches = three()
    sent = [batch.numbers for batch in batches]
    sequences.judge(batches[0], 0, sent[0])
    sequences.judge(batches[1], GAP, sent[1])
    for batch in batches[1:]:
        sequences.number(batch)
    assert sequences.window == 1
    sequences.judge(batches[1], 0, batches[1].numbers)
    assert sequences.window == 5


@pytest.mark.parametrize("code", [GAP, UNKNOWN_PRODUCER])
def test_in_a_transaction_the_oldest_batch_fails_instead_of_being_renumbered(code: int) -> None:
    sequences = PartitionSequences(is_transactional=True)
    sequences.adopt(ProducerIdentity(7, 0))
    first, second = Batch(), Batch()
    for batch in (first, second):
        sequences.number(batch)
    assert sequences.judge(second, code, second.numbers) is Verdict.RETRY
    assert sequences.judge(first, code, first.numbers) is Verdict.FAIL
    assert sequences.outstanding == (second,)
    assert second.numbers == Numbers(7, 0, 10)
    assert sequences.judge(second, OLD_EPOCH, second.numbers) is Verdict.FAIL
    assert not sequences.needs_identity
