"""Elections without a failure: on request (KIP-460 or `/admin/preferred_replica_election`) and for leader balance.

`active` calls it. `candidates` decides for which partitions an election is held.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from odradek.base.errors import ProtocolError
from odradek.base.types import TopicPartition
from odradek.controller.elections.candidates import ElectionKind, candidates, imbalanced_partitions, outcomes
from odradek.controller.elections.election_rules import Cause
from odradek.controller.reign import Reign
from odradek.zk import layout

log = logging.getLogger(__name__)


class LeaderElections:
    """The elections without a failure of one reign."""

    def __init__(self, reign: Reign) -> None:
        """`reign` carries out the elections."""
        self._reign = reign

    async def elect(
        self, partitions: Iterable[TopicPartition] | None, kind: ElectionKind
    ) -> dict[TopicPartition, int | ProtocolError]:
        """Elect leaders of these partitions, or of all if None. Returns the leader or the error of each."""
        context = self._reign.context
        asked = candidates(context, list(context.partitions()) if partitions is None else partitions, kind)
        if kind is ElectionKind.PREFERRED:
            obstacles = await self._reign.elect(asked.electable, Cause.PREFERRED)
        else:
            obstacles = await self._reign.elect(asked.electable, Cause.OFFLINE, unclean=True)
        self._reign.flush()
        return outcomes(context, asked, obstacles, kind)

    async def take_requested(self) -> None:
        """Hold the elections that `/admin/preferred_replica_election` requests, and remove the znode."""
        wanted = await self._reign.store.preferred_elections()
        if wanted is None:
            return
        results = await self.elect(sorted(wanted), ElectionKind.PREFERRED)
        for partition, result in results.items():
            if isinstance(result, ProtocolError):
                log.info("%s: no preferred leader was elected: %s", partition, result)
        await self._reign.store.delete_each([layout.PREFERRED_ELECTION])

    async def balance(self, tolerated_percentage: int) -> None:
        """Elect preferred leaders where the imbalance of a broker is too high."""
        partitions = imbalanced_partitions(self._reign.context, tolerated_percentage)
        if partitions:
            log.info("leader balance: preferred leaders are elected for %d partitions", len(partitions))
            await self.elect(partitions, ElectionKind.PREFERRED)
