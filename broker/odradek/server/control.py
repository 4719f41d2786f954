"""Handlers of requests between brokers and the controller.

LeaderAndIsr, UpdateMetadata and StopReplica change this broker's roles and its metadata image. They are refused if they
come from a replaced controller or from the controller of another cluster, or if they are for an earlier broker epoch.
The controller in this process answers ControlledShutdown, AlterPartition and AllocateProducerIds, if it is the active
one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol
from uuid import UUID

from odradek.base.errors import NONE, InvalidRequestError, StaleBrokerEpochError
from odradek.base.ports import Clock
from odradek.base.types import NO_EPOCH, ZERO_UUID, Endpoint, TopicPartition
from odradek.cluster import AnnouncedBroker, MetadataCache, PartitionMetadata
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.internal import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrRequestPartitionState,
    StopReplicaRequest,
    UpdateMetadataRequest,
    UpdateMetadataRequestBroker,
    UpdateMetadataRequestPartitionState,
)
from odradek.replication.partition import LeaderAndIsrState
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.roles import StopReplica
from odradek.server.configs.config_store import ConfigStore
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.senders import ControllerCheck
from odradek.zk.port import ConnectionLost, SessionExpired

logger = logging.getLogger(__name__)

SECURITY_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
ENDPOINTS_SINCE: Final = 1
"""First UpdateMetadata version with endpoints. In earlier versions, a broker has one host and port."""

LISTENER_NAMES_SINCE: Final = 3
"""First UpdateMetadata version that names listeners (KIP-103)."""

ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest

TOPIC_STATES_SINCE: Final = 5
"""First LeaderAndIsr version whose response groups errors by topic id."""
RETRY_MS: Final = 1000
"""Milliseconds before the settings of new topics are read from ZooKeeper again."""


class Controller(Protocol):
    """The port of these handlers to the controller in this process."""

    async def alter_partition(self, request: AlterPartitionRequest) -> Message:
        """Commit ISR changes. Raises `NotControllerError` if another broker is the controller."""
        ...

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker. Returns the partitions that it still leads. Raises
        `NotControllerError`."""
        ...

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """Allocate a block of producer ids. Returns its first id and its size. Raises `NotControllerError`."""
        ...


class ControlHandlers:
    """Handlers for requests between brokers."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        configs: ConfigStore,
        view: MetadataCache,
        controller: Controller,
        broker_epoch: Callable[[], int],
        image_changed: Callable[[Iterable[TopicPartition]], None],
        clock: Clock,
        registered: asyncio.Event | None = None,
        controllers: ControllerCheck | None = None,
    ) -> None:
        """`image_changed` is called with the partitions of each UpdateMetadata request, after the image was replaced.

        `registered` is set when `broker_epoch` is known, and requests of the controller wait until then. With None,
        they do not wait. `controllers` verifies senders. With None, every sender is accepted.
        """
        self._replicas = replicas
        self._configs = configs
        self._view = view
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._image_changed = image_changed
        self._clock = clock
        self._registered = registered
        self._controllers = controllers

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """Return the handlers by API."""
        return dict(
            [
                route(LeaderAndIsrRequest, self.leader_and_isr),
                route(UpdateMetadataRequest, self.update_metadata),
                route(StopReplicaRequest, self.stop_replica),
                route(ControlledShutdownRequest, self.controlled_shutdown),
                route(AlterPartitionRequest, self.alter_partition),
                route(AllocateProducerIdsRequest, self.allocate_producer_ids),
            ]
        )

    async def _admit(self, request: ControllerRequest) -> None:
        """Refuse stale requests and requests of other clusters.

        Listeners open before the broker is registered. A request that arrives before the registration is either for the
        earlier broker epoch, whose session has not ended yet, or for the new one, which is not known yet. Only the
        epoch distinguishes the two.
        """
        if self._registered is not None:
            await self._registered.wait()
        self._check_sender(request)
        if self._controllers is not None:
            await self._controllers.check(
                request.controller_id,
                request.controller_epoch,
                request.broker_epoch,
                self._broker_epoch(),
            )
            self._check_sender(request)
        self._replicas.roles.admit(request.controller_epoch)

    def _check_sender(self, request: ControllerRequest) -> None:
        epoch = request.broker_epoch
        own = self._broker_epoch()
        if epoch > NO_EPOCH and (epoch < own or own == NO_EPOCH):
            raise StaleBrokerEpochError(
                f"The request is for broker epoch {epoch}, but the epoch of this broker is {own}."
            )
        self._replicas.roles.check_controller(request.controller_epoch)

    async def leader_and_isr(self, context: RequestContext, request: LeaderAndIsrRequest) -> Message:
        """Handle LeaderAndIsr: lead or follow partitions as the controller decided."""
        await self._admit(request)
        states = list(_leader_and_isr_states(request))
        self._view.image = self._view.image.with_announced({topic_id: tp.topic for tp, topic_id, _ in states})
        # A log is created with its topic's settings, so read those of topics that are new to this broker: a new topic
        # causes no config change notification.
        await self._load_settings(request, {tp.topic for tp, _, _ in states if tp not in self._replicas.table.online})
        self._replicas.roles.check_controller(request.controller_epoch)  # there may be another controller by now
        codes = self._replicas.roles.apply(states)
        if context.api_version < TOPIC_STATES_SINCE:
            return {"error_code": NONE, "partition_errors": _partition_errors(codes.items())}
        topics: dict[UUID, list[tuple[TopicPartition, int]]] = {}
        for topic_partition, topic_id, _ in states:
            topics.setdefault(topic_id, []).append((topic_partition, codes[topic_partition]))
        return {
            "error_code": NONE,
            "topics": [
                {
                    "topic_id": topic_id,
                    "partition_errors": [{"partition_index": tp.partition, "error_code": code} for tp, code in entries],
                }
                for topic_id, entries in topics.items()
            ],
        }

    async def _load_settings(self, request: LeaderAndIsrRequest, topics: Collection[str]) -> None:
        """Read the settings of topics. Waits while ZooKeeper does not answer.

        The request cannot be refused, because the controller would not repeat it. A log with wrong settings may lose
        records.
        """
        while topics:
            try:
                await self._configs.load(topics)
                break
            except (ConnectionLost, SessionExpired) as error:
                logger.warning("LeaderAndIsr waits for the settings of %d topics: %s", len(topics), error)
                await self._clock.sleep_ms(RETRY_MS)
        self._check_sender(request)

    async def update_metadata(self, context: RequestContext, request: UpdateMetadataRequest) -> Message:
        """Handle UpdateMetadata: replace the metadata image."""
        await self._admit(request)
        partitions = list(_partition_states(request))
        self._view.image = self._view.image.updated(
            controller_id=request.controller_id,
            brokers=[_broker(item, context.api_version) for item in request.live_brokers],
            partitions=partitions,
        )
        self._image_changed([topic_partition for topic_partition, _, _ in partitions])
        return {"error_code": NONE}

    async def stop_replica(self, context: RequestContext, request: StopReplicaRequest) -> Message:
        """Handle StopReplica: stop replicas, and delete their logs if requested."""
        await self._admit(request)
        codes = await self._replicas.roles.stop_durably(list(_stops(request)))
        return {"error_code": NONE, "partition_errors": _partition_errors(codes.items())}

    async def controlled_shutdown(self, context: RequestContext, request: ControlledShutdownRequest) -> Message:
        """Handle ControlledShutdown: move leadership away from a broker that is about to stop."""
        remaining = await self._controller.controlled_shutdown(request.broker_id, request.broker_epoch)
        return {
            "error_code": NONE,
            "remaining_partitions": [{"topic_name": tp.topic, "partition_index": tp.partition} for tp in remaining],
        }

    async def alter_partition(self, context: RequestContext, request: AlterPartitionRequest) -> Message:
        """Handle AlterPartition: commit ISR changes that leaders propose (KIP-497)."""
        return await self._controller.alter_partition(request)

    async def allocate_producer_ids(self, context: RequestContext, request: AllocateProducerIdsRequest) -> Message:
        """Handle AllocateProducerIds, which Kafka brokers use since 3.0 (KIP-730)."""
        first, size = await self._controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        return {"throttle_time_ms": 0, "error_code": NONE, "producer_id_start": first, "producer_id_len": size}


def _leader_and_isr_states(
    request: LeaderAndIsrRequest,
) -> Iterator[tuple[TopicPartition, UUID, LeaderAndIsrState]]:
    """Yield the partition, its topic id and its state, in all versions of the request."""
    for topic in request.topic_states:
        for item in topic.partition_states:
            yield TopicPartition(topic.topic_name, item.partition_index), topic.topic_id, _leader_and_isr_state(item)
    for item in request.ungrouped_partition_states:
        yield TopicPartition(item.topic_name, item.partition_index), ZERO_UUID, _leader_and_isr_state(item)


def _leader_and_isr_state(item: LeaderAndIsrRequestPartitionState) -> LeaderAndIsrState:
    return LeaderAndIsrState(
        controller_epoch=item.controller_epoch,
        leader=item.leader,
        leader_epoch=item.leader_epoch,
        isr=item.isr,
        replicas=item.replicas,
        partition_epoch=item.partition_epoch,
        adding_replicas=item.adding_replicas,
        removing_replicas=item.removing_replicas,
        is_new=item.is_new,
    )


def _partition_states(request: UpdateMetadataRequest) -> Iterator[tuple[TopicPartition, UUID, PartitionMetadata]]:
    """Yield the partition, its topic id and its state, in all versions of the request."""
    for topic in request.topic_states:
        for item in topic.partition_states:
            yield TopicPartition(topic.topic_name, item.partition_index), topic.topic_id, _partition_state(item)
    for item in request.ungrouped_partition_states:
        yield TopicPartition(item.topic_name, item.partition_index), ZERO_UUID, _partition_state(item)


def _partition_state(item: UpdateMetadataRequestPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        leader=item.leader,
        leader_epoch=item.leader_epoch,
        isr=item.isr,
        replicas=item.replicas,
        offline_replicas=item.offline_replicas,
        controller_epoch=item.controller_epoch,
        partition_epoch=item.zk_version,
    )


def _stops(request: StopReplicaRequest) -> Iterator[StopReplica]:
    for topic_state in request.topic_states:
        for item in topic_state.partition_states:
            partition = TopicPartition(topic_state.topic_name, item.partition_index)
            yield StopReplica(partition, item.leader_epoch, item.delete_partition)
    for topic in request.topics:
        for number in topic.partition_indexes:
            yield StopReplica(TopicPartition(topic.name, number), NO_EPOCH, request.delete_partitions)
    for single in request.ungrouped_partitions:
        yield StopReplica(
            TopicPartition(single.topic_name, single.partition_index), NO_EPOCH, request.delete_partitions
        )


def _broker(item: UpdateMetadataRequestBroker, version: int) -> AnnouncedBroker:
    endpoints = tuple(
        Endpoint(
            end.listener if version >= LISTENER_NAMES_SINCE else _security_protocol(end.security_protocol),
            end.host,
            end.port,
            _security_protocol(end.security_protocol),
        )
        for end in item.endpoints
    )
    if version < ENDPOINTS_SINCE:
        endpoints = (Endpoint("PLAINTEXT", item.v0_host, item.v0_port),)
    return AnnouncedBroker(broker_id=item.id, endpoints=endpoints, rack=item.rack)


def _security_protocol(number: int) -> str:
    name = SECURITY_PROTOCOLS.get(number)
    if name is None:
        raise InvalidRequestError(f"the security protocol with the number {number} is unknown")
    return name


def _partition_errors(codes: Iterable[tuple[TopicPartition, int]]) -> list[dict[str, object]]:
    return [
        {"topic_name": topic_partition.topic, "partition_index": topic_partition.partition, "error_code": code}
        for topic_partition, code in codes
    ]
