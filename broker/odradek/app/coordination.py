"""The coordinators of a broker: groups with their offsets, and producer ids."""

from __future__ import annotations

from contextlib import AsyncExitStack

from odradek.app.coordinator_log import CoordinatorLog
from odradek.base.ports import Clock
from odradek.base.types import GROUP_METADATA_TOPIC
from odradek.coordinator.coordinator_runtime import CoordinatorRuntime
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_requests import GroupSettings
from odradek.coordinator.groups.group_shard import GroupShard
from odradek.coordinator.producer_ids import ProducerIds
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.configs.broker_configs import BrokerSettings
from odradek.zk import layout, registration
from odradek.zk.port import ZkClient


class Coordination:
    """Builds the coordinators, which follow the leadership of their partitions, and starts and stops them."""

    def __init__(self, *, clock: Clock, zk: ZkClient, settings: BrokerSettings) -> None:
        """`settings`: the effective settings, which have been loaded."""
        self._clock = clock
        self._zk = zk
        self._settings = settings
        self._closers = AsyncExitStack()

    async def build(self, replicas: ReplicaManager, topic_stats: BrokerTopicStats) -> None:
        """Build the coordinators before this broker gets its first roles. Raises `ZkError`."""
        config, clock = self._settings.config, self._clock
        log = CoordinatorLog(
            replicas,
            topic_stats,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            load_bytes=config.offsets_load_buffer_size,
        )
        runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            writer=log, reader=log, clock=clock, batch_limit_bytes=config.message_max_bytes
        )
        self._settings.subscribe(lambda changed: runtime.limit_batches(changed.message_max_bytes))
        offsets_partitions = await self._count_partitions(GROUP_METADATA_TOPIC, config.offsets_topic_num_partitions)
        self.groups = GroupCoordinator(
            settings=GroupSettings.of(config),
            clock=clock,
            runtime=runtime,
            partition_count=lambda: offsets_partitions,
        )
        self._closers.push_async_callback(self.groups.close)
        replicas.roles.add_listener(self.groups.on_leader, self.groups.on_follower)
        self.producer_ids = ProducerIds(self._claim_producer_ids)
        self._closers.push_async_callback(self.producer_ids.close)

    async def _count_partitions(self, topic: str, configured: int) -> int:
        """Number of partitions of an internal topic. Groups are assigned by it, so it is fixed while the broker
        runs."""
        found = await self._zk.get_or_none(layout.topic_path(topic))
        return configured if found is None else len(layout.TopicAssignment.decode(topic, found[0]).partitions)

    async def _claim_producer_ids(self) -> tuple[int, int]:
        block = await registration.next_producer_ids(self._zk, self._settings.config.broker_id)
        return block.first_id, block.last_id - block.first_id + 1

    def start(self) -> None:
        """Start the periodic work."""
        self.groups.start()

    async def close(self) -> None:
        """Stop the coordinators. Idempotent."""
        await self._closers.aclose()
