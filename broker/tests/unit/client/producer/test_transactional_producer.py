"""The transactional producer with an in-memory cluster and coordinator, in virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    MessageTooLargeError,
    NetworkError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
)
from odradek.base.types import TopicPartition
from odradek.client.models import GroupMetadata
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.records.v2.batch import read_header
from odradek.records.v2.encode import RecordColumns, encode_records
from odradek.records.v2.record import decode_batch
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS: Final = ClientSettings.of(
    "fake:9001",
    transactional_id="tx",
    batch_size=200,
    delivery_timeout_ms=20_000,
    request_timeout_ms=1_000,
    max_block_ms=30_000,
)
PRODUCER_ID: Final = 500
GROUP: Final = GroupMetadata("g", 3, "m1")
PARTITION: Final = TopicPartition("t", 0)
RECORDS: Final = RecordColumns(count=3, timestamp_ms=1)
COORDINATOR_APIS: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
)


class TransactionCoordinator:
    """The coordinator of one transactional id and of one group. It writes markers at once."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.epoch = -1
        self.last_epoch = -1
        self.state = "empty"
        self.partitions: set[TopicPartition] = set()
        self.additions: list[list[TopicPartition]] = []
        """The partitions of each accepted AddPartitionsToTxn."""
        self.markers: dict[TopicPartition, list[tuple[int, bool]]] = defaultdict(list)
        """Position in the log, and whether it is a commit, of each marker."""
        self.pending: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.ends: list[bool] = []
        self.codes: dict[ApiKey, deque[int]] = defaultdict(deque)
        """Error codes by API. Each request takes the next one; 0 is none."""
        self.denied: set[str] = set()
        cluster.answers |= {
            ApiKey.INIT_PRODUCER_ID: self._init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_offsets,
            ApiKey.END_TXN: self._end,
        }

    def values(self) -> list[bytes]:
        """Return the values that a read-committed consumer gets, by partition."""
        found = []
        for partition, log in sorted(self.cluster.logs.items()):
            for position, batch in enumerate(log.batches):
                header = read_header(batch)
                assert header.is_transactional
                ends = [commit for at, commit in self.markers[partition] if at > position]
                if ends and ends[0]:
                    found += [record.value for record in decode_batch(batch, 0, header, limit=1 << 20)]
        return found

    def fence(self) -> None:
        """Give the transactional id to another producer."""
        self._write_markers(commit=False)
        self.epoch += 1
        self.last_epoch = -1
        self.state = "empty"

    def _scripted(self, key: ApiKey) -> int:
        return self.codes[key].popleft() if self.codes[key] else 0

    def _write_markers(self, *, commit: bool) -> None:
        for partition in self.partitions:
            self.markers[partition].append((len(self.cluster.logs[partition].batches), commit))
        self.partitions.clear()
        if commit:
            self.offsets |= self.pending
        self.pending.clear()

    def _refusal(self, key: ApiKey, producer_id: int, epoch: int) -> int:
        code = self._scripted(key)
        if not code and (producer_id, epoch) != (PRODUCER_ID, self.epoch):
            return ProducerFencedError.code
        return code

    def _init(self, request: Any) -> dict[str, Any]:
        assert request.transactional_id == "tx"
        code = self._scripted(ApiKey.INIT_PRODUCER_ID)
        is_repeated = request.producer_id == PRODUCER_ID and request.producer_epoch == self.last_epoch >= 0
        if not code and request.producer_id != -1 and request.producer_epoch != self.epoch and not is_repeated:
            code = ProducerFencedError.code
        if not code and self.state == "open":
            self.fence()
            code = ConcurrentTransactionsError.code
        if not code and not is_repeated:
            self.last_epoch, self.epoch = self.epoch, self.epoch + 1
            self.state = "empty"
        return {"error_code": code, "producer_id": PRODUCER_ID, "producer_epoch": self.epoch}

    def _add_partitions(self, request: Any) -> dict[str, Any]:
        code = self._refusal(
            ApiKey.ADD_PARTITIONS_TO_TXN, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        asked = [TopicPartition(topic.name, n) for topic in request.v3_and_below_topics for n in topic.partitions]
        codes = dict.fromkeys(asked, code)
        if not code and any(topic in self.denied for topic, _ in asked):
            codes = {p: TopicAuthorizationFailedError.code if p.topic in self.denied else 55 for p in asked}
        if not any(codes.values()):
            self.additions.append(asked)
            self.partitions.update(asked)
            self.state = "open"
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": partition.topic,
                    "results_by_partition": [{"partition_index": partition.partition, "partition_error_code": code}],
                }
                for partition, code in codes.items()
            ]
        }

    def _add_offsets(self, request: Any) -> dict[str, Any]:
        code = self._refusal(ApiKey.ADD_OFFSETS_TO_TXN, request.producer_id, request.producer_epoch)
        if not code:
            self.state = "open"
        return {"error_code": code}

    def _commit_offsets(self, request: Any) -> dict[str, Any]:
        member = (request.group_id, request.generation_id, request.member_id, request.group_instance_id)
        code = self._refusal(ApiKey.TXN_OFFSET_COMMIT, request.producer_id, request.producer_epoch)
        if not code and member != GROUP:
            code = IllegalGenerationError.code
        rows = {
            TopicPartition(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions
        }
        if not code:
            assert self.state == "open"
            self.pending |= rows
        return {
            "topics": [
                {"name": topic, "partitions": [{"partition_index": number, "error_code": code}]}
                for topic, number in rows
            ]
        }

    def _end(self, request: Any) -> dict[str, Any]:
        code = self._refusal(ApiKey.END_TXN, request.producer_id, request.producer_epoch)
        wanted = "committed" if request.committed else "aborted"
        if not code and self.state == "open":
            self._write_markers(commit=request.committed)
            self.ends.append(request.committed)
            self.state = wanted
        elif not code and self.state != wanted:
            code = InvalidTransactionStateError.code
        return {"error_code": code}


def play(
    fakes: Any,
    work: Callable[[Producer, TransactionCoordinator], Coroutine[Any, Any, None]],
    *,
    partitions: int = 2,
    prepare: Callable[[TransactionCoordinator], None] = lambda _: None,
    **changes: Any,
) -> TransactionCoordinator:
    """Run `work` with a producer after `init_transactions`, and return the coordinator."""
    cluster = fakes.cluster({"t": partitions, "secret": 1})
    coordinator = TransactionCoordinator(cluster)
    prepare(coordinator)

    async def main() -> None:
        async with Producer(SETTINGS.replace(**changes), clock=VirtualClock(), connect=cluster.connect) as producer:
            await producer.init_transactions()
            await work(producer, coordinator)

    run_virtual(main())
    assert cluster.open_links == 0
    return coordinator


def test_partitions_are_added_before_their_first_batch_in_one_request(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        async with producer.transaction():
            sent = [await producer.send("t", b"%d" % number, partition=number) for number in range(30)]
        assert all(future.done() for future in sent)
        assert coordinator.additions == [[TopicPartition("t", number) for number in range(30)]]
        async with producer.transaction():
            await producer.send_and_wait("t", b"x", partition=0)
            await producer.send_and_wait("t", b"y", partition=0)
            await producer.send_and_wait("t", b"z", partition=1)
        assert coordinator.additions[1:] == [[TopicPartition("t", 0)], [TopicPartition("t", 1)]]

    coordinator = play(fakes, work, partitions=30)
    keys = [key for key, _ in coordinator.cluster.asked]
    assert keys.index(ApiKey.ADD_PARTITIONS_TO_TXN) < keys.index(ApiKey.PRODUCE)
    assert coordinator.ends == [True, True]


def test_an_empty_transaction_sends_nothing(fakes: Any) -> None:
    async def work(producer: Producer, _: TransactionCoordinator) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({}, GROUP)
        producer.begin_transaction()
        await producer.abort_transaction()

    coordinator = play(fakes, work)
    assert {key for key, _ in coordinator.cluster.asked}.isdisjoint({ApiKey.END_TXN, ApiKey.ADD_OFFSETS_TO_TXN})


def test_encoded_batches_belong_to_the_transaction(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        with pytest.raises(InvalidTransactionStateError):
            await producer.send_encoded({PARTITION: encode_records(RECORDS, limit_bytes=1_000)})
        for is_commit in (False, True):
            producer.begin_transaction()
            await producer.send_encoded({PARTITION: encode_records(RECORDS, limit_bytes=1_000)})
            await (producer.commit_transaction if is_commit else producer.abort_transaction)()
        assert coordinator.ends == [True]
        assert coordinator.values() == [None] * RECORDS.count

    play(fakes, work)


RETRIABLE: Final = [
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
]


@pytest.mark.parametrize("error", RETRIABLE)
@pytest.mark.parametrize("key", [*COORDINATOR_APIS, ApiKey.TXN_OFFSET_COMMIT])
def test_a_coordinator_that_is_not_ready_is_asked_again(fakes: Any, key: ApiKey, error: type[NetworkError]) -> None:
    def prepare(coordinator: TransactionCoordinator) -> None:
        coordinator.codes[key].extend([error.code] * 3)

    async def work(producer: Producer, _: TransactionCoordinator) -> None:
        async with producer.transaction():
            await producer.send("t", b"x", partition=0)
            await producer.send_offsets_to_transaction({PARTITION: 8}, GROUP)

    coordinator = play(fakes, work, prepare=prepare)
    assert coordinator.values() == [b"x"]
    assert coordinator.offsets == {PARTITION: 8}
    lookups = [key for key, _ in coordinator.cluster.asked].count(ApiKey.FIND_COORDINATOR)
    assert (lookups > 2) == (error in (CoordinatorNotAvailableError, NotCoordinatorError))


def test_the_coordinators_of_a_group_and_of_a_transactional_id_are_different(fakes: Any) -> None:
    asked = []

    def find(request: Any) -> dict[str, Any]:
        asked.append((request.key_type, request.coordinator_keys[0]))
        found = {"key": request.coordinator_keys[0], "node_id": 1 + request.key_type, "host": "fake", "port": 9001}
        return {"coordinators": [{**found, "error_code": 0, "error_message": None}]}

    def prepare(coordinator: TransactionCoordinator) -> None:
        coordinator.cluster.answers[ApiKey.FIND_COORDINATOR] = find

    async def work(producer: Producer, _: TransactionCoordinator) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({PARTITION: 8}, GROUP)

    coordinator = play(fakes, work, prepare=prepare)
    assert asked == [(1, "tx"), (0, "g")]
    nodes = dict(coordinator.cluster.asked)
    assert (nodes[ApiKey.ADD_OFFSETS_TO_TXN], nodes[ApiKey.TXN_OFFSET_COMMIT], nodes[ApiKey.END_TXN]) == (2, 1, 2)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (ApiKey.TXN_OFFSET_COMMIT, IllegalGenerationError),
        (ApiKey.TXN_OFFSET_COMMIT, GroupAuthorizationFailedError),
        (ApiKey.ADD_OFFSETS_TO_TXN, GroupAuthorizationFailedError),
        (ApiKey.ADD_OFFSETS_TO_TXN, TransactionAbortableError),
    ],
)
def test_refused_offsets_make_the_transaction_abortable(fakes: Any, key: ApiKey, error: type[NetworkError]) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        producer.begin_transaction()
        await producer.send_and_wait("t", b"aborted", partition=0)
        coordinator.codes[key].append(error.code)
        with pytest.raises(error):
            await producer.send_offsets_to_transaction({PARTITION: 8}, GROUP)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({PARTITION: 9}, GROUP)

    coordinator = play(fakes, work)
    assert coordinator.offsets == {PARTITION: 9}
    assert coordinator.ends == [False, True]
    assert coordinator.epoch == 0


def test_a_topic_without_authorization_fails_the_records_and_the_commit(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        coordinator.denied.add("secret")
        # With known topics, both partitions are in one request.
        assert [await producer.partitions_for(topic) for topic in ("t", "secret")] == [[0, 1], [0]]
        producer.begin_transaction()
        sent = [await producer.send(topic, b"aborted", partition=0) for topic in ("t", "secret")]
        with pytest.raises(TransactionAbortableError, match="secret-0"):
            await producer.commit_transaction()
        for future in sent:
            with pytest.raises(TransactionAbortableError):
                await future
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)

    coordinator = play(fakes, work)
    assert coordinator.values() == [b"kept"]
    # The coordinator had no transaction, and no batch was sent: there is nothing to abort and no new epoch.
    assert (coordinator.ends, coordinator.epoch) == ([True], 0)


def test_a_refused_batch_fails_the_others_and_is_followed_by_another_epoch(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        producer.begin_transaction()
        await producer.send_and_wait("t", b"aborted", partition=1)
        coordinator.cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=MessageTooLargeError.code))
        sent = [await producer.send("t", b"%d" % number * 150, partition=0) for number in range(20)]
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(results[0], MessageTooLargeError)
        assert all(isinstance(result, TransactionAbortableError) for result in results[1:])
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)

    coordinator = play(fakes, work)
    assert coordinator.values() == [b"kept"]
    assert (coordinator.ends, coordinator.epoch) == ([False, True], 1)


def test_an_old_epoch_at_a_leader_is_replaced_after_the_abort(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        coordinator.cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=InvalidProducerEpochError.code))
        producer.begin_transaction()
        with pytest.raises(InvalidProducerEpochError):
            await producer.send_and_wait("t", b"aborted", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)

    assert play(fakes, work).values() == [b"kept"]


@pytest.mark.parametrize("key", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN])
def test_an_expired_transactional_id_gets_another_epoch(fakes: Any, key: ApiKey) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        coordinator.codes[key].append(InvalidProducerIdMappingError.code)
        producer.begin_transaction()
        await producer.send("t", b"aborted", partition=0)
        with pytest.raises((TransactionAbortableError, InvalidProducerIdMappingError)):
            await producer.commit_transaction()
        coordinator.fence()
        coordinator.epoch -= 1
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)

    coordinator = play(fakes, work)
    assert (coordinator.values(), coordinator.epoch) == ([b"kept"], 1)


def test_a_fenced_producer_can_do_nothing(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        producer.begin_transaction()
        await producer.send_and_wait("t", b"aborted", partition=0)
        coordinator.fence()
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
        for call in (producer.abort_transaction, producer.commit_transaction, producer.init_transactions):
            with pytest.raises(ProducerFencedError):
                await call()
        with pytest.raises(ProducerFencedError):
            await producer.send("t", b"late")

    assert play(fakes, work).values() == []


def test_initialization_can_be_repeated_after_an_error(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = TransactionCoordinator(cluster)
    coordinator.codes[ApiKey.INIT_PRODUCER_ID].append(TransactionalIdAuthorizationFailedError.code)

    async def main() -> None:
        async with Producer(SETTINGS, clock=VirtualClock(), connect=cluster.connect) as producer:
            with pytest.raises(TransactionalIdAuthorizationFailedError):
                await producer.init_transactions()
            with pytest.raises(InvalidTransactionStateError):
                producer.begin_transaction()
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", b"x")

    run_virtual(main())
    assert coordinator.values() == [b"x"]


def test_a_call_that_timed_out_goes_on_and_can_be_repeated(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        producer.begin_transaction()
        await producer.send_and_wait("t", b"x", partition=0)
        coordinator.codes[ApiKey.END_TXN].extend([CoordinatorLoadInProgressError.code] * 60)
        with pytest.raises(RequestTimedOutError, match="call it again"):
            await producer.commit_transaction()
        with pytest.raises(InvalidTransactionStateError, match="commit_transaction has not ended"):
            await producer.abort_transaction()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"y", partition=0)

    coordinator = play(fakes, work)
    assert coordinator.values() == [b"x", b"y"]
    assert coordinator.ends == [True, True]


def test_a_cancelled_block_is_aborted(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        acknowledged = asyncio.Event()

        async def block() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"aborted", partition=0)
                acknowledged.set()
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(block())
        await acknowledged.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert coordinator.ends == [False]
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)

    assert play(fakes, work).values() == [b"kept"]


def test_an_abort_does_not_wait_for_a_coordinator_of_a_group(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        coordinator.codes[ApiKey.TXN_OFFSET_COMMIT].extend([CoordinatorLoadInProgressError.code] * 10_000)
        producer.begin_transaction()
        with pytest.raises(RequestTimedOutError):
            await producer.send_offsets_to_transaction({PARTITION: 8}, GROUP)
        await producer.abort_transaction()

    assert play(fakes, work).ends == [False]


def test_close_aborts_the_transaction(fakes: Any) -> None:
    async def work(producer: Producer, _: TransactionCoordinator) -> None:
        producer.begin_transaction()
        await producer.send("t", b"aborted", partition=0)
        await producer.send_offsets_to_transaction({PARTITION: 8}, GROUP)

    coordinator = play(fakes, work)
    assert (coordinator.ends, coordinator.offsets) == ([False], {})


def test_close_aborts_a_transaction_whose_commit_failed_unseen(fakes: Any) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        producer.begin_transaction()
        await producer.send_and_wait("t", b"aborted", partition=0)
        coordinator.codes[ApiKey.END_TXN].append(TransactionAbortableError.code)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing

    assert play(fakes, work).ends == [False]


def test_close_warns_of_a_transaction_that_stays_open(fakes: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def work(producer: Producer, coordinator: TransactionCoordinator) -> None:
        producer.begin_transaction()
        await producer.send_and_wait("t", b"open", partition=0)
        coordinator.codes[ApiKey.END_TXN].extend([CoordinatorLoadInProgressError.code] * 1_000)

    assert play(fakes, work).ends == []
    assert "the last transaction of tx may stay open" in caplog.text


FAULTS: Final = st.lists(
    st.sampled_from(
        [
            {},
            {},
            {"lose_request": True},
            {"lose_answer": True},
            {"code": NotEnoughReplicasError.code},
            {"code": MessageTooLargeError.code},
        ]
    ),
    max_size=12,
)
LOSSES: Final = st.lists(st.sampled_from([{}, {"lose_request": True}, {"lose_answer": True}]), max_size=8)
CODES: Final = st.lists(st.sampled_from([0, *(error.code for error in RETRIABLE)]), max_size=6)


@pytest.fixture(autouse=True)
def _take_kit(fakes: Any) -> None:
    global _kit
    _kit = fakes


_kit: Any = None


@settings(max_examples=60, deadline=None)
@given(
    commits=st.lists(st.booleans(), min_size=1, max_size=5),
    produce=FAULTS,
    losses=st.fixed_dictionaries(dict.fromkeys(COORDINATOR_APIS[1:], LOSSES)),
    codes=st.fixed_dictionaries(dict.fromkeys(COORDINATOR_APIS, CODES)),
)
def test_exactly_the_committed_transactions_are_visible(
    commits: list[bool],
    produce: list[dict[str, Any]],
    losses: dict[ApiKey, list[dict[str, Any]]],
    codes: dict[ApiKey, list[int]],
) -> None:
    """Whatever is lost or refused: a transaction is visible as a whole if its commit succeeded, and else not at all."""
    expected: list[bytes] = []

    def prepare(coordinator: TransactionCoordinator) -> None:
        for key, found in codes.items():
            coordinator.codes[key].extend(found)
        for key, faults in {**losses, ApiKey.PRODUCE: produce}.items():
            coordinator.cluster.faults[key].extend(_kit.fault(**fault) for fault in faults)

    async def work(producer: Producer, _: TransactionCoordinator) -> None:
        for number, commit in enumerate(commits):
            values = [b"%d-%d" % (number, place) for place in range(12)]
            producer.begin_transaction()
            try:
                for place, value in enumerate(values):
                    await producer.send("t", value * 20, partition=place % 2)
                if commit:
                    await producer.commit_transaction()
                    expected.extend(value * 20 for value in values)
                else:
                    await producer.abort_transaction()
            except TransactionAbortableError:
                await producer.abort_transaction()

    coordinator = play(_kit, work, prepare=prepare)
    assert sorted(coordinator.values()) == sorted(expected)
