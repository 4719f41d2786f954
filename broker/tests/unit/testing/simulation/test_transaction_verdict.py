"""The rules for transactions, on logs and histories that are made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.types import TopicPartition
from odradek.coordinator.transactions.transaction_values import Transaction, TransactionState
from odradek.records.v2.batch import ControlType
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.history import Reading
from odradek_testkit.simulation.transactions.transaction_history import (
    FENCED,
    PREPARED_STAYS,
    READ_COMMITTED,
    SentTransaction,
    TransactionEnd,
    TransactionsHistory,
)
from odradek_testkit.simulation.transactions.transaction_verdict import (
    ABORTED_INDEX,
    ABORTED_IS_HIDDEN,
    ALL_OR_NOTHING,
    COMMITTED_STAYS,
    EXACTLY_ONCE,
    HANGING,
    MARKERS,
    ORDER,
    LoggedBatch,
    LogTransactions,
    Marker,
    incomplete,
    judge_committed_reading,
    judge_copies,
    judge_index,
    judge_transactions,
    read_log,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


class Log:
    """Builds a log of one partition."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []

    def write(self, *values: bytes, producer: int = 7, epoch: int = 0, transactional: bool = True) -> Log:
        start = self._end()
        records = tuple(enumerate(values, start))
        self.batches.append(LoggedBatch(start, records, producer, epoch, transactional))
        return self

    def mark(self, kind: ControlType, *, producer: int = 7, epoch: int = 0, coordinator: int = 0) -> Log:
        self.batches.append(LoggedBatch(self._end(), (), producer, epoch, True, Marker(kind, coordinator)))
        return self

    def _end(self) -> int:
        return sum(max(1, len(batch.values)) for batch in self.batches)

    def read(self) -> LogTransactions:
        return read_log(T0, self.batches)


def found(work: Callable[[], object]) -> str:
    with pytest.raises(Violation) as caught:
        work()
    return caught.value.invariant


# Logs


def test_a_log_shows_committed_records_and_those_without_transactions() -> None:
    log = Log().write(b"a").write(b"b", transactional=False).mark(COMMIT).write(b"c").mark(ABORT, epoch=1).read()
    assert log.visible == {0: b"a", 1: b"b"}
    assert list(log.visible) == [0, 1]
    assert log.aborted == [(7, 3)]
    assert not log.open


def test_transactions_of_several_producers_overlap() -> None:
    log = Log().write(b"a").write(b"b", producer=8).mark(ABORT, producer=8).write(b"c").mark(COMMIT).write(b"d").read()
    assert log.visible == {0: b"a", 3: b"c"}
    assert log.aborted == [(8, 1)]
    assert log.open == {7: 5}


def test_a_marker_without_a_transaction_changes_nothing() -> None:
    log = Log().write(b"a").mark(COMMIT).mark(COMMIT).mark(ABORT, epoch=1).read()
    assert log.visible == {0: b"a"}
    assert not log.aborted


@pytest.mark.parametrize(
    "log",
    [
        Log().write(b"a").mark(COMMIT, epoch=1),
        Log().write(b"a").mark(ABORT, epoch=1).write(b"b"),
        Log().write(b"a").mark(ABORT, coordinator=3).write(b"b").mark(ABORT, coordinator=2),
        Log().write(b"a").write(b"b", epoch=1),
    ],
    ids=["commit with another epoch", "batch of a fenced producer", "marker of an old coordinator", "two epochs"],
)
def test_epochs_in_a_log(log: Log) -> None:
    assert found(log.read) == MARKERS


def test_a_commit_of_transaction_version_2_has_the_next_epoch() -> None:
    log = Log().write(b"a").mark(COMMIT, epoch=1).write(b"b", epoch=1).mark(ABORT, epoch=2)
    assert read_log(T0, log.batches, raises_epochs=True).visible == {0: b"a"}
    log = Log().write(b"a").mark(COMMIT, epoch=2)
    assert found(lambda: read_log(T0, log.batches, raises_epochs=True)) == MARKERS


# Transactions of clients


class Client:
    """One transactional id that sends two records to T0 in each transaction."""

    def __init__(self) -> None:
        self.history = TransactionsHistory()
        self.ids = self.history.transactional_id("x", clean=True)

    def send(self, end: TransactionEnd = TransactionEnd.NO_COMMIT, *, life: int = 1) -> SentTransaction:
        begun = self.ids.begin(life)
        for _ in range(2):
            self.history.send(begun, T0)
        begun.end = end
        return begun

    def judge(self, log: Log) -> None:
        judge_transactions(self.history, {T0: log.read()})


A, B = b"x-000000-00", b"x-000000-01"


def test_a_committed_transaction() -> None:
    client = Client()
    sent = client.send(TransactionEnd.COMMITTED)
    sent.records[0].offset = 0
    client.judge(Log().write(A, B).mark(COMMIT))
    for log in (
        Log().write(A, B).mark(ABORT),
        Log().write(A).mark(COMMIT),
        Log(),
        Log().write(b"other", transactional=False).write(A, B).mark(COMMIT),
    ):
        assert found(lambda log=log: client.judge(log)) == COMMITTED_STAYS


def test_a_transaction_that_nobody_committed() -> None:
    for end in (TransactionEnd.NO_COMMIT, TransactionEnd.ABORTED):
        client = Client()
        client.send(end)
        client.judge(Log().write(A).mark(ABORT))
        client.judge(Log())
        assert found(lambda client=client: client.judge(Log().write(A, B).mark(COMMIT))) == ABORTED_IS_HIDDEN


def test_a_transaction_with_an_unknown_end() -> None:
    client = Client()
    client.send(TransactionEnd.UNKNOWN)
    client.judge(Log().write(A, B).mark(COMMIT))
    client.judge(Log().write(A).mark(ABORT, epoch=1))
    assert found(lambda: client.judge(Log().write(A).mark(COMMIT))) == ALL_OR_NOTHING
    assert found(lambda: client.judge(Log().write(A).mark(ABORT).write(B).mark(COMMIT))) == ALL_OR_NOTHING


def test_the_records_of_a_transaction_are_in_order_and_once() -> None:
    client = Client()
    client.send(TransactionEnd.UNKNOWN)
    assert found(lambda: client.judge(Log().write(B, A).mark(COMMIT))) == ORDER
    assert found(lambda: client.judge(Log().write(A).mark(ABORT).write(A, B).mark(COMMIT))) == ORDER
    assert found(lambda: client.judge(Log().write(A, B, b"x-000009-00").mark(COMMIT))) == "only-what-was-sent"


def test_no_transaction_stays_open() -> None:
    client = Client()
    client.send()
    assert found(lambda: client.judge(Log().write(A))) == HANGING


def test_a_later_producer_fences_an_earlier_one() -> None:
    client = Client()
    client.ids.initialized(client.ids.new_life())
    open_one, unknown = client.send(), client.send(TransactionEnd.UNKNOWN)
    client.ids.initialized(client.ids.new_life())
    assert open_one.is_fenced
    assert not unknown.is_fenced
    late = client.send(life=1)
    assert late.is_fenced
    assert not client.send(life=2).is_fenced
    unknown.committed()
    late.committing()
    assert found(late.committed) == FENCED


def test_the_end_of_a_transaction_decides_whether_it_may_be_seen() -> None:
    client = Client()
    sent = client.send()
    assert found(lambda: client.history.check_seen(A)) == READ_COMMITTED
    sent.committing()
    client.history.check_seen(A)
    client.history.check_seen(b"not of a transaction")


# Prepared transactions


@pytest.mark.parametrize("commits", [True, False])
def test_a_prepared_transaction_ends_as_its_driver_wants(commits: bool) -> None:
    client = Client()
    client.ids.initialized(client.ids.new_life())
    sent = client.send()
    sent.prepared()
    sent.deciding(commits=commits)
    assert sent.may_be_visible == commits
    client.ids.initialized(client.ids.new_life())
    sent.decided()
    assert sent.end is (TransactionEnd.COMMITTED if commits else TransactionEnd.ABORTED)
    logs = {True: Log().write(A, B).mark(COMMIT), False: Log().write(A, B).mark(ABORT)}
    client.judge(logs[commits])
    assert found(lambda: client.judge(logs[not commits])) == PREPARED_STAYS


def test_no_producer_gets_an_epoch_before_the_end_of_a_prepared_transaction() -> None:
    client = Client()
    client.ids.initialized(client.ids.new_life())
    sent = client.send()
    sent.prepared()
    assert found(lambda: client.ids.initialized(client.ids.new_life())) == PREPARED_STAYS
    assert found(lambda: client.history.check_seen(A)) == READ_COMMITTED, "nobody has decided"


# Coordinators, replicas, readers


@pytest.mark.parametrize("state", TransactionState)
def test_a_coordinator_completes_all_transactions(state: TransactionState) -> None:
    value = Transaction(
        producer_id=1, producer_epoch=0, timeout_ms=1, state=state, partitions=frozenset({T0}), updated_ms=5
    )
    is_open = state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    assert bool(list(incomplete({"x": value}))) is is_open


def test_a_replica_lists_all_aborted_transactions() -> None:
    log = Log().write(b"a").mark(ABORT).read()
    judge_index("broker-0", [(7, 0)], log)
    for listed in ([], [(7, 0), (7, 5)], [(7, 1)]):
        assert found(lambda listed=listed: judge_index("broker-0", listed, log)) == ABORTED_INDEX


def test_a_reader_sees_what_is_visible() -> None:
    log = Log().write(b"a").mark(COMMIT).write(b"b").mark(COMMIT).read()
    judge_committed_reading("reader", T0, Reading(records={0: b"a", 2: b"b"}), log)
    for records in ({0: b"a"}, {2: b"b", 0: b"a"}, {0: b"a", 2: b"b", 4: b"c"}):
        reading = Reading(records=records)
        assert found(lambda reading=reading: judge_committed_reading("reader", T0, reading, log)) == READ_COMMITTED


# The copier


class CopyLab:
    """Two input records at the offsets 0 and 1 of T0, and a copier."""

    def __init__(self) -> None:
        self.history = TransactionsHistory()
        self.copier = self.history.transactional_id("copier", clean=True)
        self.inputs = {T0: Log().write(b"a").write(b"b").mark(COMMIT).read(), T1: Log().read()}
        self.output = Log()

    def copy(self, offset: int, kind: ControlType = COMMIT) -> None:
        begun = self.copier.begin(1)
        sent = self.history.send(begun, T0, b" 0 %d %s" % (offset, self.inputs[T0].visible[offset]))
        begun.offsets[T0] = offset + 1
        self.output.write(sent.value).mark(kind)

    def judge(self, committed: int | None) -> None:
        offsets = {} if committed is None else {T0: committed}
        judge_copies(self.copier, self.inputs, [self.output.read()], offsets)


def test_copies_match_the_committed_offsets() -> None:
    lab = CopyLab()
    lab.judge(None)
    lab.copy(0, ABORT)
    lab.judge(None)
    lab.copy(0)
    lab.judge(1)
    lab.copy(1)
    lab.judge(2)
    for committed in (None, 1, 3):
        assert found(lambda committed=committed: lab.judge(committed)) == EXACTLY_ONCE


def test_a_record_is_copied_once_and_none_is_left_out() -> None:
    twice = CopyLab()
    twice.copy(0)
    twice.copy(0)
    assert found(lambda: twice.judge(1)) == EXACTLY_ONCE
    skipped = CopyLab()
    skipped.copy(1)
    assert found(lambda: skipped.judge(2)) == EXACTLY_ONCE
