"""Drivers and tasks of one sink in every order, with kills, restarts, speculation and two drivers at a time.

The driver's code is the real one. Brokers, tasks and Spark are models: each of their steps is atomic, and a seed
chooses who takes the next one. After each history, a last driver runs without faults, and every record of every batch
must be committed exactly once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import InvalidTransactionStateError, OdradekError, ProducerFencedError
from odradek.client.models import PreparedTransaction
from pyspark_odradek.sink.decisions import (
    DecidedBatchLostError,
    Decision,
    SinkError,
    SinkFencedError,
    TaskIdentity,
    TaskResult,
    TaskTransaction,
)
from pyspark_odradek.sink.driver_commit import abort_batch, commit_batch

BATCHES = 3
RECORDS = 4
"""Records of each batch; replays may divide them in another way."""
SINK = "sink"
SECONDS = 60.0


class Killed(BaseException):
    """The process is gone."""


class Actor:
    """A process that waits for its turn before each step."""

    def __init__(self, name: str, work: Callable[[Actor], None]) -> None:
        self.name = name
        self.ready: Callable[[], bool] = lambda: True
        self.is_done = self.is_killed = False
        self.failure: BaseException | None = None
        self._turn, self._given_back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[Actor], None]) -> None:
        try:
            self._wait()
            work(self)
        except (Killed, OdradekError):
            pass
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            self.failure = error
        self.is_done = True
        self._given_back.release()

    def _wait(self) -> None:
        assert self._turn.acquire(timeout=SECONDS)
        if self.is_killed:
            raise Killed

    def step(self, ready: Callable[[], bool] = lambda: True) -> None:
        """End this turn. The next one comes when `ready` is true."""
        self.ready = ready
        self._given_back.release()
        self._wait()
        self.ready = lambda: True

    def go(self) -> None:
        """Give the process one turn."""
        self._turn.release()
        assert self._given_back.acquire(timeout=SECONDS)
        if self.failure is not None:
            raise self.failure

    def kill(self) -> None:
        """Kill it before its next step."""
        self.is_killed = True
        self.go()


@dataclass
class Stored:
    """A transaction at its coordinator."""

    handle: PreparedTransaction
    state: str = "open"
    records: list[tuple[int, int]] = field(default_factory=list)


class Brokers:
    """Transactions and the decision topic. Each method is one atomic step."""

    def __init__(self, *, can_prepare: bool) -> None:
        self.can_prepare = can_prepare
        self.transactions: dict[str, Stored] = {}
        self.decisions: list[Decision] = []
        self.epoch = 0
        self.unfinished: tuple[int, Decision] | None = None

    @property
    def decision(self) -> Decision | None:
        return self.decisions[-1] if self.decisions else None

    def begin(self, name: str) -> Stored:
        assert name not in self.transactions, name
        handle = PreparedTransaction(transactional_id=name, producer_id=len(self.transactions), epoch=0)
        stored = self.transactions[name] = Stored(handle)
        return stored

    def prepare(self, stored: Stored) -> TaskTransaction:
        if stored.state != "open":
            raise ProducerFencedError("aborted")
        if self.can_prepare:
            stored.state = "prepared"
        return TaskTransaction(transaction=stored.handle, is_prepared=self.can_prepare)

    def end(self, handle: PreparedTransaction, *, commit: bool) -> OdradekError | None:
        stored = self.transactions[handle.transactional_id]
        wanted = "committed" if commit else "aborted"
        if stored.state == "timed out":
            return ProducerFencedError("timed out")
        if stored.state not in ("open", "prepared", wanted):
            return InvalidTransactionStateError(f"it was {stored.state}")
        stored.state = wanted
        return None

    def time_out(self) -> None:
        for stored in self.transactions.values():
            if stored.state == "open":
                stored.state = "timed out"
                return

    def committed(self) -> Counter[tuple[int, int]]:
        return Counter(
            record for each in self.transactions.values() if each.state == "committed" for record in each.records
        )


class DriverConnection:
    """The port of `driver_commit` for one process of a driver."""

    def __init__(self, brokers: Brokers, actor: Actor) -> None:
        self._brokers, self._actor, self._epoch = brokers, actor, 0

    def take_over(self) -> None:
        self._actor.step()
        self._brokers.epoch += 1
        self._brokers.unfinished = None
        self._epoch = self._brokers.epoch

    def last_decision(self) -> Decision | None:
        self._actor.step()
        return self._brokers.decision

    def append(self, decision: Decision) -> None:
        self._actor.step()
        self._check_epoch()
        self._brokers.unfinished = (self._epoch, decision)
        self._actor.step()
        self._check_epoch()
        assert self._brokers.unfinished is not None
        self._brokers.unfinished = None
        self._brokers.decisions.append(decision)
        self._actor.step()

    def _check_epoch(self) -> None:
        if self._epoch != self._brokers.epoch:
            raise SinkFencedError("fenced")

    def end(self, transactions: Sequence[PreparedTransaction], *, commit: bool) -> list[OdradekError | None]:
        errors = []
        for transaction in transactions:
            self._actor.step()
            errors.append(self._brokers.end(transaction, commit=commit))
        return errors

    def open_ids(self) -> list[str]:
        self._actor.step()
        return [name for name, each in self._brokers.transactions.items() if each.state in ("open", "prepared")]

    def handles(self, transactional_ids: Sequence[str]) -> list[PreparedTransaction]:
        self._actor.step()
        found = [self._brokers.transactions[name] for name in transactional_ids]
        return [each.handle for each in found if each.state in ("open", "prepared")]


class World:
    """Spark's drivers and tasks, and the brokers."""

    def __init__(self, seed: int, brokers: Brokers) -> None:
        self._random = random.Random(seed)
        self.brokers = brokers
        self.actors: list[Actor] = []
        self.commit_log = -1
        """Spark's last committed batch, in the checkpoint that all drivers share."""
        self.lost: list[DecidedBatchLostError] = []
        self._speeds: dict[Actor, float] = {}
        self.steps = 0
        self._tokens = 0

    def choose(self, limit: int) -> int:
        """Return a number below `limit`."""
        return self._random.randrange(limit)

    def start_driver(self, run: str, *, is_clean: bool = False) -> Actor:
        """Start the query."""
        actor = Actor(f"driver {run}", lambda own: self._drive(own, run, is_clean=is_clean))
        self.actors.append(actor)
        return actor

    def _drive(self, own: Actor, run: str, *, is_clean: bool) -> None:
        batch = self.commit_log + 1
        while batch < BATCHES:
            results = self._run_tasks(own, run, batch)
            outcome: list[OdradekError | None] = []
            committer = Actor(f"committer {run}", self._committer(results, outcome))
            self.actors.append(committer)
            patience = BATCHES * 100 if is_clean else self.choose(200)
            own.step(self._end_or_patience(committer, self.steps + patience))
            if not outcome or outcome[0] is not None:
                # Spark was interrupted, or the commit has failed. The process that commits may go on.
                abort_batch(DriverConnection(self.brokers, own), results)
                raise SinkError("the query ends")
            own.step()
            self.commit_log = max(self.commit_log, batch)
            batch += 1

    def _end_or_patience(self, committer: Actor, last_step: int) -> Callable[[], bool]:
        return lambda: committer.is_done or self.steps > last_step

    def _committer(self, results: list[TaskResult], outcome: list[OdradekError | None]) -> Callable[[Actor], None]:
        return lambda own: self._commit(own, results, outcome)

    def _commit(self, own: Actor, results: list[TaskResult], outcome: list[OdradekError | None]) -> None:
        try:
            commit_batch(DriverConnection(self.brokers, own), results)
        except OdradekError as error:
            if isinstance(error, DecidedBatchLostError):
                self.lost.append(error)
            outcome.append(error)
        else:
            outcome.append(None)

    def _run_tasks(self, own: Actor, run: str, batch: int) -> list[TaskResult]:
        partitions = 1 + self.choose(2)
        done: dict[int, TaskResult] = {}
        own.step()
        for partition in range(partitions):
            for attempt in range(1 + self.choose(2)):
                self._start_task(run, batch, (partition, partitions, attempt), done)
        alive = [actor for actor in self.actors if actor.name.startswith(f"task {run} {batch} ")]
        own.step(lambda: len(done) == partitions or all(actor.is_done for actor in alive))
        if len(done) < partitions:
            lost = [result for result in done.values() if result.transaction is not None]
            abort_batch(DriverConnection(self.brokers, own), lost)
            raise SinkError("a task has failed too often")
        return [done[number] for number in range(partitions)]

    def _start_task(self, run: str, batch: int, place: tuple[int, int, int], done: dict[int, TaskResult]) -> None:
        partition, partitions, attempt = place
        self._tokens += 1
        identity = TaskIdentity(
            sink_id=SINK,
            query_id="query",
            run_id=run,
            batch_id=batch,
            partition=partition,
            attempt=attempt,
            token=f"{self._tokens:016x}",
        )
        records = [(batch, number) for number in range(RECORDS) if number % partitions == partition]

        def work(own: Actor) -> None:
            result = self._write(own, identity, records)
            own.step()
            # Spark takes the first result of a partition, also if the driver has ended meanwhile.
            done.setdefault(partition, result)

        self.actors.append(Actor(f"task {run} {batch} {partition}", work))

    def _write(self, own: Actor, identity: TaskIdentity, records: list[tuple[int, int]]) -> TaskResult:
        """The steps of `task_transactions.write_in_transaction`."""
        known = self.brokers.decision
        if known is not None and known.covers(identity.batch_id):
            return TaskResult(identity=identity, found_decided=True)
        own.step()
        stored = self.brokers.begin(identity.transactional_id)
        for record in records:
            own.step()
            if stored.state != "open":
                raise ProducerFencedError("aborted")
            stored.records.append(record)
        own.step()
        transaction = self.brokers.prepare(stored)
        own.step()
        known = self.brokers.decision
        if known is None or not known.covers(identity.batch_id) or known.contains(stored.handle):
            return TaskResult(identity=identity, transaction=transaction)
        own.step()
        self.brokers.end(stored.handle, commit=False)
        return TaskResult(identity=identity, found_decided=True)

    def turn(self, *, kills: bool) -> bool:
        """Let one process take a step, or kill it. Return whether one was left."""
        able = [actor for actor in self.actors if not actor.is_done and actor.ready()]
        if not able:
            return False
        self.steps += 1
        if self.choose(30) == 0:
            self._speeds.clear()
        [actor] = self._random.choices(able, [self._speed_of(each) for each in able])
        if kills and self.choose(24) == 23:
            actor.kill()
        else:
            actor.go()
        return True

    def _speed_of(self, actor: Actor) -> float:
        """Return a speed that lasts for a while: one process may be overtaken by a whole batch of another."""
        return self._speeds.setdefault(actor, 10.0 ** -self.choose(3))

    def finish(self) -> None:
        """Let all processes end, without faults."""
        while self.turn(kills=False):
            continue


@pytest.mark.parametrize("times_out", [False, True])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), can_prepare=st.booleans())
def test_every_record_is_committed_once_in_every_order(times_out: bool, can_prepare: bool, seed: int) -> None:
    brokers = Brokers(can_prepare=can_prepare)
    world = World(seed, brokers)
    for number in range(1 + world.choose(3)):
        driver = world.start_driver(f"run{number}")
        # Its successor starts while it runs, or after its end.
        for _ in range(world.choose(80)):
            if driver.is_done or not world.turn(kills=True):
                break
            if times_out and world.choose(20) == 19:
                brokers.time_out()
            assert max(brokers.committed().values(), default=1) == 1, "no record is doubled at any time"
    world.finish()
    world.start_driver("last", is_clean=True)
    world.finish()
    assert max(brokers.committed().values(), default=1) == 1
    assert [decision.batch_id for decision in brokers.decisions] == sorted(
        decision.batch_id for decision in brokers.decisions
    )
    if world.lost:
        assert times_out, world.lost
        assert not can_prepare
    else:
        assert brokers.committed() == Counter((batch, number) for batch in range(BATCHES) for number in range(RECORDS))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), can_prepare=st.booleans())
def test_nothing_is_left_open_if_nothing_is_killed(can_prepare: bool, seed: int) -> None:
    brokers = Brokers(can_prepare=can_prepare)
    world = World(seed, brokers)
    world.start_driver("run", is_clean=True)
    world.finish()
    assert world.commit_log == BATCHES - 1
    left = [name for name, each in brokers.transactions.items() if each.state in ("open", "prepared")]
    assert left == []
