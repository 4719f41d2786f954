"""The server of one broker in memory: real handlers, dispatcher, connections and logs, without sockets and ZooKeeper.

Frames pass through `network.connection` and the codec, so a test sees what a client would. `announce` replaces the
controller: it assigns roles and sends the metadata image with real LeaderAndIsr and UpdateMetadata requests. Group
and producer id APIs answer COORDINATOR_NOT_AVAILABLE; `groups` has test support for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from odradek.base.config import BrokerConfig
from odradek.base.errors import CoordinatorNotAvailableError, NetworkError, NotControllerError, ProtocolError
from odradek.base.ports import Buffer, Clock, DiskThreadsMaker, Workers
from odradek.base.system_ports import SystemFiles
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.controller import features
from odradek.controller.elections.candidates import ElectionKind
from odradek.controller.features import FeatureUpdate
from odradek.controller.reassignment.reassigner import Targets
from odradek.coordinator.transactions.transaction_values import TransactionVerifier
from odradek.log.log_manager import LogManager
from odradek.metrics.request_stats import RequestStats
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.network.connection import Connection, Request
from odradek.network.connection_options import ConnectionOptions
from odradek.network.small_requests import SmallAnswers
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, decode_response, encode_request
from odradek.replication.follower.fetch_loop import LeaderChannel
from odradek.replication.replica_manager import ReplicaManager, ReplicaPorts
from odradek.replication.replica_requests import CommittedIsr
from odradek.replication.sessions.fetch_session import FetchSessions
from odradek.security.tokens import TokenLimits
from odradek.server.admin.elections import ElectionHandlers
from odradek.server.admin.feature_handlers import FeatureHandlers
from odradek.server.admin.log_dir_handlers import LogDirHandlers
from odradek.server.admin.reassignments import ReassignmentHandlers
from odradek.server.admin.topic_handlers import TopicHandlers
from odradek.server.authorization.authorizer import Authorizer
from odradek.server.authorization.guards import guarded
from odradek.server.authorization.required import GUARDS
from odradek.server.configs.broker_configs import BrokerSettings
from odradek.server.configs.config_handlers import ConfigHandlers
from odradek.server.configs.config_store import ConfigStore
from odradek.server.control import ControlHandlers
from odradek.server.data.describe_producers import ProducerHandlers
from odradek.server.data.list_offsets import OffsetHandlers
from odradek.server.data.produce_and_fetch import DataHandlers
from odradek.server.data.record_handlers import RecordHandlers
from odradek.server.data.small_produce import SmallProduceHandler
from odradek.server.dispatch import Dispatcher, Handler, RequestContext
from odradek.server.metadata_handlers import MetadataHandlers
from odradek.server.security.acl_handlers import AclHandlers
from odradek.server.security.quota_handlers import QuotaHandlers
from odradek.server.security.sasl_requests import sasl_handlers
from odradek.server.security.scram_handlers import ScramHandlers
from odradek.server.security.token_handlers import TokenHandlers
from odradek.server.senders import ControllerCheck, InterBrokerListeners
from odradek.server.throttling.client_throttle import ClientThrottle
from odradek.testing.memory_zk import MemoryZk
from odradek.zk.acls import AccessRules
from odradek.zk.layout import ReplicaAssignment
from odradek.zk.quotas import ClientQuotas
from odradek_testkit.inline_ports import inline_threads

BROKER_ID: Final = 1
BROKER_EPOCH: Final = 50
CLUSTER_ID: Final = "a-cluster-of-22-letter"
LISTENER: Final = "PLAINTEXT"


class MemoryController:
    """A controller with answers from the test, which also sets `is_active`."""

    def __init__(self) -> None:
        """An active controller; a controlled shutdown has nothing left to move."""
        self.is_active = True
        self.remaining: list[TopicPartition] = []
        self.outcomes: dict[TopicPartition, int | ProtocolError] = {}
        """The leader or the error of each partition, and the results of requested replica changes."""
        self.reassignments: dict[TopicPartition, ReplicaAssignment] = {}
        """Reassignments in progress."""
        self.asked: list[object] = []
        """The requests, in order."""

    async def alter_partition(self, request: Any) -> Message:
        """Reject all changes."""
        return {"throttle_time_ms": 0, "error_code": NotControllerError.code, "topics": ()}

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Return `remaining` of the test."""
        self._demand_active()
        return self.remaining

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """Return the same block each time."""
        self._demand_active()
        self.asked.append((broker_id, broker_epoch))
        return 3000, 1000

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, kind: ElectionKind
    ) -> dict[TopicPartition, int | ProtocolError]:
        """Return `outcomes` of the test."""
        self._demand_active()
        self.asked.append((kind, None if partitions is None else list(partitions)))
        return self.outcomes

    async def alter_reassignments(self, targets: Targets) -> dict[TopicPartition, ProtocolError | None]:
        """Return the errors in `outcomes` of the test, no error for other partitions."""
        self._demand_active()
        self.asked.append(dict(targets))
        found = {partition: self.outcomes.get(partition) for partition in targets}
        return {part: outcome if isinstance(outcome, ProtocolError) else None for part, outcome in found.items()}

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return `reassignments` of the test."""
        self._demand_active()
        wanted = self.reassignments if partitions is None else set(partitions)
        return {part: assignment for part, assignment in self.reassignments.items() if part in wanted}

    async def update_features(
        self, updates: Collection[FeatureUpdate], *, validate_only: bool
    ) -> dict[str, ProtocolError | None]:
        """Answer like a cluster without finalized features."""
        self._demand_active()
        self.asked.append((list(updates), validate_only))
        return features.updated({}, updates, {})[1]

    def _demand_active(self) -> None:
        if not self.is_active:
            raise NotControllerError("another broker is the controller")


class _NobodyElse:
    """Connections for a cluster without other brokers: no controller and no leader can be reached."""

    async def alter_isr(
        self, topic_partition: TopicPartition, leader_epoch: int, new_isr: tuple[int, ...], partition_epoch: int
    ) -> CommittedIsr:
        raise NetworkError("there is no controller")

    async def connect(self, leader_id: int, client_id: str) -> LeaderChannel:
        raise NetworkError(f"there is no broker {leader_id}")


class Peer:
    """The client side of a connection, and the transport of the broker side."""

    def __init__(
        self,
        handle: Callable[[Request], None],
        clock: Clock,
        listener: str = LISTENER,
        small: SmallAnswers | None = None,
    ) -> None:
        """Connect to a listener. `handle` gets the requests on the side of the broker, except those that `small`
        handles."""
        self.is_aborted = False
        self._received = bytearray()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._correlation_id = 0
        self._connection = Connection(handle, clock, listener=listener, options=ConnectionOptions(small=small))
        self._connection.connection_made(self)  # type: ignore[arg-type]  # the part of a transport that it needs

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        """Send a request and return the decoded response. Raises `NetworkError` if the broker closes the connection."""
        self._correlation_id += 1
        frame = encode_request(api_key, version, self._correlation_id, "tester", message)
        return decode_response(api_key, version, (await self.send(frame))[4:])

    def send(self, frame: bytes) -> asyncio.Future[bytes]:
        """Send any bytes, and return the next frame of the broker, including its length."""
        outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.is_aborted:
            outcome.set_exception(NetworkError("the connection was closed"))
            return outcome
        self._waiting.append(outcome)
        position = 0
        while position < len(frame) and not self.is_aborted:
            space = self._connection.get_buffer(-1)
            piece = frame[position : position + len(space)]
            space[: len(piece)] = piece
            self._connection.buffer_updated(len(piece))
            position += len(piece)
        return outcome

    # The transport

    def get_extra_info(self, name: str) -> object:
        """The address of the client."""
        return ("192.0.2.7", 50_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Do nothing: the client reads everything at once."""

    def pause_reading(self) -> None:
        """Do nothing: only the test sends data."""

    def resume_reading(self) -> None:
        """Do nothing: only the test sends data."""

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        """Receive several buffers of the broker."""
        for data in buffers:
            self.write(data)

    def write(self, data: Buffer) -> None:
        """Receive bytes of the broker, and deliver each complete frame to the caller that waits for it."""
        received = self._received
        received += data
        while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4], "big")):
            outcome = self._waiting.popleft()
            if not outcome.done():
                outcome.set_result(bytes(received[:size]))
            del received[:size]

    def close(self) -> None:
        """Close the connection."""
        self.abort()

    def abort(self) -> None:
        """Close the connection; all waiting calls fail."""
        if self.is_aborted:
            return
        self.is_aborted = True
        for outcome in self._waiting:
            if not outcome.done():
                outcome.set_exception(NetworkError("the connection was closed"))
        self._connection.connection_lost(None)


class MemoryServer:
    """Broker 1 with epoch 50 and the listener PLAINTEXT; it is the controller unless the test changes that."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        settings: Mapping[str, str] | None = None,
        replace: Mapping[ApiKey, Handler] | None = None,
        workers: Workers | None = None,
        disk_threads: DiskThreadsMaker = inline_threads,
        authorizer: Authorizer | None = None,
        access_rules: bool = False,
        verifier: TransactionVerifier | None = None,
    ) -> None:
        """`settings` of server.properties. Handlers in `replace` replace the real ones. `workers` convert records.

        Without an `authorizer`, everyone may do everything. With `access_rules`, requests can change rules.
        Without a `verifier`, transactions are not verified."""
        properties = {
            "broker.id": str(BROKER_ID),
            "log.dirs": str(directory),
            "zookeeper.connect": "localhost:2181",
            "listeners": f"{LISTENER}://localhost:9092",
            **(settings or {}),
        }
        self.config = BrokerConfig.parse(properties)[0]
        self.clock = clock
        self.zk = MemoryZk()
        self.view = MetadataCache()
        self.controller = MemoryController()
        self.topic_stats = BrokerTopicStats()
        self.request_stats = RequestStats()
        self.settings = BrokerSettings(self.zk, self.config, properties)
        self.configs = ConfigStore(self.zk, self.config)
        self.settings.subscribe(self.configs.reconfigure)
        self.logs = LogManager(SystemFiles(), clock, self.config, disk_threads=disk_threads)
        nobody = _NobodyElse()
        self.replicas = ReplicaManager(
            self.logs,
            clock,
            self.config,
            ReplicaPorts(
                isr_writer=nobody,
                cluster=self.view,
                topic_config=self.configs.topic_config,
                connect=nobody.connect,
            ),
        )
        self.logs.on_directory_failure = self.replicas.directory_failed
        self.quotas = ClientQuotas(self.zk, clock)
        """The quotas of clients. The user is ANONYMOUS, and the client id is "tester"."""
        self.throttle = ClientThrottle(self.quotas, clock)
        self.topics = TopicHandlers(
            settings=self.settings,
            view=self.view,
            zk=self.zk,
            is_controller=lambda: self.controller.is_active,
            clock=clock,
            throttle=self.throttle,
        )
        self.elections = ElectionHandlers(controller=self.controller, view=self.view, clock=clock)
        self.changed: list[TopicPartition] = []
        """Partitions in UpdateMetadata requests so far."""
        self.broker_epoch = BROKER_EPOCH
        self.registered = asyncio.Event()
        self.registered.set()
        self._workers = workers
        self._authorizer = authorizer
        self._verifier = verifier
        self.access_rules = AccessRules(self.zk, clock) if access_rules else None
        self.dispatcher = self._dispatcher(replace or {})

    def _dispatcher(self, replace: Mapping[ApiKey, Handler]) -> Dispatcher:
        self._metadata = MetadataHandlers(
            config=self.config,
            cluster_id=CLUSTER_ID,
            view=self.view,
            creator=self.topics,
            authorizer=self._authorizer,
        )
        log_dirs = LogDirHandlers(logs=self.logs, replicas=self.replicas)
        records = RecordHandlers(replicas=self.replicas, view=self.view)
        producers = ProducerHandlers(replicas=self.replicas)
        control = ControlHandlers(
            replicas=self.replicas,
            configs=self.configs,
            view=self.view,
            controller=self.controller,
            broker_epoch=lambda: self.broker_epoch,
            image_changed=self._image_changed,
            clock=self.clock,
            registered=self.registered,
            controllers=self._controllers(),
        )
        self.data = data = DataHandlers(
            replicas=self.replicas,
            sessions=FetchSessions(self.clock, 10, self.replicas.resting),
            view=self.view,
            topic_stats=self.topic_stats,
            request_stats=self.request_stats,
            clock=self.clock,
            workers=self._workers,
            authorizer=self._authorizer,
            throttle=self.throttle,
            verifier=self._verifier,
            verifies=lambda: self.settings.config.transaction_partition_verification_enable,
        )
        configs = ConfigHandlers(settings=self.settings, view=self.view, store=self.configs)
        direct = {**data.direct(), **sasl_handlers()}
        handlers = {
            **dict.fromkeys(API_TABLE.keys() - direct.keys(), _no_coordinator),
            **self.elections.handlers(),
            **ReassignmentHandlers(controller=self.controller).handlers(),
            **FeatureHandlers(controller=self.controller).handlers(),
            **AclHandlers(self.access_rules).handlers(),
            **QuotaHandlers(self.quotas).handlers(),
            **TokenHandlers(None, TokenLimits(1, 1), self.clock).handlers(),
            **ScramHandlers(self.zk).handlers(),
            **self._metadata.handlers(),
            **log_dirs.handlers(),
            **records.handlers(),
            **producers.handlers(),
            **self.topics.handlers(),
            **configs.handlers(),
            **control.handlers(),
            **OffsetHandlers(replicas=self.replicas, clock=self.clock).handlers(),
            **replace,
        }
        if self._authorizer is not None:
            handlers = guarded(handlers, GUARDS, self._authorizer, lambda: self.view.image)
        return Dispatcher(
            handlers=handlers,
            direct=direct,
            stats=self.request_stats,
            clock=self.clock,
            inter_broker=InterBrokerListeners(self.config),
            throttle=self.throttle,
        )

    def _controllers(self) -> ControllerCheck | None:
        """Do nothing: the controller that `announce` simulates is not in ZooKeeper."""
        return None

    def _image_changed(self, changed: Iterable[TopicPartition]) -> None:
        self.changed += changed
        self._metadata.image_changed()
        self.topics.image_changed({partition.topic for partition in changed})
        self.elections.image_changed(changed)

    async def start(self) -> None:
        """Load the logs, and create the znodes that every cluster has."""
        for path in ("/brokers/topics", "/config/topics", "/config/changes", "/admin"):
            await self.zk.ensure_path(path)
        if self.access_rules is not None:
            await self.access_rules.start()
        await self.logs.start(CLUSTER_ID, BROKER_ID)
        self.peer = self.connect()

    def connect(self, listener: str = LISTENER) -> Peer:
        """Another client."""
        return Peer(self.dispatcher.handle, self.clock, listener)

    def connect_producer(self) -> Peer:
        """Another client, whose small Produce requests are handled together. Unlike in a new broker, the next 1,000
        requests are not timed, because timed ones are handled alone."""
        self.request_stats.times_of("Produce").countdown = 1_000
        small = SmallProduceHandler(
            replicas=self.replicas,
            topic_stats=self.topic_stats,
            request_stats=self.request_stats,
            authorizer=self._authorizer,
            throttle=self.throttle,
        )
        return Peer(self.dispatcher.handle, self.clock, small=small)

    async def close(self) -> None:
        """Stop; idempotent."""
        if self.access_rules is not None:
            await self.access_rules.close()
        self.topics.close()
        self.elections.close()
        await self.dispatcher.close()
        await self.data.close()
        await self.replicas.close()
        await self.logs.close()

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        """Send a request over a connection that all calls share."""
        return await self.peer.ask(api_key, version, message)

    async def announce(
        self,
        topic: str = "",
        assignment: Mapping[int, Sequence[int]] | None = None,
        *,
        topic_id: UUID | None = None,
        leader_epoch: int = 0,
        brokers: Iterable[int] = (BROKER_ID,),
    ) -> None:
        """Announce the live brokers and a topic, led by the first replica of each partition."""
        states: list[Message] = [
            {
                "partition_index": number,
                "controller_epoch": 1,
                "leader": replicas[0],
                "leader_epoch": leader_epoch,
                "isr": replicas,
                "replicas": replicas,
            }
            for number, replicas in (assignment or {}).items()
        ]
        roles: Message = {
            "partition_epoch": leader_epoch,
            "adding_replicas": (),
            "removing_replicas": (),
            "is_new": leader_epoch == 0,
        }
        marks: Message = {"zk_version": leader_epoch, "offline_replicas": ()}
        sender: Message = {"controller_id": BROKER_ID, "controller_epoch": 1, "broker_epoch": BROKER_EPOCH}
        live = [
            {
                "id": broker_id,
                "endpoints": [
                    {
                        "port": 9091 + broker_id,
                        "host": f"host-{broker_id}",
                        "listener": LISTENER,
                        "security_protocol": 0,
                    }
                ],
                "rack": None,
            }
            for broker_id in brokers
        ]
        leaders = [{"broker_id": broker, "host_name": f"host-{broker}", "port": 9091 + broker} for broker in brokers]

        def topic_states(extra: Message) -> list[Message]:
            given = [{**state, **extra} for state in states]
            return [{"topic_name": topic, "topic_id": topic_id, "partition_states": given}] if topic else []

        if any(BROKER_ID in replicas for replicas in (assignment or {}).values()):
            request = {**sender, "type": 0, "topic_states": topic_states(roles), "live_leaders": leaders}
            answer = await self.ask(ApiKey.LEADER_AND_ISR, 7, request)
            assert answer.error_code == 0, answer
        request = {**sender, "topic_states": topic_states(marks), "live_brokers": live}
        answer = await self.ask(ApiKey.UPDATE_METADATA, 8, request)
        assert answer.error_code == 0, answer


async def _no_coordinator(context: RequestContext, request: Any) -> Message:
    raise CoordinatorNotAvailableError("this server has no coordinators")
