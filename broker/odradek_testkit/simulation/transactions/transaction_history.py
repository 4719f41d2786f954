"""Records the transactions of a simulation and their ends, which `transaction_verdict` checks.

`transactional_clients` writes it during the run. Invariant: a record is in the history before the client gets it, and
an attempt to commit before it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from odradek.base.types import TopicPartition
from odradek_testkit.simulation.errors import Violation

FENCED: Final = "fenced-stays-fenced"
"""A producer committed a transaction although another one had taken over its transactional id."""
PREPARED_STAYS: Final = "prepared-stays"
"""Somebody else than its driver ended a prepared transaction."""
READ_COMMITTED: Final = "read-committed"
"""A reader with read_committed saw other records than the visible ones, or saw them before their commit."""


class TransactionEnd(Enum):
    """How a transaction ended, as far as its client knows."""

    NO_COMMIT = "no-commit"
    """It is open, or its producer died, and nobody tried to commit it."""
    UNKNOWN = "unknown"
    """The producer tried to commit it and has no answer, or one that leaves the outcome open."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class SentInTransaction:
    """A record that was sent in a transaction. `value` identifies it."""

    value: bytes
    partition: TopicPartition
    offset: int = -1
    """Where it was acknowledged; -1 if it was not."""


@dataclass(slots=True, kw_only=True)
class SentTransaction:
    """One transaction of a client."""

    name: str
    """The transactional id."""
    number: int
    """Counts the transactions of the transactional id."""
    life: int
    """Counts the producers that had the transactional id."""
    clean: bool
    """Whether there is no unclean election, after which coordinators may have forgotten transactions."""
    records: list[SentInTransaction] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets of a group that are committed in the transaction."""
    end: TransactionEnd = TransactionEnd.NO_COMMIT
    is_prepared: bool = False
    decision: TransactionEnd | None = None
    """How the driver of a prepared transaction ends it; None before it has begun with that."""
    is_fenced: bool = False
    """Whether a later producer had the transactional id before the client tried to commit the transaction."""

    @property
    def must_be_visible(self) -> bool:
        """Whether the records must be visible to read_committed."""
        return self.end is TransactionEnd.COMMITTED

    @property
    def may_be_visible(self) -> bool:
        """Whether the records may be visible to read_committed."""
        return not self.is_fenced and self.end in (TransactionEnd.COMMITTED, TransactionEnd.UNKNOWN)

    def committing(self) -> None:
        """Record that the client tries to commit."""
        self.end = TransactionEnd.UNKNOWN

    def committed(self) -> None:
        """Record that the commit was acknowledged. Raises `Violation` if the producer was fenced before."""
        if self.is_fenced and self.clean:
            raise Violation(FENCED, f"{self} was committed, although a later producer had its transactional id")
        self.end = TransactionEnd.COMMITTED

    def aborted(self) -> None:
        """Record that the abort was acknowledged."""
        self.end = TransactionEnd.ABORTED

    def prepared(self) -> None:
        """Record that the transaction is prepared."""
        self.is_prepared = True

    def deciding(self, *, commits: bool) -> None:
        """Record that somebody begins to end the prepared transaction."""
        self.decision = TransactionEnd.COMMITTED if commits else TransactionEnd.ABORTED
        if commits and self.end is TransactionEnd.NO_COMMIT:
            self.committing()

    def decided(self) -> None:
        """Record that the transaction has ended as its driver wanted: nobody else may end it."""
        assert self.decision is not None, self
        self.end = self.decision

    def __str__(self) -> str:
        """For messages."""
        return f"transaction {self.number} of {self.name}"


@dataclass(slots=True, kw_only=True)
class TransactionalIdHistory:
    """The transactions of one transactional id, in the order in which they began."""

    name: str
    clean: bool
    transactions: list[SentTransaction] = field(default_factory=list)
    lives: int = 0
    """Number of producers started so far."""
    initialized_life: int = 0
    """The latest producer with an id and an epoch."""

    def new_life(self) -> int:
        """Return the number of a new producer."""
        self.lives += 1
        return self.lives

    def initialized(self, life: int) -> None:
        """Record that a producer has its id and epoch, which fences the earlier ones.

        Raises `Violation` if that is before the end of a prepared transaction.
        """
        self.initialized_life = life
        for transaction in self.transactions:
            if transaction.is_prepared and transaction.decision is None and self.clean:
                raise Violation(PREPARED_STAYS, f"{transaction} was prepared, but producer {life} has an epoch")
            if transaction.life < life and transaction.end is TransactionEnd.NO_COMMIT:
                transaction.is_fenced = True

    def begin(self, life: int) -> SentTransaction:
        """Add a transaction of a producer."""
        begun = SentTransaction(name=self.name, number=len(self.transactions), life=life, clean=self.clean)
        begun.is_fenced = life < self.initialized_life
        self.transactions.append(begun)
        return begun


class TransactionsHistory:
    """The transactions of all clients of one run."""

    def __init__(self) -> None:
        """Without transactions."""
        self.ids: Final[dict[str, TransactionalIdHistory]] = {}
        self._by_value: Final[dict[bytes, SentTransaction]] = {}

    def transactional_id(self, name: str, *, clean: bool) -> TransactionalIdHistory:
        """Return the history of a new transactional id."""
        history = self.ids[name] = TransactionalIdHistory(name=name, clean=clean)
        return history

    def send(self, transaction: SentTransaction, partition: TopicPartition, text: bytes = b"") -> SentInTransaction:
        """Add a record to a transaction. Its value names the transaction and the record; `text` follows."""
        name = b"%s-%06d-%02d" % (transaction.name.encode(), transaction.number, len(transaction.records))
        sent = SentInTransaction(name + text, partition)
        transaction.records.append(sent)
        self._by_value[sent.value] = transaction
        return sent

    def of(self, value: bytes) -> SentTransaction | None:
        """Return the transaction of the record with this value; None if it was not sent in one."""
        return self._by_value.get(value)

    def check_seen(self, value: bytes) -> None:
        """Check a record that a reader with read_committed sees now. Raises `Violation` if nobody committed it yet."""
        transaction = self._by_value.get(value)
        if transaction is not None and not transaction.may_be_visible:
            raise Violation(READ_COMMITTED, f"{value!r} was seen, but {transaction} is {transaction.end.value}")

    def __iter__(self) -> Iterator[SentTransaction]:
        """All transactions, by transactional id."""
        for history in self.ids.values():
            yield from history.transactions

    def count(self, end: TransactionEnd) -> int:
        """Return the number of transactions that ended like this."""
        return sum(transaction.end is end for transaction in self)

    def lines(self) -> Iterator[str]:
        """Return the history as text, for a digest."""
        for transaction in self:
            places = " ".join(f"{sent.partition}:{sent.offset}" for sent in transaction.records)
            offsets = " ".join(f"{partition}={offset}" for partition, offset in transaction.offsets.items())
            state = f"{transaction.life} {transaction.end.value} {transaction.is_fenced}"
            yield f"{transaction.name} {transaction.number} {state} {places} {offsets}"
