"""States, settings and requests of the transaction coordinator, and the ports through which it uses the broker.

Times are in milliseconds; points in time are wall-clock times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from odradek.base.config import BrokerConfig
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter


class TransactionState(IntEnum):
    """State of a transactional id. The number is the status byte of its record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name in DescribeTransactions and ListTransactions: `PrepareCommit`."""
        return self.name.title().replace("_", "")


FLEXIBLE_RECORDS_SINCE: Final = 1
"""Level from which the records of `__transaction_state` have version 1, which has tagged fields."""

EPOCH_BUMPS_SINCE: Final = 2
"""Level from which the end of a transaction raises the epoch, and the first write adds a partition to it."""

LATEST_TRANSACTION_VERSION: Final = 2
"""Highest level of the feature that this broker supports."""

TransactionLevel = Callable[[], int]
"""Returns the finalized level of `transaction.version`; 0 if none is finalized."""


def oldest_level() -> int:
    """Return the level of a cluster without finalized features."""
    return 0


PREPARED_TIMEOUT_MS: Final = 2**31 - 1
"""Timeout of a prepared transaction on the log: the largest number that the record can have, about 24 days. No
coordinator aborts it earlier, also one of Apache Kafka."""

LARGEST_TIMEOUT_MS: Final = PREPARED_TIMEOUT_MS - 1
"""Largest timeout that a producer gets. A higher one is lowered, so that `PREPARED_TIMEOUT_MS` is unambiguous."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch; -1 means that there is none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


NO_PRODUCER: Final = ProducerIdAndEpoch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id and its latest transaction, as the log of the coordinator has it."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int
    """Time of the latest transition."""
    started_ms: int = NO_TIMESTAMP
    """Time of the first AddPartitionsToTxn of the transaction; -1 in the state Empty."""
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    """Id and epoch before the latest change, so that a repeated InitProducerId or EndTxn is recognized (KIP-360,
    KIP-890). Records of version 0 have neither. Those of version 1 have the id."""
    client_version: int = 0
    """Transaction version of the client with which it opened or ended the transaction. From 2 on, the end raised the
    epoch. Records of version 0 do not have it."""
    next_producer_id: int = NO_PRODUCER_ID
    """Id that replaces `producer_id` when the transaction is complete, because the epoch cannot be raised again; -1 if
    the id stays. Records of version 0 do not have it."""
    usual_timeout_ms: int = 0
    """The timeout before the transaction was prepared; 0 if it is not known. Only in memory."""

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """Id and epoch that the producer has, or has as soon as its transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is open and prepared: only its owner ends it, with EndTxn (after KIP-939)."""
        return self.state is TransactionState.ONGOING and self.timeout_ms == PREPARED_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Limits and intervals of the transaction coordinator."""

    max_timeout_ms: int
    """Largest time-out that a producer may ask for: `transaction.max.timeout.ms`."""
    id_expiration_ms: int
    abort_interval_ms: int
    """Time between two searches for transactions that have timed out."""
    expiration_interval_ms: int
    """Time between two searches for ids that have expired."""
    prepares: bool = True
    """Whether producers may prepare transactions: `prepared.transactions.enable`."""

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        """Return the settings of the transaction coordinator in the broker's settings."""
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            prepares=config.prepared_transactions_enable,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """The request of a producer for an id and an epoch."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """Id and epoch that a producer already has, if it wants a higher epoch (KIP-360)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """The request of a producer to commit or abort its transaction."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    client_version: int = 0
    """The transaction version of the client: 2 for EndTxn version 5 and later."""
    level: int = 0
    """The finalized level of `transaction.version`."""

    @property
    def bumps(self) -> bool:
        """Whether the end raises the epoch: the client expects it, and the level allows it."""
        return min(self.client_version, self.level) >= EPOCH_BUMPS_SINCE


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in ListTransactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState


# Ports


class TransactionMarker(NamedTuple):
    """A marker that ends a transaction, and the partitions that get it."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]


class MarkerOutcome(Enum):
    """How the sending of a marker ended."""

    WRITTEN = "written"
    """Every partition has the marker, or does not exist any more."""
    FENCED = "fenced"
    """A partition has a marker of a later coordinator or a later producer epoch: this coordinator has been replaced."""


class Markers(Protocol):
    """Sends markers to the leaders of partitions."""

    def send(self, marker: TransactionMarker, done: Callable[[MarkerOutcome], None]) -> Callable[[], None]:
        """Send a marker to all its partitions, again and again until all of them have it. Then call `done`, once.

        `done` is not called before this method returns. Returns a function that stops the sending: `done` is not called
        afterwards.
        """
        ...


class MarkerWriter(Protocol):
    """Writes markers to partitions that this broker leads."""

    async def write(self, markers: Sequence[TransactionMarker]) -> list[Mapping[TopicPartition, int]]:
        """Append the markers. Return for each marker an error code per partition, when the ISR has them."""
        ...


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transaction, on this or another broker, which partitions the transaction includes."""

    def verify(
        self, writer: TransactionalWriter, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Mapping[TopicPartition, int]]:
        """Return an error code per partition, 0 if the transaction is open and includes the partition.

        If the `writer` adds partitions, the coordinator adds those that are missing. Codes are those of
        AddPartitionsToTxn version 4. Calls for the same producer complete in the order of the calls. If the coordinator
        cannot be found or does not answer, the code is COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS or NETWORK_EXCEPTION, which the caller translates for its client.
        """
        ...
