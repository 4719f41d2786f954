"""Znodes of access rules: what is written is read, and any other content gives rules or a `LayoutError`."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.acls.model import (
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls.nodes import (
    RESOURCE_TYPES,
    RULE_CHANGES,
    decode_rule_change,
    decode_rules,
    encode_rule_change,
    encode_rules,
    parse_resource_path,
    resource_path,
)
from odradek.security.principals import Principal
from odradek.znode import LayoutError, is_node_name

PATH = resource_path(ResourcePattern(ResourceType.TOPIC, "orders"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
RULES = st.builds(
    AclRule,
    st.builds(Principal, st.text("User", min_size=1), TEXTS.filter(bool)),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
    st.sampled_from(list(AclOperation)[2:]),
    TEXTS,
)
RESOURCES = st.builds(
    ResourcePattern,
    st.sampled_from(RESOURCE_TYPES),
    TEXTS.filter(is_node_name),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)


@given(st.frozensets(RULES, max_size=5))
def test_written_rules_are_read(rules: frozenset[AclRule]) -> None:
    assert decode_rules(PATH, encode_rules(rules)) == rules


@given(RESOURCES)
def test_a_pattern_is_read_from_its_path_and_from_its_notification(resource: ResourcePattern) -> None:
    assert parse_resource_path(resource_path(resource)) == resource
    path = f"{RULE_CHANGES[resource.pattern]}/acl_changes_0000000000"
    assert decode_rule_change(path, encode_rule_change(resource)) == resource


@given(st.frozensets(RULES, min_size=1, max_size=3), st.data())
def test_damaged_rules_are_rules_or_an_error(rules: frozenset[AclRule], data: st.DataObject) -> None:
    encoded = bytearray(encode_rules(rules))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with suppress(LayoutError):
        decode_rules(PATH, bytes(encoded))


@pytest.mark.parametrize("path", RULE_CHANGES.values())
@given(data=st.binary(max_size=60))
def test_any_notification_is_a_pattern_or_an_error(path: str, data: bytes) -> None:
    with suppress(LayoutError):
        decode_rule_change(f"{path}/acl_changes_0000000000", data)
