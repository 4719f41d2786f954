"""Transactions for the admin client: describe, list, abort, fence, end those that are prepared, and find those that
hang (KIP-664, KIP-994, and after KIP-939).

`Admin` inherits these methods. What a coordinator knows of a transactional id and what the leader of a partition knows
of a producer are read separately: a transaction hangs if the two differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.base.errors import (
    ConfigError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    NotCoordinatorError,
    ProducerFencedError,
    ProtocolError,
    TransactionalIdNotFoundError,
)
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import NO_OFFSET, TopicPartition
from odradek.client.admin_kinds import TransactionalIdState
from odradek.client.administration.admin_parts import AdminPart, check_answer
from odradek.client.cluster_client import ANY_VERSION, Coordinated
from odradek.client.models import (
    HangingTransaction,
    ListedTransaction,
    PreparedTransaction,
    ProducerDescription,
    TransactionDescription,
)
from odradek.protocol.codec import Message, Response
from odradek.protocol.messages.produce import DescribeProducersResponse, InitProducerIdResponse
from odradek.protocol.messages.transactions import (
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    EndTxnResponse,
    ListTransactionsResponse,
    WriteTxnMarkersResponse,
)

_WITH_DURATION: Final = (1, ANY_VERSION[1])
"""Versions of ListTransactions with a filter by duration (KIP-994, Kafka 3.8)."""
_END_VERSIONS: Final = (0, 4)
_VERSION_WITH_NEW_EPOCHS: Final = 2
"""Versions of EndTxn that keep the epoch, and the transaction version whose ends raise it (KIP-890)."""
_FENCE_TIMEOUT_MS: Final = 1
"""Transaction timeout of a producer that only fences others, and sends nothing."""
_NO_DURATION: Final = -1
_ENDING_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States in which the coordinator will end the transaction in its partitions."""


_ENDS: Final = {
    "PrepareCommit": ": it was committed",
    "CompleteCommit": ": it was committed",
    "PrepareAbort": ": it was aborted",
    "CompleteAbort": ": it was aborted",
}
"""How a transaction has ended, by its state."""


class TransactionAdmin(AdminPart):
    """Describes, lists, ends and fences transactions."""

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), min_duration_ms: int | None = None
    ) -> list[ListedTransaction]:
        """Return all transactional ids, sorted, or only those with one of these states and producer ids. Asks every
        broker for the ids that it coordinates.

        With `min_duration_ms`, returns only transactions that have been open for longer. Raises `ConfigError` for an
        unknown state, and `UnsupportedVersionError` if a broker is too old for `min_duration_ms` (Kafka 3.8).
        """
        message: Message = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
            "duration_filter": _NO_DURATION if min_duration_ms is None else min_duration_ms,
        }
        versions = ANY_VERSION if min_duration_ms is None else _WITH_DURATION

        async def of(node: int) -> list[ListedTransaction]:
            async def attempt() -> list[ListedTransaction]:
                response = await self._cluster.ask(node, ListTransactionsResponse, message, versions=versions)
                check_answer(response.error_code, None, f"broker {node} cannot list its transactions")
                if response.unknown_state_filters:
                    raise ConfigError(f"{', '.join(response.unknown_state_filters)} is not a state of a transaction")
                return [
                    ListedTransaction(
                        transactional_id=row.transactional_id,
                        state=TransactionalIdState(row.transaction_state),
                        producer_id=row.producer_id,
                        coordinator=node,
                    )
                    for row in response.transaction_states
                ]

            return await self._retrying(attempt, "listing transactions")

        answers = await asyncio.gather(*(of(node) for node in self._cluster.view.nodes))
        return sorted((row for answer in answers for row in answer), key=lambda row: row.transactional_id)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Return the current or last transaction of each transactional id.

        Raises `TransactionalIdNotFoundError` and `TransactionalIdAuthorizationFailedError`.
        """
        wanted = list(transactional_ids)
        found = await asyncio.gather(*(self._describe_transaction(transactional_id) for transactional_id in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _describe_transaction(self, transactional_id: str) -> TransactionDescription:
        async def attempt() -> TransactionDescription:
            coordinator = await self._cluster.coordinator(transactional_id, Coordinated.TRANSACTIONAL_ID)
            message: Message = {"transactional_ids": [transactional_id]}
            response = await self._ask_coordinator(transactional_id, DescribeTransactionsResponse, message)
            row = response.transaction_states[0]
            self._check_coordinated(row.error_code, transactional_id)
            return _described_transaction(row, coordinator)

        return await self._retrying(attempt, f"describing transactional id {transactional_id}")

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Return the idempotent and transactional producers of each partition, sorted by id, as its leader knows them.

        With `broker_id`, returns them as the replica on that broker knows them. Raises `UnknownTopicOrPartitionError`
        and `TopicAuthorizationFailedError`; also `NotLeaderOrFollowerError` if the broker has no such replica.
        """
        wanted = list(partitions)
        found: dict[TopicPartition, list[ProducerDescription]] = {}

        async def attempt() -> dict[TopicPartition, list[ProducerDescription]]:
            left = [partition for partition in wanted if partition not in found]
            by_broker = {broker_id: left} if broker_id is not None else await self._by_leader(left)
            for broker, group in by_broker.items():
                message: Message = {
                    "topics": [
                        {"name": topic, "partition_indexes": numbers}
                        for topic, numbers in grouped_by_topic(group).items()
                    ]
                }
                _take_producers(await self._cluster.ask(broker, DescribeProducersResponse, message), found)
            return {partition: found[partition] for partition in wanted}

        return await self._retrying(attempt, "describing producers")

    async def abort_transaction(
        self, topic_partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker to one partition, without the coordinator: only for a transaction that hangs.

        The arguments are those of the `ProducerDescription`; a coordinator epoch of -1 is sent as 0. If the coordinator
        still has the transaction, a part of it is aborted, and the rest may be committed. Raises
        `InvalidProducerEpochError` or `TransactionCoordinatorFencedError` if an epoch is older than that of the last
        marker, `ClusterAuthorizationFailedError` without the right ClusterAction, and `UnknownTopicOrPartitionError`.
        """
        topic, number = topic_partition
        message: Message = {
            "markers": [
                {
                    "producer_id": producer_id,
                    "producer_epoch": producer_epoch,
                    "transaction_result": False,
                    "topics": [{"name": topic, "partition_indexes": [number]}],
                    "coordinator_epoch": max(0, coordinator_epoch),
                }
            ]
        }

        async def attempt() -> None:
            (leader,) = await self._by_leader([topic_partition])
            response = await self._cluster.ask(leader, WriteTxnMarkersResponse, message)
            for marker in response.markers:
                for row in marker.topics:
                    for part in row.partitions:
                        text = f"the transaction of producer {producer_id} in {topic_partition} cannot be aborted"
                        check_answer(part.error_code, None, text)

        await self._retrying(attempt, f"aborting a transaction in {topic_partition}")

    async def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Fence the current producer of each transactional id, one after the other, and abort its open transaction.

        Each call of such a producer then raises `ProducerFencedError`. Raises
        `TransactionalIdAuthorizationFailedError`, and after `default_api_timeout_ms` `ConcurrentTransactionsError` if
        a transaction is prepared: end that first.
        """
        for transactional_id in transactional_ids:
            await self._fence_producer(transactional_id)

    async def _fence_producer(self, transactional_id: str) -> None:
        message: Message = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": _FENCE_TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        async def attempt() -> None:
            response = await self._ask_coordinator(transactional_id, InitProducerIdResponse, message)
            self._check_coordinated(response.error_code, transactional_id)

        await self._retrying(attempt, f"fencing the producer of {transactional_id}")

    # Prepared transactions

    async def list_prepared(self) -> list[TransactionDescription]:
        """Return all prepared transactions, sorted by transactional id. The attribute `prepared` of each is what
        `commit_prepared` and `abort_prepared` need.

        Returns those whose transactional id the client may describe.
        """
        found: list[TransactionDescription] = []
        by_coordinator: dict[int, list[str]] = {}
        for row in await self.list_transactions(states=["Ongoing"]):
            by_coordinator.setdefault(row.coordinator, []).append(row.transactional_id)
        for node, names in by_coordinator.items():
            response = await self._described_by(node, names)
            for state in response.transaction_states:
                if state.error_code:
                    # The coordinator has moved, or the id has expired since it was listed.
                    found += (await self._known_transactions([state.transactional_id])).values()
                else:
                    found.append(_described_transaction(state, node))
        return sorted((each for each in found if each.prepared), key=lambda each: each.transactional_id)

    async def _described_by(self, node: int, names: Sequence[str]) -> DescribeTransactionsResponse:
        async def attempt() -> DescribeTransactionsResponse:
            return await self._cluster.ask(node, DescribeTransactionsResponse, {"transactional_ids": list(names)})

        return await self._retrying(attempt, "describing transactions")

    async def commit_prepared(self, transaction: PreparedTransaction) -> None:
        """Commit a prepared transaction. Returns when the decision is stored; the records become visible soon after.

        Can be repeated: if the transaction was committed before, it succeeds. Raises `InvalidTransactionStateError` if
        it was aborted, or if it is not prepared. Raises `ProducerFencedError` if the transactional id has a later
        producer, and `InvalidProducerIdMappingError` if it has another producer id or has expired
        (`transactional.id.expiration.ms`): then the transaction has ended, but how is not known any more. Raises
        `TransactionalIdAuthorizationFailedError` without the right Write on the transactional id, and a retriable error
        after `default_api_timeout_ms`: the transaction is still prepared then, or committed.
        """
        await self._end_prepared(transaction, is_commit=True)

    async def abort_prepared(self, transaction: PreparedTransaction) -> None:
        """Abort a prepared transaction. Like `commit_prepared`, with commit and abort exchanged."""
        await self._end_prepared(transaction, is_commit=False)

    async def end_transaction(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort an open or prepared transaction in place of its producer.

        The coordinator compares the producer id and the epoch. Use it for a transaction that its producer has detached
        (`Producer.detach_transaction`), or to abort one whose producer is gone: it does not check that the producer
        has sent all records. For prepared transactions, `commit_prepared` is safer.

        Can be repeated, and raises as `commit_prepared`. `ProducerFencedError` also means that an open transaction has
        exceeded its `transaction.timeout.ms` and was aborted. Returns when the decision is stored.
        """
        await self._end(transaction, is_commit=commit, only_prepared=False)

    async def _end_prepared(self, transaction: PreparedTransaction, *, is_commit: bool) -> None:
        await self._end(transaction, is_commit=is_commit, only_prepared=True)

    async def _end(self, transaction: PreparedTransaction, *, is_commit: bool, only_prepared: bool) -> None:
        name, verb = transaction.transactional_id, "committed" if is_commit else "aborted"
        message: Message = {
            "transactional_id": name,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.epoch,
            "committed": is_commit,
        }

        async def attempt() -> None:
            if only_prepared and await self._state_of(transaction) == "Ongoing":
                text = f"{transaction} is open and not prepared: only its producer may end it"
                raise InvalidTransactionStateError(text)
            new_epoch = self._cluster.transaction_version >= _VERSION_WITH_NEW_EPOCHS
            versions = ANY_VERSION if new_epoch else _END_VERSIONS
            response = await self._ask_coordinator(name, EndTxnResponse, message, versions)
            what = f"{transaction} cannot be {verb}"
            if response.error_code == InvalidTransactionStateError.code:
                what += _ENDS.get(await self._state_of(transaction, may_have_ended=True), "")
            self._check_coordinated(response.error_code, name, what)

        await self._retrying(attempt, f"the end of a transaction of {name}")

    async def _state_of(self, transaction: PreparedTransaction, *, may_have_ended: bool = False) -> str:
        """Return the state of a transaction: empty if its id has another producer now, "Prepared" if it is prepared.

        `may_have_ended`: the epoch after that of the transaction is accepted, too, because its end may have raised it.
        """
        known = (await self._known_transactions([transaction.transactional_id])).get(transaction.transactional_id)
        epochs = range(transaction.epoch, transaction.epoch + 1 + may_have_ended)
        if known is None or known.producer_id != transaction.producer_id or known.producer_epoch not in epochs:
            return ""
        return TransactionalIdState.PREPARED if known.prepared else known.state

    # Transactions that hang

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, open_for_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Return the transactions in these partitions that no coordinator will end, sorted by partition.

        They stop the last stable offset, so read-committed consumers get no new records. Examines only producers whose
        last batch is older than `open_for_ms`, which must be at least the brokers' `transaction.max.timeout.ms`: a
        younger transaction may be open as it should be. Needs the rights Describe on the transactional ids and Read on
        the topics.
        """
        limit = self._cluster.clock.wall_ms() - open_for_ms
        suspects = [
            (partition, producer)
            for partition, producers in sorted((await self.describe_producers(partitions)).items())
            for producer in producers
            if producer.transaction_start_offset != NO_OFFSET and producer.last_timestamp <= limit
        ]
        if not suspects:
            return []
        ids = {producer.producer_id for _, producer in suspects}
        names = {row.producer_id: row.transactional_id for row in await self.list_transactions(producer_ids=ids)}
        known = await self._known_transactions(sorted(set(names.values())))
        return [
            HangingTransaction(
                topic_partition=partition, producer=producer, transactional_id=names.get(producer.producer_id)
            )
            for partition, producer in suspects
            if not _will_end(known.get(names.get(producer.producer_id, "")), partition, producer)
        ]

    async def _known_transactions(self, transactional_ids: Sequence[str]) -> dict[str, TransactionDescription]:
        found = {}
        for transactional_id in transactional_ids:
            try:
                found[transactional_id] = await self._describe_transaction(transactional_id)
            except TransactionalIdNotFoundError:
                # It has expired since it was listed.
                continue
        return found

    # Requests

    async def _ask_coordinator(
        self,
        transactional_id: str,
        expected: type[Response],
        message: Message,
        versions: tuple[int, int] = ANY_VERSION,
    ) -> Response:
        return await self._cluster.ask_coordinator(
            transactional_id, expected, message, kind=Coordinated.TRANSACTIONAL_ID, versions=versions
        )

    def _check_coordinated(self, code: int, transactional_id: str, what: str = "") -> None:
        if code == InvalidProducerEpochError.code:
            code = ProducerFencedError.code
        try:
            what = what or f"the coordinator refused the request for transactional id {transactional_id}"
            check_answer(code, None, what)
        except ProtocolError as error:
            if isinstance(error, NotCoordinatorError | CoordinatorNotAvailableError):
                self._cluster.forget_coordinator(transactional_id, Coordinated.TRANSACTIONAL_ID)
            raise


def _described_transaction(
    row: DescribeTransactionsResponseTransactionState, coordinator: int
) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=row.transactional_id,
        state=TransactionalIdState(row.transaction_state),
        coordinator=coordinator,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=row.transaction_timeout_ms,
        start_timestamp=row.transaction_start_time_ms,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions)
        ),
    )


def _take_producers(
    response: DescribeProducersResponse, found: dict[TopicPartition, list[ProducerDescription]]
) -> None:
    """Add the producers of each partition to `found`. Raises the error of a partition after that."""
    refused = []
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                refused.append((row.error_code, row.error_message, partition))
                continue
            found[partition] = [
                ProducerDescription(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    transaction_start_offset=producer.current_txn_start_offset,
                )
                for producer in sorted(row.active_producers, key=lambda producer: producer.producer_id)
            ]
    for code, text, partition in refused:
        check_answer(code, text, f"the producers of {partition} cannot be described")


def _will_end(known: TransactionDescription | None, partition: TopicPartition, producer: ProducerDescription) -> bool:
    """Whether the coordinator has the partition in the open transaction of this producer."""
    return (
        known is not None
        and known.producer_id == producer.producer_id
        and known.state in _ENDING_STATES
        and partition in known.partitions
    )
