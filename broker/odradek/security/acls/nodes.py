"""Znodes of access rules: paths and contents as in Apache Kafka 2.7 to 3.9 (`kafka.zk.ZkAclStore`, `AclEntry`).

Each pattern that has rules has a znode: a literal name below `/kafka-acl`, a prefix below
`/kafka-acl-extended/prefixed`. Each change of it also creates a sequential znode that names the pattern, below
`/kafka-acl-changes` or `/kafka-acl-extended-changes`. Brokers watch those two and read the pattern again.

Invalid content raises `LayoutError`. Kafka reads content that is no JSON as "no rules"; DENY rules would then be lost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import Final, TypeVar

from odradek.base.errors import ConfigError
from odradek.security.acls.model import (
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import parse_principal
from odradek.znode import LayoutError, ZnodeJson, is_node_name

RULE_STORES: Final = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
"""By pattern type: the path below which a folder for each resource type has the znodes of patterns."""
RULE_CHANGES: Final = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
"""By pattern type: the parent of the notifications."""
RULE_CHANGE_PREFIX: Final = "acl_changes_"
VERSION: Final = 1

RESOURCE_TYPES: Final = tuple(ResourceType)[2:]
"""The types of resources; the others are UNKNOWN and ANY."""

_Name = TypeVar("_Name", bound=IntEnum)
_OPERATIONS: Final = tuple(AclOperation)[2:]
_PERMISSIONS: Final = (AclPermission.DENY, AclPermission.ALLOW)


def kafka_name(value: IntEnum) -> str:
    """Return the name in znodes and in Kafka's tools: DescribeConfigs for DESCRIBE_CONFIGS."""
    return value.name.title().replace("_", "")


def rules_path(kind: ResourceType, pattern: PatternType) -> str:
    """Return the path of the folder that has the znodes of a resource type. `pattern` is LITERAL or PREFIXED."""
    return f"{RULE_STORES[pattern]}/{kafka_name(kind)}"


RULE_PATHS: Final = (
    *(rules_path(kind, pattern) for pattern in RULE_STORES for kind in RESOURCE_TYPES),
    *RULE_CHANGES.values(),
)
"""Empty znodes that an authorizer creates, with their parents, when it starts."""


def resource_path(resource: ResourcePattern) -> str:
    """Return the path of the rules of a pattern. Raises `LayoutError` if no znode can have its name.

    Kafka does not encode names. With a slash in the name, it writes a znode that it does not find when it starts.
    """
    parent = rules_path(resource.type, resource.pattern)
    if not is_node_name(resource.name):
        raise LayoutError(parent, f"ZooKeeper allows no znode with the name {resource.name!r:.200}")
    return f"{parent}/{resource.name}"


def parse_resource_path(path: str) -> ResourcePattern:
    """Return the pattern whose rules are at a path. Raises `LayoutError`."""
    for pattern, store in RULE_STORES.items():
        kind, slash, name = path.removeprefix(f"{store}/").partition("/")
        if path.startswith(f"{store}/") and slash and is_node_name(name):
            return ResourcePattern(_named(path, "resource type", kind, RESOURCE_TYPES), name, pattern)
    raise LayoutError(path, f"not the path of a resource: {' or '.join(RULE_STORES.values())}, a type and a name")


def encode_rules(rules: Iterable[AclRule]) -> bytes:
    """Encode the rules of a pattern: version 1, in order."""
    listed = [
        {
            "principal": str(rule.principal),
            "permissionType": kafka_name(rule.permission),
            "operation": kafka_name(rule.operation),
            "host": rule.host,
        }
        for rule in sorted(set(rules))
    ]
    return _encode({"version": VERSION, "acls": listed})


def decode_rules(path: str, data: bytes | None) -> frozenset[AclRule]:
    """Decode the rules of a pattern. An empty znode has none. Raises `LayoutError`, also for another version."""
    if not data:
        return frozenset()
    node = ZnodeJson(path, data)
    _check_version(node)
    return frozenset(_rule(path, item) for item in node.objects("acls"))


def encode_rule_change(resource: ResourcePattern) -> bytes:
    """Encode a notification: JSON of version 1 for a prefix, `TYPE:name` for a literal name, as before KIP-290."""
    if resource.pattern is PatternType.LITERAL:
        return f"{resource.type.name}:{resource.name}".encode()
    return _encode(
        {
            "version": VERSION,
            "resourceType": resource.type.name,
            "name": resource.name,
            "patternType": resource.pattern.name,
        }
    )


def decode_rule_change(path: str, data: bytes) -> ResourcePattern:
    """Return the pattern whose rules have changed. Raises `LayoutError`, also for another version."""
    if not path.startswith(f"{RULE_CHANGES[PatternType.LITERAL]}/"):
        node = ZnodeJson(path, data)
        _check_version(node)
        kind = _named(path, "resourceType", node.text("resourceType"), RESOURCE_TYPES)
        pattern = _named(path, "patternType", node.text("patternType"), tuple(RULE_STORES))
        return ResourcePattern(kind, node.text("name"), pattern)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise LayoutError(path, f"not UTF-8: {data[:200]!r}") from error
    before, colon, name = text.partition(":")
    if not colon:
        raise LayoutError(path, f"expected TYPE:name, found {text!r:.200}")
    return ResourcePattern(_named(path, "resource type", before, RESOURCE_TYPES), name)


def _rule(path: str, item: ZnodeJson) -> AclRule:
    try:
        principal = parse_principal(item.text("principal"))
    except ConfigError as error:
        raise LayoutError(path, str(error)) from error
    permission = _named(path, "permissionType", item.text("permissionType"), _PERMISSIONS)
    return AclRule(
        principal, permission, _named(path, "operation", item.text("operation"), _OPERATIONS), item.text("host")
    )


def _check_version(node: ZnodeJson) -> None:
    if node.integer("version") != VERSION:
        raise node.error("version", str(VERSION))


def _named(path: str, key: str, text: str, values: Collection[_Name]) -> _Name:
    """Return the value of a name, whatever its case, with or without underscores."""
    wanted = text.upper().replace("_", "")
    for value in values:
        if value.name.replace("_", "") == wanted:
            return value
    raise LayoutError(path, f"{key} must be one of {', '.join(map(kafka_name, values))}, found {text!r:.200}")


def _encode(value: dict[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
