"""What the operator remembers in ZooKeeper about settings that it wrote: `/odradek/...`. Pure.

Kafka and its tools never look below `/odradek`, so a Java broker in the same cluster is not disturbed. Each record is
written in the same transaction as the settings that it speaks of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.zk.layout import decode_uuid, encode_uuid
from odradek.zk.node import Node

ROOT: Final = "/odradek"
MANAGED_TOPICS: Final = f"{ROOT}/topics"
MANAGED_BROKERS: Final = f"{ROOT}/brokers"
_VERSION: Final = 1


def managed_topic_path(topic: str) -> str:
    """The record of a topic."""
    return f"{MANAGED_TOPICS}/{topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedTopic:
    """`/odradek/topics/T`: which overrides of a topic are its resource's."""

    topic: str
    topic_id: UUID | None
    """A topic that was deleted and created again by others has another id: the record does not speak of it."""
    resource: str
    """Uid of the Topic resource; empty in an embedded cluster. Another resource of that name adopts the topic anew."""
    owned: frozenset[str]
    """Keys that the resource lists. One that it lists no longer is removed."""
    preserved: frozenset[str]
    """Keys that others had set before the resource adopted the topic. They stay."""

    @property
    def path(self) -> str:
        """Where it is written."""
        return managed_topic_path(self.topic)

    def encode(self) -> bytes:
        """Version 1."""
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
        """Version 1. Raises `LayoutError`."""
        node = Node(managed_topic_path(topic), data)
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
    """What one Cluster resource has in the brokers' part of an ensemble."""

    owned: frozenset[str] = frozenset()
    """Keys of `/config/brokers/<default>` that the resource lists. One that it lists no longer is removed."""
    preserved: frozenset[str] = frozenset()
    """Keys that others had set when the cluster got its record. They stay. Only in an ensemble of the cluster's own:
    elsewhere all keys of others stay."""
    ids: frozenset[int] = frozenset()
    """Ids of the cluster's brokers. Only in an ensemble that the cluster shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedBrokers:
    """`/odradek/brokers`: which defaults of brokers, and which broker ids, are whose."""

    clusters: Mapping[str, BrokersOwnership] = field(default_factory=dict)
    """By uid of the Cluster resource: several may share an ensemble."""

    def encode(self) -> bytes:
        """Version 1."""
        clusters = {
            uid: {"owned": sorted(one.owned), "preserved": sorted(one.preserved), "ids": sorted(one.ids)}
            for uid, one in sorted(self.clusters.items())
        }
        return json.dumps({"version": _VERSION, "clusters": clusters}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> ManagedBrokers:
        """Version 1. Raises `LayoutError`."""
        node = Node(MANAGED_BROKERS, data)
        if node.integer("version") != _VERSION:
            raise node.error("version", f"{_VERSION}")
        return cls(clusters={uid: _brokers_ownership(one) for uid, one in node.object_map("clusters").items()})


def _brokers_ownership(node: Node) -> BrokersOwnership:
    return BrokersOwnership(
        owned=frozenset(node.text_list("owned")),
        preserved=frozenset(node.text_list("preserved")),
        ids=frozenset(node.integers("ids")),
    )
