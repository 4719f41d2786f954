"""The operator's records in ZooKeeper (`/odradek/...`) of the settings that it has written. Pure.

Kafka and its tools do not access `/odradek`, so Java brokers in the same cluster are not affected. Each record is
written in the same transaction as the settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.zk.layout import decode_uuid, encode_uuid
from odradek.znode import ZnodeJson

ROOT: Final = "/odradek"
MANAGED_TOPICS: Final = f"{ROOT}/topics"
MANAGED_BROKERS: Final = f"{ROOT}/brokers"
_VERSION: Final = 1


def managed_topic_path(topic: str) -> str:
    """Return the path of a topic's record."""
    return f"{MANAGED_TOPICS}/{topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedTopic:
    """`/odradek/topics/T`: the overrides of a topic that belong to its resource."""

    topic: str
    topic_id: UUID | None
    """Id of the topic. A topic that others deleted and created again has another id, and the record does not apply to
    it."""
    resource: str
    """Uid of the Topic resource; empty in an embedded cluster. If the resource is replaced by one with another uid, the
    topic is adopted again."""
    owned: frozenset[str]
    """Keys in the resource. A key that is removed from the resource is also removed from the topic."""
    preserved: frozenset[str]
    """Keys that others had set before the resource adopted the topic. They are kept."""

    @property
    def path(self) -> str:
        """The path of the record."""
        return managed_topic_path(self.topic)

    def encode(self) -> bytes:
        """Encode version 1."""
        node: dict[str, object] = {
            "version": _VERSION,
            "topic_id": "" if self.topic_id is None else encode_uuid(self.topic_id),
            "resource": self.resource,
            "owned": sorted(self.owned),
            "preserved": sorted(self.preserved),
        }
        return json.dumps(node, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, topic: str, data: bytes) -> ManagedTopic:
        """Decode version 1. Raises `LayoutError`."""
        node = ZnodeJson(managed_topic_path(topic), data)
        if node.integer("version") != _VERSION:
            raise node.error("version", f"{_VERSION}")
        text = node.text("topic_id")
        try:
            topic_id = decode_uuid(text) if text else None
        except ValueError as error:
            raise node.error("topic_id", "an id") from error
        return cls(
            topic=topic,
            topic_id=topic_id,
            resource=node.text("resource"),
            owned=frozenset(node.text_list("owned")),
            preserved=frozenset(node.text_list("preserved")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersOwnership:
    """The default settings and the broker ids in an ensemble that belong to one Cluster resource."""

    owned: frozenset[str] = frozenset()
    """Keys of `/config/brokers/<default>` in the resource. A key that is removed from the resource is also removed from
    the znode."""
    preserved: frozenset[str] = frozenset()
    """Keys that others had set before the cluster got its record. They are kept. Used only in a dedicated ensemble: in
    a shared one, all keys of others are kept."""
    ids: frozenset[int] = frozenset()
    """Ids of the cluster's brokers. Used only in a shared ensemble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedBrokers:
    """`/odradek/brokers`: the owners of default settings of brokers and of broker ids."""

    clusters: Mapping[str, BrokersOwnership] = field(default_factory=dict)
    """Owners by uid of the Cluster resource, because several clusters can share an ensemble."""

    def encode(self) -> bytes:
        """Encode version 1."""
        clusters = {
            uid: {"owned": sorted(one.owned), "preserved": sorted(one.preserved), "ids": sorted(one.ids)}
            for uid, one in sorted(self.clusters.items())
        }
        return json.dumps({"version": _VERSION, "clusters": clusters}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> ManagedBrokers:
        """Decode version 1. Raises `LayoutError`."""
        node = ZnodeJson(MANAGED_BROKERS, data)
        if node.integer("version") != _VERSION:
            raise node.error("version", f"{_VERSION}")
        return cls(clusters={uid: _brokers_ownership(one) for uid, one in node.object_map("clusters").items()})


def _brokers_ownership(node: ZnodeJson) -> BrokersOwnership:
    return BrokersOwnership(
        owned=frozenset(node.text_list("owned")),
        preserved=frozenset(node.text_list("preserved")),
        ids=frozenset(node.integers("ids")),
    )
