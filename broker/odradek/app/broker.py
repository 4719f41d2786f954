"""One broker: builds its parts, and starts and stops them in order.

`Broker.start` starts each part after those that it depends on, and registers the broker last, when it can serve.
`Broker.stop` first moves leadership to other brokers, then stops the parts in reverse order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from enum import IntEnum
from functools import partial
from typing import Final

from odradek.app.authorization import Authorization
from odradek.app.controller_link import ControllerLink
from odradek.app.coordination import Coordination
from odradek.app.delegation import Delegation
from odradek.app.listeners import Listeners
from odradek.app.logins import Logins, TlsReport
from odradek.app.observation import Observed, observation, observe
from odradek.app.quota_enforcement import QuotaEnforcement
from odradek.app.system import SessionClient, System
from odradek.base.config import BrokerConfig
from odradek.base.tasks import TaskOwner
from odradek.base.types import NO_EPOCH, Endpoint, TopicPartition
from odradek.cluster import MetadataCache
from odradek.controller.controller_runtime import ControllerRuntime
from odradek.log.compaction.cleaner import LogCleaner
from odradek.log.log_manager import LogManager
from odradek.metrics.collector import BrokerCollector
from odradek.metrics.http import Probe
from odradek.metrics.quantiles import Quantiles
from odradek.metrics.request_stats import RequestStats
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.network.channel import Channel, ChannelTimeouts
from odradek.protocol.apis import ApiKey
from odradek.protocol.feature_levels import TRANSACTION_VERSION
from odradek.protocol.release_versions import has_alter_partition
from odradek.replication.follower.leader_channel import LeaderConnector
from odradek.replication.leader.zookeeper_isr import ZooKeeperIsrWriter
from odradek.replication.replica_manager import ReplicaManager, ReplicaPorts
from odradek.replication.replica_requests import IsrWriter
from odradek.replication.sessions.fetch_session import FetchSessions
from odradek.server.admin.elections import ElectionHandlers
from odradek.server.admin.feature_handlers import FeatureHandlers, FinalizedFeatures
from odradek.server.admin.log_dir_handlers import LogDirHandlers
from odradek.server.admin.reassignments import ReassignmentHandlers
from odradek.server.admin.topic_handlers import TopicHandlers
from odradek.server.configs.broker_configs import BrokerSettings
from odradek.server.configs.config_handlers import ConfigHandlers
from odradek.server.configs.config_store import ConfigStore, persist
from odradek.server.control import ControlHandlers
from odradek.server.data.describe_producers import ProducerHandlers
from odradek.server.data.list_offsets import OffsetHandlers
from odradek.server.data.produce_and_fetch import DataHandlers
from odradek.server.data.record_handlers import RecordHandlers
from odradek.server.data.small_produce import SmallProduceHandler
from odradek.server.dispatch import Dispatcher, Handler
from odradek.server.groups.heartbeats import HeartbeatHandler
from odradek.server.metadata_handlers import MetadataHandlers
from odradek.server.security.sasl_requests import sasl_handlers
from odradek.server.security.scram_handlers import ScramHandlers
from odradek.server.senders import ControllerCheck, InterBrokerListeners
from odradek.zk import registration
from odradek.zk.port import SessionEvent
from odradek.zk.rejoining import until_out_of_sync
from odradek.zk.security import zookeeper_settings

logger = logging.getLogger(__name__)

CONVERTERS: Final = 1
"""Number of processes that convert large record sets for old consumers. They are started when first needed."""

CLEANER_NICENESS: Final = 10
"""Niceness of the compaction processes."""

REGISTRATION_SLACK_MS: Final = 6_000
"""Milliseconds, in addition to its session timeout, that a broker waits until it is removed from the ISRs."""


class BrokerState(IntEnum):
    """State of a broker, with the numbers of Kafka's metric `BrokerState`."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERING = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class Broker:
    """The parts of a broker process. Call `start` and `stop` once each. `failed` gets the reason of a fatal failure."""

    def __init__(self, config: BrokerConfig, properties: Mapping[str, str], system: System) -> None:
        """`properties`: the configuration as text, for DescribeConfigs. Raises `ConfigError`."""
        self._config = config
        self._properties = properties
        self._system = system
        self._clock = system.clock
        self.state = BrokerState.NOT_RUNNING
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._epoch = NO_EPOCH
        self._registered = asyncio.Event()
        self._view = MetadataCache()
        self._topic_stats = BrokerTopicStats()
        self.request_stats: Final = RequestStats()
        """Number, errors and times of requests."""
        self._zookeeper_latency = Quantiles()
        self._logins = Logins(properties, system, config)
        self._zk = system.zookeeper(zookeeper_settings(config), on_latency=self._zookeeper_latency.observe)
        self._authorization = Authorization(config, self._zk, system.clock)
        self._quotas = QuotaEnforcement(config, self._zk, system.clock)
        self._delegation = Delegation(config, self._zk, system.clock, system.disk_threads)
        # Notifications may arrive before the controller exists. It reads the settings when its reign begins.
        self._tell_controller_of_settings: Callable[[str | None], None] = lambda topic: None
        self._sessions_expired = 0
        self._disconnects, self._connects = 0, 0
        self._closers = AsyncExitStack()
        self._tasks = TaskOwner(lambda name, error: self._fail(f"{name} failed: {error}"))
        """The failure of a background task stops the broker; otherwise it would go unnoticed."""

    @property
    def zookeeper(self) -> SessionClient:
        """The ZooKeeper client. With the credentials of its session, another process can end the session."""
        return self._zk

    @property
    def replicas(self) -> ReplicaManager:
        """The replica manager, for tests and the simulation."""
        return self._replicas

    @property
    def logs(self) -> LogManager:
        """The logs, for tests and the simulation."""
        return self._logs

    @property
    def controller(self) -> ControllerRuntime:
        """The controller runtime, for tests and the simulation."""
        return self._controller

    # Start

    async def start(self) -> None:
        """Start all parts. If one fails, stop all parts and raise its `OdradekError`."""
        self.state = BrokerState.STARTING
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        self.state = BrokerState.RUNNING
        endpoints = ", ".join(str(end) for end in self._listeners.advertised())
        logger.info("broker %d serves clients on %s", self._config.broker_id, endpoints)

    async def _start(self) -> None:
        config = self._config
        collector, http = observation(
            config,
            broker_state=lambda: self.state,
            is_healthy=self._healthy,
            is_ready=self.ready,
            certificates=self._certificates,
        )
        self._closers.callback(collector.close)
        if http is not None:
            http.start()
            self._closers.push_async_callback(http.close)
        await self._connect_zookeeper()
        cluster_id = await registration.cluster_id(self._zk, self._clock)
        self._settings = BrokerSettings(self._zk, config, self._properties)
        await self._settings.load()
        self._take_settings(self._settings.config)
        self._settings.subscribe(self._take_settings)
        self._configs = ConfigStore(self._zk, self._config)
        self._configs.apply_to(lambda: self._logs.logs())
        await self._start_logs(cluster_id)
        self._start_cleaner()
        self._build_replication()
        await self._build_coordination()
        self._build_controller()
        self._features = FinalizedFeatures(self._zk, self._clock)
        self._closers.push_async_callback(self._features.close)
        await self._features.start()
        self._closers.push_async_callback(self._authorization.close)
        await self._authorization.start()
        self._closers.push_async_callback(self._quotas.close)
        await self._quotas.start()
        self._closers.push_async_callback(self._delegation.close)
        await self._delegation.start()
        dispatcher = self._build_server(cluster_id)
        self._logins.connect(self._zk, self._metadata.versions, self._delegation.credential)
        self._closers.push_async_callback(self._logins.close)
        self._listeners = Listeners(
            self._config,
            dispatcher.handle,
            self._clock,
            bind=self._system.bind,
            read=self._logs.read,
            announce=self._registrar.update,
            properties=self._properties,
            secure=self._logins.secure,
            hold_ms=self._quotas.throttle.of_connection,
            small=self._build_small_produce(),
        )
        self._provide_metrics(collector, dispatcher)
        self._replicas.start()
        self._closers.push_async_callback(self._replicas.close)
        self._coordination.start()
        self._closers.push_async_callback(self._coordination.close)
        # Listeners open last and close first, so that every accepted request is served.
        self._closers.push_async_callback(self._listeners.close)
        # Requests that wait for the registration are released before the listeners close, and refused.
        self._closers.callback(self._registered.set)
        await self._logins.loaded()
        await self._listeners.start()
        self._settings.subscribe(self._listeners.reconfigure)
        self._settings.dry_run = self._listeners.dry_run
        await self._register(first=None if self._logs.stopped_in_order else self._until_out_of_sync)
        await self._controller.start()
        expiry = self._delegation.remove_expired(lambda: self._controller.is_active)
        self._tasks.spawn(expiry, name="remove-expired-tokens")

    async def _certificates(self) -> TlsReport:
        return await self._logins.certificates(self._listeners if self.state is BrokerState.RUNNING else ())

    def _healthy(self) -> Probe:
        return Probe(not self.failed.done(), self.failed.result() if self.failed.done() else "The event loop answers.")

    def ready(self) -> Probe:
        """Return whether the broker serves clients, and the reason if it does not."""
        if self.state is not BrokerState.RUNNING:
            return Probe(False, f"The broker is {self.state.name.lower().replace('_', ' ')}.")
        if self._config.broker_id not in self._view.image.brokers:
            return Probe(False, "The controller has not announced this broker yet.")
        return Probe(True, "The broker serves clients.")

    async def _connect_zookeeper(self) -> None:
        self._closers.push_async_callback(self._zk.close)
        self._zk.on_session(self._session_event)
        await self._zk.start()
        await registration.prepare(self._zk)
        wait_ms = self._config.initial_broker_registration_timeout_ms
        self._registrar = registration.BrokerRegistrar(self._zk, self._clock, wait_ms=wait_ms)

    async def _start_logs(self, cluster_id: str) -> None:
        self.state = BrokerState.RECOVERING
        self._logs = LogManager(
            self._system.files,
            self._clock,
            self._config,
            disk_threads=self._system.disk_threads,
            max_open_files=self._system.max_open_files,
            on_fatal=self._fail,
        )
        self._closers.push_async_callback(self._logs.close)
        await self._logs.start(cluster_id, self._config.broker_id)
        # Watch for notifications before the settings are read, so that no change in between is missed.
        changes = registration.ConfigChangeListener(self._zk, self._clock, self._config_changed)
        await changes.start()
        self._closers.push_async_callback(changes.close)
        self._settings.subscribe(self._logs.reconfigure)
        self._settings.subscribe(self._configs.reconfigure)
        await self._settings.load()
        await self._configs.load_all()

    def _start_cleaner(self) -> None:
        config = self._config
        workers = self._system.workers(config.log_cleaner_threads, niceness=CLEANER_NICENESS)
        self._closers.push_async_callback(workers.close)
        self._cleaner = LogCleaner(self._logs, workers, self._system.files, self._clock, config)
        self._closers.push_async_callback(self._cleaner.close)
        self._settings.subscribe(lambda changed: workers.grow(changed.log_cleaner_threads))
        self._settings.subscribe(self._cleaner.update_config)
        self._cleaner.start()

    def _build_replication(self) -> None:
        config, listener = self._config, self._config.inter_broker_listener
        self._link = ControllerLink(
            broker_id=config.broker_id,
            broker_epoch=lambda: self._epoch,
            view=self._view,
            listener=listener,
            connect=self._connect_broker,
        )
        self._closers.push_async_callback(self._link.close)
        self._replicas = ReplicaManager(
            self._logs,
            self._clock,
            config,
            ReplicaPorts(
                isr_writer=self._isr_writer(),
                cluster=self._view,
                topic_config=self._configs.topic_config,
                connect=LeaderConnector(self._view, config, self._logins.between_brokers),
                cleaning=self._cleaner,
                broker_epoch=lambda: self._epoch,
                topic_stats=self._topic_stats,
            ),
        )
        self._settings.subscribe(self._replicas.mover.reconfigure)
        self._settings.subscribe(self._replicas.fetchers.reconfigure)
        self._settings.subscribe(self._replicas.quotas.configure)
        # Directory failures before this point are reported when the controller assigns roles to the replicas.
        self._logs.on_directory_failure = self._directory_failed

    def _isr_writer(self) -> IsrWriter:
        """Return the writer of ISR changes: the controller, or ZooKeeper with an old inter-broker protocol."""
        config = self._config
        if has_alter_partition(config.inter_broker_protocol_version):
            return self._link
        writer = ZooKeeperIsrWriter(
            self._zk,
            self._clock,
            broker_id=config.broker_id,
            controller_epoch=lambda: self._replicas.roles.controller_epoch,
        )
        self._closers.push_async_callback(writer.close)
        return writer

    async def _connect_broker(self, endpoint: Endpoint) -> Channel:
        channel = await Channel.open(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._config.broker_id}",
            timeouts=ChannelTimeouts(request_ms=self._config.request_timeout_ms),
            security=self._logins.between_brokers,
        )
        try:
            await channel.negotiate()
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _build_coordination(self) -> None:
        self._coordination = Coordination(
            clock=self._clock,
            zk=self._zk,
            view=self._view,
            settings=self._settings,
            connect=self._connect_broker,
            transaction_level=lambda: self._features.level(TRANSACTION_VERSION),
        )
        await self._coordination.build(self._replicas, self._topic_stats)

    def _build_controller(self) -> None:
        self._controller = ControllerRuntime(
            self._zk,
            self._clock,
            self._config,
            connect=self._connect_broker,
            register=self._register_again,
        )
        self._closers.push_async_callback(self._controller.close)
        self._tell_controller_of_settings = self._controller.topic_settings_changed

    def _build_server(self, cluster_id: str) -> Dispatcher:
        config, view, clock = self._config, self._view, self._clock
        self._topics = TopicHandlers(
            settings=self._settings,
            view=view,
            zk=self._zk,
            is_controller=lambda: self._controller.is_active,
            clock=clock,
            throttle=self._quotas.throttle,
        )
        self._closers.callback(self._topics.close)
        control = ControlHandlers(
            replicas=self._replicas,
            configs=self._configs,
            view=view,
            controller=self._controller,
            broker_epoch=lambda: self._epoch,
            image_changed=self._image_changed,
            clock=clock,
            registered=self._registered,
            controllers=ControllerCheck(self._zk, clock, broker_id=config.broker_id),
        )
        data = self._build_data()
        self._metadata = MetadataHandlers(
            config=config,
            cluster_id=cluster_id,
            view=view,
            creator=self._topics,
            finalized=lambda: self._features.current,
            authorizer=self._authorization.authorizer,
        )
        log_dirs = LogDirHandlers(logs=self._logs, replicas=self._replicas)
        records = RecordHandlers(replicas=self._replicas, view=view)
        offsets = OffsetHandlers(replicas=self._replicas, clock=clock)
        producers = ProducerHandlers(replicas=self._replicas)
        configs = ConfigHandlers(settings=self._settings, view=view, store=self._configs)
        self._elections = ElectionHandlers(controller=self._controller, view=view, clock=clock)
        self._closers.callback(self._elections.close)
        handlers = {
            **self._elections.handlers(),
            **ReassignmentHandlers(controller=self._controller).handlers(),
            **FeatureHandlers(controller=self._controller).handlers(),
            **self._metadata.handlers(),
            **self._topics.handlers(),
            **log_dirs.handlers(),
            **records.handlers(),
            **producers.handlers(),
            **configs.handlers(),
            **control.handlers(),
            **offsets.handlers(),
            **self._coordination.handlers(self._topics.ensure_topic, self._authorization.authorizer),
            **self._quotas.handlers(),
            **self._delegation.handlers(),
            **ScramHandlers(self._zk).handlers(),
        }
        return self._build_dispatcher(handlers, data)

    def _build_data(self) -> DataHandlers:
        converters = self._system.workers(CONVERTERS)
        self._closers.push_async_callback(converters.close)
        slots = self._config.max_incremental_fetch_session_cache_slots
        data = DataHandlers(
            replicas=self._replicas,
            sessions=FetchSessions(self._clock, slots, self._replicas.resting),
            view=self._view,
            topic_stats=self._topic_stats,
            request_stats=self.request_stats,
            clock=self._clock,
            workers=converters,
            authorizer=self._authorization.authorizer,
            throttle=self._quotas.throttle,
            verifier=self._coordination.verifier,
            verifies=self._coordination.verifies,
        )
        self._closers.push_async_callback(data.close)
        return data

    def _build_small_produce(self) -> SmallProduceHandler:
        return SmallProduceHandler(
            replicas=self._replicas,
            topic_stats=self._topic_stats,
            request_stats=self.request_stats,
            authorizer=self._authorization.authorizer,
            throttle=self._quotas.throttle,
        )

    def _build_dispatcher(self, handlers: Mapping[ApiKey, Handler], data: DataHandlers) -> Dispatcher:
        inter_broker = InterBrokerListeners(self._config)
        self._settings.subscribe(inter_broker.reconfigure)
        dispatcher = Dispatcher(
            handlers=self._authorization.secured(handlers, self._view),
            direct={**data.direct(), **self._heartbeats().direct(), **sasl_handlers()},
            stats=self.request_stats,
            clock=self._clock,
            inter_broker=inter_broker,
            throttle=self._quotas.throttle,
        )
        self._closers.push_async_callback(dispatcher.close)
        return dispatcher

    def _heartbeats(self) -> HeartbeatHandler:
        return HeartbeatHandler(
            groups=self._coordination.groups,
            stats=self.request_stats,
            clock=self._clock,
            authorizer=self._authorization.authorizer,
            throttle=self._quotas.throttle,
        )

    def _provide_metrics(self, collector: BrokerCollector, dispatcher: Dispatcher) -> None:
        observe(
            collector,
            Observed(
                clock=self._clock,
                replicas=self._replicas,
                logs=self._logs,
                cleaner=self._cleaner,
                controller=self._controller,
                groups=self._coordination.groups,
                group_load_times=self._coordination.group_load_times,
                lag=self._coordination.lag,
                transactions=self._coordination.observed_transactions,
                max_transaction_ms=self._config.transaction_max_timeout_ms,
                listeners=self._listeners,
                request_memory=self._listeners.request_memory,
                purgatories=[
                    self._replicas.produce_purgatory,
                    self._replicas.fetch_purgatory,
                    self._replicas.deletion.purgatory,
                    self._topics.purgatory,
                    self._elections.purgatory,
                    *self._coordination.groups.purgatories,
                ],
                topic_stats=self._topic_stats,
                request_stats=self.request_stats,
                broker_state=lambda: self.state,
                waiting_requests=lambda: dispatcher.waiting,
                session_counts=lambda: (self._sessions_expired, self._disconnects, self._connects),
                zookeeper_latency=self._zookeeper_latency,
                throttle=self._quotas.throttle,
            ),
        )

    async def _until_out_of_sync(self) -> None:
        wait_ms = self._config.zookeeper_session_timeout_ms + REGISTRATION_SLACK_MS
        await until_out_of_sync(self._zk, self._clock, self._config.broker_id, wait_ms=wait_ms)

    async def _register(self, *, first: Callable[[], Awaitable[None]] | None = None) -> None:
        """Register this broker in ZooKeeper."""
        self._epoch = await self._registrar.register(self._listeners.registration(), first=first)
        self._registered.set()

    # Events while the broker runs

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.SUSPENDED:
            self._disconnects += 1
        elif event is SessionEvent.EXPIRED:
            self._sessions_expired += 1
        elif event in (SessionEvent.ESTABLISHED, SessionEvent.RESUMED):
            self._connects += 1

    async def _register_again(self) -> None:
        """Register again after an expired session. The controller's runtime calls this before anything else."""
        try:
            await self._register()
        except registration.BrokerIdInUse as error:
            self._fail(str(error))
            raise

    def _directory_failed(self, path: str, gone: Iterable[TopicPartition]) -> None:
        """Take the replicas of a failed directory offline and notify the controller (KIP-112)."""
        self._replicas.directory_failed(path, gone)
        self._tasks.spawn(
            registration.announce_directory_failure(self._zk, self._clock, self._config.broker_id),
            name="announce-directory-failure",
        )

    def _config_changed(self, entity_path: str) -> None:
        self._quotas.entity_changed(entity_path)
        kind, _, name = entity_path.partition("/")
        if kind == "topics" and name:
            self._tasks.spawn(persist(partial(self._configs.reload, name), self._clock), name=f"reload-config-{name}")
            self._tell_controller_of_settings(name)
        elif kind == "users" and name:
            self._logins.user_changed(name)
        elif kind == "brokers" and name:
            self._tasks.spawn(
                persist(partial(self._settings.reload, name), self._clock), name=f"reload-settings-of-{name}"
            )
            self._tell_controller_of_settings(None)

    def _take_settings(self, config: BrokerConfig) -> None:
        self._config = config

    def _image_changed(self, changed: Iterable[TopicPartition]) -> None:
        image = self._view.image
        self._metadata.image_changed()
        self._topics.image_changed({partition.topic for partition in changed})
        self._elections.image_changed(changed)
        for partition in changed:
            state = image.partition(partition)
            if state is not None and self._config.broker_id not in state.replicas:
                self._replicas.roles.moved_away(partition, state.leader_epoch)
            self._replicas.recheck(
                partition
            )  # DeleteRecords only waits for live replicas, so a change of brokers can complete it.
        gone = [partition for partition in changed if image.partition(partition) is None]
        self._coordination.groups.on_partitions_deleted(gone)
        for topic in {partition.topic for partition in gone} - image.topics.keys():
            self._topic_stats.retire(topic)
            self._configs.forget(topic)

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)

    # Stop

    async def stop(self) -> None:
        """Move leadership to other brokers, then stop all parts in reverse order. Idempotent."""
        if self.state is BrokerState.RUNNING and self._config.controlled_shutdown_enable:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._replicas.roles.is_leaving = True
            await self._link.hand_over(self._config, self._clock)
        self.state = BrokerState.SHUTTING_DOWN
        await self._tasks.close()
        await self._closers.aclose()
        self.state = BrokerState.NOT_RUNNING
