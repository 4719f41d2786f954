"""The checks after a run report each kind of violation, and accept correct histories."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from odradek.base.types import GROUP_METADATA_TOPIC, TopicPartition
from odradek.records.v2.batch import DELETE_HORIZON_FLAG, HEADER_SIZE, ControlType, assemble, read_header
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.history import Answer, GroupHistory, ProducerHistory, Reading
from odradek_testkit.simulation.verdict import (
    Contents,
    compare_batches,
    judge_group,
    judge_producer,
    judge_reading,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIVE = [b"p-%06d" % number for number in range(5)]


def contents(*values: bytes | None) -> Contents:
    """Return the contents of a log. None stands for an offset without a record."""
    return Contents(0, len(values), {offset: value for offset, value in enumerate(values) if value is not None})


def producer(*, idempotent: bool = True, acknowledged: Mapping[int, int]) -> ProducerHistory:
    """Return a producer that sent five records to T0. `acknowledged`: offsets by number; the rest was refused."""
    history = ProducerHistory(name="p", idempotent=idempotent)
    for number in range(5):
        sent = history.send("t", 0)
        if number in acknowledged:
            sent.acknowledged(0, acknowledged[number])
        else:
            sent.refused("NetworkError")
    return history


def found(work: object) -> str:
    assert isinstance(work, Violation)
    return work.invariant


def test_what_was_refused_may_be_there_or_not() -> None:
    history = producer(acknowledged={0: 0, 3: 2})
    for log in (contents(FIVE[0], FIVE[2], FIVE[3]), contents(FIVE[0], b"other-000009", FIVE[3])):
        judge_producer(history, {T0: log}, clean=True)


@pytest.mark.parametrize(
    ("log", "invariant"),
    [
        (contents(FIVE[0]), "nothing-acknowledged-is-lost"),
        (contents(FIVE[0], FIVE[3]), "nothing-acknowledged-is-lost"),
        (contents(FIVE[0], None, b"q-000003"), "nothing-acknowledged-is-lost"),
        (contents(FIVE[0], FIVE[0], FIVE[3]), "no-doubles"),
        (contents(FIVE[0], None, FIVE[3], FIVE[1]), "in-order"),
        (contents(FIVE[0], None, FIVE[3], b"p-000077"), "only-what-was-sent"),
    ],
)
def test_an_idempotent_producer(log: Contents, invariant: str) -> None:
    with pytest.raises(Violation) as caught:
        judge_producer(producer(acknowledged={0: 0, 3: 2}), {T0: log}, clean=True)
    assert caught.value.invariant == invariant


def test_records_keep_to_their_partition() -> None:
    with pytest.raises(Violation) as caught:
        judge_producer(producer(acknowledged={}), {T0: contents(), T1: contents(FIVE[0])}, clean=True)
    assert caught.value.invariant == "only-what-was-sent"


def test_a_record_without_an_answer_is_a_violation() -> None:
    history = ProducerHistory(name="p", idempotent=True)
    history.send("t", 0)
    with pytest.raises(Violation) as caught:
        judge_producer(history, {T0: contents()}, clean=True)
    assert caught.value.invariant == "everything-is-answered"


def test_an_acknowledgement_without_an_offset_is_looked_up() -> None:
    judge_producer(producer(acknowledged={1: -1}), {T0: contents(None, FIVE[1])}, clean=True)
    with pytest.raises(Violation):
        judge_producer(producer(acknowledged={1: -1}), {T0: contents(FIVE[0])}, clean=True)


def test_a_quick_producer_may_lose_and_double() -> None:
    quick = producer(idempotent=False, acknowledged={0: 0, 4: 9})
    judge_producer(quick, {T0: contents(FIVE[1], FIVE[1], FIVE[0])}, clean=True)


def test_after_an_unclean_election_records_may_be_lost_but_not_doubled() -> None:
    history = producer(acknowledged={0: 0, 3: 2})
    judge_producer(history, {T0: contents(FIVE[1])}, clean=False)
    with pytest.raises(Violation, match="no-doubles"):
        judge_producer(history, {T0: contents(FIVE[1], FIVE[1])}, clean=False)


def test_what_a_reader_saw_is_there() -> None:
    reading = Reading(records={0: b"a", 2: b"c"})
    judge_reading("reader", T0, reading, contents(b"a", None, b"c"))
    for log in (contents(b"a"), contents(b"a", None, b"x")):
        with pytest.raises(Violation) as caught:
            judge_reading("reader", T0, reading, log)
        assert caught.value.invariant == "seen-stays"


def group(*handed: int) -> GroupHistory:
    """Return a group that received the records at `handed` of T0, and committed offset 2."""
    history = GroupHistory()
    history.got(T0, list(handed))
    history.settle(history.commit({T0: 2}, 1.0), Answer.ACKNOWLEDGED, 2.0)
    return history


def test_a_group() -> None:
    logs = {T0: contents(b"a", b"b", b"c")}
    judge_group("g", group(0, 1), logs, {T0: 2})
    for committed in ({}, {T0: 3}):
        with pytest.raises(Violation) as caught:
            judge_group("g", group(0, 1), logs, committed)
        assert caught.value.invariant == "commits-stay"
    with pytest.raises(Violation) as caught:
        judge_group("g", group(1), logs, {T0: 2})
    assert caught.value.invariant == "handed-out"


def test_replicas_have_the_same_bytes() -> None:
    one = [(0, b"aa"), (2, b"bb")]
    compare_batches(T0, "0 and 1", one, list(one))
    compare_batches(T0, "0 and 1", one, one[1:])
    for other in ([(0, b"aa"), (2, b"bx")], [(0, b"aa")], [(0, b"aa"), (1, b"bb")]):
        with pytest.raises(Violation) as caught:
            compare_batches(T0, "0 and 1", one, other)
        assert caught.value.invariant == "same-bytes"


def marker(offset: int, *, producer_id: int = 1, horizon_ms: int | None = None) -> tuple[int, bytes]:
    """Return base offset and bytes of a marker. `horizon_ms`: when compaction will remove it."""
    data = marker_batch(
        ControlType.COMMIT,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=5,
        base_offset=offset,
    )
    header = read_header(data)
    if horizon_ms is not None:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=horizon_ms)
    return offset, assemble(header, data[HEADER_SIZE:])


def test_compaction_may_have_taken_batches_on_one_side() -> None:
    offsets = TopicPartition(GROUP_METADATA_TOPIC, 0)
    one = [marker(0), marker(2), marker(5)]
    compare_batches(offsets, "0 and 1", one, [marker(0), marker(5)])
    compare_batches(offsets, "0 and 1", one, [marker(0, horizon_ms=77), marker(5)])
    with pytest.raises(Violation, match="same-bytes"):
        compare_batches(offsets, "0 and 1", one, [marker(0), marker(5, producer_id=2)])
