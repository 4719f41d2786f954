"""What has to change in ZooKeeper for one user. Pure.

Access rules, quotas and credentials of a user are in several znodes, so a change takes several transactions.

Invariants:

- Before anything is written, the record in `/odradek/users` has everything that belongs to the resource, before and
  after the change. If the operator is killed in between, the next plan continues.
- Rights are removed first and granted last: rules that deny are added, and rules that allow are removed, before
  credentials and quotas change; the others follow after that.
- What others have added to the user is kept, unless the resource has it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from odradek.security.acls.model import AclBinding, AclPermission, AclRule, ResourcePattern
from odradek.security.principals import Principal
from odradek.security.quotas.quota_model import format_quota
from odradek.zk.ownership import ManagedUser
from odradek_operator.crds.types import User


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUser:
    """What ZooKeeper has about a user."""

    record: ManagedUser | None = None
    record_version: int | None = None
    """Version of the record's znode; None without one."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Quotas and credentials, as in `/config/users/U`."""
    rules: frozenset[AclBinding] = frozenset()
    """The user's rules for the patterns of the resource and of the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """Rules of one pattern, which change in one transaction."""

    resource: ResourcePattern
    add: frozenset[AclRule] = frozenset()
    remove: frozenset[AclRule] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPlan:
    """The changes for one user, in the order of their execution."""

    principal: Principal
    record_before: ManagedUser | None = None
    """The record to write at first; None if the present one has everything."""
    first: tuple[RuleChange, ...] = ()
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """Quotas and credentials that change; None removes one."""
    last: tuple[RuleChange, ...] = ()
    record_after: ManagedUser | None = None
    """The record in the end; None if there is none."""
    record_version: int | None = None
    """Version of the present record; None without one."""
    record_changes: bool = False
    """Whether the record in the end differs from the present one."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.first or self.settings or self.last or self.record_changes)

    @property
    def summary(self) -> str:
        """What changes, without secrets, as a phrase for an Event."""
        rules = (*self.first, *self.last)
        parts = {
            "access rules": sum(len(change.add) + len(change.remove) for change in rules),
            "quotas": sum("_" in key for key in self.settings),
            "passwords": sum("_" not in key for key in self.settings),
        }
        return ", ".join(f"{count} {what}" for what, count in parts.items() if count) or "the record"


def wanted_rules(user: User) -> frozenset[AclBinding]:
    """Return the access rules of a resource."""
    return frozenset(
        AclBinding(acl.resource.value, AclRule(user.principal, acl.permission, operation, acl.host))
        for acl in user.acls
        for operation in acl.values
    )


def wanted_quotas(user: User) -> dict[str, str]:
    """Return the quotas of a resource, as in `/config/users`."""
    values = {} if user.quotas is None else user.quotas.values
    return {kind.value: format_quota(kind, value) for kind, value in values.items()}


def plan_user(user: User, stored: StoredUser, credentials: Mapping[str, str]) -> UserPlan:
    """Return what has to change for a resource. `credentials`: its credentials by the name of the mechanism."""
    rules, quotas = wanted_rules(user), wanted_quotas(user)
    after = ManagedUser(
        user=user.principal.name,
        cluster=f"{user.namespace}/{user.cluster}",
        resource=user.uid,
        rules=rules,
        quotas=frozenset(quotas),
        credentials=frozenset(credentials),
    )
    return _plan(user.principal, stored, after, rules, {**quotas, **credentials})


def plan_removal(principal: Principal, stored: StoredUser) -> UserPlan:
    """Return what has to change when the resource of a user is gone: everything that belonged to it is removed."""
    return _plan(principal, stored, None, frozenset(), {})


def _plan(
    principal: Principal,
    stored: StoredUser,
    after: ManagedUser | None,
    rules: frozenset[AclBinding],
    settings: Mapping[str, str],
) -> UserPlan:
    present = stored.record
    owned_rules = frozenset() if present is None else present.rules
    owned_keys = frozenset() if present is None else present.quotas | present.credentials
    changed: dict[str, str | None] = {
        key: text for key, text in settings.items() if stored.settings.get(key) != text
    } | {key: None for key in owned_keys - settings.keys() if key in stored.settings}
    added, removed = rules - stored.rules, (owned_rules - rules) & stored.rules
    return UserPlan(
        principal=principal,
        record_before=_before(present, after),
        first=_changes(add=_with(AclPermission.DENY, added), remove=_with(AclPermission.ALLOW, removed)),
        settings=changed,
        last=_changes(add=_with(AclPermission.ALLOW, added), remove=_with(AclPermission.DENY, removed)),
        record_after=after,
        record_version=stored.record_version,
        record_changes=after != present,
    )


def _before(present: ManagedUser | None, after: ManagedUser | None) -> ManagedUser | None:
    """Return the record that has everything that belongs to the resource before or after the change, if it is new."""
    if after is None or after == present:
        return None
    if present is None:
        return after
    both = replace(
        after,
        rules=after.rules | present.rules,
        quotas=after.quotas | present.quotas,
        credentials=after.credentials | present.credentials,
    )
    return None if both == present else both


def _with(permission: AclPermission, bindings: Iterable[AclBinding]) -> frozenset[AclBinding]:
    return frozenset(binding for binding in bindings if binding.rule.permission is permission)


def _changes(*, add: frozenset[AclBinding], remove: frozenset[AclBinding]) -> tuple[RuleChange, ...]:
    resources = sorted({binding.resource for binding in add | remove})
    return tuple(
        RuleChange(resource=resource, add=_of(resource, add), remove=_of(resource, remove)) for resource in resources
    )


def _of(resource: ResourcePattern, bindings: Iterable[AclBinding]) -> frozenset[AclRule]:
    return frozenset(binding.rule for binding in bindings if binding.resource == resource)
