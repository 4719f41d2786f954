"""Batches of transactional producers are appended in order, whatever the order and the results of their verifications.

Producers pipeline their requests, and repeat what failed once everything in flight has been answered. Verifications are
answered in any order, and markers end transactions meanwhile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import (
    NONE,
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
)
from odradek.base.types import TopicPartition
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek.replication.replica_requests import AppendRequest, AppendResult
from odradek.server.data.transactional_produce import TransactionalProduce
from odradek_testkit.logs import batch, marker
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import LED, MemoryBroker, MemoryCluster, assume
from odradek_testkit.verifying import MemoryVerifier, settle

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
PRODUCERS = (7, 8)
REFUSED = {NotEnoughReplicasError.code, InvalidTransactionStateError.code, OutOfOrderSequenceError.code}

SENDS = st.tuples(st.just("send"), st.sampled_from(PRODUCERS), st.sets(st.integers(0, 2), min_size=1))
ENDS = st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.sets(st.integers(0, 2), min_size=1))
ANSWERS = st.tuples(
    st.just("answer"),
    st.sampled_from((NONE, NONE, ConcurrentTransactionsError.code, InvalidTransactionStateError.code)),
    st.sets(st.integers(0, 5), min_size=1, max_size=1),
)


class Sender:
    """The batches of one producer in one partition."""

    def __init__(self) -> None:
        self.next = self.in_flight = 0
        self.offsets: dict[int, int] = {}
        """Offsets of the appended batches, by sequence."""
        self.failed: dict[int, int] = {}
        """Error codes of the batches that have to be sent again."""
        self.problems: list[str] = []

    @property
    def has_failed(self) -> bool:
        return bool(self.failed)

    def may_send(self) -> bool:
        if self.failed and not self.in_flight:
            self.next = min(self.failed)
            self.failed.clear()
        return not self.failed

    def answered(self, sequence: int, result: AppendResult) -> None:
        """Note a result; what is wrong is reported later, because a callback must not raise."""
        self.in_flight -= 1
        if result.error_code:
            self.failed[sequence] = result.error_code
            if result.error_code not in REFUSED:
                self.problems.append(f"sequence {sequence} failed with {result.error_message}")
        else:
            self.offsets[sequence] = result.first_offset
        if self.in_flight:
            return
        if sorted(self.offsets) != list(range(len(self.offsets))):
            self.problems.append(f"a batch is missing: {sorted(self.offsets)}")
        if [self.offsets[each] for each in sorted(self.offsets)] != sorted(self.offsets.values()):
            self.problems.append(f"another order: {self.offsets}")
        if self.failed and self.failed[min(self.failed)] == OutOfOrderSequenceError.code:
            self.problems.append(f"sequence {min(self.failed)} was next, but failed as out of order")


class World:
    """A broker that leads three partitions, and two producers."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.verifier = MemoryVerifier()
        self.produce = TransactionalProduce(broker.replicas, self.verifier, lambda: True)
        self.senders = {(producer, each): Sender() for producer in PRODUCERS for each in PARTITIONS}
        self.unanswered = 0
        self.answered: list[bool] = []
        """For each response whether it has the partitions of its request."""

    def send(self, producer: int, numbers: set[int]) -> None:
        chosen = [each for each in PARTITIONS if each.partition in numbers and self.senders[producer, each].may_send()]
        if not chosen:
            return
        sent: dict[TopicPartition, int] = {}
        entries = []
        for each in chosen:
            sender = self.senders[producer, each]
            sent[each] = sender.next
            records = batch(
                b"v", producer_id=producer, producer_epoch=0, base_sequence=sender.next, is_transactional=True
            )
            entries.append((each, records))
            sender.next += 1
            sender.in_flight += 1
        self.unanswered += 1
        answered = self.answered

        def respond(results: Sequence[AppendResult]) -> None:
            self.unanswered -= 1
            answered.append(sorted(result.topic_partition for result in results) == chosen)
            for result in results:
                self.senders[producer, result.topic_partition].answered(sent[result.topic_partition], result)

        request = AppendRequest(1, 1000, entries)
        self.produce.append(request, f"producer-{producer}", self, respond, knows_abortable=True)
        for _, records in entries:
            records[:] = bytes(len(records))  # it was borrowed

    def end(self, producer: int, numbers: set[int]) -> None:
        for number in numbers:
            log = self.broker.partition(PARTITIONS[number]).log
            ending = marker(ControlType.ABORT, producer_id=producer)
            log.append_as_leader(ending, leader_epoch=LED.leader_epoch, origin=AppendOrigin.COORDINATOR)

    async def answer(self, code: int, numbers: set[int]) -> None:
        await settle()
        waiting = [question for question in self.verifier.questions if not question.outcome.done()]
        self.check()
        if waiting:
            waiting[min(numbers) % len(waiting)].answer(code)
            await settle()

    def check(self) -> None:
        assert not [problem for sender in self.senders.values() for problem in sender.problems]
        assert all(self.answered)

    async def drain(self) -> None:
        while any(not question.outcome.done() for question in self.verifier.questions):
            await self.answer(NONE, {0})
        self.check()
        assert not self.unanswered, "a request waits for nothing"

    async def finish(self) -> None:
        await settle()
        await self.drain()
        for producer in PRODUCERS:
            self.send(producer, {0, 1, 2})
        await settle()
        await self.drain()
        assert not any(sender.has_failed for sender in self.senders.values()), "the producers cannot continue"
        assert self.produce.waiting == 0
        for sender in self.senders.values():
            assert sender.next == len(sender.offsets)


@given(steps=st.lists(st.one_of(SENDS, SENDS, ANSWERS, ENDS), max_size=40))
@settings(max_examples=50)
def test_batches_are_appended_in_order(steps: list[tuple[str, int, set[int]]]) -> None:
    async def main(directory: Path) -> None:
        clock = VirtualClock()
        cluster = MemoryCluster(directory, clock)
        try:
            broker = await cluster.start_broker(1)
            assume(broker, LED, *PARTITIONS)
            world = World(broker)
            for action, first, numbers in steps:
                if action == "send":
                    world.send(first, numbers)
                elif action == "end":
                    world.end(first, numbers)
                else:
                    await world.answer(first, numbers)
            await world.finish()
            await world.produce.close()
        finally:
            await cluster.close()

    with tempfile.TemporaryDirectory() as directory:
        run_virtual(main(Path(directory)))
