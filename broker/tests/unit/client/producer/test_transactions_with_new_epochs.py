"""The transactional producer in a cluster that has finalized transaction version 2 (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from odradek.base.errors import ConcurrentTransactionsError, MessageTooLargeError, TransactionAbortableError
from odradek.base.types import TopicPartition
from odradek.client.models import GroupMetadata
from odradek.client.producer.producer import Producer
from odradek.client.producer.sequences import ProducerIdentity
from odradek.client.producer.transaction_machine import TransactionMachine, TransactionPhase
from odradek.client.settings import ClientSettings
from odradek.network.channel import NO_FEATURES, ClusterFeatures
from odradek.protocol.apis import ApiKey
from odradek.records.v2.batch import read_header
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS: Final = ClientSettings.of("fake:9001", transactional_id="tx", request_timeout_ms=1_000, max_block_ms=30_000)
VERSION_2: Final = ClusterFeatures(1, {"transaction.version": 2})
GROUP: Final = GroupMetadata("g", 3, "m1")
PARTITION: Final = TopicPartition("t", 0)


class NewEpochs:
    """A coordinator whose ends raise the epoch. It opens transactions by itself, as after a Produce of version 12."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.identity = ProducerIdentity(500, 0)
        self.next_identity: ProducerIdentity | None = None
        """The identity after the next end; None if only the epoch rises."""
        self.ends: list[tuple[bool, int]] = []
        """Whether each transaction was committed, and its epoch."""
        self.commits: list[int] = []
        """The epoch of each TxnOffsetCommit."""
        cluster.features = VERSION_2
        cluster.answers |= {
            ApiKey.INIT_PRODUCER_ID: self._init,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_offsets,
            ApiKey.END_TXN: self._end,
        }

    def _init(self, request: Any) -> dict[str, Any]:
        producer_id, epoch = self.identity
        return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}

    def _commit_offsets(self, request: Any) -> dict[str, Any]:
        self.commits.append(request.producer_epoch)
        return {
            "topics": [
                {"name": topic.name, "partitions": [{"partition_index": 0, "error_code": 0}]}
                for topic in request.topics
            ]
        }

    def _end(self, request: Any) -> dict[str, Any]:
        producer_id, epoch = self.identity
        assert (request.producer_id, request.producer_epoch) == (producer_id, epoch)
        self.ends.append((request.committed, epoch))
        self.identity = self.next_identity or ProducerIdentity(producer_id, epoch + 1)
        self.next_identity = None
        return {"error_code": 0, "producer_id": self.identity.producer_id, "producer_epoch": self.identity.epoch}


def play(fakes: Any, work: Callable[[Producer, NewEpochs], Coroutine[Any, Any, None]]) -> NewEpochs:
    """Run `work` with a producer after `init_transactions`, and return the coordinator."""
    cluster = fakes.cluster({"t": 1})
    coordinator = NewEpochs(cluster)

    async def main() -> None:
        async with Producer(SETTINGS, clock=VirtualClock(), connect=cluster.connect) as producer:
            await producer.init_transactions()
            await work(producer, coordinator)

    run_virtual(main())
    return coordinator


def batches(coordinator: NewEpochs) -> list[tuple[int, int, int]]:
    """Return producer id, epoch and first sequence of each batch in the log."""
    headers = [read_header(batch) for batch in coordinator.cluster.logs[PARTITION].batches]
    return [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers]


def asked(coordinator: NewEpochs) -> set[ApiKey]:
    return {key for key, _ in coordinator.cluster.asked}


def test_writes_add_partitions_and_ends_raise_the_epoch(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: NewEpochs) -> None:
        for _ in range(2):
            async with producer.transaction():
                await producer.send_and_wait("t", b"a")
                await producer.send_and_wait("t", b"b")
        producer.begin_transaction()
        await producer.send_and_wait("t", b"c")
        await producer.abort_transaction()

    coordinator = play(fakes, work)
    assert coordinator.ends == [(True, 0), (True, 1), (False, 2)]
    assert batches(coordinator) == [(500, 0, 0), (500, 0, 1), (500, 1, 0), (500, 1, 1), (500, 2, 0)]
    assert ApiKey.ADD_PARTITIONS_TO_TXN not in asked(coordinator)


def test_offsets_need_no_request_that_adds_them(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: NewEpochs) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({PARTITION: 7}, GROUP)

    coordinator = play(fakes, work)
    assert coordinator.commits == [0]
    assert coordinator.ends == [(True, 0)]
    assert ApiKey.ADD_OFFSETS_TO_TXN not in asked(coordinator)


def test_an_empty_transaction_sends_nothing(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: NewEpochs) -> None:
        async with producer.transaction():
            pass

    assert play(fakes, work).ends == []


def test_the_producer_takes_over_a_new_id(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: NewEpochs) -> None:
        coordinator.next_identity = ProducerIdentity(501, 0)
        for _ in range(2):
            async with producer.transaction():
                await producer.send_and_wait("t", b"a")

    coordinator = play(fakes, work)
    assert batches(coordinator) == [(500, 0, 0), (501, 0, 0)]
    assert coordinator.ends == [(True, 0), (True, 0)]


def test_a_write_waits_until_the_last_transaction_is_complete(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: NewEpochs) -> None:
        coordinator.cluster.faults[ApiKey.PRODUCE].extend([fakes.fault(code=ConcurrentTransactionsError.code)] * 3)
        async with producer.transaction():
            await producer.send_and_wait("t", b"a")

    assert play(fakes, work).ends == [(True, 0)]


def test_a_failed_batch_needs_no_other_epoch_than_that_of_the_abort(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: NewEpochs) -> None:
        coordinator.cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=MessageTooLargeError.code))
        producer.begin_transaction()
        with pytest.raises(MessageTooLargeError):
            await producer.send_and_wait("t", b"a")
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("t", b"b")

    coordinator = play(fakes, work)
    assert coordinator.ends == [(False, 0), (True, 1)]
    keys = [key for key, _ in coordinator.cluster.asked]
    assert keys.count(ApiKey.INIT_PRODUCER_ID) == 1


def test_without_the_feature_the_producer_adds_partitions_itself() -> None:
    machine = TransactionMachine()
    machine.start_initializing()
    machine.initialized(ProducerIdentity(500, 0))
    assert VERSION_2.epoch > NO_FEATURES.epoch
    machine.begin()
    assert machine.include(PARTITION)
    assert not machine.may_send(PARTITION)
    machine.partitions_added([PARTITION])
    machine.start_committing()
    machine.ended()
    machine.begin(adds_by_writing=True)
    assert not machine.include(PARTITION)
    assert machine.may_send(PARTITION)
    assert machine.must_tell_coordinator
    machine.start_committing()
    machine.ended(ProducerIdentity(500, 1))
    assert machine.phase is TransactionPhase.READY
    assert machine.identity == ProducerIdentity(500, 1)


@pytest.mark.parametrize("raises_epoch", [True, False])
def test_a_prepared_transaction_is_followed_by_another_epoch(raises_epoch: bool) -> None:
    machine = TransactionMachine()
    machine.start_initializing()
    machine.initialized(ProducerIdentity(500, 0))
    machine.begin(adds_by_writing=True)
    machine.include(PARTITION)
    machine.start_preparing()
    machine.prepared()
    machine.start_committing()
    machine.ended(ProducerIdentity(500, 1 if raises_epoch else 0))
    assert machine.phase is (TransactionPhase.READY if raises_epoch else TransactionPhase.INITIALIZING)
