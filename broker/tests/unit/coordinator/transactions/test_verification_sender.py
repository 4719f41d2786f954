"""Verifications: local and remote coordinators, batches, order, epochs, old brokers, failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from odradek.base.errors import (
    AuthenticationError,
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    NetworkError,
    NotCoordinatorError,
    ProducerFencedError,
    ProtocolError,
    TransactionAbortableError,
    UnknownServerError,
)
from odradek.base.types import NO_BROKER, TRANSACTION_STATE_TOPIC, TopicPartition
from odradek.coordinator.broker_links import BrokerLinks
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.transactions.transaction_values import ProducerIdAndEpoch
from odradek.coordinator.transactions.verification_sender import TRANSACTIONS_PER_REQUEST, VerificationSender
from odradek.protocol.codec import Message
from odradek.protocol.keys import ApiKey
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.senders.peer_brokers import LISTENER, PeerBrokers

A, B, C = (TopicPartition("t", number) for number in range(3))
TIMEOUT_MS = 30_000.0
Codes = Mapping[TopicPartition, int]


class Bench:
    """A sender on broker 0. The last digit of a transactional id is its partition, which that broker leads."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.brokers = PeerBrokers(self._answer)
        self.links = BrokerLinks(
            cluster=self.brokers.cluster,
            listener=LISTENER,
            connect=self.brokers.connect,
            clock=self.clock,
            timeout_ms=TIMEOUT_MS,
        )
        self.sender = VerificationSender(
            broker_id=0,
            cluster=self.brokers.cluster,
            links=self.links,
            clock=self.clock,
            partition_of=lambda name: TopicPartition(TRANSACTION_STATE_TOPIC, int(name[-1])),
            verify_here=self._verify_here,
            add_here=self._add_here,
        )
        self.brokers.announce({0: 9000, 1: 9001, 2: 9002})
        self.lead({0: 0, 1: 1, 2: 2})
        self.gate = asyncio.Event()
        self.gate.set()
        self.codes: dict[TopicPartition, int] = {}
        self.change: Callable[[dict[str, Any]], Message] = lambda answer: answer
        self.failures: list[Exception] = []
        self.requests: list[tuple[int, list[tuple[TransactionalWriter, list[TopicPartition]]]]] = []
        self.local: list[tuple[str, ProducerIdAndEpoch, list[TopicPartition]]] = []
        self.local_error: ProtocolError | None = None
        self.busy = 0
        """Number of additions that get CONCURRENT_TRANSACTIONS."""
        self.added: list[tuple[str, ProducerIdAndEpoch, list[TopicPartition]]] = []
        self.done: list[str] = []

    def lead(self, leaders: Mapping[int, int]) -> None:
        self.brokers.lead({TopicPartition(TRANSACTION_STATE_TOPIC, number): leaders[number] for number in leaders})

    async def verify(
        self,
        name: str,
        *partitions: TopicPartition,
        producer_id: int = 7,
        epoch: int = 1,
        label: str = "",
        adds: bool = False,
    ) -> Codes:
        codes = await self.sender.verify(TransactionalWriter(name, producer_id, epoch, adds=adds), partitions)
        self.done.append(label)
        return codes

    def start(self, name: str, *partitions: TopicPartition, **options: Any) -> asyncio.Task[Codes]:
        return asyncio.create_task(self.verify(name, *partitions, **options))

    async def hold(self) -> asyncio.Task[Codes]:
        """Let broker 1 hold a request, so that others wait for it."""
        self.gate.clear()
        task = self.start("held-1", A, producer_id=99, label="held")
        await self.clock.sleep_ms(10)
        assert len(self.requests) == 1
        return task

    def _verify_here(self, name: str, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]) -> Codes:
        self.local.append((name, producer, list(partitions)))
        if self.local_error is not None:
            raise self.local_error
        return {partition: self.codes.get(partition, 0) for partition in partitions}

    async def _add_here(self, name: str, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]) -> Codes:
        self.added.append((name, producer, list(partitions)))
        await self.gate.wait()
        if self.busy:
            self.busy -= 1
            raise ConcurrentTransactionsError("the markers are being written")
        return self._verify_here(name, producer, partitions)

    def _code(self, partition: TopicPartition, *, adds: bool) -> int:
        if adds and self.busy:
            self.busy -= 1
            return ConcurrentTransactionsError.code
        return self.codes.get(partition, 0)

    async def _answer(self, broker_id: int, version: int, request: AddPartitionsToTxnRequest) -> Message:
        wanted = []
        for item in request.transactions:
            partitions = [TopicPartition(topic.name, number) for topic in item.topics for number in topic.partitions]
            adds = not item.verify_only
            writer = TransactionalWriter(item.transactional_id, item.producer_id, item.producer_epoch, adds=adds)
            wanted.append((writer, partitions))
        self.requests.append((broker_id, wanted))
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        transactions = [
            {
                "transactional_id": writer.transactional_id,
                "topic_results": [
                    {
                        "name": partition.topic,
                        "results_by_partition": [
                            {
                                "partition_index": partition.partition,
                                "partition_error_code": self._code(partition, adds=writer.adds),
                            }
                        ],
                    }
                    for partition in partitions
                ],
            }
            for writer, partitions in wanted
        ]
        return self.change({"throttle_time_ms": 0, "error_code": 0, "results_by_transaction": transactions})


def virtual(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            await test(bench)
        finally:
            await bench.sender.close()
            await bench.links.close()

    run_virtual(main())


def test_this_broker_answers_without_a_request() -> None:
    async def scenario(bench: Bench) -> None:
        bench.codes = {B: TransactionAbortableError.code}
        assert await bench.verify("id-0", A, B) == {A: 0, B: 120}
        assert bench.local == [("id-0", ProducerIdAndEpoch(7, 1), [A, B])]
        assert bench.requests == []
        assert bench.sender.failure_count == 1

    virtual(scenario)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotCoordinatorError, NotCoordinatorError.code),
        (CoordinatorLoadInProgressError, CoordinatorLoadInProgressError.code),
        (ConcurrentTransactionsError, ConcurrentTransactionsError.code),
        (InvalidProducerIdMappingError, InvalidProducerIdMappingError.code),
        (ProducerFencedError, InvalidProducerEpochError.code),
    ],
)
@pytest.mark.parametrize("is_local", [True, False])
def test_the_codes_of_the_coordinator(error: type[ProtocolError], code: int, is_local: bool) -> None:
    async def scenario(bench: Bench) -> None:
        bench.local_error = error("no")
        bench.codes = dict.fromkeys((A, B), error.code)
        assert await bench.verify("id-0" if is_local else "id-1", A, B) == {A: code, B: code}

    virtual(scenario)


def test_another_broker_is_asked() -> None:
    async def scenario(bench: Bench) -> None:
        bench.codes = {B: TransactionAbortableError.code}
        assert await bench.verify("id-1", A, B) == {A: 0, B: 120}
        assert bench.requests == [(1, [(TransactionalWriter("id-1", 7, 1), [A, B])])]

    virtual(scenario)


def test_transactions_that_wait_go_into_one_request() -> None:
    async def scenario(bench: Bench) -> None:
        held = await bench.hold()
        tasks = [bench.start(f"{number}-1", A, B, producer_id=number) for number in range(TRANSACTIONS_PER_REQUEST + 1)]
        other = bench.start("id-2", C)
        await bench.clock.sleep_ms(10)
        assert [broker_id for broker_id, _ in bench.requests] == [1, 2], "brokers do not wait for each other"
        bench.gate.set()
        assert await held == {A: 0}
        assert await other == {C: 0}
        assert await asyncio.gather(*tasks) == [{A: 0, B: 0}] * len(tasks)
        assert [len(wanted) for _, wanted in bench.requests] == [1, 1, TRANSACTIONS_PER_REQUEST, 1]

    virtual(scenario)


def test_waiting_calls_of_a_producer_are_merged_and_get_their_own_partitions() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.hold()
        bench.codes = {C: 48}
        tasks = [bench.start("id-1", *partitions) for partitions in ([A, B], [B, C], [A])]
        await bench.clock.sleep_ms(10)
        bench.gate.set()
        assert await asyncio.gather(*tasks) == [{A: 0, B: 0}, {B: 0, C: 48}, {A: 0}]
        assert bench.requests[1:] == [(1, [(TransactionalWriter("id-1", 7, 1), [A, B, C])])]

    virtual(scenario)


def test_a_later_epoch_replaces_an_earlier_one_that_waits() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.hold()
        fenced = InvalidProducerEpochError.code
        old, new = bench.start("id-1", A, epoch=1), bench.start("id-1", B, epoch=2)
        assert await old == {A: fenced}
        late = bench.start("id-1", C, epoch=1, label="late")
        await bench.clock.sleep_ms(10)
        assert not late.done(), "the call before it has no result yet"
        bench.gate.set()
        assert await asyncio.gather(new, late) == [{B: 0}, {C: fenced}]
        assert bench.requests[1:] == [(1, [(TransactionalWriter("id-1", 7, 2), [B])])]

    virtual(scenario)


def test_two_producers_of_a_transactional_id_are_in_different_requests() -> None:
    """A coordinator assigns a new producer id, with epoch 0, when the epochs of the old one are used up."""

    async def scenario(bench: Bench) -> None:
        await bench.hold()
        tasks = [
            bench.start("id-1", A, producer_id=7, epoch=9),
            bench.start("id-1", A, producer_id=8, epoch=0),
            bench.start("id-1", B, producer_id=8, epoch=0),
            bench.start("other-1", A, producer_id=9),
        ]
        await bench.clock.sleep_ms(10)
        bench.gate.set()
        await asyncio.gather(*tasks)
        assert [[writer.producer_id for writer, _ in wanted] for _, wanted in bench.requests] == [[99], [7, 9], [8]]

    virtual(scenario)


def test_results_of_a_producer_keep_their_order_when_its_coordinator_moves() -> None:
    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        first = bench.start("id-1", A, label="first")
        await bench.clock.sleep_ms(10)
        bench.lead({1: 0})
        second = bench.start("id-1", A, label="second")
        other = bench.start("id-1", A, label="other", producer_id=8)
        await bench.clock.sleep_ms(10)
        bench.lead({1: NO_BROKER})
        third = bench.start("id-1", A, label="third")
        await bench.clock.sleep_ms(10)
        assert bench.done == ["other"]
        bench.gate.set()
        assert await asyncio.gather(first, second, third) == [{A: 0}, {A: 0}, {A: CoordinatorNotAvailableError.code}]
        assert await other == {A: 0}
        assert bench.done == ["other", "first", "second", "third"]

    virtual(scenario)


@pytest.mark.parametrize("leader", [NO_BROKER, 9, None])
def test_an_unknown_coordinator_is_not_available(leader: int | None) -> None:
    async def scenario(bench: Bench) -> None:
        if leader is None:
            bench.brokers.forget(TopicPartition(TRANSACTION_STATE_TOPIC, 1))
        else:
            bench.lead({1: leader})
        assert await bench.verify("id-1", A) == {A: CoordinatorNotAvailableError.code}

    virtual(scenario)


def test_a_broker_that_disappears_while_others_wait_for_it() -> None:
    async def scenario(bench: Bench) -> None:
        held = await bench.hold()
        waiting = bench.start("id-1", A)
        await bench.clock.sleep_ms(10)
        bench.brokers.announce({0: 9000})
        assert await held == {A: NetworkError.code}
        assert await waiting == {A: CoordinatorNotAvailableError.code}

    virtual(scenario)


@pytest.mark.parametrize("failure", [NetworkError("a"), OSError("b"), AuthenticationError("c"), ValueError("a bug")])
def test_without_an_answer_nothing_is_verified(failure: Exception) -> None:
    async def scenario(bench: Bench) -> None:
        code = UnknownServerError.code if isinstance(failure, ValueError) else NetworkError.code
        bench.failures = [failure]
        assert await bench.verify("id-1", A, B) == {A: code, B: code}
        await bench.clock.sleep_ms(100)
        assert await bench.verify("id-1", A) == {A: 0}

    virtual(scenario)


def test_a_request_has_a_deadline() -> None:
    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        before = bench.clock.monotonic_ms()
        assert await bench.verify("id-1", A) == {A: NetworkError.code}
        assert round(bench.clock.monotonic_ms() - before) == TIMEOUT_MS

    virtual(scenario)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ClusterAuthorizationFailedError.code, InvalidTransactionStateError.code),
        (CoordinatorLoadInProgressError.code, CoordinatorLoadInProgressError.code),
    ],
)
def test_an_error_of_the_whole_response(code: int, expected: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.change = lambda answer: {**answer, "error_code": code, "results_by_transaction": []}
        assert await bench.verify("id-1", A, B) == {A: expected, B: expected}

    virtual(scenario)


def test_an_incomplete_response_verifies_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        bench.change = lambda answer: {**answer, "results_by_transaction": []}
        assert await bench.verify("id-1", A) == {A: UnknownServerError.code}

    virtual(scenario)


@pytest.mark.parametrize("version", [-1, 2, 3])
def test_transactions_of_a_broker_that_cannot_verify_count_as_verified(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka 2.7 has versions up to 2."""

    async def scenario(bench: Bench) -> None:
        bench.brokers.versions[1] = {ApiKey.ADD_PARTITIONS_TO_TXN: version}
        for _ in range(3):
            assert await bench.verify("id-1", A, B) == {A: 0, B: 0}
        assert len(caplog.records) == 1
        assert bench.requests == []
        bench.codes = {A: 48}
        bench.brokers.versions[1] = {ApiKey.ADD_PARTITIONS_TO_TXN: 4}
        assert await bench.verify("id-1", A) == {A: 48}
        bench.brokers.versions[1] = {ApiKey.ADD_PARTITIONS_TO_TXN: version}
        await bench.verify("id-1", A)
        assert len(caplog.records) == 2

    with caplog.at_level(logging.WARNING):
        virtual(scenario)


def test_a_caller_that_is_cancelled_does_not_disturb_the_others() -> None:
    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        first, second = bench.start("id-1", A), bench.start("id-1", A)
        await bench.clock.sleep_ms(10)
        third = bench.start("id-1", B)
        await bench.clock.sleep_ms(10)
        first.cancel()
        bench.gate.set()
        assert await asyncio.gather(second, third) == [{A: 0}, {B: 0}]

    virtual(scenario)


def test_close_completes_every_call() -> None:
    async def scenario(bench: Bench) -> None:
        held = await bench.hold()
        waiting = bench.start("id-1", A, B)
        await bench.clock.sleep_ms(10)
        bench.lead({1: 0})
        await bench.clock.sleep_ms(10)
        answered = bench.start("held-1", C, producer_id=99)
        await bench.clock.sleep_ms(10)
        for _ in range(2):
            await bench.sender.close()
        unavailable = CoordinatorNotAvailableError.code
        assert await held == {A: unavailable}
        assert await waiting == {A: unavailable, B: unavailable}
        assert await answered == {C: 0}
        assert await bench.verify("id-0", A) == {A: unavailable}
        assert await bench.verify("id-1", A) == {A: unavailable}

    virtual(scenario)


@pytest.mark.parametrize("name", ["id-0", "id-1"])
def test_partitions_are_added(name: str) -> None:
    async def scenario(bench: Bench) -> None:
        bench.codes = {B: InvalidTransactionStateError.code}
        assert await bench.verify(name, A, B, adds=True) == {A: 0, B: InvalidTransactionStateError.code}
        if name == "id-0":
            assert bench.added == [(name, ProducerIdAndEpoch(7, 1), [A, B])]
        else:
            assert bench.requests == [(1, [(TransactionalWriter(name, 7, 1, adds=True), [A, B])])]
        bench.codes = {A: ProducerFencedError.code}
        assert await bench.verify(name, A, adds=True) == {A: InvalidProducerEpochError.code}

    virtual(scenario)


def test_additions_to_the_same_transaction_are_merged_while_one_is_in_progress() -> None:
    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        tasks = [bench.start("id-0", A, adds=True)]
        await bench.clock.sleep_ms(10)
        tasks += [bench.start("id-0", each, adds=True) for each in (B, C)]
        await bench.clock.sleep_ms(10)
        assert [partitions for _, _, partitions in bench.added] == [[A]]
        bench.gate.set()
        assert await asyncio.gather(*tasks) == [{A: 0}, {B: 0}, {C: 0}]
        assert [partitions for _, _, partitions in bench.added] == [[A], [B, C]]

    virtual(scenario)


def test_additions_and_verifications_are_not_merged() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.hold()
        tasks = [bench.start("id-1", A), bench.start("id-1", B, adds=True)]
        await bench.clock.sleep_ms(10)
        bench.gate.set()
        assert await asyncio.gather(*tasks) == [{A: 0}, {B: 0}]
        wanted = [(writer.adds, partitions) for _, each in bench.requests[1:] for writer, partitions in each]
        assert wanted == [(False, [A]), (True, [B])]

    virtual(scenario)


@pytest.mark.parametrize("name", ["id-0", "id-1"])
@pytest.mark.parametrize(("busy", "code"), [(1, 0), (5, 0), (6, ConcurrentTransactionsError.code)])
def test_an_addition_is_tried_again_while_the_markers_are_written(name: str, busy: int, code: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.busy = busy
        first = bench.start(name, A, adds=True, label="first")
        second = bench.start(name, A, label="second")
        assert await asyncio.gather(first, second) == [{A: code}, {A: 0}]
        assert bench.done == ["first", "second"], "calls of a producer complete in their order"
        assert await bench.verify(name, A, adds=True) == {A: 0}

    virtual(scenario)


def test_an_addition_that_waits_for_its_retry_ends_with_the_sender() -> None:
    async def scenario(bench: Bench) -> None:
        bench.busy = 99
        task = bench.start("id-0", A, adds=True)
        await bench.clock.sleep_ms(10)
        await bench.sender.close()
        assert await task == {A: CoordinatorNotAvailableError.code}

    virtual(scenario)


def test_a_bug_of_the_coordinator_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        bench.gate = None  # type: ignore[assignment]
        assert await bench.verify("id-0", A, adds=True) == {A: UnknownServerError.code}

    virtual(scenario)
    assert "could not be added to the transaction of 'id-0'" in caplog.text
