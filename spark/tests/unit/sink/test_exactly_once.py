"""Exactly-once delivery against a broker in the test process: tasks, the driver, and a crash at every fault point."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from odradek.base.errors import (
    ClusterAuthorizationFailedError,
    ConfigError,
    InvalidTransactionStateError,
    ProtocolError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from odradek.base.types import TopicPartition
from odradek.client.blocking.blocking_producer import BlockingProducer
from odradek.client.blocking.client import BlockingClient
from odradek.client.consumer.fetched import iterate_records
from odradek.client.models import ConfigResource, NewTopic
from odradek.client.settings import ClientSettings
from odradek.testing.in_process import InProcessBroker
from pyspark_odradek.sink import fault_points, task_transactions
from pyspark_odradek.sink.decision_log import PARTITIONS, TOPIC_CONFIGS, DecisionLog, partition_of
from pyspark_odradek.sink.decisions import (
    DecidedBatchLostError,
    Decision,
    SinkError,
    SinkFencedError,
    SinkIdInUseError,
    TaskIdentity,
    TaskResult,
    driver_id,
)
from pyspark_odradek.sink.driver_commit import abort_batch, commit_batch
from pyspark_odradek.sink.fault_points import FaultPoint, SinkFaultError
from pyspark_odradek.sink.sink_cluster import BrokersOfSink, rights
from pyspark_odradek.sink.task_transactions import write_in_transaction

pytestmark = pytest.mark.timeout(300)

_numbers = itertools.count()


@pytest.fixture(scope="module")
def client(odradek_broker: InProcessBroker) -> Iterator[BlockingClient]:
    settings = ClientSettings.of(odradek_broker.bootstrap, default_api_timeout_ms=20_000, max_block_ms=20_000)
    with BlockingClient(settings) as made:
        yield made


class Query:
    """A query with its own topics. `run` plays what Spark does with one batch."""

    def __init__(self, client: BlockingClient, *, run_id: str = "run") -> None:
        number = next(_numbers)
        self.client: Final = client
        self.topic: Final = f"out-{number}"
        self.decision_topic: Final = f"decisions-{number}"
        self.sink_id: Final = f"sink-{number}"
        self.run_id = run_id
        client.admin.create_topics([NewTopic(name=self.topic, partitions=2, replication_factor=1)])

    def identity(self, batch: int, partition: int, attempt: int = 0) -> TaskIdentity:
        return TaskIdentity(
            sink_id=self.sink_id,
            query_id="query",
            run_id=self.run_id,
            batch_id=batch,
            partition=partition,
            attempt=attempt,
            token=uuid4().hex[:16],
        )

    def task(self, batch: int, partition: int, *, rows: int = 3, attempt: int = 0) -> TaskResult:
        """Write some records of a batch in two Arrow batches, and return the result of the task."""

        def write(producer: BlockingProducer, batches: Iterator[list[bytes]]) -> int:
            values = [value for batch in batches for value in batch]
            for value in values:
                producer.send(self.topic, value, partition=partition)
            return len(values)

        values = [b"%d/%d/%d" % (batch, partition, row) for row in range(rows)]
        records, result = write_in_transaction(
            self.client,
            self.identity(batch, partition, attempt),
            self.decision_topic,
            iter([[], values[:1], values[1:]]),
            write,
        )
        assert records == (rows if result.transaction else 0)
        return result

    def brokers(self) -> BrokersOfSink:
        return BrokersOfSink(self.client, decision_topic=self.decision_topic, sink_id=self.sink_id)

    def commit(self, results: list[TaskResult]) -> None:
        with self.brokers() as brokers:
            commit_batch(brokers, results)

    def abort(self, results: list[TaskResult]) -> None:
        with self.brokers() as brokers:
            abort_batch(brokers, results)

    def run(self, batch: int) -> None:
        self.commit([self.task(batch, partition) for partition in (0, 1)])

    def seen(self) -> Counter[str]:
        """Return the records that consumers with read_committed get. No transaction may be open in the topic."""
        found: Counter[str] = Counter()
        for number in (0, 1):
            partition = TopicPartition(self.topic, number)
            end, position = self.client.latest_offsets([partition])[partition], 0
            while position < end:
                fetch = self.client.fetch_raw(partition, position, isolation="read_committed", read_ahead=False)
                for records, _ in iterate_records(fetch):
                    found.update(record.value.decode() for record in records if record.value)
                position = fetch.next_offset
        return found

    def decision(self) -> Decision | None:
        return DecisionLog(self.client, self.decision_topic, self.sink_id).last()

    def open(self) -> list[str]:
        """Return the ids of the sink's open and prepared transactions."""
        rows = self.client.admin.list_transactions(states=["Ongoing"])
        return [row.transactional_id for row in rows if row.transactional_id.startswith(f"{self.sink_id}/")]


def expected(*batches: int, partitions: tuple[int, ...] = (0, 1), rows: int = 3) -> Counter[str]:
    return Counter(f"{batch}/{partition}/{row}" for batch in batches for partition in partitions for row in range(rows))


@pytest.fixture
def query(client: BlockingClient) -> Query:
    return Query(client)


def test_a_batch_becomes_visible_with_its_commit(query: Query) -> None:
    results = [query.task(0, partition) for partition in (0, 1)]
    assert all(result.transaction is not None and result.transaction.is_prepared for result in results)
    assert len(query.open()) == 2
    query.commit(results)
    assert query.seen() == expected(0)
    query.run(1)
    assert query.seen() == expected(0, 1)
    assert query.open() == []


def test_a_decided_batch_is_not_written_again(query: Query) -> None:
    query.run(0)
    query.run_id = "run after a restart"
    results = [query.task(0, partition) for partition in (0, 1)]
    assert [(result.transaction, result.found_decided) for result in results] == [(None, True)] * 2
    query.commit(results)
    assert query.seen() == expected(0)
    query.run(1)
    assert query.seen() == expected(0, 1)


def test_tasks_without_rows_need_no_broker(query: Query) -> None:
    results = [query.task(0, partition, rows=0) for partition in (0, 1)]
    assert [result.transaction for result in results] == [None, None]
    query.commit(results)
    query.commit([])
    assert query.decision_topic not in query.client.topics()


def test_what_other_attempts_have_left_is_aborted(query: Query) -> None:
    orphan, *results = query.task(0, 0), query.task(0, 0, attempt=1), query.task(0, 1)
    with query.client.producer(transactional_id=f"{query.sink_id}/0/1/5-{'0' * 16}") as killed:
        killed.init_transactions()
        killed.begin_transaction()
        killed.send(query.topic, b"half", partition=1).result()
        other = query.client.producer(transactional_id=f"{query.sink_id}/1/1/5-{'0' * 16}")
        other.init_transactions()
        other.begin_transaction()
        other.send(query.topic, b"of the next batch", partition=1).result()
        assert len(query.open()) == 5
        query.commit(results)
        assert query.open() == [f"{query.sink_id}/1/1/5-{'0' * 16}"], "a later batch and other sinks are not touched"
        other.commit_transaction()
        other.close()
    assert query.seen() == expected(0) + Counter(["of the next batch"])
    assert orphan.transaction is not None
    with pytest.raises(InvalidTransactionStateError, match="aborted"):
        query.client.admin.commit_prepared(orphan.transaction.transaction)


def test_an_attempt_that_prepares_after_the_decision_aborts_itself(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [query.task(0, 0), query.task(0, 1)]

    def commit_first(point: FaultPoint) -> None:
        if point is FaultPoint.TASK_PREPARED:
            monkeypatch.setattr(task_transactions, "reach", lambda point: None)
            query.commit(results)

    monkeypatch.setattr(task_transactions, "reach", commit_first)
    late = query.task(0, 0, attempt=1)
    assert (late.transaction, late.found_decided) == (None, True)
    assert query.open() == []
    assert query.seen() == expected(0)


def test_a_failed_batch_is_aborted_and_its_run_decides_nothing(query: Query) -> None:
    results = [query.task(0, 0), query.task(0, 1)]
    query.abort(results)
    assert query.open() == []
    with pytest.raises(SinkFencedError, match="Two drivers run the query"):
        query.commit(results)
    query.run_id = "the next run"
    query.run(0)
    assert query.seen() == expected(0)


def test_the_abort_of_a_decided_batch_keeps_it(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [query.task(0, 0), query.task(0, 1)]
    fail_at(monkeypatch, FaultPoint.DRIVER_DECIDED)
    with pytest.raises(SinkFaultError):
        query.commit(results)
    query.abort(results)
    assert len(query.open()) == 2
    query.run_id = "the next run"
    query.run(0)
    assert query.seen() == expected(0)


def test_the_later_of_two_drivers_has_the_sink(client: BlockingClient) -> None:
    first = Query(client, run_id="first")
    second = copy(first)
    second.run_id = "second"
    results = [first.task(0, 0), first.task(0, 1)]
    second.run(0)
    first.commit(results)
    first.run(1)
    with pytest.raises(SinkFencedError, match="a later run of the query, first, has taken over"):
        second.run(1)
    with pytest.raises(SinkFencedError, match=r"batch 2 of the sink .* cannot be committed"):
        second.run(2)
    first.run(2)
    assert first.seen() == expected(0, 1, 2)
    assert first.open() == []


def test_a_driver_that_is_fenced_while_it_decides(query: Query) -> None:
    results = [query.task(0, 0), query.task(0, 1)]
    with query.brokers() as early, query.brokers() as late:
        early.take_over()
        late.take_over()
        decision = Decision(sink_id=query.sink_id, query_id="query", run_id="run", batch_id=0, transactions=())
        with pytest.raises(SinkFencedError, match="another driver has taken over"):
            early.append(decision)
        assert late.last_decision() is None
    query.commit(results)
    assert query.seen() == expected(0)


def test_another_query_cannot_use_the_sink_id(query: Query) -> None:
    query.run(0)
    results = [TaskResult(identity=query.identity(1, 0), found_decided=True)]
    other = TaskResult(
        identity=TaskIdentity(
            sink_id=query.sink_id, query_id="other", run_id="x", batch_id=1, partition=0, attempt=0, token="0" * 16
        ),
        found_decided=True,
    )
    with pytest.raises(SinkIdInUseError, match=f"{query.sink_id} belongs to the query query"):
        query.commit([other])
    with pytest.raises(SinkError, match="cannot belong to one batch"):
        query.commit([*results, other])
    with pytest.raises(DecidedBatchLostError, match="the decision topic has lost records"):
        query.commit(results)


# Coordinators that cannot prepare transactions


@pytest.fixture
def like_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: BlockingProducer) -> None:
        raise UnsupportedVersionError("no PrepareTxn")

    monkeypatch.setattr(BlockingProducer, "prepare_transaction", refuse)
    monkeypatch.setattr(task_transactions, "_warned", False)


@pytest.mark.usefixtures("like_kafka")
def test_open_transactions_are_committed_by_the_driver(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    query.task(0, 0, attempt=7)
    query.run(0)
    assert query.seen() == expected(0)
    assert query.open() == []
    [warning] = [record for record in caplog.records if record.name.endswith("task_transactions")]
    assert "kafka.transaction.timeout.ms" in warning.getMessage()
    query.run(1)
    assert query.seen() == expected(0, 1)


@pytest.mark.usefixtures("like_kafka")
def test_a_timeout_before_the_decision_fails_the_batch(query: Query) -> None:
    results = [query.task(0, 0), query.task(0, 1)]
    assert results[0].transaction is not None
    query.client.admin.fence_producers([results[0].transaction.transaction.transactional_id])
    with pytest.raises(SinkError, match=r"batch 0 of the sink .* has exceeded transaction\.timeout\.ms before"):
        query.commit(results)
    query.abort(results)
    query.run_id = "the next run"
    query.run(0)
    assert query.seen() == expected(0)


@pytest.mark.usefixtures("like_kafka")
def test_a_timeout_after_the_decision_is_told(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [query.task(0, 0), query.task(0, 1)]
    assert results[0].transaction is not None
    with monkeypatch.context() as patch:
        fail_at(patch, FaultPoint.DRIVER_DECIDED)
        with pytest.raises(SinkFaultError):
            query.commit(results)
    query.client.admin.fence_producers([results[0].transaction.transaction.transactional_id])
    for _ in range(2):
        with pytest.raises(DecidedBatchLostError, match=r"records of batch 0 .* transaction\.timeout\.ms after"):
            query.commit(results)


# The decision topic


def test_the_driver_creates_a_compacted_topic(query: Query) -> None:
    query.run(0)
    assert len(query.client.partitions(query.decision_topic)) == PARTITIONS
    resource = ConfigResource.topic(query.decision_topic)
    configs = query.client.admin.describe_configs([resource])[resource]
    assert {name: configs[name].value for name, _ in TOPIC_CONFIGS} == dict(TOPIC_CONFIGS)


def test_a_topic_that_brokers_do_not_know_yet_is_awaited(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    # As after a request to create it that was repeated, because the first answer was late.
    query.run(0)
    unknown = [query.decision_topic] * 3
    known = query.client.partitions

    def partitions(topic: str) -> list[int]:
        if unknown and unknown.pop() == topic:
            raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
        return known(topic)

    monkeypatch.setattr(query.client, "partitions", partitions)
    DecisionLog(query.client, query.decision_topic, query.sink_id).create_topic()
    assert not unknown


@pytest.mark.parametrize(
    ("partitions", "policy", "message"),
    [(16, "delete", "cleanup.policy=delete"), (16, "compact,delete", "removes decisions"), (4, "compact", "16 are")],
)
def test_a_topic_that_loses_decisions_is_refused(query: Query, partitions: int, policy: str, message: str) -> None:
    topic = NewTopic(
        name=query.decision_topic,
        partitions=partitions,
        replication_factor=1,
        configs=(("cleanup.policy", policy),),
    )
    query.client.admin.create_topics([topic])
    results = [query.task(0, 0)]
    with pytest.raises(ConfigError, match=message):
        query.commit(results)


def test_decisions_of_ten_thousand_tasks_and_of_many_other_sinks(query: Query) -> None:
    results = []
    for number in range(10_000):
        identity = query.identity(4, number)
        done = task_transactions.TaskTransaction(
            transaction=task_transactions.PreparedTransaction(
                transactional_id=identity.transactional_id, producer_id=10**6 + number, epoch=0
            ),
            is_prepared=True,
        )
        results.append(done)
    large = Decision(sink_id=query.sink_id, query_id="query", run_id="run", batch_id=4, transactions=tuple(results))
    with query.brokers() as brokers:
        brokers.take_over()
        brokers.append(large)
        producer = query.client.producer()
        for number in range(1000):
            key = f"other-{number}".encode()
            producer.send(query.decision_topic, b"{}", key=key, partition=partition_of(query.sink_id))
        producer.close()
        assert brokers.last_decision() == large
        log = DecisionLog(query.client, query.decision_topic, query.sink_id)
        assert log.known() == large
        assert DecisionLog(query.client, query.decision_topic, "never used").last() is None


def test_an_open_transaction_of_another_sink_hides_no_decision(query: Query) -> None:
    query.run(0)
    log = DecisionLog(query.client, query.decision_topic, query.sink_id)
    with query.client.producer(transactional_id="another") as other:
        other.init_transactions()
        other.begin_transaction()
        other.send(query.decision_topic, b"{}", key=b"another", partition=log.partition.partition).result()
        newer = Decision(sink_id=query.sink_id, query_id="query", run_id="run", batch_id=1, transactions=())
        with query.client.producer(transactional_id=driver_id(query.sink_id)) as driver:
            driver.init_transactions()
            with driver.transaction():
                key = query.sink_id.encode()
                driver.send(query.decision_topic, newer.to_json(), key=key, partition=log.partition.partition)
        known = log.known()
        assert known is not None
        assert known.batch_id == 0, "consumers wait for the other transaction"
        with BlockingClient(query.client.settings.replace(default_api_timeout_ms=500)) as hasty:
            impatient = DecisionLog(hasty, query.decision_topic, query.sink_id)
            with pytest.raises(RequestTimedOutError, match="the driver of another sink may have died"):
                impatient.last()
        other.abort_transaction()
        assert log.last() == newer


def test_a_deleted_decision_is_none(query: Query) -> None:
    query.run(0)
    log = DecisionLog(query.client, query.decision_topic, query.sink_id)
    with query.client.producer() as producer:
        key = query.sink_id.encode()
        producer.send(query.decision_topic, None, key=key, partition=log.partition.partition).result()
    assert log.last() is None


@pytest.mark.parametrize(
    ("kind", "topic", "message"),
    [
        (
            TransactionalIdAuthorizationFailedError,
            None,
            "Describe and Write on transactional ids that begin with s/",
        ),
        (TopicAuthorizationFailedError, "d", "Describe, DescribeConfigs, Read and Write on the decision topic d, and"),
        (ClusterAuthorizationFailedError, "d", "Create on the decision topic d"),
        # The topic of the records, not that of the decisions.
        (TopicAuthorizationFailedError, None, "no"),
    ],
)
def test_errors_name_the_missing_rights(kind: type[ProtocolError], topic: str | None, message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)), rights("s", topic):
        raise kind("no")


# Crashes


def fail_at(monkeypatch: pytest.MonkeyPatch, point: FaultPoint, visit: int = 1) -> list[FaultPoint]:
    """Have one visit of a point raise an error in this process. Return the list of the points that are reached."""
    reached: list[FaultPoint] = []

    def reach(at: FaultPoint) -> None:
        reached.append(at)
        if at is point and reached.count(at) == visit:
            raise SinkFaultError(f"at {at}")

    for module in ("driver_commit", "sink_cluster", "task_transactions"):
        monkeypatch.setattr(f"pyspark_odradek.sink.{module}.reach", reach)
    return reached


def run_batches(query: Query, done: list[int]) -> None:
    """Play Spark: continue after the last batch of the checkpoint. Each batch has an attempt that is not needed."""
    for batch in range(len(done), 3):
        query.task(batch, 0, attempt=1)
        query.run(batch)
        done.append(batch)


@pytest.mark.parametrize(
    ("point", "visit"),
    [*((point, 1) for point in FaultPoint), (FaultPoint.TASK_PREPARED, 2), (FaultPoint.DRIVER_COMMITS, 2)],
)
def test_an_error_at_any_point_neither_doubles_nor_loses(
    query: Query, monkeypatch: pytest.MonkeyPatch, point: FaultPoint, visit: int
) -> None:
    done: list[int] = []
    with monkeypatch.context() as patch:
        reached = fail_at(patch, point, visit)
        with pytest.raises(SinkFaultError):
            run_batches(query, done)
        assert reached.count(point) >= visit
    query.run_id = "the next run"
    run_batches(query, done)
    assert query.seen() == expected(0, 1, 2)
    assert query.open() == []


def test_points_do_what_a_test_has_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fault_points.FAULTS_VARIABLE, str(tmp_path))
    (tmp_path / "task-started.2.action").write_text("raise")
    (tmp_path / "task-checked.1.action").write_text("pause")
    (tmp_path / "task-checked.1.gate").write_bytes(b"open")
    (tmp_path / "task-written.1.action").write_text("nonsense")
    fault_points.reach(FaultPoint.TASK_STARTED)
    with pytest.raises(SinkFaultError, match=r"task-started\.2"):
        fault_points.reach(FaultPoint.TASK_STARTED)
    fault_points.reach(FaultPoint.TASK_STARTED)
    fault_points.reach(FaultPoint.TASK_CHECKED)
    with pytest.raises(ValueError, match="nonsense"):
        fault_points.reach(FaultPoint.TASK_WRITTEN)
    assert (tmp_path / "task-started.3").exists()
    (tmp_path / "task-prepared.1.action").write_text("kill")
    code = "from pyspark_odradek.sink.fault_points import *; reach(FaultPoint.TASK_PREPARED)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    monkeypatch.delenv(fault_points.FAULTS_VARIABLE)
    fault_points.reach(FaultPoint.TASK_WRITTEN)
