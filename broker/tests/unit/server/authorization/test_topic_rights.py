"""Topics that the client of a Produce may write: what a connection remembers, and for how long."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek.security.acls.index import AclIndex
from odradek.security.acls.model import AclOperation, AclPermission, AclRule, ResourcePattern, ResourceType
from odradek.security.principals import USER, Identity, Principal
from odradek.server.authorization import topic_rights
from odradek.server.authorization.authorizer import AclAuthorizer
from odradek.server.authorization.topic_rights import not_writable

ALICE = Identity(Principal(USER, "alice"), "10.0.0.1", "CLIENTS", "SASL_SSL")
ALLOWED = AclRule(ALICE.principal, AclPermission.ALLOW, AclOperation.WRITE)


class Bench:
    """One connection, and an authorizer that notes what it was asked."""

    def __init__(self, *writable: str) -> None:
        self.index = AclIndex()
        self.allow(*writable)
        self.asked: list[set[str]] = []
        self.connection = SimpleNamespace(memo=None, identity=ALICE)
        self.generation: object = self.index
        self._real = AclAuthorizer(self)

    def allow(self, *names: str) -> None:
        for name in names:
            self.index = self.index.with_rules(ResourcePattern(ResourceType.TOPIC, name), [ALLOWED])
        self.generation = self.index

    def refuse(self, name: str) -> None:
        self.generation = self.index = self.index.with_rules(ResourcePattern(ResourceType.TOPIC, name), [])

    def denied(self, identity: Identity, operation: Any, kind: Any, names: Iterable[str], request: str) -> Any:
        self.asked.append({*names})
        return self._real.denied(identity, operation, kind, names, request)

    def refused(self, *topics: str) -> set[str]:
        request: Any = SimpleNamespace(connection=self.connection, identity=self.connection.identity)
        authorizer: Any = self
        return {*not_writable(authorizer, request, [(TopicPartition(topic, 0), None) for topic in topics])}


def test_a_topic_that_may_be_written_is_decided_once_for_each_connection() -> None:
    bench = Bench("a", "b")
    for _ in range(3):
        assert bench.refused("a") == set()
    assert bench.refused("a", "b") == bench.refused("b") == set()
    assert bench.asked == [{"a"}, {"a", "b"}]
    bench.connection.memo = None
    assert bench.refused("a") == set()
    assert bench.asked[2:] == [{"a"}]


def test_a_change_of_the_rules_applies_to_the_next_request() -> None:
    bench = Bench("a")
    assert bench.refused("a", "b") == {"b"}
    bench.allow("b")
    assert bench.refused("a", "b") == set()
    bench.refuse("a")
    assert bench.refused("a", "b") == {"a"}


def test_the_next_identity_of_a_connection_has_its_own_rights() -> None:
    bench = Bench("a")
    assert bench.refused("a") == set()
    bench.connection.identity = ALICE._replace(principal=Principal(USER, "bob"))
    assert bench.refused("a") == {"a"}


def test_the_number_of_remembered_topics_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_rights, "MOST_WRITABLE", 2)
    bench = Bench("a", "b", "c")
    for topics in (("a", "b"), ("c",), ("a",), ("a", "b", "c")):
        assert bench.refused(*topics, "secret") == {"secret"}
        assert len(bench.connection.memo.writable) <= 2


def test_the_audit_log_has_every_request(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench("a")
    with caplog.at_level(logging.DEBUG, logger="odradek.authorizer"):
        for _ in range(2):
            bench.refused("a", "secret")
        bench.refused("a")
    found = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert (found.count("denied"), found.count("allowed")) == (2, 3)
