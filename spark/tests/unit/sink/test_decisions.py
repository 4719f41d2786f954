"""Names of transactions, the stored form of decisions, and the plans of drivers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.client.models import PreparedTransaction
from pyspark_odradek.sink.decisions import (
    MAX_RETIRED,
    NO_BATCH,
    BatchResult,
    Decision,
    SinkError,
    SinkFencedError,
    TaskIdentity,
    TaskResult,
    TaskTransaction,
    batch_of,
    driver_id,
    may_decide,
    orphans,
    plan,
    retire,
)

TOKEN = "0123456789abcdef"
TASK = TaskIdentity(sink_id="a/b", query_id="q", run_id="r1", batch_id=7, partition=3, attempt=1, token=TOKEN)
HANDLE = PreparedTransaction(transactional_id=TASK.transactional_id, producer_id=5, epoch=2)
DONE = TaskTransaction(transaction=HANDLE, is_prepared=True)
DECISION = Decision(sink_id="a/b", query_id="q", run_id="r1", retired=("r0",), batch_id=7, transactions=(DONE,))
RESULT = BatchResult(sink_id="a/b", query_id="q", run_id="r1", batch_id=7, transactions=(DONE,), found_decided=False)


def test_only_ids_of_the_own_tasks_have_a_batch() -> None:
    assert TASK.transactional_id == "a/b/7/3/1-0123456789abcdef"
    assert batch_of("a/b", TASK.transactional_id) == 7
    for other in (
        driver_id("a/b"),
        "a/b/7/3/1",
        f"a/b/7/3/1-{TOKEN}0",
        f"a/b/7/3/1-{TOKEN}/x",
        f"a/b/c/7/3/1-{TOKEN}",
        f"a/b/-7/3/1-{TOKEN}",
        f"x/7/3/1-{TOKEN}",
        "a/b",
    ):
        assert batch_of("a/b", other) is None, other
    assert batch_of("a", TASK.transactional_id) is None, "the sink a/b is another one"


def test_a_decision_can_be_stored() -> None:
    stored = DECISION.to_json()
    assert stored == (
        b'{"version":1,"query":"q","run":"r1","retired":["r0"],"batch":7,"transactions":[["3/1-0123456789abcdef",5,2,1]]}'
    )
    assert Decision.from_json("a/b", stored) == DECISION
    for wrong in (b"", b"[]", b"{}", b'{"version":1}', stored.replace(b'"transactions"', b'"other"')):
        with pytest.raises(SinkError, match="the decision of the sink a/b cannot be read"):
            Decision.from_json("a/b", wrong)
    with pytest.raises(SinkError, match="has the format version 2"):
        Decision.from_json("a/b", stored.replace(b'"version":1', b'"version":2'))


def test_plans() -> None:
    first = plan(None, RESULT)
    assert (first.append, first.commit, first.is_new) == (replace(DECISION, retired=()), (DONE,), True)
    own = plan(DECISION, RESULT)
    assert (own.append, own.commit, own.is_new) == (None, (DONE,), False)
    other_run = plan(DECISION, replace(RESULT, run_id="r2", transactions=()))
    assert other_run.append == replace(DECISION, run_id="r2", retired=("r0", "r1"))
    assert (other_run.commit, other_run.is_new) == ((DONE,), False)
    behind = plan(DECISION, replace(RESULT, batch_id=6))
    assert (behind.append, behind.commit) == (None, ())
    ahead = plan(DECISION, replace(RESULT, batch_id=8))
    assert ahead.is_new
    assert ahead.append == replace(DECISION, batch_id=8)
    with pytest.raises(SinkFencedError):
        plan(DECISION, replace(RESULT, run_id="r0"))
    with pytest.raises(SinkError, match="has lost records"):
        plan(None, replace(RESULT, found_decided=True))


def test_the_number_of_retired_runs_is_bounded() -> None:
    last: Decision | None = None
    for number in range(100):
        last = plan(last, replace(RESULT, run_id=f"run{number}", batch_id=number)).decided
    assert last is not None
    assert last.retired == tuple(f"run{number}" for number in range(99 - MAX_RETIRED, 99))


def test_a_run_that_has_failed_cannot_decide() -> None:
    assert may_decide(None, TASK)
    assert may_decide(DECISION, TASK)
    failed = retire(DECISION, TASK)
    assert failed == replace(DECISION, run_id="", retired=("r0", "r1"))
    assert not may_decide(failed, TASK)
    assert not may_decide(DECISION, replace(TASK, query_id="other"))
    assert retire(DECISION, replace(TASK, run_id="r2")) == replace(DECISION, retired=("r0", "r2"))
    assert retire(None, TASK).batch_id == NO_BATCH
    assert plan(failed, replace(RESULT, run_id="r3")).decided.retired == ("r0", "r1")


def test_orphans_are_those_that_nobody_commits() -> None:
    late = replace(TASK, batch_id=8).transactional_id
    early, other = replace(TASK, batch_id=2).transactional_id, replace(TASK, partition=4).transactional_id
    ids = [TASK.transactional_id, late, early, other, driver_id("a/b"), "unrelated"]
    assert orphans(DECISION, 7, ids) == [early, other]
    assert orphans(DECISION, 6, ids) == [early]


def test_the_results_of_a_batch() -> None:
    results = [TaskResult(identity=TASK, transaction=DONE), TaskResult(identity=replace(TASK, partition=9))]
    assert BatchResult.of(results) == RESULT
    assert RESULT.needs_decision
    assert not BatchResult.of(results[1:]).needs_decision
    assert BatchResult.of([TaskResult(identity=TASK, found_decided=True)]).needs_decision
    with pytest.raises(SinkError, match="cannot belong to one batch"):
        BatchResult.of([*results, TaskResult(identity=replace(TASK, batch_id=8))])
