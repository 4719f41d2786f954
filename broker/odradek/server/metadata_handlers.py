"""Handlers of ApiVersions, Metadata and DescribeCluster.

The responses are built from the metadata image. A requested topic that does not exist is created by `TopicCreator` if
both the client and the broker allow it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    NONE,
    BrokerNotAvailableError,
    InvalidRequestError,
    InvalidTopicError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.topic_rules import check_topic_name
from odradek.base.types import NO_BROKER, ZERO_UUID
from odradek.cluster import ClusterImage, MetadataCache, Topic
from odradek.protocol.apis import API_TABLE, ApiKey, knows_private_apis
from odradek.protocol.codec import EncodedElements, Message
from odradek.protocol.feature_levels import LOWEST_IN_REGISTRATIONS, SUPPORTED_FEATURES
from odradek.protocol.messages.cluster import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from odradek.security.acls.model import CLUSTER_NAME, AclOperation, ResourceType
from odradek.server.admin.feature_handlers import NOTHING_FINALIZED, Finalized
from odradek.server.authorization.authorizer import NOT_REQUESTED, Authorizer, all_operations
from odradek.server.authorization.guards import Access
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.topic_entries import Absent, TopicEntries, TopicEntryForm

TOPIC_IDS_SINCE: Final = 12
"""First Metadata version that can request a topic by id (KIP-516)."""

LEVEL_0_SINCE: Final = 4
"""First ApiVersions version in which the lowest level of a feature may be 0 (KAFKA-17011)."""
SOFTWARE_SINCE: Final = 3
"""First ApiVersions version with the client's software name and version (KIP-511)."""

BROKER_ENDPOINTS: Final = 1
CONTROLLER_ENDPOINTS: Final = 2
"""DescribeCluster's endpoint types (KIP-919). There are no separate controller endpoints here."""
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115

_REFUSED: Final = TopicAuthorizationFailedError.code

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Valid software names and versions of clients (KIP-511)."""


class TopicCreator(Protocol):
    """Creates topics that clients request."""

    async def auto_create(self, names: Iterable[str], context: RequestContext) -> None:
        """Start to create topics with the broker's defaults for a client, which is charged for the partitions."""
        ...


class MetadataHandlers:
    """Handlers that use the metadata image."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        cluster_id: str,
        view: MetadataCache,
        creator: TopicCreator,
        finalized: Callable[[], Finalized] = lambda: NOTHING_FINALIZED,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`view` holds the current image, and `finalized` returns the features. Both are read for each request.

        Without an `authorizer`, everyone may see and do everything.
        """
        self._config = config
        self._cluster_id = cluster_id
        self._view = view
        self._creator = creator
        self._finalized = finalized
        self._authorizer = authorizer
        self._entries = TopicEntries()
        self._cluster_known = asyncio.Event()

    def image_changed(self) -> None:
        """Continue the requests that wait for the first image with brokers."""
        if self._view.image.brokers:
            self._cluster_known.set()

    async def _known_image(self) -> ClusterImage:
        """Return the image. Until the controller has sent it, wait.

        A response without brokers would tell clients that the cluster has none. librdkafka 2.10 and later then removes
        all brokers that it knows, and some producers never send again. Raises `BrokerNotAvailableError` after
        `initial.metadata.wait.max.ms`.
        """
        if not self._view.image.brokers:
            try:
                await asyncio.wait_for(self._cluster_known.wait(), self._config.initial_metadata_wait_max_ms / 1000.0)
            except TimeoutError as error:
                reason = "The broker has not received the metadata of the cluster from the controller: try again."
                raise BrokerNotAvailableError(reason) from error
        return self._view.image

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(ApiVersionsRequest, self.api_versions),
                route(MetadataRequest, self.metadata),
                route(DescribeClusterRequest, self.describe_cluster),
            ]
        )

    async def api_versions(self, context: RequestContext, request: ApiVersionsRequest) -> Message:
        """Handle ApiVersions: return the supported versions of all APIs (KIP-35, KIP-511) and the finalized features
        (KIP-584). Only clients of this project get the private APIs.

        Raises `InvalidRequestError` if the name or version of the client software is invalid.
        """
        return self.versions(context.api_version, request)

    def versions(self, version: int, request: ApiVersionsRequest) -> Message:
        """Return the response to ApiVersions, also to a client that has not authenticated. Raises as `api_versions`."""
        if version >= SOFTWARE_SINCE:
            _check_software("client_software_name", request.client_software_name)
            _check_software("client_software_version", request.client_software_version)
        keys = [
            {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
            for api in API_TABLE.values()
            if not api.private or knows_private_apis(request.client_software_name)
        ]
        epoch, levels = self._finalized()
        lowest_allowed = 0 if version >= LEVEL_0_SINCE else LOWEST_IN_REGISTRATIONS
        return {
            "error_code": NONE,
            "api_keys": keys,
            "throttle_time_ms": 0,
            "supported_features": [
                {"name": name, "min_version": max(lowest, lowest_allowed), "max_version": highest}
                for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            ],
            "finalized_features_epoch": epoch,
            "finalized_features": [
                {"name": name, "max_version_level": level, "min_version_level": level}
                for name, level in sorted(levels.items())
            ],
        }

    async def metadata(self, context: RequestContext, request: MetadataRequest) -> Message:
        """Handle Metadata: return the brokers, the controller, and the requested topics or all.

        A broker that has just started waits for the metadata from the controller. If it does not arrive, the connection
        is closed.
        """
        image = await self._known_image()
        access = None if self._authorizer is None else Access(self._authorizer, context, image)
        found = self._seen(image, context, request, access)
        missing = self._to_create(request, found or ())
        if access is not None and found is not None:
            refused = _not_creatable(access, missing)
            missing = [name for name in missing if name not in refused]
            found = [Absent(one.name, ZERO_UUID, _REFUSED) if one.name in refused else one for one in found]
        topics = await self._topics(image, context, request, found, access)
        if missing:
            # As in Kafka, the client gets a retriable error until the topic has leaders.
            await self._creator.auto_create(missing, context)
        return {
            "throttle_time_ms": 0,
            "brokers": broker_entries(image, context.listener, "node_id"),
            "cluster_id": self._cluster_id,
            "controller_id": image.controller_id,
            "topics": topics,
            "cluster_authorized_operations": _cluster_operations(request, access),
        }

    @staticmethod
    def _seen(
        image: ClusterImage, context: RequestContext, request: MetadataRequest, access: Access | None
    ) -> list[Topic | Absent] | None:
        """Return the topics that the client asks for and may see; None for all topics.

        A topic that the client may not describe gets an authorization error, whether it exists or not. Those that it
        did not name are left out.
        """
        wanted = request.topics
        if wanted is None or (context.api_version == 0 and not wanted):
            if access is None:
                return None
            hidden = access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, image.topics, is_logged=False)
            return [topic for name, topic in image.topics.items() if name not in hidden] if hidden else None
        _check_named(wanted, context.api_version)
        asked = dict.fromkeys((item.name, item.topic_id) for item in wanted)
        found = [_found(image, name, topic_id) for name, topic_id in asked]
        if access is None:
            return found
        names = [one.name for one in found if one.name is not None]
        hidden = access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
        return [
            Absent(name, topic_id, _REFUSED) if one.name in hidden else one
            for one, (name, topic_id) in zip(found, asked, strict=True)
        ]

    async def _topics(
        self,
        image: ClusterImage,
        context: RequestContext,
        request: MetadataRequest,
        found: list[Topic | Absent] | None,
        access: Access | None,
    ) -> EncodedElements:
        """Return the encoded topics. `found` is None for all of them."""
        form = TopicEntryForm(context.api_version, context.listener, None)
        if not request.include_topic_authorized_operations:
            return await (self._entries.every(image, form) if found is None else self._entries.some(image, form, found))
        if access is None:
            form = form._replace(operations=all_operations(ResourceType.TOPIC))
            return await (self._entries.every(image, form) if found is None else self._entries.some(image, form, found))
        pieces = []
        for one in image.topics.values() if found is None else found:
            bits = None if isinstance(one, Absent) else access.operations(ResourceType.TOPIC, one.name)
            pieces.append(await self._entries.some(image, form._replace(operations=bits), (one,)))
        return EncodedElements(len(pieces), b"".join([piece.data for piece in pieces]))

    def _to_create(self, request: MetadataRequest, found: Iterable[Topic | Absent]) -> list[str]:
        """Return the topics that do not exist, if the client and the broker allow to create them."""
        if not (self._config.auto_create_topics_enable and request.allow_auto_topic_creation):
            return []
        return [
            str(one.name)
            for one in found
            if isinstance(one, Absent) and one.error_code == UnknownTopicOrPartitionError.code
        ]

    async def describe_cluster(self, context: RequestContext, request: DescribeClusterRequest) -> Message:
        """Handle DescribeCluster: return the brokers and the controller, for admin clients (KIP-700)."""
        image = await self._known_image()
        access = None if self._authorizer is None else Access(self._authorizer, context, image)
        endpoints = request.endpoint_type
        error_code, message = NONE, None
        if endpoints == CONTROLLER_ENDPOINTS:
            error_code, message = (
                MISMATCHED_ENDPOINT_TYPE,
                "The controller is a broker and has no other endpoints: request the endpoints of brokers.",
            )
        elif endpoints != BROKER_ENDPOINTS:
            error_code, message = UNSUPPORTED_ENDPOINT_TYPE, f"Endpoint type {endpoints} does not exist."
        return {
            "throttle_time_ms": 0,
            "error_code": error_code,
            "error_message": message,
            "endpoint_type": BROKER_ENDPOINTS,
            "cluster_id": self._cluster_id,
            "controller_id": NO_BROKER if error_code else image.controller_id,
            "brokers": [] if error_code else broker_entries(image, context.listener, "broker_id"),
            "cluster_authorized_operations": _cluster_operations(request, access),
        }


def _check_software(field: str, value: str) -> None:
    if _SOFTWARE.fullmatch(value) is None:
        raise InvalidRequestError(f"{field} contains characters that are not allowed")


def _check_named(wanted: Iterable[MetadataRequestTopic], version: int) -> None:
    """Raise `InvalidRequestError` unless each topic has a name or, from version 12, an id."""
    for item in wanted:
        topic_id = item.topic_id
        if topic_id != ZERO_UUID and version < TOPIC_IDS_SINCE:
            raise InvalidRequestError(f"Topics cannot be requested by id in version {version}.")
        if item.name is None and topic_id == ZERO_UUID:
            raise InvalidRequestError("A topic is requested without a name.")


def _found(image: ClusterImage, name: str | None, topic_id: UUID) -> Topic | Absent:
    if topic_id != ZERO_UUID:
        known = image.topic_names.get(topic_id)
        return Absent(None, topic_id, UnknownTopicIdError.code) if known is None else image.topics[known]
    assert name is not None
    topic = image.topics.get(name)
    if topic is not None:
        return topic
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        return Absent(name, ZERO_UUID, error.code)
    return Absent(name, ZERO_UUID, UnknownTopicOrPartitionError.code)


def _not_creatable(access: Access, names: Iterable[str]) -> frozenset[str]:
    """Return the topics that the client may not create."""
    if access.allows_cluster(AclOperation.CREATE, is_logged=False):
        return frozenset()
    return access.denied(AclOperation.CREATE, ResourceType.TOPIC, names)


def _cluster_operations(request: MetadataRequest | DescribeClusterRequest, access: Access | None) -> int:
    """Return what the client may do with the cluster, as bits, if it asks for that; 0 if it may not describe it."""
    if not request.include_cluster_authorized_operations:
        return NOT_REQUESTED
    if access is None:
        return all_operations(ResourceType.CLUSTER)
    if not access.allows_cluster(AclOperation.DESCRIBE, is_logged=False):
        return 0
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def broker_entries(image: ClusterImage, listener: str, id_field: str) -> list[dict[str, object]]:
    """Return the live brokers that have a listener with the name of the request's listener."""
    entries: list[dict[str, object]] = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            entries.append(
                {id_field: broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            )
    return entries
