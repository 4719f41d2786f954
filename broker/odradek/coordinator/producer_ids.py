"""Allocates producer ids for idempotent producers from blocks that are unique in the cluster.

InitProducerId takes the next id. Blocks of a thousand ids come from `/latest_producer_id_block` through the
`claim_block` port. Invariant: no id is used twice in a cluster. As in Kafka, unused ids of a block are lost when the
broker stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.base.errors import CoordinatorLoadInProgressError, OdradekError

logger = logging.getLogger(__name__)

ClaimBlock = Callable[[], Awaitable[tuple[int, int]]]
"""Claims a block for this broker. Returns its first id and its size."""


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, claim_block: ClaimBlock) -> None:
        """`claim_block` is called for the first time when the first id is needed."""
        self._claim_block = claim_block
        self._next = 0
        self._end = 0
        self._claim: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """Return a unique id. Raises `CoordinatorLoadInProgressError`, which clients retry, if no block can be
        claimed."""
        while self._next == self._end:
            if self._claim is None:
                self._claim = asyncio.get_running_loop().create_task(self._claim_next(), name="claim-producer-ids")
            # The claim is shielded, because a caller that is cancelled must not cancel it for the others.
            await asyncio.shield(self._claim)
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _claim_next(self) -> None:
        try:
            first, size = await self._claim_block()
        except OdradekError as error:
            logger.warning("a block of producer ids cannot be allocated: %s", error)
            raise CoordinatorLoadInProgressError("No producer id can be allocated: try again.") from error
        finally:
            self._claim = None
        self._next, self._end = first, first + size

    async def close(self) -> None:
        """Cancel a claim in progress. Idempotent."""
        claim = self._claim
        if claim is not None:
            claim.cancel()
            await asyncio.gather(claim, return_exceptions=True)
