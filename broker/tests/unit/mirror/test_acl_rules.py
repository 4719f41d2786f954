"""Which access rules the target gets."""

from __future__ import annotations

from odradek.mirror.following.acl_rules import acl_changes, exact_filter, followed_rules, topic_binding
from odradek.security.acls.model import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import Principal

ALICE = Principal("User", "alice")
READ = AclRule(ALICE, AclPermission.ALLOW, AclOperation.READ)
WRITE = AclRule(ALICE, AclPermission.ALLOW, AclOperation.WRITE)
ALL = AclRule(ALICE, AclPermission.ALLOW, AclOperation.ALL, "10.0.0.1")
DENY_WRITE = AclRule(ALICE, AclPermission.DENY, AclOperation.WRITE)
DENY_ALL = AclRule(ALICE, AclPermission.DENY, AclOperation.ALL)
DESCRIBE = AclRule(ALICE, AclPermission.ALLOW, AclOperation.DESCRIBE)


def target_of(topic: str) -> str | None:
    return f"east.{topic}" if topic != "other" else None


def test_a_right_to_write_is_left_out_and_the_right_to_everything_is_reduced() -> None:
    rules = [READ, WRITE, ALL, DENY_WRITE, DENY_ALL, DESCRIBE]
    found = followed_rules([topic_binding("orders", rule) for rule in rules], target_of)
    reduced = ALL._replace(operation=AclOperation.READ)
    assert found == {"east.orders": frozenset({READ, reduced, DENY_WRITE, DENY_ALL, DESCRIBE})}


def test_only_rules_for_single_copied_topics_are_followed() -> None:
    bindings = [
        topic_binding("other", READ),
        topic_binding("*", READ),
        AclBinding(ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED), READ),
        AclBinding(ResourcePattern(ResourceType.GROUP, "orders"), READ),
    ]
    assert followed_rules(bindings, target_of) == {}


def test_only_own_rules_are_deleted() -> None:
    changes = acl_changes(frozenset({READ}), frozenset({DESCRIBE, DENY_ALL}), frozenset({DESCRIBE, WRITE}))
    assert changes.created == {READ}
    assert changes.deleted == {DESCRIBE}
    assert changes.owned == {READ}


def test_a_rule_that_was_there_before_is_not_owned() -> None:
    assert acl_changes(frozenset({READ}), frozenset({READ}), frozenset()) == (frozenset(), frozenset(), frozenset())


def test_the_filter_selects_one_rule() -> None:
    selection = exact_filter("east.orders", READ)
    assert selection.selects(topic_binding("east.orders", READ))
    assert not selection.selects(topic_binding("east.orders", DESCRIBE))
    assert not selection.selects(topic_binding("orders", READ))
