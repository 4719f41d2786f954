"""Znodes of access rules: what Kafka writes and reads, and what is refused."""

from __future__ import annotations

import pytest

from odradek.security.acls.model import (
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls.nodes import (
    RULE_PATHS,
    decode_rule_change,
    decode_rules,
    encode_rule_change,
    encode_rules,
    parse_resource_path,
    resource_path,
)
from odradek.security.principals import EVERYONE, Principal
from odradek.znode import LayoutError

ALICE = Principal("User", "alice")
PATH = "/kafka-acl/Topic/orders"
LITERAL_CHANGE = "/kafka-acl-changes/acl_changes_0000000007"
PREFIX_CHANGE = "/kafka-acl-extended-changes/acl_changes_0000000007"
RULE = '{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}'


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (ResourcePattern(ResourceType.TOPIC, "orders"), "/kafka-acl/Topic/orders"),
        (ResourcePattern(ResourceType.GROUP, "*"), "/kafka-acl/Group/*"),
        (ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a b:c"), "/kafka-acl/TransactionalId/a b:c"),
        (ResourcePattern(ResourceType.DELEGATION_TOKEN, "x"), "/kafka-acl/DelegationToken/x"),
        (ResourcePattern(ResourceType.USER, "User:é"), "/kafka-acl/User/User:é"),
        (
            ResourcePattern(ResourceType.TRANSACTIONAL_ID, "orders-", PatternType.PREFIXED),
            "/kafka-acl-extended/prefixed/TransactionalId/orders-",
        ),
    ],
)
def test_a_pattern_has_the_path_that_kafka_gives_it(resource: ResourcePattern, path: str) -> None:
    assert resource_path(resource) == path
    assert parse_resource_path(path) == resource


@pytest.mark.parametrize("pattern", [PatternType.LITERAL, PatternType.PREFIXED])
@pytest.mark.parametrize("name", ["", "a/b", "..", "\0", "\U0001f600"])
def test_a_name_that_no_znode_can_have_is_refused(name: str, pattern: PatternType) -> None:
    with pytest.raises(LayoutError, match=r"^/kafka-acl(-extended/prefixed)?/Group: .*no znode with the name"):
        resource_path(ResourcePattern(ResourceType.GROUP, name, pattern))


@pytest.mark.parametrize(
    "path",
    ["/kafka-acl/Topic", "/kafka-acl/Topic/", "/kafka-acl/Topic/a/b", "/kafka-acl/Any/a", "/config/topics/a", ""],
)
def test_other_paths_are_not_those_of_resources(path: str) -> None:
    with pytest.raises(LayoutError, match=f"^{path}: "):
        parse_resource_path(path)


def test_an_authorizer_creates_a_folder_for_each_type() -> None:
    assert len(RULE_PATHS) == 2 * 6 + 2
    assert {
        "/kafka-acl/User",
        "/kafka-acl-extended/prefixed/Topic",
        "/kafka-acl-changes",
        "/kafka-acl-extended-changes",
    } <= set(RULE_PATHS)


def test_rules_have_the_json_of_kafka() -> None:
    rules = [
        AclRule(ALICE, AclPermission.ALLOW, AclOperation.READ),
        AclRule(EVERYONE, AclPermission.DENY, AclOperation.DESCRIBE_CONFIGS, "10.0.0.1"),
    ]
    data = (
        b'{"version":1,"acls":[{"principal":"User:*","permissionType":"Deny","operation":"DescribeConfigs",'
        b'"host":"10.0.0.1"},' + RULE.encode() + b"]}"
    )
    assert encode_rules(reversed(rules)) == data
    assert decode_rules(PATH, data) == frozenset(rules)


@pytest.mark.parametrize("data", [None, b""])
def test_an_empty_znode_has_no_rules(data: bytes | None) -> None:
    assert decode_rules(PATH, data) == frozenset()
    assert decode_rules(PATH, encode_rules([])) == frozenset()


def test_names_are_read_in_any_case_as_kafka_does() -> None:
    upper = RULE.replace("Allow", "ALLOW").replace("Read", "describeconfigs")
    (rule,) = decode_rules(PATH, f'{{"version":1,"acls":[{upper}]}}'.encode())
    assert rule == AclRule(ALICE, AclPermission.ALLOW, AclOperation.DESCRIBE_CONFIGS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("acls", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"acls":[]}', "version must be a number"),
        ('{"version":2,"acls":[]}', "version must be 1, found 2"),
        ('{"version":1}', "acls must be a list of objects"),
        ('{"version":1,"acls":[1]}', "acls must be a list of objects"),
        (f'{{"version":1,"acls":[{RULE.replace("User:alice", "alice")}]}}', "write Type:name"),
        (f'{{"version":1,"acls":[{RULE.replace("Allow", "Any")}]}}', "permissionType must be one of Deny, Allow"),
        (f'{{"version":1,"acls":[{RULE.replace("Read", "Any")}]}}', "operation must be one of All, Read, .*'Any'"),
        (f'{{"version":1,"acls":[{RULE.replace("Read", "Unknown")}]}}', "operation must be one of"),
        (f'{{"version":1,"acls":[{RULE.replace("host", "hosts")}]}}', "host must be a string"),
    ],
)
def test_invalid_rules_name_their_path(content: str, reason: str) -> None:
    with pytest.raises(LayoutError, match=f"^{PATH}: .*{reason}"):
        decode_rules(PATH, content.encode())


@pytest.mark.parametrize(
    ("resource", "path", "data"),
    [
        (ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a:b"), LITERAL_CHANGE, b"TRANSACTIONAL_ID:a:b"),
        (
            ResourcePattern(ResourceType.TOPIC, 'é"', PatternType.PREFIXED),
            PREFIX_CHANGE,
            '{"version":1,"resourceType":"TOPIC","name":"é\\"","patternType":"PREFIXED"}'.encode(),
        ),
    ],
)
def test_a_notification_names_the_pattern(resource: ResourcePattern, path: str, data: bytes) -> None:
    assert encode_rule_change(resource) == data
    assert decode_rule_change(path, data) == resource


def test_a_notification_of_old_versions_has_the_type_as_in_paths() -> None:
    assert decode_rule_change(LITERAL_CHANGE, b"TransactionalId:a").type is ResourceType.TRANSACTIONAL_ID


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        (LITERAL_CHANGE, b"orders", "expected TYPE:name"),
        (LITERAL_CHANGE, b"Any:orders", "resource type must be one of Topic, Group"),
        (LITERAL_CHANGE, b"TOPIC:\xff", "not UTF-8"),
        (PREFIX_CHANGE, b"TOPIC:a", "not JSON"),
        (
            PREFIX_CHANGE,
            b'{"version":2,"resourceType":"TOPIC","name":"a","patternType":"PREFIXED"}',
            "version must be 1",
        ),
        (PREFIX_CHANGE, b'{"version":1,"resourceType":"ANY","name":"a","patternType":"PREFIXED"}', "resourceType must"),
        (PREFIX_CHANGE, b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"MATCH"}', "patternType must"),
        (PREFIX_CHANGE, b'{"version":1,"resourceType":"TOPIC","patternType":"PREFIXED"}', "name must be a string"),
    ],
)
def test_an_invalid_notification_names_its_path(path: str, data: bytes, reason: str) -> None:
    with pytest.raises(LayoutError, match=f"^{path}: .*{reason}"):
        decode_rule_change(path, data)
