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

from odradek.base.errors import ConfigError
from odradek.security.acls.model import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import parse_principal
from odradek.zk.layout import decode_uuid, encode_uuid
from odradek.znode import LayoutError, ZnodeJson, url_encoded

ROOT: Final = "/odradek"
MANAGED_TOPICS: Final = f"{ROOT}/topics"
MANAGED_BROKERS: Final = f"{ROOT}/brokers"
MANAGED_USERS: Final = f"{ROOT}/users"
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


def managed_user_path(user: str) -> str:
    """Return the path of a user's record. `user`: the name of the principal, which may have any characters."""
    return f"{MANAGED_USERS}/{url_encoded(user)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedUser:
    """`/odradek/users/U`: the rights, quotas and credentials of a user that belong to its resource."""

    user: str
    """Name of the principal."""
    cluster: str
    """Namespace and name of the Cluster resource, with a slash. Several can share an ensemble."""
    resource: str
    """Uid of the User resource."""
    rules: frozenset[AclBinding] = frozenset()
    quotas: frozenset[str] = frozenset()
    """Names of quotas, as in `/config/users`."""
    credentials: frozenset[str] = frozenset()
    """Names of SCRAM mechanisms."""

    @property
    def path(self) -> str:
        """The path of the record."""
        return managed_user_path(self.user)

    def encode(self) -> bytes:
        """Encode version 1."""
        node: dict[str, object] = {
            "version": _VERSION,
            "user": self.user,
            "cluster": self.cluster,
            "resource": self.resource,
            "rules": [_rule_object(binding) for binding in sorted(self.rules)],
            "quotas": sorted(self.quotas),
            "credentials": sorted(self.credentials),
        }
        return json.dumps(node, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> ManagedUser:
        """Decode version 1. Raises `LayoutError`."""
        node = ZnodeJson(path, data)
        if node.integer("version") != _VERSION:
            raise node.error("version", f"{_VERSION}")
        return cls(
            user=node.text("user"),
            cluster=node.text("cluster"),
            resource=node.text("resource"),
            rules=frozenset(_rule_binding(path, item) for item in node.objects("rules")),
            quotas=frozenset(node.text_list("quotas")),
            credentials=frozenset(node.text_list("credentials")),
        )


def _rule_object(binding: AclBinding) -> dict[str, str]:
    resource, rule = binding
    return {
        "type": resource.type.name,
        "name": resource.name,
        "pattern": resource.pattern.name,
        "principal": str(rule.principal),
        "permission": rule.permission.name,
        "operation": rule.operation.name,
        "host": rule.host,
    }


def _rule_binding(path: str, item: ZnodeJson) -> AclBinding:
    try:
        return AclBinding(
            ResourcePattern(ResourceType[item.text("type")], item.text("name"), PatternType[item.text("pattern")]),
            AclRule(
                parse_principal(item.text("principal")),
                AclPermission[item.text("permission")],
                AclOperation[item.text("operation")],
                item.text("host"),
            ),
        )
    except (KeyError, ConfigError) as error:
        raise LayoutError(path, f"a rule cannot be read: {error}") from error
