"""ApiVersions, Metadata and DescribeCluster: what a client must know before it can do anything.

Requests enter from `server/dispatch`; everything is answered from the cluster image and the log manager of the moment.
Topics that do not exist are made through `TopicCreator` when client and broker both allow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from odradek.base.errors import (
    NONE,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    ReplicaNotAvailableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.topics import check_topic_name
from odradek.base.types import INTERNAL_TOPICS, NO_BROKER, ZERO_UUID
from odradek.cluster import ClusterImage, ClusterView, PartitionState, Topic
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.server.dispatch import Handler, RequestContext
from odradek.server.fields import field

LISTENER_ERRORS_SINCE: Final = 6
"""First Metadata version whose clients know LISTENER_NOT_FOUND (KIP-103 follow-up)."""

TOPIC_IDS_SINCE: Final = 12
"""First Metadata version in which a topic may be asked for by its id alone (KIP-516)."""

OFFLINE_REPLICAS_SINCE: Final = 1
"""Version 0 of Metadata names replicas only while they are alive; later ones name all."""

BROKER_ENDPOINTS: Final = 1
CONTROLLER_ENDPOINTS: Final = 2
"""DescribeCluster's endpoint types (KIP-919); controllers have no endpoints of their own here."""
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115

TOPIC_OPERATIONS: Final = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11
"""Everything that may be done to a topic, as bits by ACL operation: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE,
DESCRIBE_CONFIGS, ALTER_CONFIGS (KIP-430). Without an authorizer, everybody may."""
CLUSTER_OPERATIONS: Final = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
"""The same for the cluster: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, the two of configs, IDEMPOTENT_WRITE."""
NOT_ASKED: Final = -(1 << 31)
"""Stands for a client that did not ask for operations."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What a client may call itself and its version (KIP-511)."""


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

    def __init__(self, *, identity: Identity, view: ClusterView, creator: TopicCreator) -> None:
        """`view` holds the image of the moment; it is read anew for each request."""
        self._identity = identity
        self._view = view
        self._creator = creator

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
        }

    async def api_versions(self, context: RequestContext, request: Any) -> Message:
        """The API table, requests between brokers included (KIP-35, KIP-511).

        Raises `InvalidRequestError` for a client software's name or version that is not allowed.
        """
        for name in ("client_software_name", "client_software_version"):
            if _SOFTWARE.fullmatch(field(request, name, "unknown")) is None:
                raise InvalidRequestError(f"{name} has characters that are not allowed")
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
            _check_named(wanted, context.api_version)
            asked = dict.fromkeys((item.name, field(item, "topic_id", ZERO_UUID)) for item in wanted)
            topics = [_entry(image, name, topic_id, context) for name, topic_id in asked]
            await self._create_missing(request, topics)
        if field(request, "include_topic_authorized_operations", False):
            for entry in topics:
                entry["topic_authorized_operations"] = TOPIC_OPERATIONS
        return {
            "throttle_time": 0,
            "brokers": broker_entries(image, context.listener, "node_id"),
            "cluster_id": self._identity.cluster_id,
            "controller_id": image.controller_id,
            "topics": topics,
            "cluster_authorized_operations": _cluster_operations(request),
        }

    async def _create_missing(self, request: Any, entries: list[dict[str, object]]) -> None:
        missing = [str(entry["name"]) for entry in entries if entry["error_code"] == UnknownTopicOrPartitionError.code]
        if missing and self._identity.auto_create_topics and field(request, "allow_auto_topic_creation", True):
            # As in Kafka the client is told "unknown, try again": it comes back when the topic has its leaders.
            await self._creator.auto_create(missing)

    async def describe_cluster(self, context: RequestContext, request: Any) -> Message:
        """Brokers and controller, for admin clients (KIP-700)."""
        image = self._view.image
        endpoints = field(request, "endpoint_type", BROKER_ENDPOINTS)
        error_code, message = NONE, None
        if endpoints == CONTROLLER_ENDPOINTS:
            error_code, message = MISMATCHED_ENDPOINT_TYPE, "Controllers are brokers here: ask for those of brokers."
        elif endpoints != BROKER_ENDPOINTS:
            error_code, message = UNSUPPORTED_ENDPOINT_TYPE, f"There is no endpoint type {endpoints}."
        return {
            "throttle_time": 0,
            "error_code": error_code,
            "error_message": message,
            "endpoint_type": BROKER_ENDPOINTS,
            "cluster_id": self._identity.cluster_id,
            "controller_id": NO_BROKER if error_code else image.controller_id,
            "brokers": [] if error_code else broker_entries(image, context.listener, "broker_id"),
            "cluster_authorized_operations": _cluster_operations(request),
        }


def _check_named(wanted: Iterable[Any], version: int) -> None:
    """Raise `InvalidRequestError` unless each topic is named, or from version 12 on given by its id."""
    for item in wanted:
        topic_id = field(item, "topic_id", ZERO_UUID)
        if topic_id != ZERO_UUID and version < TOPIC_IDS_SINCE:
            raise InvalidRequestError(f"Topics cannot be asked for by id in version {version}.")
        if item.name is None and topic_id == ZERO_UUID:
            raise InvalidRequestError("A topic is asked for without a name.")


def _entry(image: ClusterImage, name: str | None, topic_id: UUID, context: RequestContext) -> dict[str, object]:
    if topic_id != ZERO_UUID:
        known = image.topic_names.get(topic_id)
        if known is None:
            return _absent(None, topic_id, UnknownTopicIdError.code)
        return topic_entry(image, image.topics[known], context)
    assert name is not None
    topic = image.topics.get(name)
    if topic is not None:
        return topic_entry(image, topic, context)
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        return _absent(name, ZERO_UUID, error.code)
    return _absent(name, ZERO_UUID, UnknownTopicOrPartitionError.code)


def _cluster_operations(request: Any) -> int:
    return CLUSTER_OPERATIONS if field(request, "include_cluster_authorized_operations", False) else NOT_ASKED


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
    replicas, isr = state.replicas, state.isr
    offline = [replica for replica in replicas if replica not in image.brokers or replica in state.offline_replicas]
    if offline and context.api_version < OFFLINE_REPLICAS_SINCE:
        replicas = tuple(replica for replica in replicas if replica in image.brokers)
        isr = tuple(replica for replica in isr if replica in image.brokers)
        if error_code == NONE and len(replicas) < len(state.replicas):
            error_code = ReplicaNotAvailableError.code
    return {
        "error_code": error_code,
        "partition_index": number,
        "leader_id": leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": isr,
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
