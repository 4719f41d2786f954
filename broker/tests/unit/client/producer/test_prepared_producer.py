"""A producer that prepares its transactions, with an in-memory cluster and coordinator, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import pytest

from odradek.base.errors import (
    ConcurrentTransactionsError,
    ConfigError,
    CoordinatorNotAvailableError,
    InvalidTransactionStateError,
    MessageTooLargeError,
    NotCoordinatorError,
    PolicyViolationError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from odradek.base.types import TopicPartition
from odradek.client.models import GroupMetadata, PreparedTransaction
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS: Final = ClientSettings.of(
    "fake:9001", transactional_id="tx", request_timeout_ms=1_000, delivery_timeout_ms=20_000, max_block_ms=30_000
)
PREPARED: Final = PreparedTransaction(transactional_id="tx", producer_id=500, epoch=0)


class Coordinator:
    """The coordinator of one transactional id. It remembers the requests."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.epoch = -1
        self.state = "empty"
        self.prepare_codes: list[int] = []
        """Error codes of the next PrepareTxn requests."""
        self.ends: list[tuple[str, bool]] = []
        """The state before each EndTxn, and whether that was a commit."""
        cluster.answers |= {
            ApiKey.INIT_PRODUCER_ID: self._init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add,
            ApiKey.ADD_OFFSETS_TO_TXN: self._open,
            ApiKey.TXN_OFFSET_COMMIT: lambda request: {"topics": []},
            ApiKey.PREPARE_TXN: self._prepare,
            ApiKey.END_TXN: self._end,
        }

    def _init(self, request: Any) -> dict[str, Any]:
        if self.state == "prepared":
            return {"error_code": ConcurrentTransactionsError.code, "producer_id": -1, "producer_epoch": -1}
        self.epoch += 1
        self.state = "empty"
        return {"error_code": 0, "producer_id": 500, "producer_epoch": self.epoch}

    def _open(self, request: Any) -> dict[str, Any]:
        self.state = "open"
        return {"error_code": 0}

    def _add(self, request: Any) -> dict[str, Any]:
        self.state = "open"
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": number, "partition_error_code": 0} for number in topic.partitions
                    ],
                }
                for topic in request.v3_and_below_topics
            ]
        }

    def _prepare(self, request: Any) -> dict[str, Any]:
        assert (request.transactional_id, request.producer_id) == ("tx", 500)
        code = self.prepare_codes.pop(0) if self.prepare_codes else 0
        if not code and request.producer_epoch != self.epoch:
            code = ProducerFencedError.code
        if not code:
            assert self.state in ("open", "prepared")
            self.state = "prepared"
        return {"error_code": code}

    def _end(self, request: Any) -> dict[str, Any]:
        wanted = "committed" if request.committed else "aborted"
        if request.producer_epoch != self.epoch:
            return {"error_code": ProducerFencedError.code}
        if self.state not in ("open", "prepared", wanted):
            return {"error_code": InvalidTransactionStateError.code}
        self.ends.append((self.state, request.committed))
        self.state = wanted
        return {"error_code": 0}


def play(fakes: Any, work: Callable[[Producer, Coordinator], Coroutine[Any, Any, None]], **changes: Any) -> Coordinator:
    """Run `work` with a producer with a transaction, and return the coordinator."""
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with Producer(SETTINGS.replace(**changes), clock=VirtualClock(), connect=cluster.connect) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await work(producer, coordinator)

    run_virtual(main())
    assert cluster.open_links == 0
    return coordinator


@pytest.mark.parametrize("commits", [True, False])
def test_from_records_to_the_end(fakes: Any, commits: bool) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        sent = await producer.send("t", b"x", partition=0)
        assert not sent.done()
        assert await producer.prepare_transaction() == PREPARED
        assert sent.done()
        assert coordinator.state == "prepared"
        for refused in (producer.begin_transaction, lambda: producer.send("t", b"y"), producer.prepare_transaction):
            with pytest.raises(InvalidTransactionStateError, match="commit_transaction or abort_transaction first"):
                await refused()  # type: ignore[misc]
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        assert coordinator.ends == [("prepared", commits)]
        producer.begin_transaction()
        await producer.send("t", b"z")
        assert await producer.prepare_transaction() == PreparedTransaction(
            transactional_id="tx", producer_id=500, epoch=1
        )

    assert play(fakes, work).state == "prepared", "to close the producer does not end it"


def test_offsets_alone_can_be_prepared(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        await producer.send_offsets_to_transaction({TopicPartition("t", 0): 4}, GroupMetadata("g"))
        assert await producer.prepare_transaction() == PREPARED

    play(fakes, work)


def test_an_end_by_another_client_is_confirmed(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        await producer.send("t", b"x")
        await producer.prepare_transaction()
        coordinator.state = "committed"
        await producer.commit_transaction()
        assert coordinator.ends == [("committed", True)]
        producer.begin_transaction()
        await producer.send("t", b"x")
        await producer.prepare_transaction()
        coordinator.state = "aborted"
        with pytest.raises(InvalidTransactionStateError):
            await producer.commit_transaction()
        with pytest.raises(InvalidTransactionStateError, match="must be closed"):
            producer.begin_transaction()

    play(fakes, work)


def test_a_preparation_is_repeated_until_it_has_an_answer(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        retriable = (ConcurrentTransactionsError, NotCoordinatorError, CoordinatorNotAvailableError)
        coordinator.prepare_codes = [error.code for error in retriable]
        await producer.send("t", b"x")
        assert await producer.prepare_transaction() == PREPARED

    play(fakes, work)


def test_the_next_call_waits_for_the_same_preparation(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.prepare_codes = [NotCoordinatorError.code] * 4
        await producer.send("t", b"x")
        with pytest.raises(RequestTimedOutError, match="prepare_transaction has not ended"):
            await producer.prepare_transaction()
        with pytest.raises(InvalidTransactionStateError, match="prepare_transaction has not ended"):
            await producer.commit_transaction()
        found = None
        while found is None:
            with suppress(RequestTimedOutError):
                found = await producer.prepare_transaction()
        assert found == PREPARED

    play(fakes, work, max_block_ms=60, retry_backoff_ms=50)


@pytest.mark.parametrize("is_kafka", [True, False])
def test_a_broker_that_cannot_prepare_changes_nothing(fakes: Any, is_kafka: bool) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        sent = await producer.send("t", b"x")
        if is_kafka:
            coordinator.cluster.lacking.add(ApiKey.PREPARE_TXN)
            with pytest.raises(UnsupportedVersionError, match=r"not a broker of Odradek.*commit or abort it instead"):
                await producer.prepare_transaction()
            assert not sent.done(), "nothing was sent"
        else:
            coordinator.prepare_codes = [PolicyViolationError.code]
            with pytest.raises(PolicyViolationError, match=r"prepared\.transactions\.enable is false"):
                await producer.prepare_transaction()
        await producer.send("t", b"y")
        await producer.commit_transaction()
        assert coordinator.ends == [("open", True)]
        producer.begin_transaction()

    play(fakes, work, linger_ms=5_000)


def test_a_detached_transaction_stays_open(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.cluster.lacking.add(ApiKey.PREPARE_TXN)
        with pytest.raises(InvalidTransactionStateError, match="empty"):
            await producer.detach_transaction()
        sent = await producer.send("t", b"x")
        assert await producer.detach_transaction() == PREPARED
        assert sent.done()
        with pytest.raises(InvalidTransactionStateError, match="commit_transaction or abort_transaction first"):
            await producer.send("t", b"y")

    coordinator = play(fakes, work, linger_ms=5_000)
    assert (coordinator.state, coordinator.ends) == ("open", []), "to close the producer does not end it"


def test_a_record_that_fails_is_not_detached(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=MessageTooLargeError.code))
        await producer.send("t", b"x", partition=0)
        with pytest.raises(TransactionAbortableError):
            await producer.detach_transaction()
        await producer.abort_transaction()

    assert play(fakes, work).ends == [("open", False)]


def test_an_empty_transaction_cannot_be_prepared(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        with pytest.raises(InvalidTransactionStateError, match="empty"):
            await producer.prepare_transaction()
        await producer.send("t", b"x")
        assert await producer.prepare_transaction() == PREPARED

    play(fakes, work)


def test_a_fenced_producer_prepares_nothing(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        await producer.send("t", b"x")
        coordinator.epoch += 1
        with pytest.raises(ProducerFencedError):
            await producer.prepare_transaction()
        with pytest.raises(ProducerFencedError):
            await producer.abort_transaction()

    play(fakes, work)


def test_a_record_that_fails_is_not_prepared(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=MessageTooLargeError.code))
        await producer.send("t", b"x", partition=0)
        with pytest.raises(TransactionAbortableError):
            await producer.prepare_transaction()
        assert coordinator.state == "open"
        await producer.abort_transaction()

    play(fakes, work)


def test_an_error_in_a_block_leaves_a_prepared_transaction(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: Coordinator) -> None:
        await producer.abort_transaction()
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send("t", b"x")
                await producer.prepare_transaction()
                raise KeyError
        assert coordinator.state == "prepared"

    play(fakes, work)


def test_a_prepared_transaction_as_text() -> None:
    text = PREPARED.to_json()
    assert text == '{"transactional_id":"tx","producer_id":500,"epoch":0}'
    assert PreparedTransaction.from_json(text) == PREPARED
    for wrong in ("", "[]", "{}", "7", text.replace("500", '"500"'), text.replace("0}", '0,"more":1}'), text[:-1]):
        with pytest.raises(ConfigError, match="is not a prepared transaction"):
            PreparedTransaction.from_json(wrong)
