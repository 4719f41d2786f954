"""Random histories of transactional ids: decisions are final, epochs rise, a reload restores the state, and nobody but
its producer ends a prepared transaction."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.base.errors import NotEnoughReplicasError, ProtocolError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.coordinator.transactions.transaction_values import (
    MarkerOutcome,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMarker,
    TransactionState,
)
from odradek_testkit.groups import Reply
from odradek_testkit.transactions import TransactionLab

IDS = st.sampled_from(["one", "two"])
PARTITIONS = st.sets(st.sampled_from([TopicPartition("events", number) for number in range(3)]), min_size=1)
DELAYS_MS = st.sampled_from([1, 1000, 61_000, 8 * 24 * 3_600_000])
DECISIONS = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}


class TransactionHistory(RuleBasedStateMachine):
    """Random requests of producers, appends that fail or whose outcome is unknown, markers, and moves."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = TransactionLab()
        self.producers: dict[str, list[ProducerIdAndEpoch]] = {"one": [], "two": []}
        self.checked = 0
        self.inits: list[tuple[str, Reply[ProducerIdAndEpoch]]] = []
        self.ends: list[tuple[str, ProducerIdAndEpoch, bool, Reply[None]]] = []
        self.prepares: list[tuple[str, ProducerIdAndEpoch, Reply[None]]] = []
        self.prepared: dict[str, ProducerIdAndEpoch] = {}
        self.last: dict[str, Transaction] = {}

    def ask(self, call: Any, *args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except ProtocolError:
            return None

    def producer(self, transactional_id: str, age: int) -> ProducerIdAndEpoch | None:
        known = self.producers[transactional_id]
        return known[-1 - age % len(known)] if known else None

    # Requests

    @rule(transactional_id=IDS, age=st.integers(0, 2), keeps=st.booleans())
    def init(self, transactional_id: str, age: int, keeps: bool) -> None:
        expected = self.producer(transactional_id, age) if keeps else None
        reply = self.ask(self.lab.init, transactional_id, expected=expected)
        if reply is not None:
            self.inits.append((transactional_id, reply))

    @rule(transactional_id=IDS, age=st.integers(0, 2), partitions=PARTITIONS)
    def add(self, transactional_id: str, age: int, partitions: set[TopicPartition]) -> None:
        producer = self.producer(transactional_id, age)
        if producer is not None:
            self.ask(self.lab.add, producer, partitions, transactional_id)

    @rule(transactional_id=IDS, age=st.integers(0, 2), is_commit=st.booleans())
    def end(self, transactional_id: str, age: int, is_commit: bool) -> None:
        producer = self.producer(transactional_id, age)
        if producer is not None:
            if self.prepared.get(transactional_id) == producer:
                del self.prepared[transactional_id]
            self.prepares = [each for each in self.prepares if each[:2] != (transactional_id, producer)]
            reply = self.ask(self.lab.end, producer, transactional_id, is_commit=is_commit)
            if reply is not None:
                self.ends.append((transactional_id, producer, is_commit, reply))

    @rule(transactional_id=IDS, age=st.integers(0, 1))
    def prepare(self, transactional_id: str, age: int) -> None:
        producer = self.producer(transactional_id, age)
        if producer is not None:
            reply = self.ask(self.lab.prepare, producer, transactional_id)
            if reply is not None:
                self.prepares.append((transactional_id, producer, reply))

    # What happens

    @rule()
    def one_append_commits(self) -> None:
        if self.lab.log.waiting:
            self.lab.log.commit_next()

    @rule()
    def all_appends_commit(self) -> None:
        self.lab.log.settle()

    @rule()
    def an_append_fails(self) -> None:
        if self.lab.log.waiting:
            self.lab.log.fail_next(NotEnoughReplicasError("no"))

    @rule()
    def the_outcome_of_an_append_is_unknown(self) -> None:
        # An id whose removal is uncertain stays in memory until it is used or removed again, as in Kafka.
        if self.lab.log.waiting and all(value is not None for _, value in self.lab.log.waiting[0][0]):
            self.lab.log.commit_next(RequestTimedOutError("late"))

    @rule()
    def markers_are_written(self) -> None:
        if self.lab.markers.waiting:
            self.lab.markers.end()

    @rule()
    def a_coordinator_is_fenced(self) -> None:
        if self.lab.markers.waiting:
            self.lab.markers.end(MarkerOutcome.FENCED)

    @rule(delay_ms=DELAYS_MS)
    def time_passes(self, delay_ms: int) -> None:
        self.lab.clock.advance(delay_ms)
        self.lab.shard.abort_timed_out()

    @rule()
    def ids_expire(self) -> None:
        self.lab.shard.expire()

    @rule()
    def the_partition_moves(self) -> None:
        # The former leader's appends are rejected, or are in the log of the next one.
        while self.lab.log.waiting:
            self.lab.log.fail_next(NotEnoughReplicasError("moved"))
        self.lab.reload()

    # What must hold

    @invariant()
    def producers_learn_their_epochs(self) -> None:
        for pair in list(self.inits):
            transactional_id, reply = pair
            if reply.is_parked:
                continue
            self.inits.remove(pair)
            try:
                producer = reply.value
            except ProtocolError:
                continue
            known = self.producers[transactional_id]
            if producer not in known:
                assert all(producer.epoch > each.epoch for each in known if each.producer_id == producer.producer_id)
                known.append(producer)

    @invariant()
    def an_acknowledged_decision_is_in_the_log(self) -> None:
        for end in [end for end in self.ends if not end[3].is_parked]:
            self.ends.remove(end)
            transactional_id, producer, is_commit, reply = end
            try:
                _ = reply.value
            except ProtocolError:
                continue
            state = self.lab.load().describe(transactional_id)
            assert (state.producer_id, state.producer_epoch) == producer
            assert state.state.text in (
                ("PrepareCommit", "CompleteCommit") if is_commit else ("PrepareAbort", "CompleteAbort")
            )

    @invariant()
    def nobody_else_ends_a_prepared_transaction(self) -> None:
        for prepare in [prepare for prepare in self.prepares if not prepare[2].is_parked]:
            self.prepares.remove(prepare)
            transactional_id, producer, reply = prepare
            try:
                _ = reply.value
            except ProtocolError:
                continue
            self.prepared[transactional_id] = producer
        for transactional_id, producer in self.prepared.items():
            for shard in (self.lab.shard, self.lab.load()):
                state = shard.describe(transactional_id)
                assert state.is_prepared, state
                assert (state.producer_id, state.producer_epoch) == producer

    @invariant()
    def decisions_are_final(self) -> None:
        """Between two transactions of one producer epoch, all its markers agree."""
        decided: dict[tuple[int, int], TransactionMarker] = {}
        for marker in self.lab.markers.waiting:
            same = decided.setdefault((marker.producer_id, marker.producer_epoch), marker)
            assert same.is_commit == marker.is_commit

    @invariant()
    def markers_follow_a_committed_decision(self) -> None:
        shard = self.lab.load()
        for marker in self.lab.markers.sent[self.checked :]:
            states = [shard.describe(each.transactional_id) for each in shard.listings()]
            matching = [each for each in states if each.producer_id == marker.producer_id]
            assert matching, "no id has this producer id"
            assert any(each.producer_epoch >= marker.producer_epoch for each in matching)
        self.checked = len(self.lab.markers.sent)

    @invariant()
    def states_change_one_step_at_a_time(self) -> None:
        for listing in self.lab.shard.listings():
            now = self.lab.state(listing.transactional_id)
            before = self.last.get(listing.transactional_id)
            self.last[listing.transactional_id] = now
            if before is None or before == now or before.producer_id != now.producer_id:
                continue
            assert now.producer_epoch >= before.producer_epoch
            if before.state in DECISIONS:
                complete = (
                    TransactionState.COMPLETE_COMMIT if DECISIONS[before.state] else TransactionState.COMPLETE_ABORT
                )
                assert now.state in (before.state, complete), (before, now)

    def teardown(self) -> None:
        """In the end, every decided transaction completes, and a reload restores the same state."""
        for _ in range(20):
            self.lab.log.settle()
            while self.lab.markers.waiting:
                self.lab.markers.end()
        self.the_partition_moves()
        for _ in range(3):
            while self.lab.markers.waiting:
                self.lab.markers.end()
            self.lab.log.settle()
        states = {each.transactional_id: self.lab.state(each.transactional_id) for each in self.lab.shard.listings()}
        assert not any(each.state in DECISIONS for each in states.values())
        reloaded = self.lab.load()
        for transactional_id, state in states.items():
            again = reloaded.describe(transactional_id)
            assert (again.producer_id, again.producer_epoch, again.state) == (
                state.producer_id,
                state.producer_epoch,
                state.state,
            )


TestTransactionHistory = TransactionHistory.TestCase
TestTransactionHistory.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
