"""Moves the committed offsets of a source's groups to the target, and sends heartbeats. One process runs it per source.

Every `groups_seconds`, it reads the new offset syncs and the committed offsets in the source. It writes checkpoints in
the format of MirrorMaker 2, and commits the translated offsets of the groups that have no members in the target
(`sync.group.offsets.enabled`). After a restart, it reads syncs and checkpoints from their topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from odradek.base.errors import ConfigError, NetworkError, OdradekError, UnknownMemberIdError
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.group_protocol import PROTOCOL_TYPE
from odradek.client.models import ConsumerRecord
from odradek.client.producer.producer import Producer
from odradek.mirror.following.copy_reset import is_reset
from odradek.mirror.following.group_checkpoints import INACTIVE, new_checkpoints, offsets_to_commit
from odradek.mirror.following.state_topics import StateTopic, create_state_topics
from odradek.mirror.mirror_config import GROUP_PREFIX, HEARTBEATS_TOPIC, MirrorConfig, SourceConfig
from odradek.mirror.mm2_records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    checkpoints_topic,
    offset_syncs_topic,
    sync_partition,
)
from odradek.mirror.offset_syncs import RUN_HEADER
from odradek.mirror.offset_translation import OffsetRun, OffsetTranslation

HEARTBEAT_MS: Final = 1_000
"""Time between heartbeats, as in MirrorMaker 2."""
_GROUPS_AT_ONCE: Final = 16

logger: Final = logging.getLogger(__name__)


class GroupFollower:
    """Follows the groups of one source. Call `run`, or `start`, `follow` and `close`."""

    def __init__(
        self,
        config: MirrorConfig,
        source: SourceConfig,
        source_client: Cluster,
        target_client: Cluster,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Both clients are started and closed by the caller. `clock` is for tests."""
        self._config: Final = config
        self._source: Final = source
        self._in_source: Final = Admin(cluster=source_client)
        self._in_target: Final = Admin(cluster=target_client)
        self._target_client: Final = target_client
        self._clock: Final = clock or target_client.clock
        settings = config.target.settings()
        self._syncs: Final = StateTopic(target_client, settings, offset_syncs_topic(source.name))
        self._checkpoints_topic: Final = checkpoints_topic(source.name)
        self._translation: Final = OffsetTranslation()
        self._checkpoints: dict[str, dict[TopicPartition, Checkpoint]] = {}
        self._producer: Producer | None = None
        self._at_once: Final = asyncio.Semaphore(_GROUPS_AT_ONCE)

    @property
    def checkpoints(self) -> Mapping[str, Mapping[TopicPartition, Checkpoint]]:
        """The last checkpoint of each group and partition of the target."""
        return self._checkpoints

    async def run(self) -> None:
        """Follow the groups and send heartbeats until cancelled. Errors of brokers are logged, and retried after
        `groups_seconds`.
        """
        try:
            while not await self._attempt(self.start()):
                await self._clock.sleep_ms(self._config.groups_seconds * 1000)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send_heartbeats())
                tasks.create_task(self._follow_groups())
        finally:
            await self.close()

    async def start(self) -> None:
        """Create the topics that are missing, and read the last checkpoints. Raises the errors of the brokers."""
        await create_state_topics(
            self._config, self._target_client, self._syncs.name, self._checkpoints_topic, HEARTBEATS_TOPIC
        )
        if self._producer is None:
            producer = Producer(self._config.target.settings())
            await producer.start()
            self._producer = producer
        stored = StateTopic(self._target_client, self._config.target.settings(), self._checkpoints_topic)
        try:
            async for records in stored.read():
                for record in records:
                    self._take_checkpoint(record)
        finally:
            await stored.close()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        producer, self._producer = self._producer, None
        await self._syncs.close()
        if producer is not None:
            await producer.close()

    @property
    def _sender(self) -> Producer:
        if self._producer is None:
            raise NetworkError("the group follower was not started, or is closed")
        return self._producer

    async def _attempt(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except OdradekError as error:
            logger.warning("the groups of source %s could not be followed: %s", self._source.name, error)
            return False
        return True

    async def _follow_groups(self) -> None:
        while True:
            await self._attempt(self.follow())
            await self._clock.sleep_ms(self._config.groups_seconds * 1000)

    async def _send_heartbeats(self) -> None:
        while True:
            await self._attempt(self.send_heartbeat())
            await self._clock.sleep_ms(HEARTBEAT_MS)

    async def send_heartbeat(self) -> None:
        """Write a heartbeat now. Raises the errors of `Producer.send_and_wait`."""
        beat = Heartbeat(self._source.name, self._config.name, self._clock.wall_ms())
        await self._sender.send_and_wait(HEARTBEATS_TOPIC, beat.value(), key=beat.key(), partition=0)

    async def follow(self) -> None:
        """Write the checkpoints and commit the offsets that have changed. Raises the errors of the brokers."""
        if not self._source.groups.include:
            return
        async for records in self._syncs.read():
            for record in records:
                self._take_sync(record)
        groups = [
            found.group_id
            for found in await self._in_source.list_groups()
            if found.protocol_type in (PROTOCOL_TYPE, "") and self._follows(found.group_id)
        ]
        await self._for_each(groups, self._write_checkpoints)
        await self._for_each(sorted(self._checkpoints), self._commit)

    def _follows(self, group: str) -> bool:
        return not group.startswith(GROUP_PREFIX) and self._source.groups.matches(group)

    async def _for_each(self, groups: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
        """Do the work for some groups at a time. An error of one group does not affect the others."""

        async def of(group: str) -> None:
            async with self._at_once:
                try:
                    await work(group)
                except OdradekError as error:
                    logger.warning("group %s of source %s was not followed: %s", group, self._source.name, error)

        await asyncio.gather(*(of(group) for group in groups))

    async def _write_checkpoints(self, group: str) -> None:
        committed = await self._in_source.group_offsets(group)
        last = self._checkpoints.setdefault(group, {})
        checkpoints = new_checkpoints(
            group, committed, target_of=self._target_of, translate=self._translation.translate, last=last
        )
        sent = [
            await self._sender.send(self._checkpoints_topic, each.value(), key=each.key(), partition=0)
            for each in checkpoints
        ]
        await asyncio.gather(*sent)
        last.update({each.partition: each for each in checkpoints})

    def _target_of(self, topic: str) -> str | None:
        return self._source.target_topic(topic) if self._source.copies(topic) else None

    async def _commit(self, group: str) -> None:
        checkpoints = self._checkpoints[group].values()
        if not checkpoints or not self._follows(group):
            return
        offsets = offsets_to_commit(checkpoints, await self._in_target.group_offsets(group))
        if not offsets:
            return
        described = (await self._in_target.describe_groups([group]))[group]
        if described.state not in INACTIVE:
            return
        try:
            errors = await self._in_target.alter_group_offsets(group, offsets)
        except UnknownMemberIdError:
            # A member has joined since. From now on, the group commits its own offsets.
            return
        for partition, error in errors.items():
            if error is not None:
                logger.warning("the offset of group %s for %s was not committed: %s", group, partition, error)

    def _take_sync(self, record: ConsumerRecord) -> None:
        try:
            if record.value is None or is_reset(record.headers):
                self._translation.forget(sync_partition(record.key))
                return
            sync = OffsetSync.decode(record.key, record.value)
            header = next((value for name, value in record.headers if name == RUN_HEADER), None)
            run = OffsetRun.from_record(sync.source_offset, sync.target_offset, header)
        except ConfigError as error:
            logger.warning("%s at offset %d is ignored: %s", self._syncs.name, record.offset, error)
            return
        self._translation.add(sync.partition, run)

    def _take_checkpoint(self, record: ConsumerRecord) -> None:
        try:
            checkpoint = Checkpoint.decode(record.key, record.value)
        except ConfigError as error:
            logger.warning("%s at offset %d is ignored: %s", self._checkpoints_topic, record.offset, error)
            return
        self._checkpoints.setdefault(checkpoint.group, {})[checkpoint.partition] = checkpoint
