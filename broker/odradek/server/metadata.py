"""ApiVersions, Metadata, DescribeCluster and DescribeLogDirs: what a client must know before it can do anything.

Requests enter from `server/dispatch`; everything is answered from the cluster image and the log manager of the moment.
Topics that do not exist are made through `TopicCreator` when client and broker both allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from odradek.base.errors import (
    NONE,
    InvalidTopicError,
    KafkaStorageError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from odradek.base.topics import check_topic_name
from odradek.base.types import INTERNAL_TOPICS, NO_BROKER, ZERO_UUID, TopicPartition
from odradek.cluster import ClusterImage, ClusterView, PartitionState, Topic
from odradek.log.manager import LogManager
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.server.dispatch import Handler, RequestContext
from odradek.server.fields import field

LISTENER_ERRORS_SINCE: Final = 6
"""First Metadata version whose clients know LISTENER_NOT_FOUND (KIP-103 follow-up)."""

TOPIC_IDS_SINCE: Final = 12
"""First Metadata version in which a topic may be asked for by its id alone (KIP-516)."""

BROKER_ENDPOINTS: Final = 1
"""DescribeCluster's endpoint type for brokers (KIP-919); controllers have none of their own here."""


class TopicCreator(Protocol):
    """Makes topics that clients ask for."""

    async def auto_create(self, names: Iterable[str]) -> None:
        """Begin to make the topics with the broker's defaults; those that cannot be made are left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What this broker is."""

    broker_id: int
    cluster_id: str
    auto_create_topics: bool


class MetadataHandlers:
    """Handlers over the image of the cluster."""

    def __init__(self, *, identity: Identity, view: ClusterView, logs: LogManager, creator: TopicCreator) -> None:
        """`view` holds the image of the moment; it is read anew for each request."""
        self._identity = identity
        self._view = view
        self._logs = logs
        self._creator = creator

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
        }

    async def api_versions(self, context: RequestContext, request: Any) -> Message:
        """The API table, without what only brokers may send (KIP-35, KIP-511)."""
        keys = [
            {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
            for api in API_TABLE.values()
        ]
        return {"error_code": NONE, "api_keys": keys, "throttle_time": 0}

    async def metadata(self, context: RequestContext, request: Any) -> Message:
        """Brokers, controller and topics: all, or those that are asked for."""
        image = self._view.image
        wanted = request.topics
        if wanted is None or (context.api_version == 0 and not wanted):
            topics = [topic_entry(image, topic, context) for topic in image.topics.values()]
        else:
            topics = [self._entry(image, item, context) for item in wanted]
            await self._create_missing(image, request, topics)
        return {
            "throttle_time": 0,
            "brokers": broker_entries(image, context.listener, "node_id"),
            "cluster_id": self._identity.cluster_id,
            "controller_id": image.controller_id,
            "topics": topics,
        }

    def _entry(self, image: ClusterImage, item: Any, context: RequestContext) -> dict[str, object]:
        topic_id: UUID = field(item, "topic_id", ZERO_UUID)
        if context.api_version >= TOPIC_IDS_SINCE and topic_id != ZERO_UUID:
            name = image.topic_names.get(topic_id)
            if name is None:
                return _absent(None, topic_id, UnknownTopicIdError.code)
            return topic_entry(image, image.topics[name], context)
        topic = image.topics.get(item.name)
        if topic is not None:
            return topic_entry(image, topic, context)
        try:
            check_topic_name(item.name)
        except InvalidTopicError as error:
            return _absent(item.name, ZERO_UUID, error.code)
        return _absent(item.name, ZERO_UUID, UnknownTopicOrPartitionError.code)

    async def _create_missing(self, image: ClusterImage, request: Any, entries: list[dict[str, object]]) -> None:
        missing = [str(entry["name"]) for entry in entries if entry["error_code"] == UnknownTopicOrPartitionError.code]
        if missing and self._identity.auto_create_topics and field(request, "allow_auto_topic_creation", True):
            # As in Kafka the client is told "unknown, try again": it comes back when the topic has its leaders.
            await self._creator.auto_create(missing)

    async def describe_cluster(self, context: RequestContext, request: Any) -> Message:
        """Brokers and controller, for admin clients (KIP-700)."""
        image = self._view.image
        if field(request, "endpoint_type", BROKER_ENDPOINTS) != BROKER_ENDPOINTS:
            raise UnsupportedVersionError(
                "only the endpoints of brokers can be described: controllers are brokers here"
            )
        return {
            "throttle_time": 0,
            "error_code": NONE,
            "endpoint_type": BROKER_ENDPOINTS,
            "cluster_id": self._identity.cluster_id,
            "controller_id": image.controller_id,
            "brokers": broker_entries(image, context.listener, "broker_id"),
        }

    async def describe_log_dirs(self, context: RequestContext, request: Any) -> Message:
        """Sizes of directories and replicas; all of them, or those that are asked for (KIP-113)."""
        wanted = None
        if request.topics is not None:
            wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
        results = []
        for directory in self._logs.directories():
            topics: dict[str, list[dict[str, object]]] = {}
            for topic_partition, size_bytes in directory.sizes.items():
                if wanted is None or topic_partition in wanted:
                    topics.setdefault(topic_partition.topic, []).append(
                        {
                            "partition_index": topic_partition.partition,
                            "partition_size": size_bytes,
                            "offset_lag": self._lag(topic_partition),
                            "is_future_key": False,
                        }
                    )
            results.append(
                {
                    "error_code": NONE if directory.failure is None else KafkaStorageError.code,
                    "log_dir": directory.path,
                    "topics": [{"name": name, "partitions": entries} for name, entries in topics.items()],
                    "total_bytes": directory.total_bytes,
                    "usable_bytes": directory.free_bytes,
                }
            )
        return {"throttle_time": 0, "error_code": NONE, "results": results}

    def _lag(self, topic_partition: TopicPartition) -> int:
        """Committed records that this replica does not have yet."""
        log = self._logs.get(topic_partition)
        return 0 if log is None else max(0, log.high_watermark - log.log_end_offset)


def broker_entries(image: ClusterImage, listener: str, id_field: str) -> list[dict[str, object]]:
    """The live brokers that have the listener by which the client came."""
    entries: list[dict[str, object]] = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            entries.append(
                {id_field: broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            )
    return entries


def topic_entry(image: ClusterImage, topic: Topic, context: RequestContext) -> dict[str, object]:
    """A topic of a Metadata response."""
    return {
        "error_code": NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [_partition_entry(image, number, state, context) for number, state in topic.partitions.items()],
    }


def _partition_entry(
    image: ClusterImage, number: int, state: PartitionState, context: RequestContext
) -> dict[str, object]:
    leader, error_code = state.leader, NONE
    broker = image.brokers.get(leader)
    if broker is None:
        leader, error_code = NO_BROKER, LeaderNotAvailableError.code
    elif broker.endpoint(context.listener) is None:
        known = context.api_version >= LISTENER_ERRORS_SINCE
        leader = NO_BROKER
        error_code = ListenerNotFoundError.code if known else LeaderNotAvailableError.code
    offline = [
        replica for replica in state.replicas if replica not in image.brokers or replica in state.offline_replicas
    ]
    return {
        "error_code": error_code,
        "partition_index": number,
        "leader_id": leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": offline,
    }


def _absent(name: str | None, topic_id: UUID, error_code: int) -> dict[str, object]:
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }
