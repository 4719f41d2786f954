"""Producer ids of idempotent producers: handed out from blocks that the whole cluster shares.

InitProducerId asks for the next id; blocks come from `/latest_producer_id_block` through the `claim_block` port, a
thousand ids at a time. Invariant: no id is handed out twice in a cluster; ids of a claimed block that a broker did not
use are lost with it, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.base.errors import CoordinatorLoadInProgressError, OdradekError

logger = logging.getLogger(__name__)

ClaimBlock = Callable[[], Awaitable[tuple[int, int]]]
"""Claims a block for this broker alone; its first id and its size."""


class ProducerIds:
    """The ids of one broker."""

    def __init__(self, claim_block: ClaimBlock) -> None:
        """Nothing is claimed before the first id is asked for."""
        self._claim_block = claim_block
        self._next = 0
        self._end = 0
        self._claim: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """An id that nobody else has. Raises `CoordinatorLoadInProgressError`, which clients retry, without a block."""
        while self._next == self._end:
            if self._claim is None:
                self._claim = asyncio.get_running_loop().create_task(self._claim_next(), name="claim-producer-ids")
            # Whoever waits may give up without taking the claim from the others.
            await asyncio.shield(self._claim)
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _claim_next(self) -> None:
        try:
            first, size = await self._claim_block()
        except OdradekError as error:
            logger.warning("no block of producer ids could be claimed: %s", error)
            raise CoordinatorLoadInProgressError("No producer ids are available at the moment.") from error
        finally:
            self._claim = None
        self._next, self._end = first, first + size

    async def close(self) -> None:
        """End a claim that is under way; idempotent."""
        claim = self._claim
        if claim is not None:
            claim.cancel()
            await asyncio.gather(claim, return_exceptions=True)
