"""Decides what a client may do with a resource: the port `Authorizer`, and `AclAuthorizer`, which Kafka's rules define.

Decisions are in memory and wait for nothing. A decision that was made before is one lookup in a dictionary; the first
one costs a few microseconds, whatever the number of rules (`security/acls/index`).

The audit log is the logger `odradek.authorizer`: denials at INFO, what was allowed at DEBUG, as in Kafka's
`kafka.authorizer.logger`. A client that lists everything that it may see causes no denials in it.

Invariants:
- A super user may do everything. Otherwise DENY precedes ALLOW, and without a rule nothing is allowed, unless
  `allow.everyone.if.no.acl.found` is set and the resource has no rule at all.
- A change of the rules, which replaces the index, discards all remembered decisions.
- At most `DECISIONS` decisions are remembered.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from odradek.security.acls.index import AclIndex, AclVerdict
from odradek.security.acls.model import ANY_NAME, OPERATIONS, AclOperation, ResourceType
from odradek.security.principals import Identity, Principal

audit: Final = logging.getLogger("odradek.authorizer")

DECISIONS: Final = 100_000
"""Maximum number of remembered decisions. They take about 100 bytes each."""

NOT_REQUESTED: Final = -(1 << 31)
"""Value of the authorized operations if the client did not request them (KIP-430)."""

_NOTHING: Final[frozenset[str]] = frozenset()
_Subject = tuple[Principal, str, AclOperation, ResourceType]


class Authorizer(Protocol):
    """Decides about clients. `request` is the name of the API, for the audit log."""

    @property
    def generation(self) -> object:
        """An object that is another one after each change of the rules."""
        ...

    def denied(
        self,
        identity: Identity,
        operation: AclOperation,
        kind: ResourceType,
        names: Iterable[str],
        request: str,
        *,
        is_logged: bool = True,
    ) -> frozenset[str]:
        """Return those of the resources that the client may not use in this way.

        `is_logged` is False if the client did not name them, so that it does nothing wrong.
        """
        ...

    def allows_any(self, identity: Identity, operation: AclOperation, kind: ResourceType, request: str) -> bool:
        """Whether there may be a resource of this type that the client may use in this way (KIP-679)."""
        ...

    def operations(self, identity: Identity, kind: ResourceType, name: str) -> int:
        """Return what the client may do with a resource, as bits by operation (KIP-430)."""
        ...


def all_operations(kind: ResourceType) -> int:
    """Return all operations that a type of resource has, as bits: what everyone may do without an authorizer."""
    return sum(1 << operation for operation in OPERATIONS[kind])


class RuleSource(Protocol):
    """Has the current access rules."""

    @property
    def index(self) -> AclIndex:
        """The rules now. A change of the rules replaces it."""
        ...


class AclAuthorizer:
    """Decides by the access rules of the cluster, as Kafka's `AclAuthorizer`."""

    def __init__(
        self,
        rules: RuleSource,
        *,
        super_users: Collection[Principal] = (),
        allows_without_rules: bool = False,
    ) -> None:
        """`super_users` and `allows_without_rules` are `super.users` and `allow.everyone.if.no.acl.found`."""
        self._rules: Final = rules
        self._super_users: Final = frozenset(super_users)
        self._allows_without_rules: Final = allows_without_rules
        self._index = rules.index
        self._known: dict[_Subject, dict[str, bool]] = {}
        self._count = 0
        """Number of decisions in `_known`."""
        self._anywhere: dict[_Subject, bool] = {}

    @property
    def generation(self) -> object:
        """The index of the rules."""
        return self._rules.index

    def denied(
        self,
        identity: Identity,
        operation: AclOperation,
        kind: ResourceType,
        names: Iterable[str],
        request: str,
        *,
        is_logged: bool = True,
    ) -> frozenset[str]:
        """Return those of the resources that the client may not use in this way. See `Authorizer`."""
        principal = identity.principal
        if principal in self._super_users:
            return _NOTHING
        known = self._decisions_of((principal, identity.host, operation, kind))
        refused = _NOTHING
        for name in names:
            is_allowed = known.get(name)
            if is_allowed is None:
                is_allowed = self._decide(known, identity, operation, kind, name)
            if not is_allowed:
                refused |= {name}
                if is_logged:
                    _log(logging.INFO, identity, "denied", operation.name, kind.name, name, request)
            elif is_logged and audit.isEnabledFor(logging.DEBUG):
                _log(logging.DEBUG, identity, "allowed", operation.name, kind.name, name, request)
        return refused

    def _decisions_of(self, subject: _Subject) -> dict[str, bool]:
        index = self._rules.index
        if index is not self._index or self._count > DECISIONS:
            self._index = index
            self._known.clear()
            self._anywhere.clear()
            self._count = 0
        known = self._known.get(subject)
        if known is None:
            known = self._known[subject] = {}
            self._count += 1
        return known

    def _decide(
        self, known: dict[str, bool], identity: Identity, operation: AclOperation, kind: ResourceType, name: str
    ) -> bool:
        verdict = self._index.decide(identity.principal, identity.host, operation, kind, name).verdict
        is_allowed = verdict is AclVerdict.ALLOWED or (verdict is AclVerdict.NO_RULES and self._allows_without_rules)
        known[name] = is_allowed
        self._count += 1
        return is_allowed

    def allows_any(self, identity: Identity, operation: AclOperation, kind: ResourceType, request: str) -> bool:
        """Whether there may be a resource of this type that the client may use in this way (KIP-679)."""
        subject = (identity.principal, identity.host, operation, kind)
        if identity.principal in self._super_users:
            return True
        self._decisions_of(subject)
        found = self._anywhere.get(subject)
        if found is None:
            found = self._anywhere[subject] = self._is_allowed_anywhere(*subject)
        if not found:
            _log(logging.INFO, identity, "denied", operation.name, kind.name, "any", request)
        return found

    def _is_allowed_anywhere(
        self, principal: Principal, host: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        if self._allows_without_rules:
            # Some name has no rule, unless a rule for every name denies it.
            return self._index.decide(principal, host, operation, kind, ANY_NAME).verdict is not AclVerdict.DENIED
        return self._index.is_allowed_anywhere(principal, host, operation, kind)

    def operations(self, identity: Identity, kind: ResourceType, name: str) -> int:
        """Return what the client may do with a resource, as bits by operation (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[kind]
            if not self.denied(identity, operation, kind, (name,), "", is_logged=False)
        )


def _log(level: int, identity: Identity, decision: str, *what: object) -> None:
    """`what`: operation, type, name and request."""
    audit.log(
        level,
        "%s: %s from %s, listener %s: %s on %s %r (%s)",
        decision,
        identity.principal,
        identity.host,
        identity.listener,
        *what,
    )
