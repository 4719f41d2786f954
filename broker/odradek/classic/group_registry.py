"""The znodes of one consumer: its registration, the members of its group, and the partitions that it owns.

`rebalancer` decides, this module reads and writes. Invariants: owner znodes are created and deleted only while the
consumer is registered, in one transaction with a check of that; and a consumer deletes only its own. So a request that
arrives after the session has expired changes nothing: the registration has expired with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.base.types import TopicPartition
from odradek.classic import consumer_znodes
from odradek.classic.assignment import ConsumerThread
from odradek.classic.consumer_znodes import ConsumerRegistration
from odradek.zk import layout
from odradek.zk.layout import TopicAssignment
from odradek.zk.port import ANY_VERSION, Check, Create, Delete, NodeExists, NoNode, SetData, ZkClient
from odradek.znode import LayoutError

log = logging.getLogger(__name__)


class GroupRegistry:
    """Reads and writes the znodes of a group for one of its consumers."""

    def __init__(self, zk: ZkClient, group_id: str, consumer_id: str) -> None:
        """Raises `InvalidGroupIdError` if the group id cannot be the name of a znode."""
        consumer_znodes.check_group_id(group_id)
        self._zk: Final = zk
        self._group_id: Final = group_id
        self.consumer_id: Final = consumer_id

    @property
    def members_path(self) -> str:
        """The path whose children are the members of the group."""
        return consumer_znodes.members_path(self._group_id)

    async def register(self, registration: ConsumerRegistration) -> None:
        """Register in the group. A registration of an earlier session of this consumer is replaced."""
        path = consumer_znodes.member_path(self._group_id, self.consumer_id)
        data = registration.encode()
        while True:
            try:
                await self._zk.create(path, data, ephemeral=True, make_parents=True)
            except NodeExists:
                if await self._is_own(path):
                    await self._zk.set(path, data)
                    return
                await self._delete(path)
            else:
                return

    async def deregister(self) -> None:
        """Leave the group."""
        await self._delete(consumer_znodes.member_path(self._group_id, self.consumer_id))

    async def members(self) -> dict[str, ConsumerRegistration]:
        """Return what each member of the group reads. A member with an invalid registration is left out and logged."""
        names = await self._zk.children_or_none(self.members_path) or []
        paths = {consumer_znodes.member_path(self._group_id, name): name for name in names}
        found = await self._zk.get_many(paths)
        members = {}
        for path, node in found.items():
            if node is None:
                # A member that leaves meanwhile causes another rebalance.
                continue
            try:
                members[paths[path]] = ConsumerRegistration.decode(node[0], path)
            except LayoutError as error:
                log.warning("a member of group %s has an invalid registration: %s", self._group_id, error)
        return members

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return await self._zk.children_or_none(layout.TOPICS) or []

    async def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the partitions of each topic that exists, sorted."""
        paths = {layout.topic_path(topic): topic for topic in topics}
        found = await self._zk.get_many(paths)
        return {
            paths[path]: tuple(sorted(TopicAssignment.decode(paths[path], node[0]).partitions))
            for path, node in found.items()
            if node is not None
        }

    async def claim(self, wanted: Mapping[TopicPartition, ConsumerThread]) -> bool:
        """Make this consumer the owner of all partitions. Returns False if one of them has another owner.

        None of them is claimed then. After an error, some may be claimed: `release` them. Raises `NoNode` if this
        consumer is not registered.
        """
        claimed = await asyncio.gather(*(self._claim(partition, thread) for partition, thread in wanted.items()))
        if all(claimed):
            return True
        await self.release(partition for partition, is_ours in zip(wanted, claimed, strict=True) if is_ours)
        return False

    async def _claim(self, partition: TopicPartition, thread: ConsumerThread) -> bool:
        path = consumer_znodes.owner_path(self._group_id, partition)
        data = thread.name.encode()
        await self._zk.ensure_path(consumer_znodes.owners_path(self._group_id, partition.topic))
        try:
            await self._zk.multi([self._is_registered(), Create(path, data, ephemeral=True)])
        except NodeExists:
            # It is ours if the response to an earlier request was lost.
            if not await self._is_own(path):
                return False
            await self._zk.multi([self._is_registered(), SetData(path, data)])
        return True

    def _is_registered(self) -> Check:
        return Check(consumer_znodes.member_path(self._group_id, self.consumer_id), ANY_VERSION)

    async def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up partitions. Those that this consumer does not own stay as they are. Raises `NoNode` if it is not
        registered."""
        await asyncio.gather(*(self._release(partition) for partition in partitions))

    async def _release(self, partition: TopicPartition) -> None:
        path = consumer_znodes.owner_path(self._group_id, partition)
        if await self._is_own(path):
            await self._zk.multi([self._is_registered(), Delete(path)])

    async def owner(self, partition: TopicPartition) -> str | None:
        """Return the name of the thread that owns a partition; None without one."""
        node = await self._zk.get_or_none(consumer_znodes.owner_path(self._group_id, partition))
        return None if node is None else node[0].decode()

    async def _is_own(self, path: str) -> bool:
        stat = await self._zk.exists(path)
        return stat is not None and stat.ephemeral_owner == self._zk.session_id

    async def _delete(self, path: str) -> None:
        try:
            await self._zk.delete(path)
        except NoNode:
            return
