"""Transactions with the admin client: what is sent, what is returned, retries and errors."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import pytest

from odradek.base.errors import (
    ConcurrentTransactionsError,
    ConfigError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.models import (
    ListedTransaction,
    PreparedTransaction,
    ProducerDescription,
    TransactionDescription,
)
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek_testkit.loop import VirtualClock, run_virtual

FIRST: Final = TopicPartition("t", 0)
SECOND: Final = TopicPartition("t", 1)
PRODUCER: Final = ProducerDescription(
    producer_id=7,
    producer_epoch=2,
    last_sequence=9,
    last_timestamp=5,
    coordinator_epoch=3,
    transaction_start_offset=40,
)


def with_admin(fake: Any, work: Callable[[Admin], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        settings = ClientSettings.of("fake:9001", default_api_timeout_ms=3_000)
        async with Cluster(settings, clock=VirtualClock(), connect=fake.connect) as cluster:
            await work(Admin(settings, cluster=cluster))

    run_virtual(main())


def states_row(transactional_id: str, code: int = 0, **changes: Any) -> dict[str, Any]:
    row = {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "Ongoing",
        "transaction_timeout_ms": 60_000,
        "transaction_start_time_ms": 99,
        "producer_id": 7,
        "producer_epoch": 2,
        "topics": [{"topic": "t", "partitions": [1, 0]}],
    }
    return {**row, **changes}


Rows = dict[TopicPartition, list[ProducerDescription] | int]
"""The producers or the error code of each partition."""


def producers_answer(rows: Rows) -> Callable[[Any], dict[str, Any]]:
    """Return an answer to DescribeProducers with the producers or the error code of each partition."""

    def one(topic: str, number: int) -> dict[str, Any]:
        found = rows[TopicPartition(topic, number)]
        producers = [] if isinstance(found, int) else found
        return {
            "partition_index": number,
            "error_code": found if isinstance(found, int) else 0,
            "error_message": None,
            "active_producers": [
                {
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "last_sequence": each.last_sequence,
                    "last_timestamp": each.last_timestamp,
                    "coordinator_epoch": each.coordinator_epoch,
                    "current_txn_start_offset": each.transaction_start_offset,
                }
                for each in producers
            ],
        }

    def answer(request: Any) -> dict[str, Any]:
        return {
            "topics": [
                {"name": topic.name, "partitions": [one(topic.name, number) for number in topic.partition_indexes]}
                for topic in request.topics
            ]
        }

    return answer


def listing(*rows: tuple[str, int], code: int = 0, unknown: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "error_code": code,
        "unknown_state_filters": list(unknown),
        "transaction_states": [
            {"transactional_id": name, "producer_id": producer_id, "transaction_state": "Ongoing"}
            for name, producer_id in rows
        ],
    }


def test_the_transactions_of_all_coordinators_are_listed(fakes: Any) -> None:
    fake = fakes.cluster({"t": 2})
    answers = [listing(code=CoordinatorLoadInProgressError.code), listing(("b", 2)), listing(("a", 1))]
    requests = []

    def answer(request: Any) -> dict[str, Any]:
        requests.append((request.state_filters, request.producer_id_filters, request.duration_filter))
        return answers.pop(0)

    fake.answers[ApiKey.LIST_TRANSACTIONS] = answer

    async def work(admin: Admin) -> None:
        found = await admin.list_transactions(states=["Ongoing"], producer_ids=[1, 2], min_duration_ms=5)
        assert [(row.transactional_id, row.producer_id, row.state) for row in found] == [
            ("a", 1, "Ongoing"),
            ("b", 2, "Ongoing"),
        ]
        assert {row.coordinator for row in found} == {1, 2}
        answers.extend([listing(), listing()])
        assert await admin.list_transactions() == []

    with_admin(fake, work)
    assert requests == [(("Ongoing",), (1, 2), 5)] * 3 + [((), (), -1)] * 2


def test_filters_that_a_broker_does_not_know_are_errors(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fakes.cluster({"t": 1}, nodes=1)
    fake.answers[ApiKey.LIST_TRANSACTIONS] = lambda _: listing(unknown=("Sleeping",))

    async def work(admin: Admin) -> None:
        with pytest.raises(ConfigError, match="Sleeping is not a state"):
            await admin.list_transactions(states=["Sleeping"])
        link = await admin._cluster.connection(1)
        monkeypatch.setattr(type(link), "pick", lambda _self, _key: 0)
        with pytest.raises(UnsupportedVersionError, match="ListTransactions needs version 1"):
            await admin.list_transactions(min_duration_ms=5)

    with_admin(fake, work)


def test_transactions_are_described_by_their_coordinator(fakes: Any) -> None:
    fake = fakes.cluster({"t": 2})
    codes = [NotCoordinatorError.code, 0, 0]

    def answer(request: Any) -> dict[str, Any]:
        (name,) = request.transactional_ids
        return {"transaction_states": [states_row(name, codes.pop(0))]}

    fake.answers[ApiKey.DESCRIBE_TRANSACTIONS] = answer

    async def work(admin: Admin) -> None:
        found = await admin.describe_transactions(["a", "b"])
        assert list(found) == ["a", "b"]
        assert found["a"] == TransactionDescription(
            transactional_id="a",
            state="Ongoing",
            coordinator=1,
            producer_id=7,
            producer_epoch=2,
            timeout_ms=60_000,
            start_timestamp=99,
            partitions=(FIRST, SECOND),
        )
        codes.append(TransactionalIdNotFoundError.code)
        with pytest.raises(TransactionalIdNotFoundError, match="transactional id a"):
            await admin.describe_transactions(["a"])

    with_admin(fake, work)
    # A coordinator that has moved is looked up again.
    assert [key for key, _ in fake.asked].count(ApiKey.FIND_COORDINATOR) == 3


def test_producers_are_described_by_the_leaders(fakes: Any) -> None:
    fake = fakes.cluster({"t": 2})
    rows: dict[TopicPartition, list[ProducerDescription] | int] = {
        FIRST: [PRODUCER],
        SECOND: NotLeaderOrFollowerError.code,
    }
    fake.answers[ApiKey.DESCRIBE_PRODUCERS] = producers_answer(rows)

    async def work(admin: Admin) -> None:
        with pytest.raises(NotLeaderOrFollowerError):
            await admin.describe_producers([FIRST, SECOND])
        rows[SECOND] = []
        assert await admin.describe_producers([FIRST, SECOND]) == {FIRST: [PRODUCER], SECOND: []}
        assert {node for key, node in fake.asked if key is ApiKey.DESCRIBE_PRODUCERS} == {1, 2}
        fake.asked.clear()
        await admin.describe_producers([FIRST, SECOND], broker_id=2)
        assert fake.asked == [(ApiKey.DESCRIBE_PRODUCERS, 2)]
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 9"):
            await admin.describe_producers([TopicPartition("t", 9)])

    with_admin(fake, work)


def test_an_abort_writes_a_marker_at_the_leader(fakes: Any) -> None:
    fake = fakes.cluster({"t": 2})
    codes = [NotLeaderOrFollowerError.code, 0, InvalidProducerEpochError.code]
    markers = []

    def answer(request: Any) -> dict[str, Any]:
        (marker,) = request.markers
        (topic,) = marker.topics
        markers.append((marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result))
        partitions = [{"partition_index": topic.partition_indexes[0], "error_code": codes.pop(0)}]
        return {"markers": [{"producer_id": 7, "topics": [{"name": topic.name, "partitions": partitions}]}]}

    fake.answers[ApiKey.WRITE_TXN_MARKERS] = answer

    async def work(admin: Admin) -> None:
        await admin.abort_transaction(SECOND, producer_id=7, producer_epoch=2, coordinator_epoch=-1)
        with pytest.raises(InvalidProducerEpochError):
            await admin.abort_transaction(SECOND, producer_id=7, producer_epoch=1, coordinator_epoch=3)

    with_admin(fake, work)
    assert markers == [(7, 2, 0, False)] * 2 + [(7, 1, 3, False)]
    assert {node for key, node in fake.asked if key is ApiKey.WRITE_TXN_MARKERS} == {2}


def test_fencing_waits_for_the_abort(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    codes = [ConcurrentTransactionsError.code, 0, InvalidProducerEpochError.code]
    asked = []

    def answer(request: Any) -> dict[str, Any]:
        asked.append((request.transactional_id, request.producer_id, request.producer_epoch))
        return {"error_code": codes.pop(0), "producer_id": 7, "producer_epoch": 3}

    fake.answers[ApiKey.INIT_PRODUCER_ID] = answer

    async def work(admin: Admin) -> None:
        await admin.fence_producers(["a"])
        with pytest.raises(ProducerFencedError):
            await admin.fence_producers(["b"])

    with_admin(fake, work)
    assert asked == [("a", -1, -1)] * 2 + [("b", -1, -1)]


@pytest.mark.parametrize(
    ("names", "row", "hangs", "known_as"),
    [
        pytest.param([], None, True, None, id="no transactional id"),
        pytest.param([("a", 7)], {}, False, None, id="known"),
        pytest.param([("a", 7)], {"topics": []}, True, "a", id="without the partition"),
        pytest.param([("a", 7)], {"transaction_state": "CompleteAbort"}, True, "a", id="ended"),
        pytest.param([("a", 7)], {"transaction_state": "PrepareCommit"}, False, "a", id="ending"),
        pytest.param([("a", 7)], {"producer_id": 8}, True, "a", id="another producer id"),
        pytest.param([("a", 7)], {"error_code": TransactionalIdNotFoundError.code}, True, "a", id="expired"),
    ],
)
def test_a_transaction_hangs_if_its_coordinator_will_not_end_it(
    fakes: Any, names: list[tuple[str, int]], row: dict[str, Any] | None, hangs: bool, known_as: str | None
) -> None:
    fake = fakes.cluster({"t": 2}, nodes=1)
    fake.answers[ApiKey.DESCRIBE_PRODUCERS] = producers_answer({FIRST: [PRODUCER], SECOND: []})
    fake.answers[ApiKey.LIST_TRANSACTIONS] = lambda _: listing(*names)
    fake.answers[ApiKey.DESCRIBE_TRANSACTIONS] = lambda _: {"transaction_states": [{**states_row("a"), **(row or {})}]}

    async def work(admin: Admin) -> None:
        found = await admin.find_hanging_transactions([SECOND, FIRST])
        expected = [(FIRST, PRODUCER, known_as)] if hangs else []
        assert [(each.topic_partition, each.producer, each.transactional_id) for each in found] == expected

    with_admin(fake, work)


def test_young_and_ended_transactions_do_not_hang(fakes: Any) -> None:
    fake = fakes.cluster({"t": 2}, nodes=1)

    async def work(admin: Admin) -> None:
        now_ms = admin._cluster.clock.wall_ms()
        young = replace(PRODUCER, last_timestamp=now_ms - 899_000)
        ended = replace(PRODUCER, transaction_start_offset=-1)
        fake.answers[ApiKey.DESCRIBE_PRODUCERS] = producers_answer({FIRST: [young], SECOND: [ended]})
        assert await admin.find_hanging_transactions([FIRST, SECOND]) == []

    # Without suspects, no coordinator is asked.
    with_admin(fake, work)
    assert ApiKey.LIST_TRANSACTIONS not in {key for key, _ in fake.asked}


def test_a_listed_transaction_has_its_coordinator(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1}, nodes=1)
    fake.answers[ApiKey.LIST_TRANSACTIONS] = lambda _: listing(("a", 1))

    async def work(admin: Admin) -> None:
        assert await admin.list_transactions() == [
            ListedTransaction(transactional_id="a", state="Ongoing", producer_id=1, coordinator=1)
        ]

    with_admin(fake, work)


# Prepared transactions

PREPARED_MS: Final = 2**31 - 1
PREPARED: Final = PreparedTransaction(transactional_id="tx", producer_id=7, epoch=2)


class Coordinated:
    """One transactional id. EndTxn is answered as by its state."""

    def __init__(self, fake: Any, state: str = "Ongoing", timeout_ms: int = PREPARED_MS) -> None:
        self.state, self.timeout_ms, self.epoch = state, timeout_ms, 2
        self.codes: list[int] = []
        self.ended: list[bool] = []
        fake.answers[ApiKey.DESCRIBE_TRANSACTIONS] = self.describe
        fake.answers[ApiKey.END_TXN] = self.end

    def describe(self, request: Any) -> dict[str, Any]:
        changes = {
            "transaction_state": self.state,
            "transaction_timeout_ms": self.timeout_ms,
            "producer_epoch": self.epoch,
        }
        code = TransactionalIdNotFoundError.code if self.state == "Gone" else 0
        return {"transaction_states": [states_row(name, code, **changes) for name in request.transactional_ids]}

    def end(self, request: Any) -> dict[str, Any]:
        assert (request.transactional_id, request.producer_id) == ("tx", 7)
        code = self.codes.pop(0) if self.codes else 0
        wanted = "CompleteCommit" if request.committed else "CompleteAbort"
        if not code and self.state == "Gone":
            code = InvalidProducerIdMappingError.code
        if not code and request.producer_epoch != self.epoch:
            code = ProducerFencedError.code
        if not code and self.state not in ("Ongoing", wanted):
            code = InvalidTransactionStateError.code
        if not code:
            self.ended.append(request.committed)
            self.state = wanted
        return {"error_code": code}


def end_of(admin: Admin, *, commits: bool) -> Callable[[PreparedTransaction], Coroutine[Any, Any, None]]:
    return admin.commit_prepared if commits else admin.abort_prepared


@pytest.mark.parametrize("commits", [True, False])
def test_a_prepared_transaction_is_ended_once_or_more_often(fakes: Any, commits: bool) -> None:
    fake = fakes.cluster({})
    coordinated = Coordinated(fake)
    coordinated.codes = [NotCoordinatorError.code, ConcurrentTransactionsError.code]

    async def work(admin: Admin) -> None:
        await end_of(admin, commits=commits)(PREPARED)
        await end_of(admin, commits=commits)(PREPARED)
        assert coordinated.ended == [commits, commits]
        verb = "committed" if commits else "aborted"
        with pytest.raises(InvalidTransactionStateError, match=f"it was {verb}"):
            await end_of(admin, commits=not commits)(PREPARED)

    with_admin(fake, work)


def test_only_a_prepared_transaction_is_ended(fakes: Any) -> None:
    fake = fakes.cluster({})
    coordinated = Coordinated(fake, timeout_ms=60_000)

    async def work(admin: Admin) -> None:
        with pytest.raises(InvalidTransactionStateError, match="open and not prepared"):
            await admin.commit_prepared(PREPARED)
        coordinated.state = "Empty"
        with pytest.raises(InvalidTransactionStateError):
            await admin.abort_prepared(PREPARED)
        coordinated.epoch = 3
        with pytest.raises(ProducerFencedError, match="cannot be committed"):
            await admin.commit_prepared(PREPARED)
        coordinated.state = "Gone"
        with pytest.raises(InvalidProducerIdMappingError):
            await admin.commit_prepared(PREPARED)
        assert coordinated.ended == []

    with_admin(fake, work)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("timeout_ms", [60_000, PREPARED_MS])
def test_another_client_ends_an_open_transaction(fakes: Any, commits: bool, timeout_ms: int) -> None:
    fake = fakes.cluster({})
    coordinated = Coordinated(fake, timeout_ms=timeout_ms)

    async def work(admin: Admin) -> None:
        await admin.end_transaction(PREPARED, commit=commits)
        await admin.end_transaction(PREPARED, commit=commits)
        assert coordinated.ended == [commits, commits]
        with pytest.raises(InvalidTransactionStateError, match="it was"):
            await admin.end_transaction(PREPARED, commit=not commits)
        coordinated.epoch = 3
        with pytest.raises(ProducerFencedError, match="cannot be"):
            await admin.end_transaction(PREPARED, commit=commits)

    with_admin(fake, work)


def test_prepared_transactions_are_listed(fakes: Any) -> None:
    fake = fakes.cluster({"t": 2})
    timeouts = {"a": PREPARED_MS, "b": 60_000, "c": PREPARED_MS, "moved": PREPARED_MS}
    moved: list[str] = []

    def describe(request: Any) -> dict[str, Any]:
        rows = []
        for name in request.transactional_ids:
            code = 0
            if name == "moved" and not moved:
                moved.append(name)
                code = NotCoordinatorError.code
            if name == "gone":
                code = TransactionalIdNotFoundError.code
            rows.append(states_row(name, code, transaction_timeout_ms=timeouts.get(name, 0)))
        return {"transaction_states": rows}

    fake.answers[ApiKey.DESCRIBE_TRANSACTIONS] = describe
    answers = [listing(("moved", 4), ("c", 1), ("gone", 2)), listing(("b", 3), ("a", 5))]

    def listed(request: Any) -> dict[str, Any]:
        assert request.state_filters == ("Ongoing",)
        return answers.pop()

    fake.answers[ApiKey.LIST_TRANSACTIONS] = listed

    async def work(admin: Admin) -> None:
        found = await admin.list_prepared()
        assert [each.transactional_id for each in found] == ["a", "c", "moved"]
        assert found[0].prepared == replace(PREPARED, transactional_id="a")

    with_admin(fake, work)
