"""Idempotence: which number a batch carries, and what a broker's answer means for it (KIP-98, KIP-360).

In: batches in the order of their partition as they are sent, and the error codes of answers. Out: producer id, epoch
and first sequence for a batch, and a `Verdict`. Called by `producer`. Invariant: for each partition and epoch the
numbers given out have no gap and no repeat, and a batch keeps its numbers for as long as the broker could have it.

Theory of operation. A broker takes a batch only if its first sequence follows the last one that it has of this
producer; of a producer that it has nothing of, it takes any. So until a batch is acknowledged the numbers protect
nothing: a first batch that is refused (the leader is not ready) could be overtaken by a second that is taken. Hence
`is_proven`: before it, only one batch of the partition may be under way. After it, when the broker refuses the oldest
batch without an answer for a gap, it has none of the later ones either: all of them may be numbered anew from 0 under
the next epoch, which a broker accepts. This is the only case in which a batch changes its numbers; after a lost answer
it is sent again as it was, and the broker recognises what it has. A later batch that is refused for a gap waits for
the oldest.

    answer                                  oldest without answer        later batch
    none, DUPLICATE_SEQUENCE_NUMBER         ACKNOWLEDGE                  ACKNOWLEDGE
    OUT_OF_ORDER_SEQUENCE, UNKNOWN_PRODUCER renumber, RETRY              RETRY
    INVALID_PRODUCER_EPOCH, new numbers     FAIL, new producer id        FAIL, new producer id
    INVALID_PRODUCER_EPOCH, old numbers     RETRY                        RETRY
    other                                   RETRY if retriable, or FAIL  the same
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
_GAP_CODES: Final = frozenset({OutOfOrderSequenceError.code, UnknownProducerIdError.code})


class Identity(NamedTuple):
    """What InitProducerId gave."""

    producer_id: int
    epoch: int


class Numbers(NamedTuple):
    """What a batch carries in its header."""

    producer_id: int
    epoch: int
    base_sequence: int


UNNUMBERED: Final = Numbers(-1, -1, NO_SEQUENCE)
"""Of a batch that was not sent yet, or of a producer without idempotence."""


class Verdict(Enum):
    """What to do with a batch that was answered."""

    ACKNOWLEDGE = "acknowledge"
    RETRY = "retry"
    FAIL = "fail"


class Numbered(Hashable, Protocol):
    """What this module needs of a batch."""

    numbers: Numbers

    @property
    def record_count(self) -> int:
        """How many sequence numbers it takes."""
        ...


def judge_plain(code: int) -> Verdict:
    """The verdict for a producer without idempotence."""
    if code == _NONE:
        return Verdict.ACKNOWLEDGE
    cls = BY_CODE.get(code)
    return Verdict.RETRY if cls is not None and cls.retriable else Verdict.FAIL


class PartitionSequences:
    """The numbers of one partition."""

    def __init__(self) -> None:
        """Without an identity; `needs_identity` until `adopt`."""
        self._identity: Identity | None = None
        self._next = 0
        self._outstanding: list[Numbered] = []
        self._is_proven = False

    @property
    def is_proven(self) -> bool:
        """Whether a batch under the present id and epoch was acknowledged, so that the broker notices gaps."""
        return self._is_proven

    @property
    def needs_identity(self) -> bool:
        """Whether `adopt` must come before the next `number`."""
        return self._identity is None

    @property
    def outstanding(self) -> tuple[Numbered, ...]:
        """Batches that were numbered and have no final answer, oldest first."""
        return tuple(self._outstanding)

    def adopt(self, identity: Identity) -> None:
        """Use this producer id from now on, from sequence 0."""
        self._identity = identity
        self._next = 0
        self._is_proven = False

    def number(self, batch: Numbered) -> None:
        """Give a batch its numbers, unless it has them. Batches must come in the partition's order."""
        if batch.numbers is not UNNUMBERED:
            return
        if self._identity is None:
            raise ValueError("a batch cannot be numbered before there is a producer id")
        batch.numbers = Numbers(self._identity.producer_id, self._identity.epoch, self._next)
        self._next = (self._next + batch.record_count) & _SEQUENCE_MASK
        if batch not in self._outstanding:
            self._outstanding.append(batch)

    def judge(self, batch: Numbered, code: int, sent: Numbers) -> Verdict:
        """What an answer means for a batch that was sent with the numbers `sent`."""
        if code in (_NONE, DuplicateSequenceError.code):
            verdict = Verdict.ACKNOWLEDGE
            self._is_proven = self._is_proven or sent[:2] == self._identity
        elif code in _GAP_CODES:
            verdict = Verdict.RETRY
            if sent == batch.numbers and self._outstanding[0] is batch:
                self._renumber()
        elif code == InvalidProducerEpochError.code:
            verdict = Verdict.FAIL if sent == batch.numbers else Verdict.RETRY
            if verdict is Verdict.FAIL:
                self._identity = None
        else:
            verdict = judge_plain(code)
        if verdict is not Verdict.RETRY:
            self.settled(batch)
        return verdict

    def settled(self, batch: Numbered) -> None:
        """The batch was acknowledged or given up; a gap that this leaves shows in the next answer."""
        if batch in self._outstanding:
            self._outstanding.remove(batch)

    def _renumber(self) -> None:
        identity = self._identity
        if identity is None or identity.epoch >= _LAST_EPOCH:
            self._identity = None
        else:
            self._identity = Identity(identity.producer_id, identity.epoch + 1)
        self._next = 0
        self._is_proven = False
        for batch in self._outstanding:
            batch.numbers = UNNUMBERED
