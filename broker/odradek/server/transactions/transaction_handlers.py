"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, PrepareTxn, EndTxn, DescribeTransactions, ListTransactions.

The handlers convert between requests of all versions and `coordinator/transactions/transaction_coordinator`, which
makes the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from odradek.base.errors import (
    NONE,
    InvalidProducerEpochError,
    InvalidRequestError,
    ProducerFencedError,
    ProtocolError,
)
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import INTERNAL_TOPICS, NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from odradek.cluster import MetadataCache
from odradek.coordinator.producer_ids import ProducerIds
from odradek.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.transactions.transaction_values import (
    LATEST_TRANSACTION_VERSION,
    InitRequest,
    ProducerIdAndEpoch,
)
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.produce import InitProducerIdRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    PrepareTxnRequest,
)
from odradek.server.authorization.topic_rights import NO_TOPICS, addition_errors, addition_results
from odradek.server.dispatch import Handler, RequestContext, route

SEVERAL_TRANSACTIONS_SINCE: Final = 4
"""First AddPartitionsToTxn version, for brokers, with several transactions (KIP-890)."""

EPOCH_BUMPS_SINCE: Final = 5
"""First EndTxn version that raises the epoch, if the cluster has finalized transaction version 2 (KIP-890)."""

FENCED_SINCE: Final = 2
"""First versions of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that have PRODUCER_FENCED (KIP-588)."""

INIT_FENCED_SINCE: Final = 4
"""First InitProducerId version that has PRODUCER_FENCED."""


class TransactionHandlers:
    """Handlers that use the transaction coordinator and the producer ids."""

    def __init__(
        self,
        *,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
        group_partition: Callable[[str], TopicPartition],
        view: MetadataCache,
    ) -> None:
        """`group_partition` returns the partition of `__consumer_offsets` that has the offsets of a group."""
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._group_partition = group_partition
        self._view = view

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(InitProducerIdRequest, self.init_producer_id),
                route(AddPartitionsToTxnRequest, self.add_partitions),
                route(AddOffsetsToTxnRequest, self.add_offsets),
                route(PrepareTxnRequest, self.prepare_transaction),
                route(EndTxnRequest, self.end_transaction),
                route(DescribeTransactionsRequest, self.describe_transactions),
                route(ListTransactionsRequest, self.list_transactions),
            ]
        )

    # InitProducerId

    async def init_producer_id(self, context: RequestContext, request: InitProducerIdRequest) -> Message:
        """Handle InitProducerId: a new id for an idempotent producer, the next epoch for a transactional one."""
        try:
            producer = await self._init_producer_id(request)
        except ProtocolError as error:
            return {
                "throttle_time_ms": 0,
                "error_code": _known_code(error, context.api_version, INIT_FENCED_SINCE),
                "producer_id": NO_PRODUCER_ID,
                "producer_epoch": NO_EPOCH,
            }
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
        }

    async def _init_producer_id(self, request: InitProducerIdRequest) -> ProducerIdAndEpoch:
        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_EPOCH
        if request.transactional_id == "":
            raise InvalidRequestError("The transactional id is empty.")
        if has_id != has_epoch:
            raise InvalidRequestError("Give both a producer id and an epoch, or neither.")
        if request.transactional_id is None:
            # A producer with an id gets a new one: without a transactional id, nothing proves that the id is its own.
            return ProducerIdAndEpoch(await self._producer_ids.next(), 0)
        return await self._transactions.init_producer_id(
            InitRequest(
                transactional_id=request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if has_id else None,
            )
        )

    # The partitions of a transaction

    async def add_partitions(self, context: RequestContext, request: AddPartitionsToTxnRequest) -> Message:
        """Handle AddPartitionsToTxn: of one producer up to version 3, of brokers from version 4 on."""
        version = context.api_version
        if version < SEVERAL_TRANSACTIONS_SINCE:
            producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            codes = await self._add(
                request.v3_and_below_transactional_id, producer, _partitions(request.v3_and_below_topics), version
            )
            return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": addition_results(codes)}
        results = []
        for each in request.transactions:
            producer = ProducerIdAndEpoch(each.producer_id, each.producer_epoch)
            wanted = _partitions(each.topics)
            if each.verify_only:
                codes = self._verify(each.transactional_id, producer, wanted)
            else:
                codes = await self._add_written(each.transactional_id, producer, wanted)
            results.append({"transactional_id": each.transactional_id, "topic_results": addition_results(codes)})
        return {"throttle_time_ms": 0, "error_code": NONE, "results_by_transaction": results}

    async def _add(
        self, transactional_id: str, producer: ProducerIdAndEpoch, wanted: list[TopicPartition], version: int
    ) -> Mapping[TopicPartition, int]:
        """Return an error code per partition. If one of them cannot be added, none is."""
        # Only coordinators write internal topics. As in Kafka, no client may add them, even without an authorizer.
        codes = addition_errors(wanted, INTERNAL_TOPICS, self._view.image)
        if codes:
            return codes
        try:
            await self._transactions.add_partitions(transactional_id, producer, wanted)
        except ProtocolError as error:
            return dict.fromkeys(wanted, _known_code(error, version))
        return dict.fromkeys(wanted, NONE)

    async def _add_written(
        self, transactional_id: str, producer: ProducerIdAndEpoch, wanted: list[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Add partitions for the broker to which the producer writes. If one of them cannot be added, none is."""
        codes = addition_errors(wanted, NO_TOPICS, self._view.image)
        if codes:
            return codes
        try:
            return await self._transactions.add_written(transactional_id, producer, wanted)
        except ProtocolError as error:
            return dict.fromkeys(wanted, error.code)

    def _verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, wanted: list[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        try:
            return self._transactions.verify(transactional_id, producer, wanted)
        except ProtocolError as error:
            return dict.fromkeys(wanted, error.code)

    async def add_offsets(self, context: RequestContext, request: AddOffsetsToTxnRequest) -> Message:
        """Handle AddOffsetsToTxn: add the partition of `__consumer_offsets` that has the offsets of the group."""
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        try:
            partition = self._group_partition(request.group_id)
            await self._transactions.add_partitions(request.transactional_id, producer, [partition])
        except ProtocolError as error:
            return {"throttle_time_ms": 0, "error_code": _known_code(error, context.api_version)}
        return {"throttle_time_ms": 0, "error_code": NONE}

    async def prepare_transaction(self, context: RequestContext, request: PrepareTxnRequest) -> Message:
        """Handle PrepareTxn: the open transaction stays until it is committed or aborted (after KIP-939)."""
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        await self._transactions.prepare(request.transactional_id, producer)
        return {"throttle_time_ms": 0, "error_code": NONE}

    async def end_transaction(self, context: RequestContext, request: EndTxnRequest) -> Message:
        """Handle EndTxn: commit or abort. Responds when the decision is committed."""
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        try:
            following = await self._transactions.end(
                request.transactional_id,
                producer,
                is_commit=request.committed,
                client_version=LATEST_TRANSACTION_VERSION if context.api_version >= EPOCH_BUMPS_SINCE else 0,
            )
        except ProtocolError as error:
            return {"throttle_time_ms": 0, "error_code": _known_code(error, context.api_version)}
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "producer_id": following.producer_id,
            "producer_epoch": following.epoch,
        }

    # Views

    async def describe_transactions(self, context: RequestContext, request: DescribeTransactionsRequest) -> Message:
        """Handle DescribeTransactions: the state and the partitions of transactional ids (KIP-664)."""
        return {
            "throttle_time_ms": 0,
            "transaction_states": [await self._described(each) for each in dict.fromkeys(request.transactional_ids)],
        }

    async def _described(self, transactional_id: str) -> Message:
        try:
            found = await self._transactions.describe(transactional_id)
        except ProtocolError as error:
            return {
                "error_code": error.code,
                "transactional_id": transactional_id,
                "transaction_state": "",
                "transaction_timeout_ms": 0,
                "transaction_start_time_ms": 0,
                "producer_id": 0,
                "producer_epoch": 0,
                "topics": [],
            }
        topics = grouped_by_topic(found.partitions)
        return {
            "error_code": NONE,
            "transactional_id": transactional_id,
            "transaction_state": found.state.text,
            "transaction_timeout_ms": found.timeout_ms,
            "transaction_start_time_ms": found.started_ms,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
        }

    async def list_transactions(self, context: RequestContext, request: ListTransactionsRequest) -> Message:
        """Handle ListTransactions: the transactional ids that this broker coordinates (KIP-664, KIP-994)."""
        try:
            found = await self._transactions.list(
                states=request.state_filters,
                producer_ids=request.producer_id_filters,
                longer_than_ms=request.duration_filter,
            )
        except ProtocolError as error:
            return {
                "throttle_time_ms": 0,
                "error_code": error.code,
                "unknown_state_filters": [],
                "transaction_states": [],
            }
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "unknown_state_filters": found.unknown_states,
            "transaction_states": [
                {
                    "transactional_id": listing.transactional_id,
                    "producer_id": listing.producer_id,
                    "transaction_state": listing.state.text,
                }
                for listing in found.listings
            ],
        }


def _known_code(error: ProtocolError, version: int, fenced_since: int = FENCED_SINCE) -> int:
    """Return the code of an error. Versions without PRODUCER_FENCED get INVALID_PRODUCER_EPOCH (KIP-588)."""
    if isinstance(error, ProducerFencedError) and version < fenced_since:
        return InvalidProducerEpochError.code
    return error.code


def _partitions(topics: Iterable[AddPartitionsToTxnRequestTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
