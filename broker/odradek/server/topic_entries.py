"""Caches the encoded topics of Metadata responses. Used by `server/metadata_handlers`.

With thousands of partitions, most responses have the same bytes, especially when a broker fails and all clients refresh
their metadata at once. Invariants: an encoded topic is used only while the image has the same topic object and the same
live brokers, and a request uses the same image from its beginning to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.errors import (
    NONE,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    ReplicaNotAvailableError,
)
from odradek.base.types import INTERNAL_TOPICS, NO_BROKER
from odradek.cluster import AnnouncedBroker, ClusterImage, PartitionMetadata, Topic
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import EncodedElements, Message, elements_encoder

LISTENER_ERRORS_SINCE: Final = 6
"""First Metadata version whose clients know LISTENER_NOT_FOUND (KIP-103 follow-up)."""

OFFLINE_REPLICAS_SINCE: Final = 1
"""First Metadata version that lists all replicas. Version 0 lists only those on live brokers."""

FORMS: Final = 8
"""Maximum number of forms in the cache. The clients of a cluster use few versions and listeners."""

PARTITIONS_AT_A_TIME: Final = 1_000
"""Number of partitions that are encoded before other tasks run. This takes about 5 ms."""


class TopicEntryForm(NamedTuple):
    """Everything except the image on which the encoding depends."""

    version: int
    listener: str
    operations: int | None
    """The authorized operations of each topic, as bits by ACL operation (KIP-430); None if the client does not request
    them."""


class Absent(NamedTuple):
    """A topic that was requested but does not exist."""

    name: str | None
    topic_id: UUID
    error_code: int


@dataclass(slots=True)
class _Kept:
    """The encoded topics of one form."""

    brokers: Mapping[int, AnnouncedBroker]
    topics: dict[str, tuple[Topic, bytes]] = field(default_factory=dict)
    every: tuple[ClusterImage, EncodedElements] | None = None


class TopicEntries:
    """Encoded topics by form. Used only on the event loop."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._forms: dict[TopicEntryForm, _Kept] = {}

    async def every(self, image: ClusterImage, form: TopicEntryForm) -> EncodedElements:
        """Return all topics of the image."""
        kept = self._kept(image, form)
        if kept.every is not None and kept.every[0] is image:
            return kept.every[1]
        known, fresh = kept.topics, {}
        encoder = _Encoder(image, form)
        for name, topic in image.topics.items():
            entry = known.get(name)
            fresh[name] = entry if entry is not None and entry[0] is topic else (topic, await encoder.topic(topic))
        elements = EncodedElements(len(fresh), b"".join([data for _, data in fresh.values()]))
        kept.topics, kept.every = fresh, (image, elements)
        return elements

    async def some(
        self, image: ClusterImage, form: TopicEntryForm, topics: Iterable[Topic | Absent]
    ) -> EncodedElements:
        """Return these topics of the image, in this order."""
        kept = self._kept(image, form)
        encoder = _Encoder(image, form)
        pieces = []
        for topic in topics:
            if isinstance(topic, Absent):
                pieces.append(encoder.absent(topic))
                continue
            entry = kept.topics.get(topic.name)
            if entry is None or entry[0] is not topic:
                entry = kept.topics[topic.name] = (topic, await encoder.topic(topic))
            pieces.append(entry[1])
        return EncodedElements(len(pieces), b"".join(pieces))

    def _kept(self, image: ClusterImage, form: TopicEntryForm) -> _Kept:
        """Return the cache of a form for an image. Only the most recently used forms are kept."""
        kept = self._forms.pop(form, None)
        if kept is None or kept.brokers != image.brokers:
            kept = _Kept(image.brokers)
        elif len(kept.topics) > 2 * len(image.topics):
            # Remove deleted topics.
            kept.topics = {name: entry for name, entry in kept.topics.items() if name in image.topics}
        self._forms[form] = kept
        if len(self._forms) > FORMS:
            del self._forms[next(iter(self._forms))]
        return kept


class _Encoder:
    """Encodes topics of one image in one form, and yields to other tasks in between."""

    def __init__(self, image: ClusterImage, form: TopicEntryForm) -> None:
        self._form = form
        self._brokers = image.brokers
        self._reachable = {broker.broker_id for broker in image.brokers.values() if broker.endpoint(form.listener)}
        self._left = PARTITIONS_AT_A_TIME
        self._encode_topics = elements_encoder(ApiKey.METADATA, form.version, ("topics",))
        self._encode_partitions = elements_encoder(ApiKey.METADATA, form.version, ("topics", "partitions"))

    async def topic(self, topic: Topic) -> bytes:
        """Return the array element of a topic."""
        rows = list(topic.partitions.items())
        partitions = self._partitions(rows[:PARTITIONS_AT_A_TIME])
        await self._pause_after(partitions.number)
        for start in range(PARTITIONS_AT_A_TIME, len(rows), PARTITIONS_AT_A_TIME):
            more = self._partitions(rows[start : start + PARTITIONS_AT_A_TIME])
            partitions = EncodedElements(partitions.number + more.number, partitions.data + more.data)
            await self._pause_after(more.number)
        return self._element(NONE, topic.name, topic.topic_id, partitions)

    def _partitions(self, rows: Iterable[tuple[int, PartitionMetadata]]) -> EncodedElements:
        return self._encode_partitions([self._partition(number, state) for number, state in rows])

    async def _pause_after(self, partitions: int) -> None:
        self._left -= partitions
        if self._left <= 0:
            self._left = PARTITIONS_AT_A_TIME
            await asyncio.sleep(0)

    def absent(self, topic: Absent) -> bytes:
        """Return the array element of a topic that does not exist."""
        return self._element(topic.error_code, topic.name, topic.topic_id, EncodedElements(0, b""))

    def _element(self, error_code: int, name: str | None, topic_id: UUID, partitions: EncodedElements) -> bytes:
        entry: dict[str, object] = {
            "error_code": error_code,
            "name": name,
            "topic_id": topic_id,
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": partitions,
        }
        if self._form.operations is not None:
            entry["topic_authorized_operations"] = self._form.operations
        return self._encode_topics([entry]).data

    def _partition(self, number: int, state: PartitionMetadata) -> Message:
        brokers, version = self._brokers, self._form.version
        leader, error_code = state.leader, NONE
        if leader not in self._reachable:
            known = leader in brokers and version >= LISTENER_ERRORS_SINCE
            leader = NO_BROKER
            error_code = ListenerNotFoundError.code if known else LeaderNotAvailableError.code
        replicas, isr = state.replicas, state.isr
        offline = tuple(
            [replica for replica in replicas if replica not in brokers or replica in state.offline_replicas]
        )
        if offline and version < OFFLINE_REPLICAS_SINCE:
            replicas = tuple(replica for replica in replicas if replica in brokers)
            isr = tuple(replica for replica in isr if replica in brokers)
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
