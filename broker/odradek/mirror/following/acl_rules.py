"""Which access rules of a source's topics the target gets. Pure; used by `topic_follower`.

The rules are those of the class MirrorSourceConnector of Apache Kafka 3.9: only rules for single topics are followed,
a right to write is left out, because only the mirror writes to a copy, and the right to everything becomes the right to
read. Other than MirrorMaker 2, the mirror also deletes a rule that it has created if the source no longer has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek.security.acls.model import (
    ANY_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)

TOPIC_RULES = AclFilter(type=ResourceType.TOPIC, pattern=PatternType.LITERAL)
"""Selects the rules for single topics."""


class AclChanges(NamedTuple):
    """What to change in the target for one topic."""

    created: frozenset[AclRule]
    """Rules to create."""
    deleted: frozenset[AclRule]
    """Rules to delete."""
    owned: frozenset[AclRule]
    """The rules that the mirror has created, after the change."""


def followed_rules(
    bindings: Iterable[AclBinding], target_of: Callable[[str], str | None]
) -> dict[str, frozenset[AclRule]]:
    """Return the wanted rules by topic of the target. `target_of` returns the name of a copied topic there, else
    None."""
    found: dict[str, set[AclRule]] = {}
    for resource, rule in bindings:
        single = resource.type is ResourceType.TOPIC and resource.pattern is PatternType.LITERAL
        if not single or resource.name == ANY_NAME:
            continue
        topic = target_of(resource.name)
        if topic is None or (rule.permission is AclPermission.ALLOW and rule.operation is AclOperation.WRITE):
            continue
        found.setdefault(topic, set()).add(_reduced(rule))
    return {topic: frozenset(rules) for topic, rules in found.items()}


def _reduced(rule: AclRule) -> AclRule:
    if rule.permission is AclPermission.ALLOW and rule.operation is AclOperation.ALL:
        return rule._replace(operation=AclOperation.READ)
    return rule


def acl_changes(wanted: frozenset[AclRule], present: frozenset[AclRule], owned: frozenset[AclRule]) -> AclChanges:
    """Return what to change. `present` are the rules of the topic in the target, `owned` those that the mirror has
    created."""
    created = wanted - present
    deleted = (owned & present) - wanted
    return AclChanges(created, deleted, (owned & wanted) | created)


def topic_binding(topic: str, rule: AclRule) -> AclBinding:
    """Return a rule for one topic."""
    return AclBinding(ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL), rule)


def exact_filter(topic: str, rule: AclRule) -> AclFilter:
    """Return the filter that selects only this rule of one topic."""
    return AclFilter(
        type=ResourceType.TOPIC,
        name=topic,
        pattern=PatternType.LITERAL,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission=rule.permission,
    )
