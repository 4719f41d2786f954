"""The ACL index against a slow oracle that looks at every rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.security.acls.index import AclIndex, AclVerdict
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
    applies_to,
    granting,
)
from odradek.security.principals import EVERYONE, Principal

KINDS = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
NAMES = st.text("ab", min_size=1, max_size=4)
CLIENTS = st.sampled_from([Principal("User", "alice"), Principal("User", "bob")])
HOSTS = st.sampled_from(["10.0.0.1", "::1"])
RULE_HOSTS = st.sampled_from(["10.0.0.1", "::ffff:10.0.0.1", "::1", "0:0:0:0:0:0:0:1", "localhost", "*"])
WANTED = st.sampled_from(
    [
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    ]
)
PATTERNS = st.one_of(
    st.builds(ResourcePattern, KINDS, NAMES | st.just(ANY_NAME), st.just(PatternType.LITERAL)),
    st.builds(ResourcePattern, KINDS, NAMES, st.just(PatternType.PREFIXED)),
)
RULES = st.builds(
    AclRule,
    CLIENTS | st.just(EVERYONE),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
    WANTED | st.just(AclOperation.ALL),
    RULE_HOSTS,
)
BINDINGS = st.sets(st.builds(AclBinding, PATTERNS, RULES), max_size=12)


def index_of(bindings: set[AclBinding]) -> AclIndex:
    rules: dict[ResourcePattern, set[AclRule]] = {}
    for resource, rule in bindings:
        rules.setdefault(resource, set()).add(rule)
    return AclIndex.of(rules)


def oracle(
    bindings: set[AclBinding], client: Principal, host: str, operation: AclOperation, kind: ResourceType, name: str
) -> AclVerdict:
    matching = [rule for resource, rule in bindings if resource.type == kind and resource.matches(name)]
    mine = [rule for rule in matching if applies_to(rule, client, host)]
    if not matching:
        return AclVerdict.NO_RULES
    if any(rule.permission == AclPermission.DENY and rule.operation in (operation, AclOperation.ALL) for rule in mine):
        return AclVerdict.DENIED
    if any(rule.permission == AclPermission.ALLOW and rule.operation in granting(operation) for rule in mine):
        return AclVerdict.ALLOWED
    return AclVerdict.NOT_GRANTED


@given(BINDINGS, CLIENTS, HOSTS, WANTED, KINDS, NAMES)
def test_a_decision_is_that_of_all_rules_together(
    bindings: set[AclBinding], client: Principal, host: str, operation: AclOperation, kind: ResourceType, name: str
) -> None:
    verdict, binding = index_of(bindings).decide(client, host, operation, kind, name)
    assert verdict is oracle(bindings, client, host, operation, kind, name)
    assert (binding is not None) is (verdict in (AclVerdict.ALLOWED, AclVerdict.DENIED))
    if binding is not None:
        assert binding in bindings
        assert binding.resource.matches(name)


@given(BINDINGS, CLIENTS, HOSTS, WANTED, KINDS)
def test_a_client_is_allowed_anywhere_if_there_is_a_name_for_which_it_is_allowed(
    bindings: set[AclBinding], client: Principal, host: str, operation: AclOperation, kind: ResourceType
) -> None:
    """A name that no rule has, a literal, or a name just below a prefix shows every case."""
    names = {"zz", *(resource.name for resource, _ in bindings if resource.name != ANY_NAME)}
    names |= {f"{name}z" for name in names}
    is_allowed = any(oracle(bindings, client, host, operation, kind, name) is AclVerdict.ALLOWED for name in names)
    assert index_of(bindings).is_allowed_anywhere(client, host, operation, kind) is is_allowed


@given(BINDINGS, PATTERNS, st.sets(RULES, max_size=3), CLIENTS, HOSTS, WANTED)
def test_replacing_the_rules_of_a_pattern_is_like_building_the_index_anew(
    bindings: set[AclBinding],
    pattern: ResourcePattern,
    rules: set[AclRule],
    client: Principal,
    host: str,
    operation: AclOperation,
) -> None:
    before = index_of(bindings)
    changed = before.with_rules(pattern, rules)
    expected = {each for each in bindings if each.resource != pattern} | {AclBinding(pattern, rule) for rule in rules}
    everything = AclFilter()
    assert changed.bindings(everything) == index_of(expected).bindings(everything) == sorted(expected)
    assert before.bindings(everything) == sorted(bindings), "an index never changes"
    assert changed.rules_of(pattern) == rules
    for resource, _ in {*expected, *bindings, AclBinding(pattern, AclRule(EVERYONE, AclPermission.DENY, operation))}:
        for name in (resource.name, f"{resource.name}z"):
            verdict = oracle(expected, client, host, operation, resource.type, name)
            assert changed.decide(client, host, operation, resource.type, name).verdict is verdict


@given(
    BINDINGS,
    st.builds(
        AclFilter,
        KINDS | st.just(ResourceType.ANY),
        NAMES | st.none(),
        st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
        CLIENTS | st.none(),
        HOSTS | st.none(),
        WANTED | st.just(AclOperation.ANY),
        st.sampled_from(list(AclPermission)[1:]),
    ),
)
def test_a_filter_selects_what_has_all_its_values(bindings: set[AclBinding], wanted: AclFilter) -> None:
    def is_selected(binding: AclBinding) -> bool:
        resource, rule = binding
        if wanted.pattern is PatternType.MATCH:
            has_name = wanted.name is None or resource.matches(wanted.name)
        else:
            has_name = wanted.name in (None, resource.name) and wanted.pattern in (PatternType.ANY, resource.pattern)
        pairs = (
            (wanted.type, ResourceType.ANY, resource.type),
            (wanted.principal, None, rule.principal),
            (wanted.host, None, rule.host),
            (wanted.operation, AclOperation.ANY, rule.operation),
            (wanted.permission, AclPermission.ANY, rule.permission),
        )
        return has_name and all(value in (every, actual) for value, every, actual in pairs)

    assert index_of(bindings).bindings(wanted) == sorted(filter(is_selected, bindings))
