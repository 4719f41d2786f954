"""Producer state of a log: sequence numbers for idempotence (KIP-98) and open transactions.

`check` validates batch headers before an append, and `record` adds them once they are in the log. Each `PartitionLog`
has one; recovery replays headers into it. The next batch of a producer must continue its sequence. A repeat of one of
its last five batches is answered with the original offsets. A higher epoch starts again at sequence 0, and a lower one
is fenced. An unknown producer may start anywhere, because its earlier records may have been deleted.
A batch opens a transaction only with the guard of its verification, if one is required (KIP-890).
Invariant: `check` changes nothing, so that a failed write leaves no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.base.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from odradek.base.types import NO_EPOCH, NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP
from odradek.log.producers.producer_snapshot import (
    INT32_MAX,
    RememberedBatch,
    SnapshotEntry,
    pack_snapshot,
    unpack_snapshot,
)
from odradek.log.producers.verification import VerificationGuard, Verifications, is_later
from odradek.records.v2.batch import BatchHeader, ControlType

REMEMBERED_BATCHES: Final = 5
"""Batches per producer that are recognized as duplicates; a Java producer has at most five in flight."""


class Marker(NamedTuple):
    """The control record that ends a transaction (transaction marker)."""

    kind: ControlType | None
    coordinator_epoch: int


NO_MARKERS: Final[Mapping[int, Marker]] = {}


class EndedTransaction(NamedTuple):
    """A transaction with records in this log whose marker has been recorded."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    last_stable_offset: int
    """The last stable offset once the marker is replicated: the first offset of the next open transaction, or the
    offset after the marker."""
    is_aborted: bool


class Duplicate(NamedTuple):
    """The offsets assigned to a repeated batch when it was first appended."""

    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class _Producer:
    """State of one producer id."""

    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    transaction_first_offset: int = NO_OFFSET
    batches: deque[RememberedBatch] | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ActiveProducer(NamedTuple):
    """One producer as reported by DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


class ProducerState:
    """All producers of one log."""

    __slots__ = ("_ended", "_producers", "_running", "end_offset", "verifications")

    def __init__(self, end_offset: int = 0) -> None:
        """Empty state of a log that ends at `end_offset`."""
        self._producers: dict[int, _Producer] = {}
        # First offset -> last offset of transactions: running ones (no last offset yet), and ended ones whose marker
        # is not yet below the high watermark.
        self._running: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self.end_offset = end_offset
        """Offset up to which the log is included."""
        self.verifications = Verifications()
        """Verifications in progress. They are not part of snapshots."""

    def __len__(self) -> int:
        """Number of producers."""
        return len(self._producers)

    def check(
        self,
        headers: Sequence[BatchHeader],
        *,
        sequenced: bool,
        unwritten: bool = False,
        markers: Mapping[int, Marker] = NO_MARKERS,
        guard: VerificationGuard | None = None,
        needs_guard: bool = False,
    ) -> Duplicate | None:
        """Check whether the batches may be appended; return a `Duplicate` if the first one is already in the log.

        `sequenced` is true for batches of clients, whose sequence numbers are checked; those of coordinators have none.
        `unwritten` is true for a log that never had a record: no state can have been lost, so a producer's first
        sequence must be 0. Otherwise an unknown producer may start with any sequence (KIP-360), because retention or
        expiration may have removed its state.
        `markers` has the markers of control batches by their index in `headers`.
        If it `needs_guard`, a batch may open a transaction only with the current `guard` of its producer.
        Raises `OutOfOrderSequenceError`, `InvalidProducerEpochError`, `InvalidTransactionStateError` or, for markers,
        `TransactionCoordinatorFencedError`.
        """
        # State of each producer after the preceding batches: epoch, last sequence, whether a transaction is open.
        staged: dict[int, tuple[int, int, bool]] = {}
        for place, header in enumerate(headers):
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            producer = self._producers.get(producer_id)
            if sequenced and producer is not None and producer.batches:
                duplicate = _find_duplicate(producer, header)
                if duplicate is not None:
                    return duplicate
            if producer_id in staged:
                epoch, last_sequence, is_open = staged[producer_id]
            elif producer is not None:
                epoch, last_sequence = producer.epoch, producer.last_sequence
                is_open = producer.transaction_first_offset != NO_OFFSET
            else:
                epoch, last_sequence, is_open = NO_EPOCH, NO_SEQUENCE, False
            opens = not is_open or header.producer_epoch > epoch
            lowest = self._lowest_sequence(header, guard) if needs_guard and opens else None
            _check_epoch(header, epoch)
            if header.is_control:
                _check_coordinator(header, producer, markers.get(place))
            else:
                if sequenced:
                    if lowest is not None:
                        _check_lowest(header, lowest)
                    _check_sequence(header, epoch, last_sequence, unwritten=unwritten)
                _check_transaction(header, is_open=is_open)
            staged[producer_id] = (
                header.producer_epoch,
                header.last_sequence,
                header.is_transactional and not header.is_control,
            )
        return None

    def _lowest_sequence(self, header: BatchHeader, guard: VerificationGuard | None) -> int | None:
        """Return the sequence that must not be skipped by a batch that opens a transaction; None for other batches.

        Raises `InvalidTransactionStateError` unless its guard is the current one.
        """
        if not header.is_transactional or header.is_control:
            return None
        if guard is None or not self.verifications.is_current(header.producer_id, guard):
            raise InvalidTransactionStateError(
                f"a batch of producer {header.producer_id} was not part of an open transaction"
            )
        return guard.lowest_sequence

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction of this epoch, or of a later one, with records in this log but no
        marker."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None and producer.transaction_first_offset != NO_OFFSET and producer_epoch <= producer.epoch
        )

    def record(self, header: BatchHeader, base_offset: int, marker: Marker | None = None) -> EndedTransaction | None:
        """Add a batch that is in the log at `base_offset`, whatever its sequence; does nothing without a producer id.

        Returns the transaction that the batch ends, if any. A control batch without a marker is ignored: compaction
        has emptied it, because its transaction is no longer in the log.
        """
        producer_id = header.producer_id
        if producer_id < 0 or (marker is None and header.is_control):
            return None
        last_offset = base_offset + header.last_offset_delta
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer()
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches = None
        producer.last_timestamp = header.max_timestamp
        if marker is not None:
            self.verifications.end(producer_id)
            return self._end_transaction(producer_id, marker, last_offset)
        if producer.batches is None:
            producer.batches = deque(maxlen=REMEMBERED_BATCHES)
        producer.batches.append(
            RememberedBatch(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        )
        if header.is_transactional and producer.transaction_first_offset == NO_OFFSET:
            producer.transaction_first_offset = base_offset
            self.verifications.end(producer_id)
            self._running[base_offset] = NO_OFFSET
        return None

    def _end_transaction(self, producer_id: int, marker: Marker, last_offset: int) -> EndedTransaction | None:
        producer = self._producers[producer_id]
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset = producer.transaction_first_offset
        if first_offset == NO_OFFSET:
            # A transaction without records in this log has nothing to hide from consumers.
            return None
        self._running.pop(first_offset, None)
        self._ended[first_offset] = last_offset
        producer.transaction_first_offset = NO_OFFSET
        stable = min(self._running, default=last_offset + 1)
        return EndedTransaction(producer_id, first_offset, last_offset, stable, marker.kind is ControlType.ABORT)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the earliest transaction that is open or whose marker is not replicated."""
        if not self._running and not self._ended:
            return None
        for first_offset in [first for first, last in self._ended.items() if last < high_watermark]:
            del self._ended[first_offset]
        candidates = [*self._running, *self._ended]
        return min(candidates) if candidates else None

    def first_open_offset(self) -> int | None:
        """Return the first offset of the earliest transaction without a marker, replicated or not."""
        return min(self._running, default=None)

    def oldest_transaction_ms(self) -> int:
        """Return the time of the last batch of the producer whose open transaction began first; -1 if none is open."""
        first_offset = self.first_open_offset()
        if first_offset is None:
            return NO_TIMESTAMP
        return next(
            one.last_timestamp for one in self._producers.values() if one.transaction_first_offset == first_offset
        )

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Drop producers that have been idle for `expiration_ms` and have no open transaction. Return their number.

        Verifications of the same age are dropped, too.
        """
        self.verifications.expire(now_ms, expiration_ms)
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset == NO_OFFSET and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return len(idle)

    def recall(self, before: ProducerState) -> None:
        """Restore batches known `before` a truncation that are still in the log.

        An older snapshot, or one written by Kafka, may lack some batches of a producer. A producer that got no answer
        for several batches repeats the first of them when this broker becomes the leader.
        """
        for producer_id, producer in self._producers.items():
            known = before._producers.get(producer_id)
            if known is None or known.epoch != producer.epoch or not known.batches or not producer.batches:
                continue
            first_offset = producer.batches[0].last_offset
            earlier = [batch for batch in known.batches if batch.last_offset < first_offset]
            producer.batches = deque([*earlier, *producer.batches], maxlen=REMEMBERED_BATCHES)

    def start_at(self, log_start_offset: int) -> None:
        """Drop ended transactions whose markers are deleted; they are stable by definition."""
        for first_offset in [first for first, last in self._ended.items() if last < log_start_offset]:
            del self._ended[first_offset]

    def active(self) -> list[ActiveProducer]:
        """Return all producers, sorted by id."""
        return [
            ActiveProducer(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
            for producer_id, producer in sorted(self._producers.items())
        ]

    def encode(self) -> bytes:
        """Return the content of a `.snapshot` file."""
        entries, earlier = [], []
        for producer_id, producer in self._producers.items():
            *before, last = producer.batches or (RememberedBatch(NO_SEQUENCE, NO_OFFSET, 0, -1),)
            earlier += [(producer_id, batch) for batch in before]
            entries.append(
                SnapshotEntry(
                    producer_id,
                    producer.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.offset_delta,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    producer.transaction_first_offset,
                )
            )
        return pack_snapshot(entries, earlier)

    @classmethod
    def decode(cls, content: bytes, end_offset: int) -> ProducerState:
        """Return the state at `end_offset`. Raises `CorruptMessageError` for an invalid version, size or CRC."""
        entries, earlier = unpack_snapshot(content)
        state = cls(end_offset)
        for entry in entries:
            producer = _Producer(
                entry.epoch, entry.coordinator_epoch, entry.last_timestamp, entry.transaction_first_offset
            )
            if entry.last_offset >= 0:
                before = earlier.get(entry.producer_id, ())
                producer.batches = deque([*before, entry.last_batch], maxlen=REMEMBERED_BATCHES)
            state._producers[entry.producer_id] = producer
        for first_offset in sorted(one.transaction_first_offset for one in entries):
            if first_offset >= 0:
                state._running[first_offset] = NO_OFFSET
        return state


def _find_duplicate(producer: _Producer, header: BatchHeader) -> Duplicate | None:
    if producer.epoch != header.producer_epoch:
        return None
    batches: Iterable[RememberedBatch] = producer.batches or ()
    for batch in batches:
        if batch.last_sequence == header.last_sequence and batch.first_sequence == header.base_sequence:
            return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp)
    return None


def _check_epoch(header: BatchHeader, epoch: int) -> None:
    if header.producer_epoch < epoch:
        raise InvalidProducerEpochError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, but its current epoch is {epoch}"
        )


def _check_coordinator(header: BatchHeader, producer: _Producer | None, marker: Marker | None) -> None:
    if producer is not None and marker is not None and marker.coordinator_epoch < producer.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"a marker for producer {header.producer_id} has coordinator epoch {marker.coordinator_epoch}, "
            f"but the current one is {producer.coordinator_epoch}"
        )


def _check_transaction(header: BatchHeader, *, is_open: bool) -> None:
    if is_open and not header.is_transactional:
        raise InvalidTransactionStateError(
            f"producer {header.producer_id} sent a batch without a transaction while its transaction is open"
        )


def _check_lowest(header: BatchHeader, lowest_sequence: int) -> None:
    if is_later(header.base_sequence, lowest_sequence):
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} would open a transaction with sequence {header.base_sequence}, but sent "
            f"{lowest_sequence} before"
        )


def _check_sequence(header: BatchHeader, epoch: int, last_sequence: int, *, unwritten: bool) -> None:
    first = header.base_sequence
    if epoch == NO_EPOCH:
        if unwritten and first != 0:
            # This leader refused the preceding batch, perhaps because it was not ready. The producer resends it first.
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} sent sequence {first} to an empty log: expected 0"
            )
        return
    if header.producer_epoch != epoch:
        if first != 0:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} started epoch {header.producer_epoch} with sequence {first}: expected 0"
            )
        return
    expected = 0 if last_sequence == INT32_MAX else last_sequence + 1
    if first != expected:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} sent sequence {first} in epoch {header.producer_epoch}: expected {expected}"
        )
