from __future__ import annotations

import struct

import crc32c
import pytest

from odradek.base.errors import (
    CorruptMessageError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    ProtocolError,
    TransactionCoordinatorFencedError,
)
from odradek.log.producers.producer_snapshot import INT32_MAX
from odradek.log.producers.producer_state import (
    ActiveProducer,
    Duplicate,
    EndedTransaction,
    Marker,
    ProducerState,
)
from odradek.records.v2.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, ControlType

PID = 7
COMMIT = Marker(ControlType.COMMIT, 3)


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = PID, attributes: int = 0, timestamp: int = 1000
) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=100,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def state_after(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    offset = 0
    for one in headers:
        assert state.check([one], sequenced=True) is None
        state.record(one, offset)
        offset += one.last_offset_delta + 1
    return state


def test_batches_in_sequence_pass() -> None:
    state = state_after(header(0, 3), header(3, 2), header(5))
    assert state.active() == [ActiveProducer(PID, 0, 5, 1000, -1, -1)]


@pytest.mark.parametrize("sequence", [0, 1, 3, 100])
def test_a_gap_or_an_unknown_repeat_is_out_of_order(sequence: int) -> None:
    state = state_after(header(0), header(1))
    with pytest.raises(OutOfOrderSequenceError):
        # Two records, so that it differs from all known batches.
        state.check([header(sequence, 2)], sequenced=True)


def test_a_repeat_of_the_last_five_is_a_duplicate_with_its_offsets() -> None:
    state = state_after(*(header(sequence, 2) for sequence in range(0, 14, 2)))
    for sequence in range(4, 14, 2):
        assert state.check([header(sequence, 2)], sequenced=True) == Duplicate(sequence, sequence + 1, 1000)
    with pytest.raises(OutOfOrderSequenceError):
        state.check([header(2, 2)], sequenced=True)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerState().check([header(17)], sequenced=True) is None


def test_in_a_log_that_never_had_a_record_every_producer_begins_at_zero() -> None:
    with pytest.raises(OutOfOrderSequenceError, match="expected 0"):
        ProducerState().check([header(17)], sequenced=True, unwritten=True)
    assert ProducerState().check([header(0)], sequenced=True, unwritten=True) is None
    assert ProducerState().check([header(17)], sequenced=False, unwritten=True) is None


def test_sequences_wrap() -> None:
    state = ProducerState()
    state.record(header(INT32_MAX - 1, 3), 0)
    assert state.check([header(1)], sequenced=True) is None
    assert state.check([header(INT32_MAX - 1, 3)], sequenced=True) == Duplicate(0, 2, 1000)
    state = ProducerState()
    state.record(header(INT32_MAX), 0)
    assert state.check([header(0)], sequenced=True) is None


@pytest.mark.parametrize(
    ("epoch", "sequence", "error"),
    [(4, 0, InvalidProducerEpochError), (6, 1, OutOfOrderSequenceError), (6, 0, None), (9, 0, None)],
)
def test_epochs_only_rise_and_begin_at_zero(epoch: int, sequence: int, error: type[ProtocolError] | None) -> None:
    state = state_after(header(0, epoch=5))
    if error is None:
        assert state.check([header(sequence, epoch=epoch)], sequenced=True) is None
    else:
        with pytest.raises(error):
            state.check([header(sequence, epoch=epoch)], sequenced=True)


def test_a_new_epoch_forgets_the_old_ones_batches() -> None:
    state = state_after(header(0, epoch=1), header(0, epoch=2))
    with pytest.raises(InvalidProducerEpochError):
        state.check([header(0, epoch=1)], sequenced=True)
    assert state.check([header(1, epoch=2)], sequenced=True) is None


def test_several_batches_are_checked_as_a_row_and_nothing_changes() -> None:
    state = state_after(header(0))
    before = state.active()
    assert state.check([header(1), header(2)], sequenced=True) is None
    with pytest.raises(OutOfOrderSequenceError):
        state.check([header(1), header(3)], sequenced=True)
    assert state.active() == before


def test_a_coordinators_batches_have_no_sequence() -> None:
    state = state_after(header(0))
    assert state.check([header(-1)], sequenced=False) is None


def test_batches_without_producer_leave_no_trace() -> None:
    state = state_after(header(-1, producer_id=-1, epoch=-1))
    assert len(state) == 0


def test_a_transaction_is_unstable_until_its_end_is_below_the_high_watermark() -> None:
    state = ProducerState()
    state.record(header(0, attributes=TRANSACTIONAL_FLAG), 10)
    state.record(header(1, attributes=TRANSACTIONAL_FLAG), 11)
    state.record(header(0, producer_id=8, attributes=TRANSACTIONAL_FLAG), 12)
    assert state.first_unstable_offset(100) == 10
    state.record(header(-1, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG), 13, COMMIT)
    assert state.first_unstable_offset(13) == 10
    assert state.first_unstable_offset(14) == 12
    state.record(header(-1, producer_id=8, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG), 14, COMMIT)
    assert state.first_unstable_offset(15) is None
    assert state.active()[0] == ActiveProducer(PID, 0, 1, 1000, 3, -1)


def test_a_marker_of_an_old_coordinator_or_epoch_is_fenced() -> None:
    state = ProducerState()
    control = header(-1, epoch=1, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG)
    state.record(control, 0, COMMIT)
    with pytest.raises(TransactionCoordinatorFencedError):
        state.check([control], sequenced=False, markers={0: Marker(ControlType.ABORT, 2)})
    with pytest.raises(InvalidProducerEpochError):
        state.check([control._replace(producer_epoch=0)], sequenced=False, markers={0: COMMIT})
    assert state.check([control], sequenced=False, markers={0: COMMIT}) is None


def test_after_a_marker_with_a_new_epoch_the_sequence_begins_at_zero() -> None:
    state = state_after(header(0))
    state.record(header(-1, epoch=1, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG), 1, COMMIT)
    assert state.check([header(0, epoch=1)], sequenced=True) is None
    with pytest.raises(OutOfOrderSequenceError):
        state.check([header(5, epoch=1)], sequenced=True)


def test_a_marker_with_a_higher_epoch_fences_the_producer() -> None:
    state = ProducerState()
    state.record(header(0, attributes=TRANSACTIONAL_FLAG), 0)
    marker = header(-1, epoch=1, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG)
    assert state.check([marker], sequenced=False, markers={0: COMMIT}) is None
    state.record(marker, 1, COMMIT)
    with pytest.raises(InvalidProducerEpochError):
        state.check([header(1, attributes=TRANSACTIONAL_FLAG)], sequenced=True)
    # Not even as a repeat: the producer must learn that it is fenced.
    with pytest.raises(InvalidProducerEpochError):
        state.check([header(0, attributes=TRANSACTIONAL_FLAG)], sequenced=True)
    assert state.active() == [ActiveProducer(PID, 1, -1, 1000, 3, -1)]


def test_batches_of_a_coordinator_never_repeat_each_other() -> None:
    state = ProducerState()
    commit = header(-1, 2, attributes=TRANSACTIONAL_FLAG)
    for offset in (0, 2):
        assert state.check([commit], sequenced=False) is None
        state.record(commit, offset)
    assert state.active() == [ActiveProducer(PID, 0, -1, 1000, -1, 0)]
    decoded = ProducerState.decode(state.encode(), 4)
    assert decoded.active() == state.active()
    assert decoded.first_open_offset() == 0
    assert decoded.check([commit], sequenced=False) is None
    with pytest.raises(InvalidProducerEpochError):
        decoded.check([header(-1, epoch=-1, attributes=TRANSACTIONAL_FLAG)], sequenced=False)


def test_idle_producers_are_forgotten_but_not_within_a_transaction() -> None:
    state = ProducerState()
    state.record(header(0, timestamp=1000), 0)
    state.record(header(0, producer_id=8, timestamp=5000), 1)
    state.record(header(0, producer_id=9, timestamp=1000, attributes=TRANSACTIONAL_FLAG), 2)
    assert state.expire(6000, 5000) == 1
    assert [producer.producer_id for producer in state.active()] == [8, 9]


def test_a_deleted_marker_makes_an_ended_transaction_stable() -> None:
    state = ProducerState()
    state.record(header(0, attributes=TRANSACTIONAL_FLAG), 10)
    state.record(header(-1, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG), 11, COMMIT)
    state.start_at(11)
    assert state.first_unstable_offset(0) == 10
    state.start_at(12)
    assert state.first_unstable_offset(0) is None


def test_a_snapshot_has_kafkas_layout() -> None:
    state = ProducerState()
    state.record(header(4, 3, epoch=2, attributes=TRANSACTIONAL_FLAG), 20)
    content = state.encode()
    version, _ = struct.unpack_from(">hI", content)
    assert version == 1
    assert struct.unpack_from(">i", content, 6) == (1,)
    assert struct.unpack_from(">qhiqiqiq", content, 10) == (PID, 2, 6, 22, 2, 1000, -1, 20)
    assert len(content) == 10 + 46
    decoded = ProducerState.decode(content, 23)
    assert decoded.active() == state.active()
    assert decoded.end_offset == 23
    assert decoded.first_unstable_offset(100) == 20
    assert decoded.check([header(4, 3, epoch=2)], sequenced=True) == Duplicate(20, 22, 1000)


def kafkas(state: ProducerState) -> bytes:
    """Return the snapshot as Apache Kafka writes it: one batch of each producer."""
    body = state.encode()[6:]
    (count,) = struct.unpack_from(">i", body)
    kept = body[: 4 + count * 46]
    return struct.pack(">hI", 1, crc32c.crc32c(kept)) + kept


def test_a_snapshot_knows_all_batches_that_may_come_again() -> None:
    headers = [header(sequence) for sequence in range(7)]
    other = header(4, 3, producer_id=PID + 1)
    decoded = ProducerState.decode(state_after(*headers, other).encode(), 10)
    for sequence in range(2, 7):
        assert decoded.check([headers[sequence]], sequenced=True) == Duplicate(sequence, sequence, 1000)
    assert decoded.check([other], sequenced=True) == Duplicate(7, 9, 1000)
    with pytest.raises(OutOfOrderSequenceError):
        decoded.check([headers[1]], sequenced=True)
    assert decoded.check([header(7)], sequenced=True) is None


def test_of_kafkas_snapshot_the_last_batch_is_known() -> None:
    state = state_after(*(header(sequence) for sequence in range(4)))
    decoded = ProducerState.decode(kafkas(state), 4)
    assert decoded.active() == state.active()
    assert decoded.check([header(3)], sequenced=True) == Duplicate(3, 3, 1000)
    with pytest.raises(OutOfOrderSequenceError):
        decoded.check([header(2)], sequenced=True)


@pytest.mark.parametrize("cut", [1, 32, 33, 39])
def test_an_incomplete_appendix_is_detected(cut: int) -> None:
    body = state_after(header(0), header(1)).encode()[6:-cut]
    with pytest.raises(CorruptMessageError, match="invalid appendix"):
        ProducerState.decode(struct.pack(">hI", 1, crc32c.crc32c(body)) + body, 2)
    other = state_after(header(0), header(1)).encode()[6:].replace(b"ODK1", b"ODK2")
    with pytest.raises(CorruptMessageError, match="invalid appendix"):
        ProducerState.decode(struct.pack(">hI", 1, crc32c.crc32c(other)) + other, 2)


def test_a_corrupt_snapshot_is_detected() -> None:
    content = state_after(header(0)).encode()
    flipped = bytearray(content)
    flipped[-1] ^= 1
    newer = bytearray(content)
    newer[1] = 2
    for wrong in (b"", content[:-1], content[:8], bytes(flipped), bytes(newer)):
        with pytest.raises(CorruptMessageError):
            ProducerState.decode(wrong, 0)


def test_record_returns_the_transaction_that_a_marker_ends() -> None:
    state = ProducerState()
    control = TRANSACTIONAL_FLAG | CONTROL_FLAG
    state.record(header(0, attributes=TRANSACTIONAL_FLAG), 10)
    state.record(header(0, producer_id=8, attributes=TRANSACTIONAL_FLAG), 11)
    abort = Marker(ControlType.ABORT, 0)
    assert state.record(header(-1, attributes=control), 12, abort) == EndedTransaction(7, 10, 12, 11, is_aborted=True)
    assert state.record(header(-1, attributes=control), 13, abort) is None
    ended = state.record(header(-1, producer_id=8, attributes=control), 14, COMMIT)
    assert ended == EndedTransaction(8, 11, 14, 15, is_aborted=False)


def test_an_emptied_control_batch_is_ignored() -> None:
    state = ProducerState()
    state.record(header(0, attributes=TRANSACTIONAL_FLAG), 10)
    before = state.active()
    state.record(header(-1, epoch=5, timestamp=99, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG), 11)
    state.record(header(-1, producer_id=9, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG), 12)
    assert state.active() == before
    assert state.first_unstable_offset(13) == 10


def test_remaining_batches_are_known_again_after_a_truncation() -> None:
    before = state_after(*(header(sequence) for sequence in range(7)))
    # Kafka's snapshot at offset 4 has only the last batch; the records from 5 on were truncated.
    left = ProducerState.decode(kafkas(state_after(*(header(sequence) for sequence in range(4)))), 4)
    left.record(header(4), 4)
    with pytest.raises(OutOfOrderSequenceError):
        left.check([header(2)], sequenced=True)
    left.recall(before)
    for sequence in (2, 3, 4):
        assert left.check([header(sequence)], sequenced=True) == Duplicate(sequence, sequence, 1000)
    with pytest.raises(OutOfOrderSequenceError):
        left.check([header(6)], sequenced=True)
    assert left.check([header(5)], sequenced=True) is None


def test_nothing_is_recalled_of_another_epoch_or_an_unknown_producer() -> None:
    before = state_after(header(0), header(1))
    left = state_after(header(0, epoch=1), header(0, producer_id=PID + 1))
    left.recall(before)
    assert [(one.producer_id, one.producer_epoch, one.last_sequence) for one in left.active()] == [
        (PID, 1, 0),
        (PID + 1, 0, 0),
    ]
    with pytest.raises(InvalidProducerEpochError):
        left.check([header(1)], sequenced=True)
