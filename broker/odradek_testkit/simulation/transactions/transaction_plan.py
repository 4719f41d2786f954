"""Generates the part of a plan that concerns transactions: the clients that use them, and the settings of coordinators.

`plan.draw` merges it with the rest of the plan. Its random numbers depend only on the seed, so that the rest does not
depend on this part. Invariant: a record of `__transaction_state` needs two replicas before it counts, so no fault that
a plan allows loses one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

COPIES: Final = "copies"
"""Topic that the copier writes to: one record for each record that it reads."""
TRANSACTION_SHARE: Final = 0.4
"""Share of the plans with transactions."""
REPLICAS: Final = 3
"""Replicas of `__transaction_state` and of `COPIES`."""


NEWER_SHARE: Final = 0.5
"""Share of the plans with transactions whose cluster finalizes transaction version 2."""

PREPARING_SHARE: Final = 0.3
"""Share of these with clients that prepare their transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    """The transactions of one run."""

    writers: int = 0
    """Number of transactional producers. 0: the run has no transactions."""
    preparers: int = 0
    """Number of further producers, which prepare their transactions, so that drivers end them."""
    copies: bool = False
    """Whether there is a copier, which reads a topic, writes to another one and commits its offsets in transactions."""
    partitions: int = 1
    """Number of partitions of `COPIES`."""
    timeout_ms: int = 0
    """`transaction.timeout.ms` of all producers."""
    abort_interval_ms: int = 0
    """Time between two searches of a coordinator for transactions that have timed out."""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def raises_epochs(self) -> bool:
        """Whether the cluster finalizes transaction version 2, whose ends raise the epoch (KIP-890)."""
        return self.properties.get("transaction.version") == "2"


def draw_transactions(seed: int, *, newer: bool = True) -> TransactionPlan:
    """Return the transactions of a seed: none, except in a share of the seeds. Without `newer`, they have version 0."""
    chance = random.Random(f"transactions-{seed}")
    if chance.random() >= TRANSACTION_SHARE:
        return TransactionPlan()
    abort_interval_ms = chance.choice((500, 2_000, 5_000))
    return TransactionPlan(
        writers=chance.choice((1, 2, 2, 3)),
        preparers=_preparers(seed),
        copies=chance.random() < 0.75,
        partitions=chance.choice((1, 2)),
        timeout_ms=chance.choice((5_000, 8_000, 20_000)),
        abort_interval_ms=abort_interval_ms,
        properties={
            "transaction.version": _version(seed) if newer else "0",
            "transaction.state.log.num.partitions": chance.choice(("1", "2")),
            "transaction.state.log.replication.factor": str(REPLICAS),
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.segment.bytes": chance.choice(("1000", "104857600")),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(abort_interval_ms),
        },
    )


def _version(seed: int) -> str:
    """Return the setting `transaction.version`. It does not depend on the other choices, and they not on it."""
    return "2" if random.Random(f"transaction-version-{seed}").random() < NEWER_SHARE else "0"


def _preparers(seed: int) -> int:
    """Return a number that does not depend on the other choices, and they not on it."""
    # With this number, seeds that once found something, and those of planted faults, play the runs for which they were
    # chosen: without preparers.
    chance = random.Random(f"preparers-2276-{seed}")
    return chance.choice((1, 1, 2)) if chance.random() < PREPARING_SHARE else 0
