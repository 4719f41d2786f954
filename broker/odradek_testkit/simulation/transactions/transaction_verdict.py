"""Checks transactions at the end of a run: the results that clients got, against the batches and markers of the logs.

`verdict` calls it; it raises `Violation` for the first difference. `read_log` says for each record of a log whether
read_committed shows it. The rules are 13 to 19 of docs/design/0008-simulation.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

from odradek.base.types import TopicPartition
from odradek.coordinator.transactions.transaction_rules import DECIDED
from odradek.coordinator.transactions.transaction_values import Transaction, TransactionState
from odradek.records.v2.batch import ControlType
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.history import Reading
from odradek_testkit.simulation.transactions.transaction_history import (
    PREPARED_STAYS,
    READ_COMMITTED,
    SentInTransaction,
    SentTransaction,
    TransactionalIdHistory,
    TransactionEnd,
    TransactionsHistory,
)

COMMITTED_STAYS: Final = "committed-is-visible"
"""A record of a committed transaction is not in the logs exactly once, or its transaction was not committed there."""
ABORTED_IS_HIDDEN: Final = "aborted-is-hidden"
"""A record of a transaction that nobody committed is visible."""
ALL_OR_NOTHING: Final = "all-or-nothing"
"""A part of the records of a transaction is visible."""
ORDER: Final = "in-order"
"""Records of a transaction are in another order than they were sent, or twice in a log."""
MARKERS: Final = "markers"
"""A marker or a batch has an epoch that is older than an earlier one of its producer, or a commit marker another one
than the batches that it commits."""
HANGING: Final = "no-hanging-transaction"
"""A transaction is open or incomplete although its time-out is over."""
ABORTED_INDEX: Final = "aborted-index"
"""A replica lists other aborted transactions than those in its log."""
EXACTLY_ONCE: Final = "exactly-once"
"""The copies are not those of the records below the committed offsets, each once."""


class RecordFate(Enum):
    """What became of a record of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Marker(NamedTuple):
    """The content of a control batch."""

    kind: ControlType
    coordinator_epoch: int


class LoggedBatch(NamedTuple):
    """A batch of a log."""

    base_offset: int
    values: tuple[tuple[int, bytes], ...]
    """Offset and value of each record; empty for a control batch."""
    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False
    marker: Marker | None = None


class Place(NamedTuple):
    """Where a record of a transaction is, and what became of it."""

    offset: int
    fate: RecordFate


@dataclass(slots=True)
class LogTransactions:
    """The records of one log, as transactions see them."""

    visible: dict[int, bytes] = field(default_factory=dict)
    """Values by offset of the records that read_committed shows, in the order of offsets."""
    places: dict[bytes, list[Place]] = field(default_factory=dict)
    """Places by value of the records in transactions."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """Producer id and first offset of the aborted transactions, in the order of their markers."""
    open: dict[int, int] = field(default_factory=dict)
    """First offset of the open transactions, by producer id."""


@dataclass(slots=True)
class _Producer:
    """A producer id in a log."""

    epoch: int = -1
    coordinator_epoch: int = -1
    batches: list[LoggedBatch] = field(default_factory=list)
    """Batches of the open transaction."""


def read_log(where: object, batches: Iterable[LoggedBatch], *, raises_epochs: bool = False) -> LogTransactions:
    """Find out the fate of all records. Raises `Violation` for a marker or batch with a wrong epoch.

    `raises_epochs`: transactions may have version 2, whose commit markers have the epoch after that of the batches.
    """
    found = LogTransactions()
    producers: dict[int, _Producer] = {}
    for batch in batches:
        if not batch.is_transactional:
            found.visible.update(batch.values)
            continue
        producer = producers.setdefault(batch.producer_id, _Producer())
        _check_epochs(where, producer, batch, raises_epochs=raises_epochs)
        producer.epoch = batch.producer_epoch
        if batch.marker is None:
            producer.batches.append(batch)
            continue
        producer.coordinator_epoch = batch.marker.coordinator_epoch
        if producer.batches:
            is_commit = batch.marker.kind is ControlType.COMMIT
            _settle(found, producer.batches, RecordFate.COMMITTED if is_commit else RecordFate.ABORTED)
            if not is_commit:
                found.aborted.append((batch.producer_id, producer.batches[0].base_offset))
            producer.batches = []
    for producer_id, producer in producers.items():
        if producer.batches:
            _settle(found, producer.batches, RecordFate.OPEN)
            found.open[producer_id] = producer.batches[0].base_offset
    found.visible = dict(sorted(found.visible.items()))
    return found


def _check_epochs(where: object, producer: _Producer, batch: LoggedBatch, *, raises_epochs: bool) -> None:
    what = f"{where}: producer {batch.producer_id} has at {batch.base_offset}"
    if batch.producer_epoch < producer.epoch:
        raise Violation(MARKERS, f"{what} the epoch {batch.producer_epoch}, after {producer.epoch}")
    if batch.marker is None:
        if producer.batches and batch.producer_epoch != producer.epoch:
            epochs = f"{batch.producer_epoch} in an open transaction of epoch {producer.epoch}"
            raise Violation(MARKERS, f"{what} a batch of epoch {epochs}")
        return
    if batch.marker.coordinator_epoch < producer.coordinator_epoch:
        epochs = f"{batch.marker.coordinator_epoch}, after {producer.coordinator_epoch}"
        raise Violation(MARKERS, f"{what} a marker of the coordinator epoch {epochs}")
    is_commit = batch.marker.kind is ControlType.COMMIT
    is_next = raises_epochs and batch.producer_epoch == producer.epoch + 1
    if producer.batches and is_commit and batch.producer_epoch != producer.epoch and not is_next:
        epochs = f"{batch.producer_epoch}, which commits batches of epoch {producer.epoch}"
        raise Violation(MARKERS, f"{what} a marker of epoch {epochs}")


def _settle(found: LogTransactions, batches: Sequence[LoggedBatch], fate: RecordFate) -> None:
    for batch in batches:
        for offset, value in batch.values:
            found.places.setdefault(value, []).append(Place(offset, fate))
            if fate is RecordFate.COMMITTED:
                found.visible[offset] = value


# The transactions of the clients


def judge_transactions(history: TransactionsHistory, logs: Mapping[TopicPartition, LogTransactions]) -> None:
    """Check the records of all transactions. All transactions have ended."""
    for partition, log in logs.items():
        if log.open:
            raise Violation(HANGING, f"{partition} has the open transactions {log.open}")
        for value, places in log.places.items():
            _check_known(history, partition, value, places)
    for transaction in history:
        _judge_transaction(transaction, logs)


def _check_known(
    history: TransactionsHistory, partition: TopicPartition, value: bytes, places: Sequence[Place]
) -> None:
    transaction = history.of(value)
    if transaction is None or all((sent.value, sent.partition) != (value, partition) for sent in transaction.records):
        raise Violation("only-what-was-sent", f"{value!r} at {places} of {partition} was never sent to it")
    if len(places) > 1:
        raise Violation(ORDER, f"{value!r} is at {[place.offset for place in places]} of {partition}")


def _judge_transaction(transaction: SentTransaction, logs: Mapping[TopicPartition, LogTransactions]) -> None:
    visible: list[SentInTransaction] = []
    hidden: list[SentInTransaction] = []
    offsets: dict[TopicPartition, list[int]] = {}
    for sent in transaction.records:
        places = logs[sent.partition].places.get(sent.value, [])
        offsets.setdefault(sent.partition, []).extend(place.offset for place in places)
        is_visible = any(place.fate is RecordFate.COMMITTED for place in places)
        if transaction.is_prepared and is_visible != (transaction.decision is TransactionEnd.COMMITTED):
            what = f"{transaction} was prepared with {sent.value!r}, and its driver decided {transaction.decision}"
            raise Violation(PREPARED_STAYS, f"{what}, but {sent.partition} has {places}")
        (visible if is_visible else hidden).append(sent)
        if transaction.must_be_visible and (not is_visible or sent.offset not in (-1, places[0].offset)):
            what = f"{transaction} was committed with {sent.value!r} at {sent.offset} of {sent.partition}"
            raise Violation(COMMITTED_STAYS, f"{what}, where the log has {places}")
    for partition, found in offsets.items():
        if any(before >= after for before, after in pairwise(found)):
            raise Violation(ORDER, f"{transaction} has its records at the offsets {found} of {partition}")
    if visible and not transaction.may_be_visible:
        state = "its producer was fenced" if transaction.is_fenced else transaction.end.value
        raise Violation(ABORTED_IS_HIDDEN, f"{transaction} ({state}) shows {visible}")
    if visible and hidden:
        raise Violation(ALL_OR_NOTHING, f"{transaction} shows {visible}, but not {hidden}")


# Coordinators


def incomplete(states: Mapping[str, Transaction]) -> Iterator[str]:
    """Yield the transactions that are open or not complete, by the last record of each transactional id."""
    for name, transaction in sorted(states.items()):
        if transaction.state is TransactionState.ONGOING or transaction.state in DECIDED:
            yield f"{name} is {transaction.state.text} since {transaction.updated_ms}: {sorted(transaction.partitions)}"


# Replicas and readers


def judge_index(where: object, listed: Iterable[tuple[int, int]], log: LogTransactions) -> None:
    """Check the aborted transactions (producer id, first offset) that a replica lists for its whole log."""
    if sorted(listed) != sorted(log.aborted):
        missing = sorted(set(log.aborted) - set(listed))
        raise Violation(ABORTED_INDEX, f"{where} lists {sorted(listed)}; the log also has {missing}")


def judge_committed_reading(reader: str, partition: TopicPartition, reading: Reading, log: LogTransactions) -> None:
    """Check that a reader with read_committed saw the visible records of a log, in their order."""
    if list(reading.records.items()) == list(log.visible.items()):
        return
    seen, visible = reading.records, log.visible
    wrong = [(offset, value) for offset, value in seen.items() if visible.get(offset) != value]
    missed = [(offset, value) for offset, value in visible.items() if offset not in seen]
    what = f"it saw {wrong[:3]}, which are hidden, and missed {missed[:3]}"
    raise Violation(READ_COMMITTED, f"{reader} in {partition}: {what if wrong or missed else 'wrong order'}")


# The copier


def judge_copies(
    copier: TransactionalIdHistory,
    inputs: Mapping[TopicPartition, LogTransactions],
    copies: Iterable[LogTransactions],
    committed: Mapping[TopicPartition, int],
) -> None:
    """Check that the visible copies are those of the visible input records below the `committed` offsets, each once.

    Also checks that these offsets are those of the last visible transaction.
    """
    visible = [value for log in copies for value in log.visible.values()]
    found: dict[TopicPartition, dict[int, bytes]] = {partition: {} for partition in inputs}
    topic = next(iter(inputs)).topic
    for value in visible:
        _, number, offset, original = value.split(b" ", 3)
        copied = found[TopicPartition(topic, int(number))]
        if int(offset) in copied:
            raise Violation(EXACTLY_ONCE, f"offset {int(offset)} of {topic}-{int(number)} was copied twice: {value!r}")
        copied[int(offset)] = original
    for partition, log in inputs.items():
        end = committed.get(partition, 0)
        expected = {offset: value for offset, value in log.visible.items() if offset < end}
        if found[partition] != expected:
            missing = sorted(expected.items() - found[partition].items())
            surplus = sorted(found[partition].items() - expected.items())
            what = f"the copies of {partition} lack {missing[:3]} and have in addition {surplus[:3]}"
            raise Violation(EXACTLY_ONCE, f"{what}; the committed offset is {end}")
    _judge_offsets(copier, set(visible), committed)


def _judge_offsets(
    copier: TransactionalIdHistory, visible: set[bytes], committed: Mapping[TopicPartition, int]
) -> None:
    last: dict[TopicPartition, int] = {}
    for transaction in copier.transactions:
        if transaction.records and transaction.records[0].value in visible:
            last.update(transaction.offsets)
    if last != dict(committed):
        raise Violation(EXACTLY_ONCE, f"the committed offsets are {dict(committed)}, in transactions they were {last}")
