"""Idempotence: the sequence numbers of batches, and what a response means for a batch (KIP-98, KIP-360).

`sender` numbers batches in the order of their partition as it sends them, and asks for a `Verdict` on each response.
Invariant: within a partition and producer epoch the sequence numbers have no gap and no repeat, and a batch keeps its
numbers for as long as the broker may have appended it.

A broker appends a batch only if its first sequence follows the last one it has from this producer. If it has nothing
from the producer, it accepts any sequence. So until the first acknowledgement, sequence numbers do not protect the
order: if the first batch is rejected (the leader is not ready), the second could be appended before it. Hence only one
batch of the partition may be in flight until `is_proven`. From then on, a broker that rejects the oldest unanswered
batch because of a gap has not appended any later batch, and all of them may be renumbered from 0 under the next
epoch. This is the only case in which a batch changes its numbers. After a lost response the same batch is sent again,
and the broker recognizes it as a duplicate. A later batch that is rejected because of a gap waits for the oldest.

A broker recognizes only the last five batches of a producer. After a change of the leader, later batches can be
acknowledged by the new leader before the old one responds. Hence `window` also limits the batches numbered
since the oldest unanswered one to five. Otherwise its retry could be rejected although the broker has it, and
renumbering would append it twice and out of order.

    response                                oldest unanswered batch      later batch
    none, DUPLICATE_SEQUENCE_NUMBER         ACKNOWLEDGE                  ACKNOWLEDGE
    OUT_OF_ORDER_SEQUENCE, UNKNOWN_PRODUCER renumber, RETRY              RETRY
    INVALID_PRODUCER_EPOCH, new numbers     FAIL, new producer id        FAIL, new producer id
    INVALID_PRODUCER_EPOCH, old numbers     RETRY                        RETRY
    other                                   RETRY if retriable, or FAIL  the same

With transactions, only the coordinator gives out epochs. Then the oldest batch fails instead of being renumbered, and
the id stays the same: `transaction_machine` decides what follows.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Final, NamedTuple, Protocol

from odradek.base.errors import (
    BY_CODE,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    UnknownProducerIdError,
)
from odradek.base.types import NO_SEQUENCE

_NONE: Final = 0
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_LAST_EPOCH: Final = 2**15 - 1
REMEMBERED_BATCHES: Final = 5
"""Batches per producer and partition that a broker recognizes as duplicates."""
_GAP_CODES: Final = frozenset({OutOfOrderSequenceError.code, UnknownProducerIdError.code})


class ProducerIdentity(NamedTuple):
    """The result of InitProducerId."""

    producer_id: int
    epoch: int


class Numbers(NamedTuple):
    """The producer id, epoch and first sequence in the header of a batch."""

    producer_id: int
    epoch: int
    base_sequence: int


UNNUMBERED: Final = Numbers(-1, -1, NO_SEQUENCE)
"""The numbers of a batch before it is sent, and of every batch without idempotence."""


class Verdict(Enum):
    """What to do with a batch after the response."""

    ACKNOWLEDGE = "acknowledge"
    RETRY = "retry"
    FAIL = "fail"


class Numbered(Hashable, Protocol):
    """The attributes of a batch that this module uses."""

    numbers: Numbers

    @property
    def record_count(self) -> int:
        """Number of sequence numbers it takes."""
        ...


def judge_plain(code: int) -> Verdict:
    """Return the verdict for a producer without idempotence."""
    if code == _NONE:
        return Verdict.ACKNOWLEDGE
    cls = BY_CODE.get(code)
    return Verdict.RETRY if cls is not None and cls.retriable else Verdict.FAIL


class PartitionSequences:
    """The sequence numbers of one partition."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        """Without an identity: `needs_identity` until `adopt`."""
        self._is_transactional = is_transactional
        self._identity: ProducerIdentity | None = None
        self._next = 0
        self._outstanding: list[Numbered] = []
        # The oldest outstanding batch that has numbers, and every batch numbered after it, answered or not.
        self._since_oldest: list[Numbered] = []
        self._is_proven = False

    @property
    def is_proven(self) -> bool:
        """Whether a batch with the current id and epoch was acknowledged, so that the broker detects gaps."""
        return self._is_proven

    @property
    def window(self) -> int:
        """Batches of the partition that may be unanswered at a time, from 0 to 5."""
        if not self._is_proven:
            return 1
        return REMEMBERED_BATCHES - (len(self._since_oldest) - len(self._outstanding))

    @property
    def needs_identity(self) -> bool:
        """Whether `adopt` must be called before the next `number`."""
        return self._identity is None

    @property
    def outstanding(self) -> tuple[Numbered, ...]:
        """Numbered batches without a final answer, oldest first."""
        return tuple(self._outstanding)

    def adopt(self, identity: ProducerIdentity) -> None:
        """Use this producer id from now on, starting at sequence 0."""
        self._identity = identity
        self._next = 0
        self._is_proven = False
        self._since_oldest.clear()

    def number(self, batch: Numbered) -> None:
        """Assign the numbers of a batch, unless it has them. Call it in the order of the partition."""
        if batch.numbers is not UNNUMBERED:
            return
        if self._identity is None:
            raise ValueError("a batch cannot be numbered before there is a producer id")
        batch.numbers = Numbers(self._identity.producer_id, self._identity.epoch, self._next)
        self._next = (self._next + batch.record_count) & _SEQUENCE_MASK
        if batch not in self._outstanding:
            self._outstanding.append(batch)
        self._since_oldest.append(batch)

    def judge(self, batch: Numbered, code: int, sent: Numbers) -> Verdict:
        """Return what a response means for a batch that was sent with the numbers `sent`."""
        if code in (_NONE, DuplicateSequenceError.code):
            verdict = Verdict.ACKNOWLEDGE
            self._is_proven = self._is_proven or sent[:2] == self._identity
        elif code in _GAP_CODES:
            verdict = Verdict.RETRY
            if sent == batch.numbers and self._outstanding[0] is batch:
                if self._is_transactional:
                    verdict = Verdict.FAIL
                else:
                    self._renumber()
        elif code == InvalidProducerEpochError.code:
            verdict = Verdict.FAIL if sent == batch.numbers else Verdict.RETRY
            if verdict is Verdict.FAIL and not self._is_transactional:
                self._identity = None
        else:
            verdict = judge_plain(code)
        if verdict is not Verdict.RETRY:
            self.settled(batch)
        return verdict

    def settled(self, batch: Numbered) -> None:
        """Note that a batch was acknowledged or has failed. If a failure leaves a gap, the next response reports it."""
        if batch in self._outstanding:
            self._outstanding.remove(batch)
        while self._since_oldest and self._since_oldest[0] not in self._outstanding:
            del self._since_oldest[0]

    def _renumber(self) -> None:
        identity = self._identity
        if identity is None or identity.epoch >= _LAST_EPOCH:
            self._identity = None
        else:
            self._identity = ProducerIdentity(identity.producer_id, identity.epoch + 1)
        self._next = 0
        self._is_proven = False
        self._since_oldest.clear()
        for batch in self._outstanding:
            batch.numbers = UNNUMBERED
