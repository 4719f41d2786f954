"""Tests the comparison of a load: it reports lost, duplicated and reordered records, and nothing else."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from support.ledger import Report, Seen, Written, judge
from support.load_child import decode, encode

STREAM = ("p", 0)
SENT = st.integers(min_value=1, max_value=60)


def seen(sequences: list[int]) -> Seen:
    account = Seen()
    for sequence in sequences:
        account.see(sequence)
    return account


def verdict_of(written: Written, sequences: list[int]) -> tuple[bool, bool, bool]:
    verdict = judge({STREAM: written}, {STREAM: seen(sequences)}, len(sequences))
    return bool(verdict.lost), bool(verdict.doubled), bool(verdict.reordered)


@given(count=SENT, data=st.data())
def test_failed_records_may_be_there_or_not(count: int, data: st.DataObject) -> None:
    failed = data.draw(st.sets(st.integers(0, count - 1)))
    absent = data.draw(st.sets(st.sampled_from(sorted(failed)))) if failed else set()
    there = [number for number in range(count) if number not in absent]

    assert verdict_of(Written(count, failed), there) == (False, False, False)


@given(count=SENT, data=st.data())
def test_an_acknowledged_record_that_is_missing_is_lost(count: int, data: st.DataObject) -> None:
    absent = data.draw(st.integers(0, count - 1))
    verdict = judge({STREAM: Written(count)}, {STREAM: seen([n for n in range(count) if n != absent])}, count - 1)

    assert verdict.lost == (f"p/0:{absent}",)
    assert not verdict.doubled and not verdict.reordered and not verdict.good


@given(count=SENT, data=st.data())
def test_a_record_that_comes_again_is_doubled(count: int, data: st.DataObject) -> None:
    again = data.draw(st.integers(0, count - 1))
    position = data.draw(st.integers(again + 1, count))
    sequences = [*range(position), again, *range(position, count)]

    assert verdict_of(Written(count), sequences) == (False, True, False)


@given(count=st.integers(2, 60), data=st.data())
def test_a_record_that_comes_late_is_reordered(count: int, data: st.DataObject) -> None:
    late = data.draw(st.integers(0, count - 2))
    sequences = [number for number in range(count) if number != late]
    sequences.insert(data.draw(st.integers(late + 1, count - 1)), late)

    assert verdict_of(Written(count), sequences) == (False, False, True)


@given(sequences=st.lists(st.integers(0, 20), max_size=40))
def test_any_stream_is_accounted_for(sequences: list[int]) -> None:
    account = seen(sequences)
    missing = account.missing(Written(21))

    assert missing == [number for number in range(21) if number not in sequences]
    assert len(account.doubled) == len(sequences) - len(set(sequences))


def test_a_stream_nobody_saw_is_lost_and_one_nobody_wrote_is_no_loss() -> None:
    verdict = judge({("a", 1): Written(2)}, {("b", 1): seen([0])}, 1)

    assert verdict.lost == ("a/1:0", "a/1:1")
    assert (verdict.acknowledged, verdict.failed, verdict.seen) == (2, 0, 1)


def test_an_account_survives_its_file() -> None:
    report = Report(
        streams={("a", 1): Written(9, {3, 4}), ("b", 0): seen([0, 2, 2, 1, 5])}, count=14, longest_pause=1.5
    )

    assert Report.parse(json.loads(json.dumps(report.plain()))) == report


@given(sequence=st.integers(0, 2**40), size=st.integers(0, 400))
def test_a_record_says_who_and_which(sequence: int, size: int) -> None:
    value = encode("producer-1", sequence, size)

    assert decode(value) == ("producer-1", sequence)
    assert len(value) >= size
