"""Exactly-once delivery to Apache Kafka, whose brokers have no prepared transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from odradek.client.blocking.blocking_producer import BlockingProducer
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.client.settings import ClientSettings
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import KraftBroker, jars
from odradek_testkit.interop.transactional import read
from pyspark_odradek.sink import driver_commit
from pyspark_odradek.sink.decisions import DecidedBatchLostError, SinkError, TaskIdentity, TaskResult
from pyspark_odradek.sink.driver_commit import commit_batch
from pyspark_odradek.sink.fault_points import FaultPoint, SinkFaultError
from pyspark_odradek.sink.sink_cluster import BrokersOfSink
from pyspark_odradek.sink.task_transactions import write_in_transaction

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

DECISIONS: Final = "decisions"
SHORT_MS: Final = 5_000
LONG_MS: Final = 600_000
PROPERTIES: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@pytest.fixture(scope="module", params=["3.9.1", "4.1.0"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = jars(request.param, Path(request.config.rootpath) / ".interop")
    broker = KraftBroker(folder, tmp_path_factory.mktemp("kafka"), properties=PROPERTIES, heap="384m")
    broker.start()
    yield f"127.0.0.1:{broker.port}"
    broker.stop(kill=True)


@pytest.fixture
def sink(bootstrap: str) -> str:
    """The id of a sink, which is also the name of its topic."""
    name = f"sink-{uuid4().hex[:8]}"
    with BlockingClient(bootstrap) as client:
        client.admin.create_topics([NewTopic(name=name, partitions=2, replication_factor=1)])
    return name


def client_of(bootstrap: str, timeout_ms: int) -> BlockingClient:
    return BlockingClient.shared(ClientSettings.of(bootstrap, transaction_timeout_ms=timeout_ms))


def task(bootstrap: str, sink: str, batch: int, partition: int, timeout_ms: int = LONG_MS) -> TaskResult:
    identity = TaskIdentity(
        sink_id=sink,
        query_id="query",
        run_id="run",
        batch_id=batch,
        partition=partition,
        attempt=0,
        token=uuid4().hex[:16],
    )

    def write(producer: BlockingProducer, batches: Iterator[list[bytes]]) -> int:
        for value in next(batches):
            producer.send(sink, value, partition=partition)
        return 1

    rows = iter([[b"%d" % batch]])
    return write_in_transaction(client_of(bootstrap, timeout_ms), identity, DECISIONS, rows, write)[1]


def commit(bootstrap: str, sink: str, results: list[TaskResult]) -> None:
    with BrokersOfSink(client_of(bootstrap, LONG_MS), decision_topic=DECISIONS, sink_id=sink) as brokers:
        commit_batch(brokers, results)


def until_timed_out(bootstrap: str, result: TaskResult) -> None:
    assert result.transaction is not None
    name = result.transaction.transaction.transactional_id
    admin = client_of(bootstrap, LONG_MS).admin
    wait_until(
        lambda: admin.describe_transactions([name])[name].state == "CompleteAbort", what=f"the timeout of {name}"
    )


def fail_after_the_decision(point: FaultPoint) -> None:
    if point is FaultPoint.DRIVER_DECIDED:
        raise SinkFaultError("a crash")


def test_open_transactions_become_visible_together(bootstrap: str, sink: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    task(bootstrap, sink, 0, 1)
    results = [task(bootstrap, sink, 0, partition) for partition in (0, 1)]
    assert [result.transaction.is_prepared for result in results if result.transaction] == [False, False]
    assert read(bootstrap, sink, 2) == []
    commit(bootstrap, sink, results)
    wait_until(lambda: sorted(read(bootstrap, sink, 2)) == [(0, "0"), (1, "0")], what="the first batch")
    again = [task(bootstrap, sink, 0, partition) for partition in (0, 1)]
    assert all(result.found_decided for result in again)
    commit(bootstrap, sink, again)
    commit(bootstrap, sink, [task(bootstrap, sink, 1, 0)])
    expected = [(0, "0"), (0, "1"), (1, "0")]
    wait_until(lambda: sorted(read(bootstrap, sink, 2)) == expected, what="the second batch")
    rows = client_of(bootstrap, LONG_MS).admin.list_transactions(states=["Ongoing"])
    assert [row for row in rows if row.transactional_id.startswith(sink)] == []


def test_a_restarted_driver_finishes_what_was_decided(
    bootstrap: str, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [task(bootstrap, sink, 0, partition) for partition in (0, 1)]
    with monkeypatch.context() as patch:
        patch.setattr(driver_commit, "reach", fail_after_the_decision)
        with pytest.raises(SinkFaultError):
            commit(bootstrap, sink, results)
    commit(bootstrap, sink, [task(bootstrap, sink, 0, partition) for partition in (0, 1)])
    wait_until(lambda: sorted(read(bootstrap, sink, 2)) == [(0, "0"), (1, "0")], what="the batch")


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_timeout_is_an_error_that_names_the_batch(
    bootstrap: str, sink: str, monkeypatch: pytest.MonkeyPatch, is_decided: bool
) -> None:
    result = task(bootstrap, sink, 0, 0, LONG_MS if is_decided else SHORT_MS)
    assert result.transaction is not None
    if is_decided:
        with monkeypatch.context() as patch:
            patch.setattr(driver_commit, "reach", fail_after_the_decision)
            with pytest.raises(SinkFaultError):
                commit(bootstrap, sink, [result])
        # The same change as by a timeout, but at the right time.
        name = result.transaction.transaction.transactional_id
        client_of(bootstrap, LONG_MS).admin.fence_producers([name])
    else:
        until_timed_out(bootstrap, result)
    kind: type[SinkError] = DecidedBatchLostError if is_decided else SinkError
    match = r"batch 0 .* has exceeded transaction\.timeout\.ms " + ("after" if is_decided else "before")
    with pytest.raises(kind, match=match):
        commit(bootstrap, sink, [result])
    if not is_decided:
        commit(bootstrap, sink, [task(bootstrap, sink, 0, 0)])
        wait_until(lambda: read(bootstrap, sink, 2) == [(0, "0")], what="the batch of the next run")
