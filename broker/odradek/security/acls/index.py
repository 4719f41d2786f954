"""Finds the rules that decide about a client, whatever the number of rules.

`decide` looks up the literal name, the wildcard, and one prefix for each length that a prefixed pattern has, and in
each of them the few rules that can apply. So its cost depends on the length of the name, not on the number of rules.

Invariants: an `AclIndex` never changes, so that a reader sees one state; a DENY rule wins over every ALLOW rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import product
from typing import Final, NamedTuple

from odradek.security.acls.model import (
    ANY_HOST,
    ANY_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
    granting,
    normal_host,
)
from odradek.security.principals import EVERYONE, Principal


class AclVerdict(Enum):
    """Result of a decision."""

    ALLOWED = auto()
    """An ALLOW rule matches, and no DENY rule."""
    DENIED = auto()
    """A DENY rule matches."""
    NOT_GRANTED = auto()
    """There are rules for the resource, and none matches."""
    NO_RULES = auto()
    """There is no rule for the resource, so `allow.everyone.if.no.acl.found` applies."""


class Decision(NamedTuple):
    """A verdict, and the rule that it is based on, for the audit log."""

    verdict: AclVerdict
    binding: AclBinding | None = None


class _Rules:
    """The rules of one resource pattern."""

    __slots__ = ("_all", "_by_form", "pattern")

    def __init__(self, pattern: ResourcePattern, rules: Iterable[AclRule]) -> None:
        self.pattern: Final = pattern
        self._all: Final = frozenset(rules)
        self._by_form: Final = {rule._replace(host=normal_host(rule.host)): rule for rule in self._all}
        """The rules by what is compared."""

    def __iter__(self) -> Iterator[AclRule]:
        return iter(self._all)

    def find(
        self, permission: AclPermission, operations: Iterable[AclOperation], principal: Principal, host: str
    ) -> AclBinding | None:
        """Return a rule that applies to the client; None if there is none. Takes at most 24 lookups."""
        for who, operation, where in product((principal, EVERYONE), operations, (host, ANY_HOST)):
            rule = AclRule(who, permission, operation, where)
            found = self._by_form.get(rule)
            if found is not None:
                return AclBinding(self.pattern, found)
        return None


class _TypeRules(NamedTuple):
    """The rules of one resource type."""

    literals: Mapping[str, _Rules] = {}
    prefixes: Mapping[str, _Rules] = {}
    lengths: tuple[int, ...] = ()
    """The lengths of the prefixes, ascending."""

    def matching(self, name: str) -> Iterator[_Rules]:
        """Return the rules of all patterns that match a name."""
        for literal in (name, ANY_NAME) if name != ANY_NAME else (name,):
            found = self.literals.get(literal)
            if found is not None:
                yield found
        yield from self.prefixes_of(name)

    def prefixes_of(self, name: str) -> Iterator[_Rules]:
        """Return the rules of all prefixes of a name."""
        size = len(name)
        for length in self.lengths:
            if length > size:
                return
            found = self.prefixes.get(name[:length])
            if found is not None:
                yield found

    def replaced(self, pattern: ResourcePattern, rules: Collection[AclRule]) -> _TypeRules:
        """Return the rules after those of one pattern were replaced."""
        is_prefix = pattern.pattern is PatternType.PREFIXED
        changed = dict(self.prefixes if is_prefix else self.literals)
        changed.pop(pattern.name, None)
        if rules:
            changed[pattern.name] = _Rules(pattern, rules)
        if not is_prefix:
            return self._replace(literals=changed)
        length, lengths = len(pattern.name), set(self.lengths)
        if rules:
            lengths.add(length)
        elif all(len(name) != length for name in changed):
            lengths.discard(length)
        return self._replace(prefixes=changed, lengths=tuple(sorted(lengths)))


_NONE: Final = _TypeRules()


class AclIndex:
    """All rules of a cluster at one time."""

    __slots__ = ("_types",)

    def __init__(self, types: Mapping[ResourceType, _TypeRules] | None = None) -> None:
        """Called by `of` and `with_rules`; without an argument there are no rules."""
        self._types: Final = types or {}

    @classmethod
    def of(cls, rules: Mapping[ResourcePattern, Collection[AclRule]]) -> AclIndex:
        """Return an index of all rules. The patterns are LITERAL or PREFIXED."""
        literals: dict[ResourceType, dict[str, _Rules]] = {}
        prefixes: dict[ResourceType, dict[str, _Rules]] = {}
        for pattern, those in rules.items():
            if those:
                table = prefixes if pattern.pattern is PatternType.PREFIXED else literals
                table.setdefault(pattern.type, {})[pattern.name] = _Rules(pattern, those)
        types = {}
        for kind in literals.keys() | prefixes.keys():
            names = prefixes.get(kind, {})
            types[kind] = _TypeRules(literals.get(kind, {}), names, tuple(sorted(set(map(len, names)))))
        return cls(types)

    def with_rules(self, pattern: ResourcePattern, rules: Collection[AclRule]) -> AclIndex:
        """Return an index in which these are the only rules of a pattern."""
        known = self._types.get(pattern.type, _NONE)
        return AclIndex({**self._types, pattern.type: known.replaced(pattern, rules)})

    # Decisions

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> Decision:
        """Decide whether a client may do something with a resource.

        `host` is the address of the client, as `normal_address` returns it. `operation` is neither ANY nor ALL. `name`
        is that of a resource.
        """
        matching = tuple(self._types.get(kind, _NONE).matching(name))
        if not matching:
            return Decision(AclVerdict.NO_RULES)
        for permission, verdict, operations in (
            (AclPermission.DENY, AclVerdict.DENIED, (operation, AclOperation.ALL)),
            (AclPermission.ALLOW, AclVerdict.ALLOWED, granting(operation)),
        ):
            for rules in matching:
                found = rules.find(permission, operations, principal, host)
                if found is not None:
                    return Decision(verdict, found)
        return Decision(AclVerdict.NOT_GRANTED)

    def is_allowed_anywhere(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this type for which the client is allowed to do something (KIP-679).

        That is the case if an ALLOW rule applies to some name that no DENY rule applies to. Its cost grows with the
        number of patterns: callers keep the result as long as they keep the index.
        """
        rules = self._types.get(kind, _NONE)
        denied, granted = (operation, AclOperation.ALL), granting(operation)

        def denies(found: _Rules | None) -> bool:
            return found is not None and found.find(AclPermission.DENY, denied, principal, host) is not None

        def allows(found: _Rules) -> bool:
            return found.find(AclPermission.ALLOW, granted, principal, host) is not None

        if denies(rules.literals.get(ANY_NAME)):
            return False
        for name, found in rules.literals.items():
            if allows(found) and (name == ANY_NAME or not (denies(found) or any(map(denies, rules.prefixes_of(name))))):
                return True
        return any(
            allows(found) and not any(map(denies, rules.prefixes_of(name))) for name, found in rules.prefixes.items()
        )

    # Administration

    def bindings(self, selected: AclFilter) -> list[AclBinding]:
        """Return the rules that a filter selects, in order."""
        return sorted(
            AclBinding(rules.pattern, rule)
            for types in self._types.values()
            for rules in (*types.literals.values(), *types.prefixes.values())
            if selected.selects_resource(rules.pattern)
            for rule in rules
            if selected.selects(AclBinding(rules.pattern, rule))
        )

    def rules_of(self, pattern: ResourcePattern) -> frozenset[AclRule]:
        """Return the rules of exactly this pattern."""
        types = self._types.get(pattern.type, _NONE)
        table = types.prefixes if pattern.pattern is PatternType.PREFIXED else types.literals
        found = table.get(pattern.name)
        return frozenset() if found is None else frozenset(found)
