"""Decisions that users of Kafka know, and their cost."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.security.acls.index import AclIndex, AclVerdict
from odradek.security.acls.model import (
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
    granting,
)
from odradek.security.principals import ANONYMOUS, EVERYONE, Principal, parse_principal, parse_principals

ALICE = Principal("User", "alice")
HOST = "10.0.0.1"
READ_ALL = AclRule(EVERYONE, AclPermission.ALLOW, AclOperation.READ)


def topic(name: str, pattern: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(ResourceType.TOPIC, name, pattern)


def test_a_deny_rule_wins_over_a_more_specific_allow_rule() -> None:
    index = AclIndex.of(
        {
            topic("orders"): {AclRule(ALICE, AclPermission.ALLOW, AclOperation.READ)},
            topic("ord", PatternType.PREFIXED): {AclRule(EVERYONE, AclPermission.DENY, AclOperation.ALL, HOST)},
        }
    )
    assert index.decide(ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, "orders").verdict is AclVerdict.DENIED
    assert (
        index.decide(ALICE, "10.0.0.2", AclOperation.READ, ResourceType.TOPIC, "orders").verdict is AclVerdict.ALLOWED
    )
    assert index.decide(ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, "other").verdict is AclVerdict.NO_RULES


@pytest.mark.parametrize(
    "by", [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL]
)
def test_describe_is_implied_by_allow_rules_only(by: AclOperation) -> None:
    allow = AclIndex.of({topic("t"): {AclRule(ALICE, AclPermission.ALLOW, by)}})
    assert allow.decide(ALICE, HOST, AclOperation.DESCRIBE, ResourceType.TOPIC, "t").verdict is AclVerdict.ALLOWED
    denied = AclIndex.of({topic("t"): {AclRule(ALICE, AclPermission.DENY, by), READ_ALL}})
    expected = AclVerdict.DENIED if by is AclOperation.ALL else AclVerdict.ALLOWED
    assert denied.decide(ALICE, HOST, AclOperation.DESCRIBE, ResourceType.TOPIC, "t").verdict is expected
    assert granting(AclOperation.DESCRIBE_CONFIGS)[2:] == (AclOperation.ALTER_CONFIGS,)


class Counting(dict[str, object]):
    """Counts its lookups."""

    lookups = 0

    def get(self, key: str, default: object = None) -> object:
        type(self).lookups += 1
        return super().get(key, default)


@pytest.mark.parametrize("count", [10, 10_000])
def test_the_cost_of_a_decision_does_not_depend_on_the_number_of_rules(count: int) -> None:
    rules = {topic(f"topic-{number:05}"): {READ_ALL} for number in range(count)}
    rules |= {topic(f"prefix-{number:05}", PatternType.PREFIXED): {READ_ALL} for number in range(count)}
    index = AclIndex.of(rules)
    (types,) = index._types.values()
    counted = type(types)(Counting(types.literals), Counting(types.prefixes), types.lengths)  # type: ignore[arg-type]
    Counting.lookups = 0
    verdict = AclIndex({ResourceType.TOPIC: counted}).decide(
        ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, "prefix-00007-orders"
    )[0]
    assert verdict is AclVerdict.ALLOWED
    assert Counting.lookups == 3, "the name, the wildcard, and the only length of a prefix"


def test_principals_have_the_text_form_of_kafka() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert parse_principal("User:CN=a,O=b:c") == Principal("User", "CN=a,O=b:c")
    assert parse_principals("User:a; User:CN=b,O=c ;") == {Principal("User", "a"), Principal("User", "CN=b,O=c")}
    for text in ("", "alice", "User:", ":alice"):
        with pytest.raises(ConfigError, match="write Type:name"):
            parse_principal(text)
