"""Client quotas: znodes as Kafka has them, values, and whom a quota applies to."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.security.quotas.quota_model import (
    DEFAULT,
    QuotaEntity,
    QuotaKind,
    QuotaLimit,
    QuotaTable,
    entity_path,
    format_quota,
    parse_entity_path,
    parse_quota,
    sanitized,
)
from odradek.znode import LayoutError

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
CONNECTIONS = QuotaKind.CONNECTION_CREATION_RATE


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (QuotaEntity(user="alice"), "users/alice"),
        (QuotaEntity(user=DEFAULT), "users/<default>"),
        (QuotaEntity(user="<default>"), "users/%3Cdefault%3E"),
        (QuotaEntity(client_id="app 1/x"), "clients/app%201%2Fx"),
        (QuotaEntity(client_id=DEFAULT), "clients/<default>"),
        (QuotaEntity(user="CN=a, O=*~+"), "users/CN%3Da%2C%20O%3D%2A%7E%2B"),
        (QuotaEntity(user="ä-_.Z9"), "users/%C3%A4-_.Z9"),
        (QuotaEntity(user="alice", client_id="app"), "users/alice/clients/app"),
        (QuotaEntity(user=DEFAULT, client_id=DEFAULT), "users/<default>/clients/<default>"),
        (QuotaEntity(ip="10.0.0.1"), "ips/10.0.0.1"),
        (QuotaEntity(ip="0:0:0:0:0:0:0:1"), "ips/0:0:0:0:0:0:0:1"),
        (QuotaEntity(ip=DEFAULT), "ips/<default>"),
    ],
)
def test_an_entity_has_kafkas_path(entity: QuotaEntity, path: str) -> None:
    assert entity_path(entity) == path
    assert parse_entity_path(path) == entity


def test_a_plus_sign_in_a_znode_is_a_space_as_in_java() -> None:
    assert parse_entity_path("users/a+b") == QuotaEntity(user="a b")


def test_what_java_cannot_encode_becomes_a_question_mark() -> None:
    assert sanitized("a\ud800") == "a%3F"


@pytest.mark.parametrize(
    "path", ["", "users", "users/", "users/a/clients", "users/a/b/c", "topics/a", "ips/a/b", "users/a/"]
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(LayoutError, match="expected users/U"):
        parse_entity_path(path)


def test_a_name_that_no_znode_can_have_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"/config/users/\.\.: ZooKeeper allows no znode"):
        entity_path(QuotaEntity(user=".."))
    with pytest.raises(LayoutError, match="ZooKeeper allows no znode"):
        entity_path(QuotaEntity(ip="a/b"))


@pytest.mark.parametrize("entity", [QuotaEntity(), QuotaEntity(user="a", ip="b"), QuotaEntity(client_id="a", ip="b")])
def test_an_entity_is_a_user_a_client_both_or_an_address(entity: QuotaEntity) -> None:
    with pytest.raises(ValueError, match="not a user"):
        entity_path(entity)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (PRODUCE, "1024", 1024.0),
        (PRODUCE, " -1 ", -1.0),
        (PRODUCE, "9223372036854775807", float((1 << 63) - 1)),
        (QuotaKind.REQUEST_PERCENTAGE, "12.5", 12.5),
        (QuotaKind.REQUEST_PERCENTAGE, "200", 200.0),
        (QuotaKind.CONTROLLER_MUTATION_RATE, "1E-2", 0.01),
        (CONNECTIONS, "0", 0.0),
    ],
)
def test_values_are_read(kind: QuotaKind, text: str, value: float) -> None:
    assert parse_quota(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PRODUCE, "1.5"),
        (PRODUCE, "1_000"),
        (PRODUCE, ""),
        (PRODUCE, "9223372036854775808"),
        (QuotaKind.REQUEST_PERCENTAGE, "NaN"),
        (QuotaKind.REQUEST_PERCENTAGE, "1e999"),
        (QuotaKind.REQUEST_PERCENTAGE, "many"),
        (CONNECTIONS, "-1"),
        (CONNECTIONS, "2147483648"),
    ],
)
def test_invalid_values_are_refused(kind: QuotaKind, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{kind} must be"):
        parse_quota(kind, text)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (PRODUCE, 1024.0, "1024"),
        (PRODUCE, 1023.9999995, "1024"),
        (CONNECTIONS, 5.0, "5"),
        (QuotaKind.REQUEST_PERCENTAGE, 200.0, "200.0"),
        (QuotaKind.CONTROLLER_MUTATION_RATE, 0.5, "0.5"),
    ],
)
def test_values_are_written_as_kafka_does(kind: QuotaKind, value: float, text: str) -> None:
    assert format_quota(kind, value) == text


@pytest.mark.parametrize("value", [1.5, 1.00001, float("inf"), float("nan"), 2.0**63])
def test_a_byte_rate_that_is_not_a_whole_number_of_64_bits_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        format_quota(PRODUCE, value)


PRECEDENCE = [
    (QuotaEntity(user="alice", client_id="app"), "alice", "app"),
    (QuotaEntity(user="alice", client_id=DEFAULT), "alice", "app"),
    (QuotaEntity(user="alice"), "alice", ""),
    (QuotaEntity(user=DEFAULT, client_id="app"), "alice", "app"),
    (QuotaEntity(user=DEFAULT, client_id=DEFAULT), "alice", "app"),
    (QuotaEntity(user=DEFAULT), "alice", ""),
    (QuotaEntity(client_id="app"), "", "app"),
    (QuotaEntity(client_id=DEFAULT), "", "app"),
]
"""Kafka's order, and the user and client id whose clients share the quota."""


def test_the_first_entity_in_kafkas_order_applies() -> None:
    quotas = {entity: {PRODUCE: float(number)} for number, (entity, _, _) in enumerate(PRECEDENCE)}
    for number, (entity, user, client_id) in enumerate(PRECEDENCE):
        assert QuotaTable(quotas).client_limit(PRODUCE, "alice", "app") == QuotaLimit(user, client_id, number)
        del quotas[entity]
    assert QuotaTable(quotas).client_limit(PRODUCE, "alice", "app") is None


def test_a_client_without_an_id_has_only_the_quotas_of_users() -> None:
    table = QuotaTable({entity: {PRODUCE: float(number)} for number, (entity, _, _) in enumerate(PRECEDENCE)})
    assert table.client_limit(PRODUCE, "alice", "") == QuotaLimit("alice", "", 2.0)
    assert table.client_limit(PRODUCE, "bob", "") == QuotaLimit("bob", "", 5.0)
    assert QuotaTable({QuotaEntity(client_id=DEFAULT): {PRODUCE: 1.0}}).client_limit(PRODUCE, "bob", "") is None


def test_kinds_are_independent() -> None:
    table = QuotaTable({QuotaEntity(user="alice"): {PRODUCE: 1.0}})
    assert table.is_limited(PRODUCE)
    assert not table.is_limited(QuotaKind.CONSUMER_BYTE_RATE)
    assert table.client_limit(QuotaKind.CONSUMER_BYTE_RATE, "alice", "app") is None


def test_an_address_has_its_quota_or_the_default_in_any_form() -> None:
    table = QuotaTable(
        {
            QuotaEntity(ip="0:0:0:0:0:0:0:1"): {CONNECTIONS: 1.0},
            QuotaEntity(ip=DEFAULT): {CONNECTIONS: 2.0},
            QuotaEntity(ip="some-host"): {CONNECTIONS: 3.0},
        }
    )
    assert table.address_limit("::1") == 1.0
    assert table.address_limit("10.0.0.1") == 2.0
    assert QuotaTable().address_limit("10.0.0.1") is None
    assert QuotaTable({QuotaEntity(ip="10.0.0.1"): {CONNECTIONS: 0.0}}).address_limit("10.0.0.1") == 0.0


def test_a_kind_that_an_entity_cannot_have_is_ignored() -> None:
    table = QuotaTable({QuotaEntity(user="alice"): {CONNECTIONS: 1.0}, QuotaEntity(ip="10.0.0.1"): {PRODUCE: 1.0}})
    assert not table.is_limited(CONNECTIONS)
    assert not table.is_limited(PRODUCE)


def test_replacing_entities_leaves_the_table_before_as_it_was() -> None:
    alice, bob = QuotaEntity(user="alice"), QuotaEntity(user="bob")
    before = QuotaTable({alice: {PRODUCE: 1.0}})
    after = before.with_entities({alice: {PRODUCE: 2.0}, bob: {PRODUCE: 3.0}})
    assert after.entities == {alice: {PRODUCE: 2.0}, bob: {PRODUCE: 3.0}}
    assert before.entities == {alice: {PRODUCE: 1.0}}
    assert after.without([alice]).entities == {bob: {PRODUCE: 3.0}}
    assert repr(after) == "QuotaTable(2 entities)"
