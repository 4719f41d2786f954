"""CreateTopics, DeleteTopics and CreatePartitions, and the automatic creation of topics on Metadata requests.

The handlers validate, write to ZooKeeper through `controller/topics/topic_admin`, and wait in a purgatory until the
metadata image has the result, or until the timeout. Only the active controller handles these requests, so that one of
two conflicting requests is rejected. Any broker may create a topic automatically, because its znode is created once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import (
    NONE,
    ConfigError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    NotControllerError,
    OdradekError,
    PolicyViolationError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import Clock
from odradek.base.topic_rules import (
    assign_replicas,
    check_assignment,
    check_replicas,
    check_topic_name,
    colliding_topic,
    growth_start,
)
from odradek.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, ZERO_UUID
from odradek.cluster import ClusterImage, MetadataCache
from odradek.controller.topics import topic_admin
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    DeleteTopicsRequest,
)
from odradek.protocol.release_versions import has_topic_ids
from odradek.security.quotas.quota_model import QuotaTable
from odradek.server.admin.image_waits import ImageWait
from odradek.server.configs.broker_configs import BrokerSettings
from odradek.server.configs.config_entries import Entry, topic_entries
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import wire_error
from odradek.server.throttling.client_throttle import ClientThrottle, RequestMutations
from odradek.timer.purgatory import Purgatory
from odradek.zk import registration
from odradek.zk.port import ZkClient

logger = logging.getLogger(__name__)

BROKER_DEFAULT: Final = -1
"""Number of partitions or replication factor that means the broker's default (KIP-464)."""

MAX_NEW_PARTITIONS: Final = 10_000
"""Maximum number of new partitions per topic in a request, as in Kafka with KRaft. Without a limit, one number in a
request could exhaust the broker's time and memory; ZooKeeper rejects znodes above 1 MiB anyway."""

DELETION_DISABLED_SINCE: Final = 3
"""First DeleteTopics version whose clients know TOPIC_DELETION_DISABLED; older ones get INVALID_REQUEST."""

CREATION_STRICT_SINCE: Final = 6
DELETION_STRICT_SINCE: Final = 5
GROWTH_STRICT_SINCE: Final = 3
"""First versions of CreateTopics, DeleteTopics and CreatePartitions whose clients know THROTTLING_QUOTA_EXCEEDED."""

Assignment = Mapping[int, Sequence[int]]
Machines = Mapping[int, str]
"""The machines of brokers, by broker id. See `assign_replicas`."""


class TopicHandlers:
    """Handlers that create, extend and delete topics."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        view: MetadataCache,
        zk: ZkClient,
        is_controller: Callable[[], bool],
        clock: Clock,
        throttle: ClientThrottle | None = None,
    ) -> None:
        """`is_controller` returns whether this broker is the active controller. Without `throttle`, clients have no
        quotas."""
        self._settings = settings
        self._view = view
        self._zk = zk
        self._is_controller = is_controller
        self._clock = clock
        self._throttle = throttle or ClientThrottle(QuotaTable(), clock)
        self._waits: Purgatory[ImageWait] = Purgatory(clock, "topic")
        self._creating: set[str] = set()

    @property
    def purgatory(self) -> Purgatory[ImageWait]:
        """The requests that wait for the image, for metrics."""
        return self._waits

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(CreateTopicsRequest, self.create_topics),
                route(DeleteTopicsRequest, self.delete_topics),
                route(CreatePartitionsRequest, self.create_partitions),
            ]
        )

    def image_changed(self, topics: Iterable[str]) -> None:
        """Check the waits for these topics. Called after each UpdateMetadata."""
        for topic in topics:
            self._waits.check(topic)

    def close(self) -> None:
        """End all waits. Idempotent."""
        self._waits.close()

    def _mutations(self, context: RequestContext, strict_since: int) -> RequestMutations:
        is_strict = context.api_version >= strict_since
        return self._throttle.mutations(context.identity.principal.name, context.client_id, is_strict=is_strict)

    async def _wait(self, topic: str, condition: Callable[[ClusterImage], bool], timeout_ms: float) -> bool:
        wait = ImageWait(self._view, condition, timeout_ms)
        self._waits.try_complete_else_watch(wait, [topic])
        try:
            return await wait.outcome
        finally:
            wait.complete()  # if the handler was cancelled, nothing waits for it any more

    def _require_controller(self) -> None:
        if not self._is_controller():
            raise NotControllerError("This broker is not the controller: send the request to the controller.")

    # Creation

    async def create_topics(self, context: RequestContext, request: CreateTopicsRequest) -> Message:
        """Handle CreateTopics, with given or generated assignments (KIP-4, KIP-464, KIP-525)."""
        self._require_controller()
        names = [topic.name for topic in request.topics]
        machines = await registration.machines(self._zk)
        mutations = self._mutations(context, CREATION_STRICT_SINCE)
        results = await asyncio.gather(
            *(
                self._create_one(topic, request, machines, mutations, duplicate=names.count(topic.name) > 1)
                for topic in request.topics
            )
        )
        return {"throttle_time_ms": mutations.throttle_ms(), "topics": results}

    async def _create_one(
        self,
        topic: CreateTopicsRequestCreatableTopic,
        request: CreateTopicsRequest,
        machines: Machines,
        mutations: RequestMutations,
        *,
        duplicate: bool,
    ) -> dict[str, object]:
        try:
            if duplicate:
                raise InvalidRequestError(f"Topic {topic.name} is named more than once in the request.")
            overrides, in_force, assignment = self._checked(topic, machines)
            topic_id = ZERO_UUID
            if not request.validate_only:
                mutations.charge(len(assignment))
                topic_id = await self._create(topic.name, assignment, overrides, request.timeout_ms)
            return _created(topic.name, topic_id, assignment, topic_entries(self._settings, overrides, in_force))
        except OdradekError as error:
            return _not_created(topic.name, error)

    def _checked(
        self, topic: CreateTopicsRequestCreatableTopic, machines: Machines
    ) -> tuple[dict[str, str], TopicConfig, Assignment]:
        """Return overrides, effective settings and assignment of a new topic.

        The checks are in Kafka's order, so that a request with several errors gets the same one as from Kafka: whether
        the topic exists, the assignment, the name, then the settings.
        """
        image = self._view.image
        if topic.name in image.topics:
            raise TopicAlreadyExistsError(f"Topic {topic.name} already exists.")
        overrides = {entry.name: entry.value for entry in topic.configs if entry.value is not None}
        if any(entry.value is None for entry in topic.configs):
            raise InvalidConfigError(f"A setting of topic {topic.name} has no value.")
        assignment = self._assignment(topic, machines)
        check_topic_name(topic.name)
        other = colliding_topic(topic.name, list(image.topics))
        if other is not None:
            raise InvalidTopicError(
                f"Topic {topic.name} collides with topic {other}: in names of metrics, '.' and '_' are the same."
            )
        check_assignment(assignment, list(image.brokers))
        try:
            return overrides, TopicConfig.of(self._settings.config, overrides), assignment
        except ConfigError as error:
            raise InvalidConfigError(str(error)) from error

    def _assignment(self, topic: CreateTopicsRequestCreatableTopic, machines: Machines) -> Assignment:
        """Return the assignment of the request, which is not validated yet, or a generated one."""
        if topic.assignments:
            if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
                raise InvalidRequestError(
                    "Give either an assignment, or a number of partitions and a replication factor."
                )
            chosen = {entry.partition_index: list(entry.broker_ids) for entry in topic.assignments}
            if len(chosen) != len(topic.assignments):
                raise InvalidReplicaAssignmentError(f"A partition of topic {topic.name} is assigned twice.")
            return chosen
        partitions = (
            self._settings.config.num_partitions if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions
        )
        factor = topic.replication_factor
        if factor == BROKER_DEFAULT:
            factor = self._settings.config.default_replication_factor
        return self._generated(partitions, factor, machines)

    def _generated(
        self, partitions: int, factor: int, machines: Machines, existing: Assignment | None = None
    ) -> Assignment:
        if partitions > MAX_NEW_PARTITIONS:
            raise PolicyViolationError(
                f"A request can create at most {MAX_NEW_PARTITIONS} partitions per topic, not {partitions}."
            )
        brokers = {broker.broker_id: broker.rack for broker in self._view.image.brokers.values()}
        if not brokers:
            raise InvalidReplicationFactorError("This broker does not know the live brokers yet: try again.")
        start, shift = (int(self._clock.random() * len(brokers)) for _ in range(2))
        if existing:
            start = shift = growth_start(list(brokers), existing)
        return assign_replicas(
            brokers, partitions, factor, start_index=start, shift=shift, existing=existing, machines=machines
        )

    async def _create(self, name: str, assignment: Assignment, overrides: Mapping[str, str], timeout_ms: float) -> UUID:
        topic_id = self._new_id()
        await topic_admin.create_topic(self._zk, name, assignment, configs=overrides, topic_id=topic_id)

        def has_leaders(image: ClusterImage) -> bool:
            topic = image.topics.get(name)
            return (
                topic is not None
                and len(topic.partitions) == len(assignment)
                and all(state.leader >= 0 for state in topic.partitions.values())
            )

        if not await self._wait(name, has_leaders, timeout_ms):
            raise RequestTimedOutError(
                f"Topic {name} was created, but not all partitions have leaders within the timeout."
            )
        return topic_id

    def _new_id(self) -> UUID:
        """Return a new topic id; `ZERO_UUID` if the inter-broker protocol has no topic ids."""
        if not has_topic_ids(self._settings.config.inter_broker_protocol_version):
            return ZERO_UUID
        return UUID(bytes=self._clock.token_bytes(16), version=4)

    async def auto_create(self, names: Iterable[str], context: RequestContext) -> None:
        """Start to create topics with the broker's defaults for a client, which is charged. Failures are logged."""
        mutations = self._throttle.mutations(context.identity.principal.name, context.client_id, is_strict=False)
        for name in names:
            if name in self._creating:
                continue
            self._creating.add(name)
            try:
                mutations.charge(await self.ensure_topic(name))
            except OdradekError as error:
                logger.warning("topic %s, which a client requested, cannot be created: %s", name, error)
            finally:
                self._creating.discard(name)

    async def ensure_topic(self, name: str) -> int:
        """Create a topic if it does not exist, and return the number of new partitions. An internal topic gets the
        settings for it. Raises the error if it cannot be created."""
        if name in self._view.image.topics:
            return 0
        check_topic_name(name)
        partitions, factor, overrides = _new_topic(name, self._settings.config)
        try:
            await topic_admin.create_topic(
                self._zk,
                name,
                self._generated(partitions, factor, await registration.machines(self._zk)),
                configs=overrides,
                topic_id=self._new_id(),
            )
        except TopicAlreadyExistsError:
            logger.debug("another broker has created topic %s", name)
            return 0
        return partitions

    # Deletion

    async def delete_topics(self, context: RequestContext, request: DeleteTopicsRequest) -> Message:
        """Handle DeleteTopics, by name or, from version 6, by topic id (KIP-516)."""
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
        if any(name is not None and topic_id != ZERO_UUID for name, topic_id in wanted):
            raise InvalidRequestError("Give the name or the id of a topic, not both.")
        wanted += [(name, ZERO_UUID) for name in request.topic_names]
        self._require_controller()
        if not self._settings.config.delete_topic_enable:
            reason = "delete.topic.enable is false on this cluster."
            known = context.api_version >= DELETION_DISABLED_SINCE
            raise TopicDeletionDisabledError(reason) if known else InvalidRequestError(reason)
        timeout_ms, mutations = request.timeout_ms, self._mutations(context, DELETION_STRICT_SINCE)
        results = await asyncio.gather(
            *(self._delete_one(name, topic_id, timeout_ms, mutations) for name, topic_id in wanted)
        )
        return {"throttle_time_ms": mutations.throttle_ms(), "responses": results}

    async def _delete_one(
        self, name: str | None, topic_id: UUID, timeout_ms: float, mutations: RequestMutations
    ) -> dict[str, object]:
        error_code, message = NONE, None
        try:
            image = self._view.image
            if name is None:
                name = image.topic_names.get(topic_id)
                if name is None:
                    raise UnknownTopicIdError(f"A topic with id {topic_id} does not exist.")
            elif name not in image.topics:
                raise UnknownTopicOrPartitionError(f"Topic {name} does not exist.")
            topic_id = image.topic_id(name)
            mutations.charge(len(image.topics[name].partitions))
            await topic_admin.delete_topic(self._zk, name)
            gone = name
            if not await self._wait(gone, lambda image: gone not in image.topics, timeout_ms):
                raise RequestTimedOutError(
                    f"Topic {gone} is marked for deletion, but was not deleted within the timeout."
                )
        except OdradekError as error:
            error_code, message = _code_and_message(error)
        return {"name": name, "topic_id": topic_id, "error_code": error_code, "error_message": message}

    # New partitions

    async def create_partitions(self, context: RequestContext, request: CreatePartitionsRequest) -> Message:
        """Handle CreatePartitions: add partitions to topics (KIP-195)."""
        self._require_controller()
        names = [topic.name for topic in request.topics]
        machines = await registration.machines(self._zk)
        mutations = self._mutations(context, GROWTH_STRICT_SINCE)
        results = await asyncio.gather(
            *(
                self._grow_one(topic, request, machines, mutations, duplicate=names.count(topic.name) > 1)
                for topic in request.topics
            )
        )
        return {"throttle_time_ms": mutations.throttle_ms(), "results": results}

    async def _grow_one(
        self,
        topic: CreatePartitionsRequestTopic,
        request: CreatePartitionsRequest,
        machines: Machines,
        mutations: RequestMutations,
        *,
        duplicate: bool,
    ) -> dict[str, object]:
        error_code, message = NONE, None
        try:
            if duplicate:
                raise InvalidRequestError(f"Topic {topic.name} is named more than once in the request.")
            await self._grow(topic, request, machines, mutations)
        except OdradekError as error:
            error_code, message = _code_and_message(error)
        return {"name": topic.name, "error_code": error_code, "error_message": message}

    async def _grow(
        self,
        topic: CreatePartitionsRequestTopic,
        request: CreatePartitionsRequest,
        machines: Machines,
        mutations: RequestMutations,
    ) -> None:
        known = self._view.image.topics.get(topic.name)
        if known is None:
            raise UnknownTopicOrPartitionError(f"Topic {topic.name} does not exist.")
        present = len(known.partitions)
        if topic.count <= present:
            raise InvalidPartitionsError(
                f"Topic {topic.name} has {present} partitions. The number can only increase, not become {topic.count}."
            )
        existing = {number: state.replicas for number, state in known.partitions.items()}
        added = self._added(topic, existing, machines)
        if request.validate_only:
            return
        mutations.charge(len(added))
        await topic_admin.create_partitions(self._zk, topic.name, added)

        def has_grown(image: ClusterImage) -> bool:
            grown = image.topics.get(topic.name)
            return grown is not None and all(
                number in grown.partitions and grown.partitions[number].leader >= 0 for number in added
            )

        if not await self._wait(topic.name, has_grown, request.timeout_ms):
            raise RequestTimedOutError(
                f"Partitions of {topic.name} were created, but not all have leaders within the timeout."
            )

    def _added(self, topic: CreatePartitionsRequestTopic, existing: Assignment, machines: Machines) -> Assignment:
        present, factor = len(existing), len(existing[min(existing)])
        if topic.assignments is None:
            return self._generated(topic.count - present, factor, machines, existing)
        chosen = [list(entry.broker_ids) for entry in topic.assignments]
        if len(chosen) != topic.count - present:
            raise InvalidReplicaAssignmentError(
                f"The request adds {topic.count - present} partitions, but has assignments of {len(chosen)}."
            )
        added = {max(existing) + 1 + index: replicas for index, replicas in enumerate(chosen)}
        check_replicas(added, list(self._view.image.brokers))
        if any(len(replicas) != factor for replicas in chosen):
            raise InvalidReplicaAssignmentError(
                f"Each new partition must have {factor} replicas, like the existing ones."
            )
        return added


def _created(name: str, topic_id: UUID, assignment: Assignment, entries: Iterable[Entry]) -> dict[str, object]:
    fields = ("name", "value", "read_only", "config_source", "is_sensitive")
    configs = [{key: entry[key] for key in fields} for entry in entries]
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": NONE,
        "error_message": None,
        "num_partitions": len(assignment),
        "replication_factor": len(assignment[0]),
        "configs": configs,
    }


def _code_and_message(error: OdradekError) -> tuple[int, str]:
    """Return the code and the message of an error in the response."""
    known = wire_error(error)
    if known is not error:
        logger.warning("%s", error)
    return known.code, str(known)


def _not_created(name: str, error: OdradekError) -> dict[str, object]:
    error_code, message = _code_and_message(error)
    return {
        "name": name,
        "topic_id": ZERO_UUID,
        "error_code": error_code,
        "error_message": message,
        "topic_config_error_code": NONE,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _new_topic(name: str, config: BrokerConfig) -> tuple[int, int, dict[str, str]]:
    """Return partitions, replication factor and settings of a topic that a broker creates."""
    if name == GROUP_METADATA_TOPIC:
        return (
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return (
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return config.num_partitions, config.default_replication_factor, {}
