"""The driver's part of exactly-once delivery: it decides a batch, commits its transactions and aborts all others.

`writers` calls it in Spark's `commit` and `abort`, each time in a new process. The cluster is a port, so that tests run
every interleaving of two drivers and their tasks. Note 0029 has the invariants and the analysis of races.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from odradek.base.errors import (
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    OdradekError,
    ProducerFencedError,
)
from odradek.client.models import PreparedTransaction
from pyspark_odradek.sink.decisions import (
    BatchResult,
    DecidedBatchLostError,
    Decision,
    SinkError,
    TaskResult,
    TaskTransaction,
    may_decide,
    orphans,
    plan,
    retire,
)
from pyspark_odradek.sink.fault_points import FaultPoint, reach

_LOG: Final = logging.getLogger(__name__)


class SinkCluster(Protocol):
    """What a driver does with the brokers, for one sink. All methods raise `OdradekError`."""

    def take_over(self) -> None:
        """Fence all other drivers of the sink, and end what they have left unfinished in the decision topic."""
        ...

    def last_decision(self) -> Decision | None:
        """Return the last decision. It includes all that were stored before the call."""
        ...

    def append(self, decision: Decision) -> None:
        """Store a decision, unless another driver has taken over: then it raises `SinkFencedError`. Returns when
        `last_decision` in any process finds it."""
        ...

    def end(self, transactions: Sequence[PreparedTransaction], *, commit: bool) -> list[OdradekError | None]:
        """Commit or abort transactions, and return the error of each."""
        ...

    def open_ids(self) -> list[str] | None:
        """Return the transactional ids that have an open or prepared transaction, and maybe those of other sinks. None
        if the brokers cannot list them."""
        ...

    def handles(self, transactional_ids: Sequence[str]) -> list[PreparedTransaction]:
        """Return the open or prepared transactions of these ids; none for an id that has none any more."""
        ...


def commit_batch(cluster: SinkCluster, results: Sequence[TaskResult]) -> None:
    """Commit a batch. Can be repeated, also by another driver and with other attempts of the tasks.

    Raises `SinkFencedError`, `SinkIdInUseError`, `DecidedBatchLostError`, and `SinkError` if a transaction has timed
    out before the decision. After any other `OdradekError` it is unknown whether the batch is decided: repeat it.
    """
    reach(FaultPoint.DRIVER_STARTED)
    if not results:
        return
    batch = BatchResult.of(results)
    if not batch.needs_decision:
        # Nothing to commit. What failed attempts have left is aborted with the next batch that has records.
        return
    cluster.take_over()
    reach(FaultPoint.DRIVER_LEADS)
    last = cluster.last_decision()
    reach(FaultPoint.DRIVER_KNOWS)
    chosen = plan(last, batch)
    if chosen.is_new:
        _check_open(cluster, batch)
    else:
        _LOG.info("batch %s of the sink %s was decided before", batch.batch_id, batch.sink_id)
    if chosen.append is not None:
        cluster.append(chosen.append)
    reach(FaultPoint.DRIVER_DECIDED)
    _commit(cluster, chosen.commit, batch)
    reach(FaultPoint.DRIVER_COMMITTED)
    _abort_orphans(cluster, chosen.decided, batch)
    reach(FaultPoint.DRIVER_ENDED)


def abort_batch(cluster: SinkCluster, results: Iterable[TaskResult]) -> None:
    """Abort what the tasks of a failed batch have written, unless the batch was decided all the same.

    `results` are those of the tasks that succeeded. The run of the query can decide nothing afterwards: Spark ends it.
    Without a call, the next driver aborts the same.
    """
    written = [result for result in results if result.transaction is not None]
    if not written or not written[0].identity.run_id:
        return
    identity = written[0].identity
    last = cluster.last_decision()
    if may_decide(last, identity):
        # If Spark was interrupted, the process that commits still runs. It may even take over later than this one.
        cluster.take_over()
        last = retire(cluster.last_decision(), identity)
        cluster.append(last)
    left = [
        result.transaction.transaction
        for result in written
        if result.transaction is not None and not (last is not None and last.contains(result.transaction.transaction))
    ]
    _abort(cluster, left)


def _check_open(cluster: SinkCluster, batch: BatchResult) -> None:
    """Raise `SinkError` if the coordinator has aborted a transaction already: then the batch cannot be decided."""
    names = {each.transaction.transactional_id for each in batch.transactions if not each.is_prepared}
    listed = cluster.open_ids() if names else None
    if listed is not None:
        gone = sorted(names.difference(listed))
        if gone:
            raise SinkError(
                f"batch {batch.batch_id} of the sink {batch.sink_id} is not committed, because the transaction"
                f" {gone[0]} has exceeded transaction.timeout.ms before all tasks were done (of {len(gone)} in total):"
                " raise kafka.transaction.timeout.ms and the brokers' transaction.max.timeout.ms, or make batches"
                " smaller. The restarted query writes the batch again"
            )


def _commit(cluster: SinkCluster, decided: Sequence[TaskTransaction], batch: BatchResult) -> None:
    errors = cluster.end([each.transaction for each in decided], commit=True)
    for each, error in zip(decided, errors, strict=True):
        if error is None:
            continue
        if each.is_prepared and isinstance(error, InvalidProducerIdMappingError):
            # Prepared transactions do not expire. So this one was committed, and then its id has expired.
            continue
        if isinstance(error, ProducerFencedError | InvalidProducerIdMappingError | InvalidTransactionStateError):
            raise DecidedBatchLostError(_lost(each, batch)) from error
        raise error


def _lost(each: TaskTransaction, batch: BatchResult) -> str:
    if each.is_prepared:
        reason = "somebody else has ended it"
    else:
        reason = "it has exceeded transaction.timeout.ms after the decision, and its coordinator has aborted it"
    return (
        f"records of batch {batch.batch_id} of the sink {batch.sink_id} are lost: the batch is decided, but"
        f" {each.transaction} cannot be committed, because {reason}. Other transactions of the batch may be committed."
        " Compare the output with the input, then start with a new checkpoint and a new sinkId"
    )


def _abort_orphans(cluster: SinkCluster, decided: Decision, batch: BatchResult) -> None:
    """Abort what failed, speculative and earlier attempts have left.

    The decision was stored before the ids are listed. So an attempt that prepares its transaction afterwards finds the
    decision, and aborts the transaction itself.
    """
    names = orphans(decided, batch.batch_id, cluster.open_ids() or ())
    reach(FaultPoint.DRIVER_LISTED)
    if names:
        _LOG.info("aborting %s transactions of the sink %s that are not decided", len(names), batch.sink_id)
        _abort(cluster, cluster.handles(names))


def _abort(cluster: SinkCluster, transactions: Sequence[PreparedTransaction]) -> None:
    for transaction, error in zip(transactions, cluster.end(transactions, commit=False), strict=True):
        if error is not None and not isinstance(error, ProducerFencedError | InvalidProducerIdMappingError):
            # The batch is decided, so the error must not fail it; the next batch tries again.
            _LOG.warning("%s is not decided and could not be aborted: %s", transaction, error)
