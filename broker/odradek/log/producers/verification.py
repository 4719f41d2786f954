"""Verifications in progress in one log: proof that an append may open a transaction (KIP-890 part 1).

Before the first append of a transaction, the leader asks the transaction coordinator whether the transaction is open
and includes the partition. The guard of this verification exists from then until the transaction has a record or ends.
A batch that was delayed beyond the end of its transaction has no current guard, so it cannot open a transaction that
nobody will end (a hanging transaction). Guards are only in memory: a new leader verifies again.
"""

from __future__ import annotations

from typing import Final

from odradek.log.producers.producer_snapshot import INT32_MAX

MAX_GUARDS: Final = 10_000
"""Guards per log. The oldest are removed first; an append with a removed guard fails and its producer aborts."""

_HALF: Final = 1 << 30


class VerificationGuard:
    """A verification of one producer in one log. Two guards are the same only if they are the same object."""

    __slots__ = ("created_ms", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, sequence: int, created_ms: int) -> None:
        """`sequence`: that of the first record of the batch that needs it, -1 for a coordinator's.

        `created_ms`: wall time.
        """
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.created_ms: Final = created_ms

    def note(self, producer_epoch: int, sequence: int) -> None:
        """Remember the lowest sequence of the batches of the latest epoch that need the guard.

        If a batch was refused with a retriable error, its successors must not open the transaction before it is
        repeated: it could never be appended then.
        """
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch and is_later(self.lowest_sequence, sequence):
            self.lowest_sequence = sequence


def is_later(sequence: int, other: int) -> bool:
    """Whether a sequence follows another one of the same producer; sequences wrap from 2**31 - 1 to 0."""
    return 0 < (sequence - other) & INT32_MAX < _HALF


class Verifications:
    """The guards of one log, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        """Without guards."""
        self._guards: dict[int, VerificationGuard] = {}

    def __len__(self) -> int:
        """Number of guards."""
        return len(self._guards)

    def begin(self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int) -> VerificationGuard:
        """Return the guard of the producer for a batch that starts with `sequence`; a new one if there is none."""
        guard = self._guards.get(producer_id)
        if guard is not None:
            guard.note(producer_epoch, sequence)
            return guard
        if len(self._guards) >= MAX_GUARDS:
            del self._guards[next(iter(self._guards))]
        guard = self._guards[producer_id] = VerificationGuard(producer_epoch, sequence, now_ms)
        return guard

    def is_current(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Whether this is the guard of the producer."""
        return guard is not None and self._guards.get(producer_id) is guard

    def end(self, producer_id: int) -> None:
        """Remove the guard of the producer, if there is one: its transaction has a record in this log or has ended."""
        if self._guards:
            self._guards.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove the guards that are `expiration_ms` old."""
        expired = [
            producer_id for producer_id, guard in self._guards.items() if now_ms - guard.created_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._guards[producer_id]
