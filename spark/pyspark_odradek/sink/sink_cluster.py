"""What a driver does with real brokers: takes over a sink, stores decisions, lists and ends transactions.

Implements the port of `driver_commit`. Each commit has a new one, because Spark calls it in a new process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, Self

from odradek.base.errors import (
    ClusterAuthorizationFailedError,
    OdradekError,
    ProducerFencedError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
)
from odradek.client.blocking.blocking_producer import BlockingProducer
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import PreparedTransaction
from pyspark_odradek.sink.decision_log import MAX_DECISION_BYTES, DecisionLog
from pyspark_odradek.sink.decisions import Decision, SinkFencedError, batch_of, driver_id
from pyspark_odradek.sink.fault_points import FaultPoint, reach

_LOG: Final = logging.getLogger(__name__)

_AT_ONCE: Final = 32
"""How many transactions are ended at the same time."""
_DECISION_TIMEOUT_MS: Final = 30_000
"""Timeout of the transaction that stores a decision. If its driver dies, it delays other sinks of the partition."""
_OPEN: Final = ("Ongoing",)
"""State of open and of prepared transactions."""


class BrokersOfSink:
    """The brokers, as the driver of one sink sees them. Use it in a `with` statement."""

    def __init__(self, client: BlockingClient, *, decision_topic: str, sink_id: str) -> None:
        """`client` belongs to the caller."""
        self._client: Final = client
        self._log: Final = DecisionLog(client, decision_topic, sink_id)
        self._sink_id: Final = sink_id
        self._producer: BlockingProducer | None = None

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connections. A decision that is not stored completely is given up."""
        if self._producer is not None:
            self._producer.close()

    def take_over(self) -> None:
        """Fence the other drivers, and wait until their unfinished decision is committed or aborted."""
        with rights(self._sink_id, self._log.topic):
            self._log.create_topic()
            if self._producer is None:
                self._producer = self._client.producer(
                    transactional_id=driver_id(self._sink_id),
                    transaction_timeout_ms=_DECISION_TIMEOUT_MS,
                    acks="all",
                    linger_ms=0,
                    compression_type="gzip",
                    max_request_size=2 * MAX_DECISION_BYTES,
                )
                self._producer.init_transactions()

    def last_decision(self) -> Decision | None:
        """Return the last decision of those that were stored before the call."""
        with rights(self._sink_id, self._log.topic):
            self._log.create_topic()
            return self._log.last()

    def append(self, decision: Decision) -> None:
        """Store a decision. Raises `SinkFencedError` if another driver has taken over."""
        producer = self._producer
        assert producer is not None, "take_over comes first"
        topic, number = self._log.partition
        try:
            with rights(self._sink_id, self._log.topic):
                producer.begin_transaction()
                sent = producer.send(topic, decision.to_json(), key=self._sink_id.encode(), partition=number)
                offset = sent.result().offset
                reach(FaultPoint.DRIVER_APPENDED)
                producer.commit_transaction()
                self._log.wait_until_visible(offset)
        except ProducerFencedError as error:
            raise SinkFencedError(
                f"another driver has taken over the sink {self._sink_id} while this one was deciding batch"
                f" {decision.batch_id}: stop one of the two drivers of the query"
            ) from error

    def forget(self) -> None:
        """Remove the decision, if this driver has stored one."""
        producer = self._producer
        if producer is not None:
            topic, number = self._log.partition
            with rights(self._sink_id, self._log.topic), producer.transaction():
                producer.send(topic, None, key=self._sink_id.encode(), partition=number)

    def end(self, transactions: Sequence[PreparedTransaction], *, commit: bool) -> list[OdradekError | None]:
        """Commit or abort transactions, several at a time."""
        admin = self._client.admin

        def one(transaction: PreparedTransaction) -> OdradekError | None:
            reach(FaultPoint.DRIVER_COMMITS if commit else FaultPoint.DRIVER_ABORTS)
            try:
                with rights(self._sink_id, self._log.topic):
                    admin.end_transaction(transaction, commit=commit)
            except ProtocolError as error:
                return error
            return None

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return list(pool.map(one, transactions))

    def open_ids(self) -> list[str] | None:
        """Return the transactional ids of the sink's tasks that have an open or prepared transaction.

        Asks each broker once. Returns None if a broker is older than Kafka 3.0: then the transactions of failed tasks
        stay open for `transaction.timeout.ms`.
        """
        try:
            listed = self._client.admin.list_transactions(states=_OPEN)
        except UnsupportedVersionError:
            _LOG.warning(
                "a broker is older than Kafka 3.0 and cannot list transactions: those of failed tasks stay open until"
                " transaction.timeout.ms, and consumers with read_committed wait for that"
            )
            return None
        return [row.transactional_id for row in listed if batch_of(self._sink_id, row.transactional_id) is not None]

    def handles(self, transactional_ids: Sequence[str]) -> list[PreparedTransaction]:
        """Return the open or prepared transactions of these ids."""
        admin = self._client.admin

        def one(name: str) -> PreparedTransaction | None:
            try:
                found = admin.describe_transactions([name])[name]
            except TransactionalIdNotFoundError:
                return None
            if found.state not in _OPEN:
                return None
            return PreparedTransaction(transactional_id=name, producer_id=found.producer_id, epoch=found.producer_epoch)

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return [found for found in pool.map(one, transactional_ids) if found is not None]


@contextmanager
def rights(sink_id: str, topic: str | None = None) -> Iterator[None]:
    """Add to errors of authorization which rights exactly-once delivery needs: on transactional ids and, with `topic`,
    on that decision topic."""
    wanted: dict[type[ProtocolError], str] = {
        TransactionalIdAuthorizationFailedError: f"Describe and Write on transactional ids that begin with {sink_id}/"
    }
    if topic is not None:
        wanted[TopicAuthorizationFailedError] = (
            f"Describe, DescribeConfigs, Read and Write on the decision topic {topic}, and Create if it does not exist"
        )
        wanted[ClusterAuthorizationFailedError] = f"Create on the decision topic {topic}"
    try:
        yield
    except (*wanted,) as error:
        text = f"exactly-once delivery needs the rights {wanted[type(error)]}: {error}"
        raise type(error)(text) from error
