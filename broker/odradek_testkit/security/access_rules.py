"""Writes access rules to ZooKeeper as Kafka's authorizer does: the znode of the pattern, then the notification."""

from __future__ import annotations

from collections.abc import Collection

from kazoo.client import KazooClient

from odradek.security.acls.model import AclRule, ResourcePattern
from odradek.security.acls.nodes import (
    RULE_CHANGE_PREFIX,
    RULE_CHANGES,
    encode_rule_change,
    encode_rules,
    resource_path,
)


def set_rules(zookeeper: str, resource: ResourcePattern, rules: Collection[AclRule]) -> None:
    """Make these the only rules of a pattern."""
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        path = resource_path(resource)
        client.ensure_path(path)
        client.set(path, encode_rules(rules))
        notification = f"{RULE_CHANGES[resource.pattern]}/{RULE_CHANGE_PREFIX}"
        client.create(notification, encode_rule_change(resource), sequence=True, makepath=True)
    finally:
        client.stop()
        client.close()
