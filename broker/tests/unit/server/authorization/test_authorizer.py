"""Decisions of the authorizer: precedence, super users, remembered decisions, and the audit log."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import pytest

from odradek.security.acls.index import AclIndex
from odradek.security.acls.model import (
    OPERATIONS,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import EVERYONE, USER, Identity, Principal
from odradek.server.authorization import authorizer as module
from odradek.server.authorization.authorizer import AclAuthorizer, all_operations

ALICE = Identity(Principal(USER, "alice"), "10.0.0.1", "CLIENTS", "SASL_SSL")
BOB = ALICE._replace(principal=Principal(USER, "bob"))
TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


class Rules:
    """The rules that an authorizer reads."""

    def __init__(self, rules: Mapping[ResourcePattern, Collection[AclRule]] | None = None) -> None:
        self.index = AclIndex.of(rules or {})
        self.reads = 0

    def set(self, name: str, *rules: AclRule, pattern: PatternType = PatternType.LITERAL) -> None:
        self.index = self.index.with_rules(ResourcePattern(TOPIC, name, pattern), rules)

    def __call__(self) -> AclIndex:
        self.reads += 1
        return self.index


def denied(authorizer: AclAuthorizer, who: Identity, operation: AclOperation, *names: str) -> set[str]:
    return {*authorizer.denied(who, operation, TOPIC, names, "Fetch")}


def test_without_a_rule_nothing_is_allowed() -> None:
    assert denied(AclAuthorizer(Rules()), ALICE, READ, "a", "b") == {"a", "b"}


def test_without_a_rule_everything_is_allowed_if_the_setting_says_so() -> None:
    rules = Rules()
    rules.set("b", AclRule(BOB.principal, ALLOW, READ))
    authorizer = AclAuthorizer(rules, allows_without_rules=True)
    assert denied(authorizer, ALICE, READ, "a", "b") == {"b"}


def test_deny_precedes_allow() -> None:
    rules = Rules()
    rules.set("a", AclRule(EVERYONE, ALLOW, READ), AclRule(ALICE.principal, DENY, READ))
    assert denied(AclAuthorizer(rules), ALICE, READ, "a") == {"a"}
    assert denied(AclAuthorizer(rules), BOB, READ, "a") == set()


def test_super_users_may_do_what_rules_deny() -> None:
    rules = Rules()
    rules.set("a", AclRule(EVERYONE, DENY, AclOperation.ALL))
    authorizer = AclAuthorizer(rules, super_users=[ALICE.principal])
    assert denied(authorizer, ALICE, WRITE, "a") == set()
    assert authorizer.allows_any(ALICE, WRITE, TOPIC, "InitProducerId")
    assert authorizer.operations(ALICE, TOPIC, "a") == all_operations(TOPIC)
    assert denied(authorizer, BOB, WRITE, "a") == {"a"}


def test_a_change_of_the_rules_replaces_remembered_decisions() -> None:
    rules = Rules()
    authorizer = AclAuthorizer(rules)
    before = authorizer.generation
    assert denied(authorizer, ALICE, READ, "a") == {"a"}
    assert not authorizer.allows_any(ALICE, WRITE, TOPIC, "InitProducerId")
    rules.set("a", AclRule(ALICE.principal, ALLOW, AclOperation.ALL))
    assert authorizer.generation is not before
    assert denied(authorizer, ALICE, READ, "a") == set()
    assert authorizer.allows_any(ALICE, WRITE, TOPIC, "InitProducerId")
    rules.set("a")
    assert denied(authorizer, ALICE, READ, "a") == {"a"}


def test_decisions_are_remembered_by_user_host_operation_and_type() -> None:
    rules = Rules()
    rules.set("a", AclRule(ALICE.principal, ALLOW, READ, "10.0.0.1"))
    authorizer = AclAuthorizer(rules)
    for _ in range(2):
        assert denied(authorizer, ALICE, READ, "a") == set()
        assert denied(authorizer, ALICE._replace(host="10.0.0.2"), READ, "a") == {"a"}
        assert denied(authorizer, ALICE, WRITE, "a") == {"a"}
        assert denied(authorizer, BOB, READ, "a") == {"a"}
        assert authorizer.denied(ALICE, READ, ResourceType.GROUP, ("a",), "JoinGroup") == {"a"}


def test_the_number_of_remembered_decisions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS", 10)
    rules = Rules()
    rules.set("a", AclRule(ALICE.principal, ALLOW, READ), pattern=PatternType.PREFIXED)
    authorizer = AclAuthorizer(rules)
    names = [f"a{number}" for number in range(9)]
    for number in range(100):
        assert denied(authorizer, ALICE, READ, *names, f"b{number}") == {f"b{number}"}
        assert sum(map(len, authorizer._known.values())) <= 20


@pytest.mark.parametrize("everyone", [False, True])
def test_any_topic_may_be_written_unless_a_rule_denies_all(everyone: bool) -> None:
    rules = Rules()
    authorizer = AclAuthorizer(rules, allows_without_rules=everyone)
    assert authorizer.allows_any(ALICE, WRITE, TOPIC, "InitProducerId") is everyone
    rules.set("a", AclRule(ALICE.principal, ALLOW, WRITE))
    assert authorizer.allows_any(ALICE, WRITE, TOPIC, "InitProducerId")
    rules.set("*", AclRule(EVERYONE, DENY, WRITE))
    assert not authorizer.allows_any(ALICE, WRITE, TOPIC, "InitProducerId")


def test_the_operations_are_those_that_are_allowed_or_implied() -> None:
    rules = Rules()
    rules.set("a", AclRule(ALICE.principal, ALLOW, READ))
    authorizer = AclAuthorizer(rules)
    assert authorizer.operations(ALICE, TOPIC, "a") == 1 << READ | 1 << DESCRIBE
    assert authorizer.operations(BOB, TOPIC, "a") == 0
    rules.set("a", AclRule(EVERYONE, ALLOW, AclOperation.ALL))
    assert authorizer.operations(BOB, TOPIC, "a") == sum(1 << operation for operation in OPERATIONS[TOPIC])


def test_denials_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    rules = Rules()
    rules.set("mine", AclRule(ALICE.principal, ALLOW, READ))
    authorizer = AclAuthorizer(rules)
    with caplog.at_level(logging.INFO, logger="odradek.authorizer"):
        denied(authorizer, ALICE, READ, "mine", "secret")
        denied(authorizer, ALICE, READ, "secret")
        authorizer.denied(ALICE, READ, TOPIC, ("secret",), "Metadata", is_logged=False)
        authorizer.operations(ALICE, TOPIC, "secret")
    line = "denied: User:alice from 10.0.0.1, listener CLIENTS: READ on TOPIC 'secret' (Fetch)"
    assert [record.getMessage() for record in caplog.records] == [line, line]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="odradek.authorizer"):
        denied(authorizer, ALICE, READ, "mine")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["allowed"]
