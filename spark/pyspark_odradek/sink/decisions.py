"""The rules of exactly-once delivery: names of transactions, the decision of a batch, and what to commit and abort.

Tasks and the driver call these functions; they do no I/O. Note 0029 has the invariants and the analysis of races.
Invariants: a batch has at most one decision; the decisions of a sink grow by batch id; a transaction is only aborted if
its batch is decided without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from odradek.base.errors import OdradekError
from odradek.client.models import PreparedTransaction

FORMAT_VERSION: Final = 1
"""Version of the decision's JSON."""
MAX_RETIRED: Final = 64
"""How many earlier runs a decision names, so that its size is bounded. Older runs are not recognized any more."""
NO_BATCH: Final = -1
"""The batch of a decision that was stored before the first batch was decided."""
BATCH_QUERY: Final = "batch"
"""The query id of writes that are not streaming; ids of streaming queries are UUIDs."""
_OWN_PART: Final = re.compile(r"(\d{1,19})/(\d{1,10})/(\d{1,10}-[0-9a-f]{16})")
"""What follows the sink id and a slash in the transactional id of a task: batch, partition, attempt and token."""


class SinkError(OdradekError):
    """The sink cannot deliver a batch exactly once."""


class SinkFencedError(SinkError):
    """Another run of the query has taken over the sink."""


class SinkIdInUseError(SinkError):
    """The sink id belongs to another query."""


class DecidedBatchLostError(SinkError):
    """Records of a decided batch are lost, so the query must not go on."""


def driver_id(sink_id: str) -> str:
    """Return the transactional id of the driver, with which drivers of a sink fence each other."""
    return f"{sink_id}/driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """The attempt of a task."""

    sink_id: str
    query_id: str
    """Id of the streaming query, or `BATCH_QUERY`."""
    run_id: str
    """Id of the run of the query: new after each start. Empty if unknown."""
    batch_id: int
    partition: int
    attempt: int
    token: str
    """16 random hexadecimal digits, so that no two attempts have the same transactional id."""

    @property
    def transactional_id(self) -> str:
        """The transactional id of this attempt."""
        return f"{self.sink_id}/{self.batch_id}/{self.partition}/{self.attempt}-{self.token}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTransaction:
    """The transaction of a task's attempt, with all its records, which waits for the decision."""

    transaction: PreparedTransaction
    is_prepared: bool
    """False if the transaction is open, and its coordinator aborts it after `transaction.timeout.ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What a task tells the driver."""

    identity: TaskIdentity
    transaction: TaskTransaction | None = None
    """None if the task wrote nothing."""
    found_decided: bool = False
    """Whether the task wrote nothing because its batch is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The results of all tasks of a batch."""

    sink_id: str
    query_id: str
    run_id: str
    batch_id: int
    transactions: tuple[TaskTransaction, ...]
    found_decided: bool

    @classmethod
    def of(cls, results: Sequence[TaskResult]) -> Self:
        """Combine at least one result. Raises `SinkError` if they are of different batches, which is a bug."""
        first = results[0].identity
        batch = (first.sink_id, first.query_id, first.run_id, first.batch_id)
        for result in results:
            each = result.identity
            if (each.sink_id, each.query_id, each.run_id, each.batch_id) != batch:
                raise SinkError(f"the results of {first} and {each} cannot belong to one batch")
        return cls(
            sink_id=first.sink_id,
            query_id=first.query_id,
            run_id=first.run_id,
            batch_id=first.batch_id,
            transactions=tuple(result.transaction for result in results if result.transaction is not None),
            found_decided=any(result.found_decided for result in results),
        )

    @property
    def needs_decision(self) -> bool:
        """Whether the batch has records, or had some when it was decided. Otherwise there is nothing to decide."""
        return bool(self.transactions) or self.found_decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The last decision of a sink: these transactions of this batch are committed, all others of it are aborted."""

    sink_id: str
    query_id: str
    run_id: str
    """The run of the query that has the sink. Empty if unknown, or if that run has failed."""
    retired: tuple[str, ...] = ()
    """Earlier runs, the latest last. They must not decide any more."""
    batch_id: int
    transactions: tuple[TaskTransaction, ...]

    def contains(self, transaction: PreparedTransaction) -> bool:
        """Whether the transaction is among those that are committed."""
        return any(each.transaction == transaction for each in self.transactions)

    def covers(self, batch_id: int) -> bool:
        """Whether a batch is decided."""
        return batch_id <= self.batch_id

    def to_json(self) -> bytes:
        """Return the value of the record that stores the decision."""
        prefix = f"{self.sink_id}/{self.batch_id}/"
        rows = []
        for each in self.transactions:
            name = each.transaction.transactional_id
            assert name.startswith(prefix), name
            rows.append(
                [name.removeprefix(prefix), each.transaction.producer_id, each.transaction.epoch, int(each.is_prepared)]
            )
        content = {
            "version": FORMAT_VERSION,
            "query": self.query_id,
            "run": self.run_id,
            "retired": list(self.retired),
            "batch": self.batch_id,
            "transactions": rows,
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, sink_id: str, value: bytes) -> Self:
        """Return the decision that `to_json` has written. Raises `SinkError` for any other value."""
        try:
            found: dict[str, Any] = json.loads(value)
            version = found["version"]
            if version == FORMAT_VERSION:
                return cls._of_fields(sink_id, found)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SinkError(f"the decision of the sink {sink_id} cannot be read: {value[:200]!r}") from error
        raise SinkError(
            f"the decision of the sink {sink_id} has the format version {version}, but this connector knows"
            f" {FORMAT_VERSION}: use the version of the connector that wrote it, or a later one"
        )

    @classmethod
    def _of_fields(cls, sink_id: str, found: dict[str, Any]) -> Self:
        batch_id = int(found["batch"])
        prefix = f"{sink_id}/{batch_id}/"
        return cls(
            sink_id=sink_id,
            query_id=str(found["query"]),
            run_id=str(found["run"]),
            retired=tuple(str(run) for run in found["retired"]),
            batch_id=batch_id,
            transactions=tuple(
                TaskTransaction(
                    transaction=PreparedTransaction(
                        transactional_id=prefix + name, producer_id=int(producer_id), epoch=int(epoch)
                    ),
                    is_prepared=bool(is_prepared),
                )
                for name, producer_id, epoch, is_prepared in found["transactions"]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a driver does for its batch, in the order of the attributes."""

    append: Decision | None
    """The decision to store; None if the stored one stands."""
    commit: tuple[TaskTransaction, ...]
    decided: Decision
    """The decision that is stored then."""
    is_new: bool
    """Whether this plan decides the batch; False if it was decided before."""


def plan(last: Decision | None, batch: BatchResult) -> Plan:
    """Return what to do for a batch. `last` is the sink's decision, which nobody can change meanwhile.

    Raises `SinkFencedError` if a later run has the sink, `SinkIdInUseError` if another query has it, and
    `DecidedBatchLostError` if tasks found a decision that is not stored any more.
    """
    if last is not None:
        _check_owner(last, batch)
    if last is not None and last.covers(batch.batch_id):
        owned = last if last.run_id == batch.run_id else replace(last, **_ownership(last, batch))
        # A later batch is only decided when all transactions of the earlier ones are committed.
        commit = last.transactions if last.batch_id == batch.batch_id else ()
        return Plan(append=None if owned is last else owned, commit=commit, decided=owned, is_new=False)
    if batch.found_decided:
        raise DecidedBatchLostError(
            f"tasks of batch {batch.batch_id} found it decided, but the last decision of the sink {batch.sink_id} is"
            f" {'missing' if last is None else f'for batch {last.batch_id}'}: the decision topic has lost records."
            " Compare the output with the input, then start with a new checkpoint and a new sinkId"
        )
    decision = Decision(
        sink_id=batch.sink_id,
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        transactions=batch.transactions,
        **_ownership(last, batch),
    )
    return Plan(append=decision, commit=decision.transactions, decided=decision, is_new=True)


def _check_owner(last: Decision, batch: BatchResult) -> None:
    if last.query_id != batch.query_id:
        raise SinkIdInUseError(
            f"the sinkId {batch.sink_id} belongs to the query {last.query_id}, which has decided batch {last.batch_id},"
            f" not to {batch.query_id}: choose another sinkId. A query with a new checkpoint is a new query"
        )
    if batch.run_id in last.retired:
        raise SinkFencedError(
            f"batch {batch.batch_id} of the sink {batch.sink_id} cannot be committed: a later run of the query,"
            f" {last.run_id}, has taken over. Two drivers run the query: stop one of them"
        )


def may_decide(last: Decision | None, identity: TaskIdentity) -> bool:
    """Whether the run of a task can decide a batch: no other query has the sink, and no later run of this one."""
    return last is None or (last.query_id == identity.query_id and identity.run_id not in last.retired)


def retire(last: Decision | None, identity: TaskIdentity) -> Decision:
    """Return the last decision, changed so that the run of a task can decide nothing any more."""
    if last is None:
        last = Decision(
            sink_id=identity.sink_id, query_id=identity.query_id, run_id="", batch_id=NO_BATCH, transactions=()
        )
    owner = "" if last.run_id == identity.run_id else last.run_id
    return replace(last, run_id=owner, retired=(*last.retired, identity.run_id)[-MAX_RETIRED:])


def _ownership(last: Decision | None, batch: BatchResult) -> dict[str, Any]:
    """Return the fields that say which run has the sink."""
    if last is None or not last.run_id or last.run_id == batch.run_id:
        retired = () if last is None else last.retired
    else:
        retired = (*last.retired, last.run_id)[-MAX_RETIRED:]
    return {"run_id": batch.run_id, "retired": retired}


def batch_of(sink_id: str, transactional_id: str) -> int | None:
    """Return the batch of a task's transactional id; None if it belongs to the driver, or to something else."""
    prefix = f"{sink_id}/"
    if not transactional_id.startswith(prefix):
        return None
    match = _OWN_PART.fullmatch(transactional_id, len(prefix))
    return None if match is None else int(match[1])


def orphans(decided: Decision, batch_id: int, transactional_ids: Iterable[str]) -> list[str]:
    """Return the ids, among open ones, whose transactions nobody will commit: those up to a decided batch that are not
    in the decision."""
    assert decided.covers(batch_id), (decided.batch_id, batch_id)
    kept = {each.transaction.transactional_id for each in decided.transactions}
    found = []
    for name in transactional_ids:
        batch = batch_of(decided.sink_id, name)
        if batch is not None and batch <= batch_id and name not in kept:
            found.append(name)
    return found
