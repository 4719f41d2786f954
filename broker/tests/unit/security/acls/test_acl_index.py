"""Decisions that users of Kafka know, and their cost."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.security.acls.index import AclIndex, AclVerdict
from odradek.security.acls.model import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
    granting,
)
from odradek.security.addresses import normal_address
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
    ("written", "client", "is_denied"),
    [
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1", True),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0", True),
        ("::ffff:10.0.0.1", HOST, True),
        ("10.0.0.01", HOST, False),
        ("localhost", "127.0.0.1", False),
        ("::2", "::1", False),
    ],
)
def test_addresses_are_compared_in_one_form(written: str, client: str, is_denied: bool) -> None:
    assert normal_address(client) == client
    rule = AclRule(ALICE, AclPermission.DENY, AclOperation.READ, written)
    verdict, binding = AclIndex.of({topic("t"): {rule, READ_ALL}}).decide(
        ALICE, client, AclOperation.READ, ResourceType.TOPIC, "t"
    )
    assert verdict is (AclVerdict.DENIED if is_denied else AclVerdict.ALLOWED)
    assert binding == AclBinding(topic("t"), rule if is_denied else READ_ALL), "as it was written"


def test_two_forms_of_an_address_are_two_rules() -> None:
    rules = {AclRule(ALICE, AclPermission.DENY, AclOperation.READ, host) for host in ("::1", "0:0:0:0:0:0:0:1")}
    index = AclIndex.of({topic("t"): rules})
    assert index.rules_of(topic("t")) == rules
    remaining = index.with_rules(topic("t"), {min(rules)})
    assert remaining.decide(ALICE, "::1", AclOperation.READ, ResourceType.TOPIC, "t").verdict is AclVerdict.DENIED


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
