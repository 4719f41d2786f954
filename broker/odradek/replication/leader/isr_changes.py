"""Commits ISR changes: one task per proposal, until it is committed, reverted or superseded.

`replica_manager` passes the proposals of partitions; the answer is applied to the partition, and `on_change` is called
for what it unblocks. Each partition has at most one task, because it proposes nothing while a proposal is pending.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from odradek.base.errors import OdradekError, ProtocolError, UnknownServerError
from odradek.base.ports import Clock
from odradek.base.tasks import TaskOwner
from odradek.replication.isr import FailedProposal
from odradek.replication.partition import IsrProposal
from odradek.replication.partition_table import HostedPartition
from odradek.replication.replica_requests import IsrWriter

RETRY_MIN_MS: Final = 50.0
RETRY_MAX_MS: Final = 1000.0

logger = logging.getLogger(__name__)


class IsrChanges:
    """The pending proposals. `shrinks` and `expands` count the committed ones."""

    def __init__(self, clock: Clock, writer: IsrWriter, on_change: Callable[[HostedPartition], None]) -> None:
        """`on_change` runs when a proposal has ended: the high watermark may rise, or a new proposal may follow."""
        self._clock: Final = clock
        self._writer: Final = writer
        self._on_change: Final = on_change
        self._tasks: Final = TaskOwner()
        self.shrinks = 0
        self.expands = 0

    def start(self, partition: HostedPartition, proposal: IsrProposal) -> None:
        """Commit a proposal that the partition has just made."""
        self._tasks.spawn(self._commit(partition, proposal), name=f"change-isr-{proposal.topic_partition}")

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended. Idempotent."""
        await self._tasks.close()

    async def _commit(self, partition: HostedPartition, proposal: IsrProposal) -> None:
        delay_ms = RETRY_MIN_MS
        while partition.is_current(proposal):
            try:
                answer = await self._writer.alter_isr(
                    proposal.topic_partition, proposal.leader_epoch, proposal.isr, proposal.partition_epoch
                )
            except OdradekError as error:
                code = error.code if isinstance(error, ProtocolError) else UnknownServerError.code
                logger.info(
                    "%s: the ISR change to %s is not committed: %s", proposal.topic_partition, proposal.isr, error
                )
                if partition.refuse(proposal, code) is not FailedProposal.RETRY:
                    self._on_change(partition)
                    return
                await self._clock.sleep_ms(delay_ms)
                delay_ms = min(2 * delay_ms, RETRY_MAX_MS)
                continue
            size_before = len(partition.in_sync.committed)
            if partition.accept(
                proposal,
                leader_epoch=answer.leader_epoch,
                isr=answer.isr,
                partition_epoch=answer.partition_epoch,
            ):
                self._count(size_before, len(answer.isr))
                logger.info("%s: the ISR is now %s", proposal.topic_partition, answer.isr)
                self._on_change(partition)
            return

    def _count(self, before: int, after: int) -> None:
        if after > before:
            self.expands += 1
        elif after < before:
            self.shrinks += 1
