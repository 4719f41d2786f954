"""Access rules, quotas and users of the admin client, against an emulated broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.base.errors import (
    ClusterAuthorizationFailedError,
    ConfigError,
    InvalidRequestError,
    ResourceNotFoundError,
    SecurityDisabledError,
)
from odradek.client.administration.access_admin import AccessAdmin
from odradek.client.administration.access_requests import ScramPassword
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, decode_response, encode_response
from odradek.security.acls.model import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import Principal
from odradek.security.quotas.quota_filters import ANY, QuotaFilter
from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind
from odradek.security.sasl.credentials import SHA_256, salted_password

ALICE = AclRule(Principal("User", "alice"), AclPermission.ALLOW, AclOperation.READ, "10.0.0.1")
PREFIX = AclBinding(ResourcePattern(ResourceType.TOPIC, "orders-", PatternType.PREFIXED), ALICE)
LITERAL = AclBinding(ResourcePattern(ResourceType.GROUP, "billing"), ALICE)
RULE: Message = {"principal": "User:alice", "host": "10.0.0.1", "operation": 3, "permission_type": 3}
FINE: Message = {"error_code": 0, "error_message": None}
REFUSED: Message = {"error_code": 42, "error_message": "no"}


class Broker:
    """Stands for a cluster: answers all requests with one message."""

    def __init__(self, answer: Message) -> None:
        self._answer = answer
        self.asked: list[Any] = []
        self.at_least = 0

    def deadline(self, what: str) -> str:
        return what

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], deadline: str) -> Any:
        return await attempt()

    async def ask_any(self, expected: Any, message: Message, *, at_least: int = 0) -> Any:
        self.asked.append(message)
        self.at_least = at_least
        key: ApiKey = expected.API_KEY
        version = API_TABLE[key].max_version
        return decode_response(expected, version, encode_response(key, version, 1, self._answer)[4:])

    async def ask_controller(self, expected: Any, message: Message) -> Any:
        return await self.ask_any(expected, message)


def admin(broker: Broker) -> AccessAdmin:
    return AccessAdmin(broker)  # type: ignore[arg-type]  # the part of a cluster that it needs


async def test_rules_are_described() -> None:
    rows = [{"resource_type": 2, "resource_name": "orders-", "pattern_type": 4, "acls": [RULE]}]
    broker = Broker({"throttle_time_ms": 0, **FINE, "resources": rows})
    assert await admin(broker).describe_acls() == [PREFIX]
    assert broker.at_least == 1, "version 0 would select literal patterns only"
    selection = AclFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL, Principal("User", "alice"))
    await admin(broker).describe_acls(selection)
    assert broker.at_least == 0
    assert broker.asked[-1]["principal_filter"] == "User:alice"


async def test_rules_without_an_authorizer() -> None:
    broker = Broker({"throttle_time_ms": 0, "error_code": 54, "error_message": "none", "resources": ()})
    with pytest.raises(SecurityDisabledError, match="none"):
        await admin(broker).describe_acls()


async def test_rules_are_created_and_the_first_error_is_raised() -> None:
    broker = Broker({"throttle_time_ms": 0, "results": [FINE, FINE]})
    await admin(broker).create_acls([LITERAL, PREFIX])
    assert broker.at_least == 1
    assert [each["resource_pattern_type"] for each in broker.asked[0]["creations"]] == [3, 4]
    await admin(Broker({"throttle_time_ms": 0, "results": [FINE]})).create_acls([LITERAL])
    with pytest.raises(InvalidRequestError, match=r"User:alice was not created: no"):
        await admin(Broker({"throttle_time_ms": 0, "results": [FINE, REFUSED]})).create_acls([LITERAL, PREFIX])


async def test_deleted_rules_are_returned() -> None:
    rule = {**RULE, **FINE, "resource_type": 3, "resource_name": "billing", "pattern_type": 3}
    broker = Broker({"throttle_time_ms": 0, "filter_results": [{**FINE, "matching_acls": [rule]}]})
    assert await admin(broker).delete_acls([AclFilter(ResourceType.GROUP)]) == [LITERAL]
    failed = Broker({"throttle_time_ms": 0, "filter_results": [{**FINE, "matching_acls": [{**rule, **REFUSED}]}]})
    with pytest.raises(InvalidRequestError, match="was not deleted"):
        await admin(failed).delete_acls([AclFilter()])


async def test_a_rule_of_a_later_version_is_an_error() -> None:
    rows = [{"resource_type": 2, "resource_name": "t", "pattern_type": 3, "acls": [{**RULE, "operation": 99}]}]
    with pytest.raises(ConfigError, match="does not know"):
        await admin(Broker({"throttle_time_ms": 0, **FINE, "resources": rows})).describe_acls()


async def test_quotas_are_described() -> None:
    entity = [{"entity_type": "user", "entity_name": None}, {"entity_type": "client-id", "entity_name": "app"}]
    values = [{"key": "producer_byte_rate", "value": 5.0}, {"key": "later", "value": 1.0}]
    broker = Broker({"throttle_time_ms": 0, **FINE, "entries": [{"entity": entity, "values": values}]})
    found = await admin(broker).describe_client_quotas(QuotaFilter(user=DEFAULT, client_id=ANY, is_strict=True))
    assert found == {QuotaEntity(user=DEFAULT, client_id="app"): {QuotaKind.PRODUCER_BYTE_RATE: 5.0}}
    assert broker.asked[0]["components"] == [
        {"entity_type": "user", "match_type": 1, "match": None},
        {"entity_type": "client-id", "match_type": 2, "match": None},
    ]
    refused = Broker({"throttle_time_ms": 0, "error_code": 31, "error_message": None, "entries": None})
    with pytest.raises(ClusterAuthorizationFailedError):
        await admin(refused).describe_client_quotas()


async def test_quotas_are_changed() -> None:
    entity = [{"entity_type": "ip", "entity_name": "10.0.0.1"}]
    broker = Broker({"throttle_time_ms": 0, "entries": [{**FINE, "entity": entity}]})
    changes = {QuotaEntity(ip="10.0.0.1"): {QuotaKind.CONNECTION_CREATION_RATE: None}}
    await admin(broker).alter_client_quotas(changes, validate_only=True)
    (entry,) = broker.asked[0]["entries"]
    assert entry == {"entity": entity, "ops": [{"key": "connection_creation_rate", "value": 0.0, "remove": True}]}
    with pytest.raises(InvalidRequestError):
        await admin(Broker({"throttle_time_ms": 0, "entries": [{**REFUSED, "entity": entity}]})).alter_client_quotas({})


async def test_users_are_described() -> None:
    infos = [{"mechanism": 1, "iterations": 4096}, {"mechanism": 9, "iterations": 1}]
    row = {**FINE, "user": "alice", "credential_infos": infos}
    broker = Broker({"throttle_time_ms": 0, **FINE, "results": [row]})
    assert await admin(broker).describe_user_scram_credentials() == {"alice": {"SCRAM-SHA-256": 4096, "9": 1}}
    assert broker.asked[0] == {"users": None}
    missing = {**row, "error_code": 91, "credential_infos": ()}
    with pytest.raises(ResourceNotFoundError):
        await admin(Broker({"throttle_time_ms": 0, **FINE, "results": [missing]})).describe_user_scram_credentials(
            ["alice"]
        )


async def test_passwords_are_sent_as_salted_hashes() -> None:
    broker = Broker({"throttle_time_ms": 0, "results": [{**FINE, "user": "alice"}]})
    password = ScramPassword("alice", "secret", "SCRAM-SHA-256", 5000)
    assert "secret" not in repr(password)
    await admin(broker).alter_user_scram_credentials(passwords=[password], deletions=[("bob", "SCRAM-SHA-512")])
    (upsertion,) = broker.asked[0]["upsertions"]
    assert upsertion["salted_password"] == salted_password(SHA_256, "secret", upsertion["salt"], 5000)
    assert broker.asked[0]["deletions"] == [{"name": "bob", "mechanism": 2}]


@pytest.mark.parametrize(
    "password",
    [
        ScramPassword("alice", ""),
        ScramPassword("alice", "\ud800"),
        ScramPassword("alice", "x", "PLAIN"),
        ScramPassword("alice", "x", iterations=1),
    ],
)
async def test_passwords_that_are_not_allowed(password: ScramPassword) -> None:
    broker = Broker({})
    with pytest.raises(ConfigError):
        await admin(broker).alter_user_scram_credentials(passwords=[password])
    assert broker.asked == []
