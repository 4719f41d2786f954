"""The coordinators of a broker: groups with their offsets, transactions, and producer ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack

from odradek.app.coordinator_log import CoordinatorLog
from odradek.app.coordinator_observation import ObservedTransactions, TimedVerifier
from odradek.base.ports import Clock
from odradek.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, Offset, TopicPartition
from odradek.cluster import MetadataCache
from odradek.coordinator.broker_links import BrokerLinks
from odradek.coordinator.coordinator_ports import ShardT
from odradek.coordinator.coordinator_runtime import CoordinatorRuntime
from odradek.coordinator.groups.consumer.cluster_topics import ClusterTopics
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_requests import GroupSettings
from odradek.coordinator.groups.group_shard import GroupShard
from odradek.coordinator.lag.lag_monitor import LagMonitor
from odradek.coordinator.lag.lag_values import LagSettings
from odradek.coordinator.producer_ids import ProducerIds
from odradek.coordinator.transactions.marker_sender import MarkerSender
from odradek.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.transactions.transaction_shard import TransactionShard
from odradek.coordinator.transactions.transaction_values import TransactionLevel, TransactionSettings
from odradek.coordinator.transactions.verification_sender import VerificationSender
from odradek.metrics.quantiles import Quantiles
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.network.broker_channel import Connect
from odradek.protocol.apis import ApiKey
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.authorization.authorizer import Authorizer
from odradek.server.configs.broker_configs import BrokerSettings
from odradek.server.dispatch import Handler
from odradek.server.groups.consumer_group_handlers import ConsumerGroupHandlers
from odradek.server.groups.group_handlers import EnsureTopic, GroupHandlers
from odradek.server.groups.offset_handlers import OffsetCoordinationHandlers
from odradek.server.groups.zookeeper_offsets import ZooKeeperOffsets
from odradek.server.transactions.marker_writer import LocalMarkers, MarkerHandlers
from odradek.server.transactions.transaction_handlers import TransactionHandlers
from odradek.zk import layout, registration
from odradek.zk.port import ZkClient


class Coordination:
    """Builds the coordinators, which follow the leadership of their partitions, and starts and stops them."""

    def __init__(
        self,
        *,
        clock: Clock,
        zk: ZkClient,
        view: MetadataCache,
        settings: BrokerSettings,
        connect: Connect,
        transaction_level: TransactionLevel,
    ) -> None:
        """`settings`: the effective settings, which have been loaded. `connect` opens channels to other brokers.
        `transaction_level` returns the finalized level of `transaction.version`."""
        self._transaction_level = transaction_level
        self._clock = clock
        self._zk = zk
        self._view = view
        self._settings = settings
        self._connect = connect
        self._closers = AsyncExitStack()

    async def build(self, replicas: ReplicaManager, topic_stats: BrokerTopicStats) -> None:
        """Build the coordinators before this broker gets its first roles. Raises `ZkError`."""
        self.producer_ids = ProducerIds(self._claim_producer_ids)
        self._closers.push_async_callback(self.producer_ids.close)
        await self._build_transactions(replicas, topic_stats)
        await self._build_groups(replicas, topic_stats)
        for coordinator in (self.transactions, self.groups):
            self._closers.push_async_callback(coordinator.close)
            replicas.roles.add_listener(coordinator.on_leader, coordinator.on_follower)

    async def _build_transactions(self, replicas: ReplicaManager, topic_stats: BrokerTopicStats) -> None:
        config, clock = self._settings.config, self._clock
        self.local_markers = LocalMarkers(
            replicas, clock, topic_stats, timeout_ms=config.request_timeout_ms, on_ended=self._transaction_ended
        )
        markers = MarkerSender(
            broker_id=config.broker_id,
            cluster=self._view,
            links=self._links(),
            writer=self.local_markers,
            assigned_partitions=self._assigned_partitions,
            clock=clock,
            protocol=config.inter_broker_protocol_version,
        )
        self._closers.push_async_callback(markers.close)
        log = CoordinatorLog(
            replicas,
            topic_stats,
            commit_timeout_ms=config.request_timeout_ms,
            load_bytes=config.transaction_state_log_load_buffer_size,
        )
        runtime: CoordinatorRuntime[TransactionShard] = self._runtime(log)
        partitions = await self._count_partitions(TRANSACTION_STATE_TOPIC, config.transaction_state_log_num_partitions)
        self.transactions = TransactionCoordinator(
            settings=TransactionSettings.of(config),
            clock=clock,
            runtime=runtime,
            producer_ids=self.producer_ids,
            markers=markers,
            partition_count=lambda: partitions,
            level=self._transaction_level,
        )
        verifier = VerificationSender(
            broker_id=config.broker_id,
            cluster=self._view,
            links=self._links(),
            clock=clock,
            partition_of=self.transactions.partition_for,
            verify_here=self.transactions.verify,
            add_here=self.transactions.add_written,
        )
        self._closers.push_async_callback(verifier.close)
        verification_ms = Quantiles()
        self.verifier = TimedVerifier(verifier, clock, verification_ms)
        self.observed_transactions = ObservedTransactions(
            load_times=runtime.load_times,
            unknown_destinations=lambda: markers.unknown_destination_count,
            waiting_completions=lambda: self.transactions.waiting_completions,
            prepared=lambda: self.transactions.prepared_count,
            oldest_prepared_ms=lambda: self.transactions.oldest_prepared_ms,
            verification_ms=verification_ms,
            failed_verifications=lambda: verifier.failure_count,
        )

    def _links(self, timeout_ms: float | None = None) -> BrokerLinks:
        config = self._settings.config
        links = BrokerLinks(
            cluster=self._view,
            listener=config.inter_broker_listener,
            connect=self._connect,
            clock=self._clock,
            timeout_ms=config.request_timeout_ms if timeout_ms is None else timeout_ms,
        )
        self._closers.push_async_callback(links.close)
        return links

    async def _build_groups(self, replicas: ReplicaManager, topic_stats: BrokerTopicStats) -> None:
        config, clock = self._settings.config, self._clock
        log = CoordinatorLog(
            replicas,
            topic_stats,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            load_bytes=config.offsets_load_buffer_size,
            verifier=self.verifier,
            verifies=self.verifies,
        )
        runtime: CoordinatorRuntime[GroupShard] = self._runtime(log)
        partitions = await self._count_partitions(GROUP_METADATA_TOPIC, config.offsets_topic_num_partitions)
        self.groups = GroupCoordinator(
            settings=GroupSettings.of(config),
            clock=clock,
            runtime=runtime,
            partition_count=lambda: partitions,
            verify=log.verify,
            topics=ClusterTopics(lambda: self._view.image),
        )
        self.group_load_times = runtime.load_times
        self.lag = LagMonitor(
            groups=self.groups.coordinated,
            cluster=self._view,
            # A broker that does not answer must not delay the lag in partitions of others for long.
            links=self._links(min(config.request_timeout_ms, config.group_lag_refresh_interval_ms)),
            clock=clock,
            settings=lambda: LagSettings.of(self._settings.config),
        )
        self._closers.push_async_callback(self.lag.close)

    def verifies(self) -> bool:
        """Whether the first write of a transaction is verified: `transaction.partition.verification.enable`."""
        return self._settings.config.transaction_partition_verification_enable

    def _runtime(self, log: CoordinatorLog) -> CoordinatorRuntime[ShardT]:
        """Build a runtime whose batches follow `message.max.bytes`."""
        runtime: CoordinatorRuntime[ShardT] = CoordinatorRuntime(
            writer=log,
            reader=log,
            clock=self._clock,
            batch_limit_bytes=self._settings.config.message_max_bytes,
        )
        self._settings.subscribe(lambda changed: runtime.limit_batches(changed.message_max_bytes))
        return runtime

    async def _count_partitions(self, topic: str, configured: int) -> int:
        """Number of partitions of an internal topic. Groups and transactional ids are assigned by it, so it is fixed
        while the broker runs."""
        return len(await self._assigned_partitions(topic)) or configured

    async def _assigned_partitions(self, topic: str) -> Collection[int]:
        """Return the partitions of a topic in ZooKeeper; empty if it does not exist. Raises `ZkError`."""
        found = await self._zk.get_or_none(layout.topic_path(topic))
        return () if found is None else layout.TopicAssignment.decode(topic, found[0]).partitions.keys()

    async def _claim_producer_ids(self) -> tuple[int, int]:
        block = await registration.next_producer_ids(self._zk, self._settings.config.broker_id)
        return block.first_id, block.last_id - block.first_id + 1

    def handlers(self, ensure_topic: EnsureTopic, authorizer: Authorizer | None) -> Mapping[ApiKey, Handler]:
        """The handlers of groups, offsets and transactions. `ensure_topic` creates the topics of the coordinators.
        `authorizer` decides which topics match a subscription; without one, all do."""
        config = self._settings.config
        groups = GroupHandlers(
            groups=self.groups,
            transactions=self.transactions.partition_for,
            view=self._view,
            ensure_topic=ensure_topic,
        )
        consumers = ConsumerGroupHandlers(
            groups=self.groups,
            view=self._view,
            clock=self._clock,
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            authorizer=authorizer,
        )
        offsets = OffsetCoordinationHandlers(
            groups=self.groups,
            view=self._view,
            zookeeper_offsets=ZooKeeperOffsets(self._zk, metadata_max=config.offset_metadata_max_bytes),
        )
        transactions = TransactionHandlers(
            transactions=self.transactions,
            producer_ids=self.producer_ids,
            group_partition=self.groups.partition_for,
            view=self._view,
        )
        return {
            **groups.handlers(),
            **consumers.handlers(),
            **offsets.handlers(),
            **transactions.handlers(),
            **MarkerHandlers(self.local_markers).handlers(),
        }

    def start(self) -> None:
        """Start the periodic work."""
        self.groups.start()
        self.transactions.start()
        if self._settings.config.metrics_port >= 0:
            self.lag.start()

    async def close(self) -> None:
        """Stop the coordinators. Idempotent."""
        await self._closers.aclose()

    # Events

    def _transaction_ended(
        self, topic_partition: TopicPartition, producer_id: int, is_commit: bool, offset: int
    ) -> None:
        self.groups.complete_transaction(topic_partition, producer_id, is_commit, Offset(offset))
