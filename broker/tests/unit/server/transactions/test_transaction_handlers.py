"""Requests of transactional producers in all versions, over a coordinator in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from odradek.base.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NotCoordinatorError,
    PolicyViolationError,
    ProducerFencedError,
    ProtocolError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from odradek.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, ZERO_UUID, TopicPartition
from odradek.cluster import ClusterImage, MetadataCache, PartitionMetadata
from odradek.coordinator.coordinator_runtime import CoordinatorRuntime
from odradek.coordinator.producer_ids import ProducerIds
from odradek.coordinator.transactions import transaction_rules as rules
from odradek.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.transactions.transaction_shard import TransactionShard
from odradek.coordinator.transactions.transaction_values import ProducerIdAndEpoch, TransactionSettings
from odradek.protocol import codec
from odradek.protocol.apis import ApiKey
from odradek.security.principals import ANONYMOUS, Identity
from odradek.server.dispatch import RequestContext
from odradek.server.failures import failure
from odradek.server.transactions.transaction_handlers import TransactionHandlers
from odradek_testkit.groups import MemoryPartition
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.transactions import TRANSACTION_SETTINGS, ManualMarkers

STATE = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 0)
EVENTS = (TopicPartition("events", 0), TopicPartition("events", 1))
LED = PartitionMetadata(leader=1, leader_epoch=0, isr=(1,), replicas=(1,))


class TransactionServer:
    """Handlers over a coordinator in memory; requests and responses are encoded and decoded."""

    def __init__(self, settings: TransactionSettings = TRANSACTION_SETTINGS) -> None:
        self.clock = VirtualClock()
        self.partition = MemoryPartition()
        self.markers = ManualMarkers()
        view = MetadataCache()
        view.image = ClusterImage().updated(
            controller_id=1, brokers=[], partitions=[(each, ZERO_UUID, LED) for each in (*EVENTS, STATE, OFFSETS)]
        )
        self.level = 0
        """Finalized level of `transaction.version`."""
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            writer=self.partition, reader=self.partition, clock=self.clock, batch_limit_bytes=1 << 20
        )
        producer_ids = ProducerIds(self._claim)
        self.coordinator = TransactionCoordinator(
            settings=settings,
            clock=self.clock,
            runtime=self.runtime,
            producer_ids=producer_ids,
            markers=self.markers,
            partition_count=lambda: 1,
            level=lambda: self.level,
        )
        self._handlers = TransactionHandlers(
            transactions=self.coordinator,
            producer_ids=producer_ids,
            group_partition=lambda group_id: OFFSETS,
            view=view,
        ).handlers()

    async def _claim(self) -> tuple[int, int]:
        return 4000, 1000

    async def lead(self) -> None:
        self.coordinator.on_leader(STATE, 0)
        while self.runtime.is_loading:
            await self.clock.sleep_ms(1)

    async def ask(self, key: ApiKey, version: int, message: Mapping[str, object]) -> Any:
        """Return the decoded response, as a client that uses this version sees it."""
        frame = codec.encode_request(key, version, 5, "tester", message)[4:]
        header, position = codec.decode_header(frame)
        request = codec.decode_request(header, frame, position)
        context = RequestContext(
            api_key=key,
            api_version=version,
            client_id="tester",
            client_host="10.0.0.1",
            listener="PLAINTEXT",
            identity=Identity(ANONYMOUS, "10.0.0.1", "PLAINTEXT", "PLAINTEXT"),
        )
        try:
            answer: Mapping[str, object] | None = await self._handlers[key](context, request)
        except ProtocolError as error:
            answer = failure(key, version, request, error)
        assert answer is not None
        return codec.decode_response(key, version, codec.encode_response(key, version, 5, answer)[4:])

    async def init(self, version: int = 5, transactional_id: str | None = "tx", **changes: object) -> Any:
        message = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **changes}
        return await self.ask(ApiKey.INIT_PRODUCER_ID, version, message)

    async def add(self, version: int, producer_id: int, epoch: int) -> list[int]:
        topics = [{"name": "events", "partitions": [0, 1]}]
        fields = {"transactional_id": "tx", "producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
        if version < 4:
            old = {f"v3_and_below_{name}": value for name, value in fields.items()}
            response = await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, old)
            results = response.results_by_topic_v3_and_below
        else:
            new = {"transactions": [{**fields, "verify_only": False}]}
            response = await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, new)
            results = response.results_by_transaction[0].topic_results
        return [part.partition_error_code for topic in results for part in topic.results_by_partition]

    async def prepare(self, producer_id: int, epoch: int, transactional_id: str = "tx") -> int:
        message = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}
        return int((await self.ask(ApiKey.PREPARE_TXN, 0, message)).error_code)

    async def end(self, version: int, producer_id: int, epoch: int, *, committed: bool = True) -> int:
        message = {
            "transactional_id": "tx",
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "committed": committed,
        }
        return int((await self.ask(ApiKey.END_TXN, version, message)).error_code)

    async def complete(self) -> None:
        """Write the markers of the transaction that was decided, and wait until it is complete."""
        self.markers.end()
        while (await self.coordinator.describe("tx")).partitions:
            await self.clock.sleep_ms(1)


def play(
    scenario: Callable[[TransactionServer], Awaitable[None]],
    *,
    leads: bool = True,
    settings: TransactionSettings = TRANSACTION_SETTINGS,
) -> None:
    async def main() -> None:
        server = TransactionServer(settings)
        if leads:
            await server.lead()
        try:
            await scenario(server)
        finally:
            await server.coordinator.close()

    run_virtual(main())


@pytest.mark.parametrize("version", range(6))
def test_ids_of_idempotent_and_transactional_producers(version: int) -> None:
    async def scenario(server: TransactionServer) -> None:
        idempotent = await server.init(version, None)
        assert (idempotent.error_code, idempotent.producer_id, idempotent.producer_epoch) == (0, 4000, 0)
        for epoch in (0, 1):
            found = await server.init(version)
            assert (found.error_code, found.producer_id, found.producer_epoch) == (0, 4001, epoch)
        empty = await server.init(version, "")
        assert (empty.error_code, empty.producer_id) == (InvalidRequestError.code, -1)

    play(scenario)


def test_a_producer_raises_its_epoch() -> None:
    async def scenario(server: TransactionServer) -> None:
        first = await server.init()
        raised = await server.init(producer_id=first.producer_id, producer_epoch=first.producer_epoch)
        assert (raised.error_code, raised.producer_epoch) == (0, 1)
        again = await server.init(producer_id=first.producer_id, producer_epoch=first.producer_epoch)
        assert (again.error_code, again.producer_epoch) == (0, 1)
        half = await server.init(producer_id=first.producer_id)
        assert half.error_code == InvalidRequestError.code
        for version, error in ((3, InvalidProducerEpochError), (4, ProducerFencedError)):
            fenced = await server.init(version, producer_id=first.producer_id, producer_epoch=7)
            assert fenced.error_code == error.code

    play(scenario)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_are_limited(timeout_ms: int) -> None:
    async def scenario(server: TransactionServer) -> None:
        assert (await server.init(transaction_timeout_ms=timeout_ms)).error_code == InvalidTransactionTimeoutError.code
        assert (await server.init(transaction_timeout_ms=900_000)).error_code == 0

    play(scenario)


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(version: int) -> None:
    async def scenario(server: TransactionServer) -> None:
        server.level = 2
        assert await server.add(version, 4000, 0) == [InvalidProducerIdMappingError.code] * 2
        found = await server.init()
        assert await server.add(version, found.producer_id, 0) == [0, 0]
        fenced = InvalidProducerEpochError if version < 2 else ProducerFencedError
        assert await server.add(version, found.producer_id, 7) == [fenced.code] * 2
        assert (await server.coordinator.describe("tx")).partitions == set(EVENTS)

    play(scenario)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_partitions_of_several_transactions(version: int) -> None:
    async def scenario(server: TransactionServer) -> None:
        found = await server.init()
        await server.add(3, found.producer_id, 0)
        other = TopicPartition("events", 9)
        topics = [{"name": "events", "partitions": [0, 9]}]
        asked = [
            {"transactional_id": name, "producer_id": found.producer_id, "producer_epoch": 0, "verify_only": True}
            for name in ("tx", "unknown")
        ]
        message = {"transactions": [{**each, "topics": topics} for each in asked]}
        response = await server.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, message)
        codes = {
            result.transactional_id: [
                (part.partition_index, part.partition_error_code)
                for topic in result.topic_results
                for part in topic.results_by_partition
            ]
            for result in response.results_by_transaction
        }
        unknown = InvalidProducerIdMappingError.code
        assert codes == {
            "tx": [(0, 0), (other.partition, TransactionAbortableError.code)],
            "unknown": [(0, unknown), (9, unknown)],
        }

    play(scenario)


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added(version: int) -> None:
    async def scenario(server: TransactionServer) -> None:
        found = await server.init()
        message = {
            "transactional_id": "tx",
            "producer_id": found.producer_id,
            "producer_epoch": 0,
            "group_id": "group",
        }
        assert (await server.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, message)).error_code == 0
        assert (await server.coordinator.describe("tx")).partitions == {OFFSETS}
        wrong = {**message, "producer_epoch": 3}
        fenced = InvalidProducerEpochError if version < 2 else ProducerFencedError
        assert (await server.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, wrong)).error_code == fenced.code

    play(scenario)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("committed", [True, False])
def test_transactions_end(version: int, committed: bool) -> None:
    async def scenario(server: TransactionServer) -> None:
        found = await server.init()
        assert await server.end(version, found.producer_id, 0) == InvalidTransactionStateError.code
        await server.add(3, found.producer_id, 0)
        assert await server.end(version, found.producer_id, 0, committed=committed) == 0
        assert [each.is_commit for each in server.markers.sent] == [committed]
        assert (await server.init()).error_code == ConcurrentTransactionsError.code
        await server.complete()
        assert (await server.init()).producer_epoch == 1
        fenced = InvalidProducerEpochError if version < 2 else ProducerFencedError
        assert await server.end(version, found.producer_id, 0) == fenced.code

    play(scenario)


def test_version_5_raises_the_epoch_if_the_cluster_has_finalized_it() -> None:
    async def end(server: TransactionServer, producer_id: int, epoch: int, *, committed: bool = True) -> Any:
        message = {"transactional_id": "tx", "producer_id": producer_id, "producer_epoch": epoch}
        return await server.ask(ApiKey.END_TXN, 5, {**message, "committed": committed})

    async def scenario(server: TransactionServer) -> None:
        found = await server.init()
        producer_id = found.producer_id
        assert await server.add(5, producer_id, 0) == [TransactionAbortableError.code] * 2, "writes open none"
        answer = await end(server, producer_id, 0, committed=False)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer_id, 0)
        server.level = 2
        assert await server.add(5, producer_id, 0) == [0, 0]
        answer = await end(server, producer_id, 0)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer_id, 1)
        await server.complete()
        assert await server.end(4, producer_id, 1) == InvalidTransactionStateError.code
        failed = await end(server, producer_id, 7)
        assert (failed.error_code, failed.producer_id, failed.producer_epoch) == (ProducerFencedError.code, -1, -1)

    play(scenario)


def test_at_the_last_epoch_the_producer_gets_an_id_of_the_next_block() -> None:
    async def scenario(server: TransactionServer) -> None:
        server.level = 2
        found = await server.init()
        for epoch in range(1, rules.LAST_EPOCH + 1):
            await server.init()
            assert (await server.coordinator.describe("tx")).producer_epoch == epoch
        assert await server.add(5, found.producer_id, rules.LAST_EPOCH) == [0, 0]
        producer = ProducerIdAndEpoch(found.producer_id, rules.LAST_EPOCH)
        following = await server.coordinator.end("tx", producer, is_commit=True, client_version=2)
        assert following == ProducerIdAndEpoch(found.producer_id + 1, 0)

    play(scenario)


def test_a_prepared_transaction_stays_until_it_is_ended() -> None:
    async def scenario(server: TransactionServer) -> None:
        found = await server.init()
        owner = found.producer_id
        assert await server.prepare(owner, 0) == InvalidTransactionStateError.code
        await server.add(3, owner, 0)
        assert (server.coordinator.prepared_count, server.coordinator.oldest_prepared_ms) == (0, 0)
        assert [await server.prepare(owner, 0), await server.prepare(owner, 0)] == [0, 0]
        assert await server.prepare(owner, 1) == ProducerFencedError.code
        assert await server.prepare(owner + 1, 0) == InvalidProducerIdMappingError.code
        assert await server.prepare(owner, 0, "") == InvalidRequestError.code
        server.coordinator.start()
        await server.clock.sleep_ms(3_600_000)
        assert server.coordinator.prepared_count == 1
        assert server.coordinator.oldest_prepared_ms == pytest.approx(3_600_000, abs=10)
        described = await server.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["tx"]})
        row = described.transaction_states[0]
        assert (row.transaction_state, row.transaction_timeout_ms) == ("Ongoing", 2_147_483_647)
        for version in range(6):
            assert (await server.init(version)).error_code == ConcurrentTransactionsError.code
        assert await server.add(3, owner, 0) == [InvalidTransactionStateError.code] * 2
        offsets = {"transactional_id": "tx", "producer_id": owner, "producer_epoch": 0, "group_id": "group"}
        refused = await server.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, offsets)
        assert refused.error_code == InvalidTransactionStateError.code
        assert await server.end(3, owner, 0) == 0
        assert await server.prepare(owner, 0) == ConcurrentTransactionsError.code
        await server.complete()
        assert await server.prepare(owner, 0) == InvalidTransactionStateError.code
        assert (await server.init()).producer_epoch == 1
        assert (await server.coordinator.describe("tx")).timeout_ms == 60_000

    play(scenario)


def test_a_broker_may_refuse_to_prepare() -> None:
    async def scenario(server: TransactionServer) -> None:
        found = await server.init()
        await server.add(3, found.producer_id, 0)
        assert await server.prepare(found.producer_id, 0) == PolicyViolationError.code
        assert not (await server.coordinator.describe("tx")).is_prepared

    play(scenario, settings=replace(TRANSACTION_SETTINGS, prepares=False))


def test_describe_and_list() -> None:
    async def scenario(server: TransactionServer) -> None:
        found = await server.init()
        await server.add(3, found.producer_id, 0)
        await server.init(transactional_id="idle")
        message = {"transactional_ids": ["tx", "unknown", "tx"]}
        states = (await server.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, message)).transaction_states
        assert [(each.transactional_id, each.error_code, each.transaction_state) for each in states] == [
            ("tx", 0, "Ongoing"),
            ("unknown", TransactionalIdNotFoundError.code, ""),
        ]
        assert (states[0].producer_id, states[0].producer_epoch) == (found.producer_id, 0)
        assert states[0].transaction_timeout_ms == 60_000
        assert states[0].transaction_start_time_ms == (await server.coordinator.describe("tx")).started_ms
        assert [(topic.topic, topic.partitions) for topic in states[0].topics] == [("events", (0, 1))]

        async def listed(version: int = 1, **filters: object) -> tuple[list[str], tuple[str, ...]]:
            asked = {"state_filters": [], "producer_id_filters": [], **filters}
            response = await server.ask(ApiKey.LIST_TRANSACTIONS, version, asked)
            assert response.error_code == 0
            return [each.transactional_id for each in response.transaction_states], response.unknown_state_filters

        assert await listed(0) == (["tx", "idle"], ())
        assert await listed(state_filters=["Ongoing", "Nonsense"]) == (["tx"], ("Nonsense",))
        assert await listed(state_filters=["Nonsense"]) == ([], ("Nonsense",))
        assert await listed(producer_id_filters=[found.producer_id + 1]) == (["idle"], ())
        await server.clock.sleep_ms(50)
        assert await listed(state_filters=["Ongoing"], duration_filter=10) == (["tx"], ())
        assert await listed(state_filters=["Ongoing"], duration_filter=5000) == ([], ())

    play(scenario)


def test_without_the_partition_nothing_is_served() -> None:
    async def scenario(server: TransactionServer) -> None:
        code = NotCoordinatorError.code
        assert (await server.init()).error_code == code
        assert await server.add(3, 1, 0) == [code] * 2
        assert await server.end(3, 1, 0) == code
        states = await server.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["tx"]})
        assert states.transaction_states[0].error_code == code
        server.coordinator.on_leader(STATE, 0)
        assert (await server.init()).error_code == CoordinatorLoadInProgressError.code
        response = await server.ask(ApiKey.LIST_TRANSACTIONS, 1, {"state_filters": [], "producer_id_filters": []})
        assert response.error_code == CoordinatorLoadInProgressError.code

    play(scenario, leads=False)


def test_timers_abort_and_expire() -> None:
    async def scenario(server: TransactionServer) -> None:
        server.coordinator.start()
        found = await server.init()
        await server.add(3, found.producer_id, 0)
        while not server.markers.sent:
            await server.clock.sleep_ms(1000)
        assert (server.markers.sent[0].producer_epoch, server.markers.sent[0].is_commit) == (1, False)
        await server.complete()
        await server.clock.sleep_ms(TRANSACTION_SETTINGS.id_expiration_ms + TRANSACTION_SETTINGS.expiration_interval_ms)
        with pytest.raises(TransactionalIdNotFoundError):
            await server.coordinator.describe("tx")

    play(scenario)
