"""The format of the operator's records of settings in ZooKeeper."""

from __future__ import annotations

import json

import pytest

from odradek.security.acls.model import AclBinding, AclOperation, AclPermission, AclRule, ResourcePattern, ResourceType
from odradek.security.principals import Principal
from odradek.zk.ownership import BrokersOwnership, ManagedBrokers, ManagedUser
from odradek.znode import LayoutError

OURS = BrokersOwnership(owned=frozenset({"b", "a"}), preserved=frozenset({"c"}), ids=frozenset({1, 0}))


def test_ownership_is_written_by_cluster() -> None:
    record = ManagedBrokers(clusters={"uid": OURS, "another": BrokersOwnership()})
    assert json.loads(record.encode()) == {
        "version": 1,
        "clusters": {
            "another": {"owned": [], "preserved": [], "ids": []},
            "uid": {"owned": ["a", "b"], "preserved": ["c"], "ids": [0, 1]},
        },
    }
    assert ManagedBrokers.decode(record.encode()) == record


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b'{"version":2,"clusters":{}}', "version must be 1"),
        (b'{"version":1,"clusters":[]}', "clusters must be an object of objects"),
        (b'{"version":1,"clusters":{"uid":{"owned":1,"preserved":[],"ids":[]}}}', "owned must be a list of strings"),
        (b'{"version":1,"clusters":{"uid":{"owned":[],"preserved":[],"ids":["1"]}}}', "ids must be a list"),
    ],
)
def test_an_invalid_znode_is_named(data: bytes, message: str) -> None:
    with pytest.raises(LayoutError, match=message) as error:
        ManagedBrokers.decode(data)
    assert error.value.path == "/odradek/brokers"


def test_the_record_of_a_user() -> None:
    rule = AclRule(Principal("User", "CN=alice"), AclPermission.ALLOW, AclOperation.DESCRIBE_CONFIGS)
    record = ManagedUser(
        user="CN=alice",
        cluster="shop/demo",
        resource="uid",
        rules=frozenset({AclBinding(ResourcePattern(ResourceType.TOPIC, "orders"), rule)}),
        quotas=frozenset({"producer_byte_rate"}),
        credentials=frozenset({"SCRAM-SHA-512"}),
    )
    assert record.path == "/odradek/users/CN%3Dalice"
    assert json.loads(record.encode()) == {
        "version": 1,
        "user": "CN=alice",
        "cluster": "shop/demo",
        "resource": "uid",
        "rules": [
            {
                "type": "TOPIC",
                "name": "orders",
                "pattern": "LITERAL",
                "principal": "User:CN=alice",
                "permission": "ALLOW",
                "operation": "DESCRIBE_CONFIGS",
                "host": "*",
            }
        ],
        "quotas": ["producer_byte_rate"],
        "credentials": ["SCRAM-SHA-512"],
    }
    assert ManagedUser.decode(record.path, record.encode()) == record


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b'"version":1', b'"version":2', "version must be 1"),
        (b"ALLOW", b"MAYBE", "a rule cannot be read: 'MAYBE'"),
        (b"User:alice", b"alice", "a rule cannot be read"),
    ],
)
def test_a_record_of_a_user_that_cannot_be_read(before: bytes, after: bytes, message: str) -> None:
    rule = AclRule(Principal("User", "alice"), AclPermission.ALLOW, AclOperation.READ)
    binding = AclBinding(ResourcePattern(ResourceType.GROUP, "a"), rule)
    data = ManagedUser(user="alice", cluster="a/b", resource="", rules=frozenset({binding})).encode()
    with pytest.raises(LayoutError, match=message):
        ManagedUser.decode("/odradek/users/alice", data.replace(before, after))
