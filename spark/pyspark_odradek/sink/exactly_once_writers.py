"""What Spark calls to write exactly once: tasks write in transactions, and `commit` decides the batch.

Spark calls `commit` and `abort` in a new process of the driver's machine, with a new writer if the query is a stream.
So all state is in the commit messages and in the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_odradek.options.sink_options import ExactlyOnceOptions, SinkOptions
from pyspark_odradek.shared_client import shared_client
from pyspark_odradek.sink.decisions import SinkError, TaskIdentity, TaskResult
from pyspark_odradek.sink.driver_commit import abort_batch, commit_batch
from pyspark_odradek.sink.row_sender import write_rows
from pyspark_odradek.sink.sink_cluster import BrokersOfSink
from pyspark_odradek.sink.sink_schema import SinkColumns
from pyspark_odradek.sink.task_transactions import batch_task, stream_task, write_in_transaction

Messages = Sequence[WriterCommitMessage | None]
"""The results of the tasks; None for a task that failed."""


@dataclass(frozen=True, slots=True)
class WrittenTransaction(WriterCommitMessage):
    """What a task has written."""

    records: int
    result: TaskResult


@dataclass(frozen=True, slots=True)
class TransactionalWriter:
    """Writes the rows of a task in a transaction; pickled with the options to each worker."""

    options: SinkOptions
    columns: SinkColumns

    @property
    def exactly_once(self) -> ExactlyOnceOptions:
        """The options of exactly-once delivery, without which there is no such writer."""
        assert self.options.exactly_once is not None
        return self.options.exactly_once

    def write(self, batches: Iterator[pa.RecordBatch], identity: TaskIdentity) -> WrittenTransaction:
        """Write all rows. Raises the first error of a row; then the transaction is aborted."""
        records, result = write_in_transaction(
            shared_client(self.options.client),
            identity,
            self.exactly_once.decision_topic,
            batches,
            lambda producer, rows: write_rows(producer, self.options, self.columns, rows),
        )
        return WrittenTransaction(records, result)

    def brokers(self, sink_id: str) -> BrokersOfSink:
        """Return what the driver needs of the brokers."""
        client = shared_client(self.options.client)
        return BrokersOfSink(client, decision_topic=self.exactly_once.decision_topic, sink_id=sink_id)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "tasks have a context"
    return context


def _results(messages: Messages) -> list[TaskResult]:
    return [message.result for message in messages if isinstance(message, WrittenTransaction)]


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("odradek").option("deliveryGuarantee", "exactly-once")`."""

    def __init__(self, task: TransactionalWriter) -> None:
        """`task` runs in each worker."""
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenTransaction:
        """Write the rows of one task. Runs in a worker."""
        return self._task.write(iterator, stream_task(_context(), self._task.exactly_once.sink_id))

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Decide and commit a batch. Raises the errors of `commit_batch`, which end the query."""
        self._end(commit_batch, messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort what the tasks of a failed batch have written."""
        self._end(abort_batch, messages, batchId)

    def _end(
        self, function: Callable[[BrokersOfSink, list[TaskResult]], None], messages: Messages, batch_id: int
    ) -> None:
        results = _results(messages)
        if not results:
            return
        identity = results[0].identity
        if identity.batch_id != batch_id:
            raise SinkError(f"Spark ends batch {batch_id}, but its tasks have written batch {identity.batch_id}")
        with self._task.brokers(identity.sink_id) as brokers:
            function(brokers, results)


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    """`df.write.format("odradek").option("deliveryGuarantee", "exactly-once")`.

    A job with the option `sinkId` writes once: if a job with the same id was committed, it writes nothing.
    """

    def __init__(self, task: TransactionalWriter, write_id: str) -> None:
        """`task` runs in each worker. `write_id` is unique, and the sink id unless the option is given."""
        self._task = task
        self._write_id = write_id
        self._sink_id = task.exactly_once.sink_id or write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenTransaction:
        """Write the rows of one task. Runs in a worker."""
        return self._task.write(iterator, batch_task(_context(), self._sink_id, self._write_id))

    def commit(self, messages: Messages) -> None:
        """Decide and commit the write. Raises the errors of `commit_batch`, which end the job."""
        self._end(commit_batch, messages)

    def abort(self, messages: Messages) -> None:
        """Abort what the tasks of a failed job have written."""
        self._end(abort_batch, messages)

    def _end(self, function: Callable[[BrokersOfSink, list[TaskResult]], None], messages: Messages) -> None:
        with self._task.brokers(self._sink_id) as brokers:
            function(brokers, _results(messages))
            if self._sink_id == self._write_id:
                # Nobody can ask for this decision again.
                brokers.forget()
