"""A task's part of exactly-once delivery: it writes in a transaction of its own, which the driver commits or aborts.

The task writer calls `write_in_transaction`. Invariants: an attempt has its own transactional id, so nothing that an
earlier attempt has left can block it; a transaction that is handed to the driver has all records of the task; a task
whose batch is decided leaves nothing behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sized
from itertools import chain
from typing import Final, Protocol, TypeVar
from uuid import uuid4

from odradek.base.errors import PolicyViolationError, ProtocolError, UnsupportedVersionError
from odradek.client.blocking.blocking_producer import BlockingProducer
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import PreparedTransaction
from pyspark_odradek.sink.decision_log import DecisionLog
from pyspark_odradek.sink.decisions import (
    BATCH_QUERY,
    SinkError,
    TaskIdentity,
    TaskResult,
    TaskTransaction,
)
from pyspark_odradek.sink.fault_points import FaultPoint, reach
from pyspark_odradek.sink.sink_cluster import rights

_LOG: Final = logging.getLogger(__name__)

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
RUN_PROPERTY: Final = "spark.jobGroup.id"
"""Local properties of Spark's tasks. A streaming query uses the id of its run as job group."""

Rows = TypeVar("Rows", bound=Sized)


class TaskContextLike(Protocol):
    """What is needed of Spark's `TaskContext`."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """The task's number."""
        ...

    def attemptNumber(self) -> int:  # noqa: N802 - Spark's name
        """0 for the first attempt."""
        ...

    def getLocalProperty(self, key: str, /) -> str | None:  # noqa: N802 - Spark's name
        """A property of the driver's thread."""
        ...


def stream_task(context: TaskContextLike, sink_id: str | None) -> TaskIdentity:
    """Return the identity of a task of a streaming query. The default of `sink_id` is the query's id."""
    query_id, batch_id = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
    if query_id is None or batch_id is None:
        raise SinkError(
            f"the task has no properties {QUERY_PROPERTY} and {BATCH_PROPERTY}, which exactly-once delivery needs:"
            " write with a streaming query in micro-batches"
        )
    return TaskIdentity(
        sink_id=sink_id or query_id,
        query_id=query_id,
        run_id=context.getLocalProperty(RUN_PROPERTY) or "",
        batch_id=int(batch_id),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        token=_token(),
    )


def batch_task(context: TaskContextLike, sink_id: str, run_id: str) -> TaskIdentity:
    """Return the identity of a task of a batch write. `run_id` is unique for each write."""
    return TaskIdentity(
        sink_id=sink_id,
        query_id=BATCH_QUERY,
        run_id=run_id,
        batch_id=0,
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        token=_token(),
    )


def _token() -> str:
    return uuid4().hex[:16]


def write_in_transaction(
    client: BlockingClient,
    identity: TaskIdentity,
    decision_topic: str,
    batches: Iterator[Rows],
    write: Callable[[BlockingProducer, Iterator[Rows]], int],
) -> tuple[int, TaskResult]:
    """Write all rows in a transaction and prepare it. Return the number of records, and the result for the driver.

    `write` sends the rows with the producer and returns how many records there are. Nothing is written for a task
    without rows, or if the batch is decided. After an error, the transaction is aborted, if the brokers can be reached.
    """
    reach(FaultPoint.TASK_STARTED)
    first = next((batch for batch in batches if len(batch)), None)
    if first is None:
        return 0, TaskResult(identity=identity)
    log = DecisionLog(client, decision_topic, identity.sink_id)
    with rights(identity.sink_id, decision_topic):
        known = log.known()
    reach(FaultPoint.TASK_CHECKED)
    if known is not None and known.covers(identity.batch_id):
        for _ in batches:
            # Spark expects that a task reads all of its input.
            continue
        return 0, TaskResult(identity=identity, found_decided=True)
    records, transaction = _write(client, identity, lambda producer: write(producer, chain((first,), batches)))
    if transaction is None:
        return 0, TaskResult(identity=identity)
    reach(FaultPoint.TASK_PREPARED)
    result = _confirm(client, log, TaskResult(identity=identity, transaction=transaction))
    reach(FaultPoint.TASK_ENDED)
    return (records if result.transaction is not None else 0), result


def _write(
    client: BlockingClient, identity: TaskIdentity, write: Callable[[BlockingProducer], int]
) -> tuple[int, TaskTransaction | None]:
    # `close` aborts a transaction that is neither prepared nor detached.
    with rights(identity.sink_id), client.producer(transactional_id=identity.transactional_id) as producer:
        producer.init_transactions()
        reach(FaultPoint.TASK_INITIALIZED)
        producer.begin_transaction()
        records = write(producer)
        reach(FaultPoint.TASK_WRITTEN)
        if not records:
            return 0, None
        return records, _hand_over(producer)


def _hand_over(producer: BlockingProducer) -> TaskTransaction:
    try:
        return TaskTransaction(transaction=producer.prepare_transaction(), is_prepared=True)
    except (UnsupportedVersionError, PolicyViolationError) as error:
        _warn_once(error)
        return TaskTransaction(transaction=producer.detach_transaction(), is_prepared=False)


_warned = False


def _warn_once(error: ProtocolError) -> None:
    global _warned
    if not _warned:
        _warned = True
        _LOG.warning(
            "exactly-once delivery holds only while kafka.transaction.timeout.ms lasts: a batch must be committed"
            " within that time after its first record, also if the driver restarts. Reason: %s",
            error,
        )


def _confirm(client: BlockingClient, log: DecisionLog, result: TaskResult) -> TaskResult:
    """Return the result for the driver, or abort the transaction if the batch was decided without it meanwhile.

    The driver lists transactions after its decision is visible. So a transaction that it has not seen was prepared
    later, and its task finds the decision here.
    """
    assert result.transaction is not None
    transaction: PreparedTransaction = result.transaction.transaction
    with rights(log.sink_id, log.topic):
        known = log.known()
        if known is None or not known.covers(result.identity.batch_id) or known.contains(transaction):
            return result
        client.admin.end_transaction(transaction, commit=False)
    return TaskResult(identity=result.identity, found_decided=True)
