"""Access rules as Kafka defines them: resources, operations, rules and filters.

Numbers and names are those of the protocol and of ZooKeeper (Kafka 3.9, `org.apache.kafka.common.acl` and `.resource`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from odradek.security.addresses import normal_address
from odradek.security.principals import EVERYONE, Principal

ANY_NAME: Final = "*"
"""Name of the literal pattern that matches every resource of its type."""
ANY_HOST: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""Name of the only resource of type CLUSTER."""


class ResourceType(IntEnum):
    """Kind of a resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a pattern is compared. ANY and MATCH occur in filters only (KIP-290)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What a client does with a resource. ANY occurs in filters only; ALL stands for every operation in a rule."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    """Effect of a rule. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that a rule applies to."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def matches(self, name: str) -> bool:
        """Whether a resource of the same type has this pattern. Only for LITERAL and PREFIXED."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)


class AclRule(NamedTuple):
    """What one principal may do, or may not do, from one host."""

    principal: Principal
    permission: AclPermission
    operation: AclOperation
    host: str = ANY_HOST


class AclBinding(NamedTuple):
    """A rule with the resources that it applies to."""

    resource: ResourcePattern
    rule: AclRule


class AclFilter(NamedTuple):
    """Selects rules. None and ANY stand for every value.

    The pattern type MATCH selects all rules that apply to the resource `name`: literal, prefixed and wildcard ones.
    """

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: Principal | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def selects(self, binding: AclBinding) -> bool:
        """Whether a rule is selected."""
        return self.selects_resource(binding.resource) and self._selects_rule(binding.rule)

    def selects_resource(self, resource: ResourcePattern) -> bool:
        """Whether rules for these resources may be selected."""
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern is PatternType.MATCH:
            return self.name is None or resource.matches(self.name)
        return self.pattern in (PatternType.ANY, resource.pattern) and self.name in (None, resource.name)

    def _selects_rule(self, rule: AclRule) -> bool:
        return (
            self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (AclOperation.ANY, rule.operation)
            and self.permission in (AclPermission.ANY, rule.permission)
        )


OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that exist for each type of resource, for the bit fields of authorized operations."""

_DESCRIBERS: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)


def granting(operation: AclOperation) -> tuple[AclOperation, ...]:
    """Return the operations whose ALLOW rules grant `operation`: itself, ALL, and those that imply it.

    Only ALLOW rules imply others. A DENY rule applies to its own operation, or to every one with ALL.
    """
    if operation is AclOperation.DESCRIBE:
        return (operation, AclOperation.ALL, *_DESCRIBERS)
    if operation is AclOperation.DESCRIBE_CONFIGS:
        return (operation, AclOperation.ALL, AclOperation.ALTER_CONFIGS)
    return (operation, AclOperation.ALL)


def applies_to(rule: AclRule, principal: Principal, host: str) -> bool:
    """Whether a rule applies to a client. `host` is what `normal_address` returned."""
    return rule.principal in (principal, EVERYONE) and normal_host(rule.host) in (host, ANY_HOST)


def normal_host(host: str) -> str:
    """Return the host of a rule in the form in which it is compared. Rules keep the form in which they were written.

    What is no address, such as a name, matches no client. In Kafka, an IPv6 address matches only in Java's form.
    """
    if host == ANY_HOST:
        return host
    try:
        return normal_address(host)
    except ValueError:
        return host
