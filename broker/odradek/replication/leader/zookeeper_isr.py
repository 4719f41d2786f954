"""Leaders write ISR changes to ZooKeeper themselves, as in Kafka with inter-broker protocols below 2.7-IV2.

Implements `IsrWriter`. Each write is conditional on the znode's version, which is the partition epoch. A notification
in ZooKeeper, for many changes together, informs the controller, which sends the metadata to the other brokers.
Invariant: every written change is announced, however long ZooKeeper is unavailable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from odradek.base.errors import InvalidUpdateVersionError, UnknownTopicOrPartitionError
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.replication.replica_requests import CommittedIsr
from odradek.zk import layout
from odradek.zk.port import BadVersion, NoNode, ZkClient, ZkError

PROPAGATION_MS: Final = 2500.0
"""How long changes are collected for one notification, and the retry interval (Kafka's constant)."""

logger = logging.getLogger(__name__)


class ZooKeeperIsrWriter:
    """Conditional writes of partition states. Used on the event loop only."""

    def __init__(self, zk: ZkClient, clock: Clock, *, broker_id: int, controller_epoch: Callable[[], int]) -> None:
        """`controller_epoch`: the epoch of the controller that assigned this broker's roles."""
        self._zk: Final = zk
        self._clock: Final = clock
        self._broker_id: Final = broker_id
        self._controller_epoch: Final = controller_epoch
        self._changed: set[TopicPartition] = set()
        self._announcing: asyncio.Task[None] | None = None

    async def alter_isr(
        self, topic_partition: TopicPartition, leader_epoch: int, new_isr: tuple[int, ...], partition_epoch: int
    ) -> CommittedIsr:
        """Write the state and return it. Raises `InvalidUpdateVersionError` if it was changed by another writer.

        Also raises `UnknownTopicOrPartitionError`, and `ZkError` if the outcome of the write is unknown; the same
        proposal may then be repeated.
        """
        path = layout.partition_state_path(topic_partition)
        state = layout.PartitionState(
            leader=self._broker_id, leader_epoch=leader_epoch, isr=new_isr, controller_epoch=self._controller_epoch()
        )
        try:
            version = await self._write(path, state.encode(), partition_epoch)
        except NoNode:
            raise UnknownTopicOrPartitionError(f"{topic_partition} has no state in ZooKeeper") from None
        self._changed.add(topic_partition)
        if self._announcing is None:
            self._announcing = asyncio.get_running_loop().create_task(self._announce(), name="announce-in-sync-sets")
        return CommittedIsr(leader=self._broker_id, leader_epoch=leader_epoch, isr=new_isr, partition_epoch=version)

    async def _write(self, path: str, data: bytes, version: int) -> int:
        try:
            return (await self._zk.set(path, data, version=version)).version
        except BadVersion:
            # It may be our own write, whose answer was lost with a connection.
            found, stat = await self._zk.get(path)
            if found == data and stat.version == version + 1:
                return stat.version
            raise InvalidUpdateVersionError(f"{path} is at version {stat.version}, not {version}") from None

    async def close(self) -> None:
        """Drop what is not announced yet. Idempotent."""
        task, self._announcing = self._announcing, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _announce(self) -> None:
        try:
            while self._changed:
                await self._clock.sleep_ms(PROPAGATION_MS)
                changed, self._changed = self._changed, set()
                path = f"{layout.ISR_CHANGES}/{layout.ISR_CHANGE_PREFIX}"
                try:
                    await self._zk.create(path, layout.encode_partitions(changed), sequential=True)
                except ZkError as error:
                    logger.warning(
                        "the controller is not notified of %d ISR changes yet, retrying: %s", len(changed), error
                    )
                    self._changed |= changed
        finally:
            self._announcing = None
