"""Entities and filters of the quota APIs."""

from __future__ import annotations

import pytest

from odradek.base.errors import InvalidRequestError, UnsupportedVersionError
from odradek.security.quotas.quota_filters import ANY, QuotaFilter, entity_parts, parse_entity, parse_filter
from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind, QuotaTable

ALICE = QuotaEntity(user="alice")
ALICES_APP = QuotaEntity(user="alice", client_id="app")
BOB = QuotaEntity(user="bob")
ANY_USER = QuotaEntity(user=DEFAULT)
APP = QuotaEntity(client_id="app")
ADDRESS = QuotaEntity(ip="10.0.0.1")
ANY_ADDRESS = QuotaEntity(ip=DEFAULT)
CLIENTS = [ALICE, ALICES_APP, BOB, ANY_USER, APP]
ADDRESSES = [ADDRESS, ANY_ADDRESS]
TABLE = QuotaTable(
    {entity: {QuotaKind.PRODUCER_BYTE_RATE: 1.0} for entity in CLIENTS}
    | {entity: {QuotaKind.CONNECTION_CREATION_RATE: 1.0} for entity in ADDRESSES}
    | {QuotaEntity(user="nobody"): {}}
)


@pytest.mark.parametrize(
    ("components", "is_strict", "selected"),
    [
        ([], False, [*CLIENTS, *ADDRESSES]),
        ([], True, []),
        ([("user", 0, "alice")], False, [ALICE, ALICES_APP]),
        ([("user", 0, "alice")], True, [ALICE]),
        ([("user", 1, None)], True, [ANY_USER]),
        ([("user", 2, None)], True, [ALICE, BOB, ANY_USER]),
        ([("user", 2, None)], False, [ALICE, ALICES_APP, BOB, ANY_USER]),
        ([("client-id", 0, "app")], False, [ALICES_APP, APP]),
        ([("client-id", 2, None)], True, [APP]),
        ([("user", 2, None), ("client-id", 2, None)], True, [ALICES_APP]),
        ([("user", 0, "bob"), ("client-id", 0, "app")], False, []),
        ([("ip", 0, "10.0.0.1")], True, [ADDRESS]),
        ([("ip", 1, None)], False, [ANY_ADDRESS]),
        ([("ip", 2, None)], False, ADDRESSES),
        ([("user", 0, "nobody")], False, []),
    ],
)
def test_a_filter_selects_entities_as_in_kafka(
    components: list[tuple[str, int, str | None]], is_strict: bool, selected: list[QuotaEntity]
) -> None:
    found = parse_filter(components, is_strict=is_strict).select(TABLE)
    assert list(found) == selected
    assert all(found[entity] == TABLE.entities[entity] for entity in selected)


def test_a_user_with_the_name_of_the_default_is_another_one() -> None:
    assert not QuotaFilter(user="<default>").matches(ANY_USER)
    assert QuotaFilter(user=ANY).matches(ANY_USER)


@pytest.mark.parametrize(
    ("components", "error", "text"),
    [
        ([("", 0, "a")], InvalidRequestError, "empty entity type"),
        ([("group", 0, "a")], UnsupportedVersionError, "'group' is not supported"),
        ([("user", 0, "a"), ("user", 1, None)], InvalidRequestError, "two components of the entity type user"),
        ([("user", 0, "a"), ("ip", 1, None)], InvalidRequestError, "must not have components for user"),
        ([("user", 3, None)], InvalidRequestError, "kind of match 3 is invalid"),
        ([("user", 0, None)], InvalidRequestError, "use 0 with a name"),
    ],
)
def test_invalid_filters_are_refused(
    components: list[tuple[str, int, str | None]], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        parse_filter(components, is_strict=False)


@pytest.mark.parametrize("entity", [*CLIENTS, *ADDRESSES])
def test_an_entity_has_the_parts_that_requests_have(entity: QuotaEntity) -> None:
    assert parse_entity(entity_parts(entity)) == entity


def test_a_name_of_null_is_the_default() -> None:
    assert parse_entity([("user", None), ("client-id", "app")]) == QuotaEntity(user=DEFAULT, client_id="app")
    assert entity_parts(QuotaEntity(user=DEFAULT)) == [("user", None)]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], "entity is empty"),
        ([("group", "a")], "Unknown entity type 'group'"),
        ([("user", "")], "name of the user is empty"),
        ([("user", "a"), ("ip", "10.0.0.1")], "must not have a user"),
    ],
)
def test_invalid_entities_are_refused(parts: list[tuple[str, str | None]], text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        parse_entity(parts)
