"""DescribeClientQuotas and AlterClientQuotas in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from odradek.base.errors import NONE, InvalidRequestError, RequestTimedOutError, UnsupportedVersionError
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.quotas.quota_filters import QuotaMatch
from odradek.server.failures import failure
from odradek.zk import layout
from odradek.zk.port import ConnectionLost
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
Entity = dict[str, str | None]
VERSIONS: Final = range(API_TABLE[ApiKey.ALTER_CLIENT_QUOTAS].max_version + 1)
INVALID: Final = InvalidRequestError.code


def parts(entity: Entity) -> list[Message]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]


async def alter(
    server: MemoryServer, entity: Entity, *, version: int = 1, validate_only: bool = False, **values: float | None
) -> Any:
    """Change the quotas of one entity. Return its entry."""
    operations = [
        {"key": key, "value": 0.0 if value is None else value, "remove": value is None} for key, value in values.items()
    ]
    entries = [{"entity": parts(entity), "ops": operations}]
    message: Message = {"entries": entries, "validate_only": validate_only}
    answer = await server.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, message)
    (entry,) = answer.entries
    assert {part.entity_type: part.entity_name for part in entry.entity} == entity
    assert (entry.error_message is None) == (entry.error_code == NONE)
    return entry


async def described(server: MemoryServer, *components: Message, strict: bool = False, version: int = 1) -> Any:
    message: Message = {"components": components, "strict": strict}
    return await server.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, message)


def found(answer: Any) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    assert (answer.error_code, answer.error_message) == (NONE, None)
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_quotas_are_set_described_and_removed(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        alice: Entity = {"user": "alice"}
        assert (await alter(server, alice, version=version, producer_byte_rate=1000.0)).error_code == NONE
        assert (await alter(server, alice, version=version, request_percentage=12.5)).error_code == NONE
        await alter(server, {"user": None, "client-id": "app"}, version=version, consumer_byte_rate=5.0)
        users = {"entity_type": "user", "match_type": QuotaMatch.SPECIFIED, "match": None}
        assert found(await described(server, users, version=version)) == {
            (("user", "alice"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
            (("user", None), ("client-id", "app")): {"consumer_byte_rate": 5.0},
        }
        assert list(found(await described(server, users, strict=True))) == [(("user", "alice"),)]
        data, _ = await server.zk.get("/config/users/alice")
        values = {"producer_byte_rate": "1000", "request_percentage": "12.5"}
        assert layout.decode_config("/config/users/alice", data) == values
        assert (await alter(server, alice, version=version, producer_byte_rate=None)).error_code == NONE
        exact = {"entity_type": "user", "match_type": QuotaMatch.EXACT, "match": "alice"}
        assert found(await described(server, exact)) == {(("user", "alice"),): {"request_percentage": 12.5}}

    play(scenario)


def test_a_validation_changes_nothing(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        entry = await alter(server, {"user": "alice"}, validate_only=True, producer_byte_rate=1.0)
        assert entry.error_code == NONE
        refused = await alter(server, {"user": "alice"}, validate_only=True, producer_byte_rate=1.5)
        assert refused.error_code == INVALID
        assert found(await described(server)) == {}
        assert await server.zk.get_or_none("/config/users/alice") is None

    play(scenario)


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        ({"user": "alice"}, {"SCRAM-SHA-256": None}, "Invalid configuration key"),
        ({"user": "alice"}, {"connection_creation_rate": 1.0}, "Invalid configuration key"),
        ({"user": "alice"}, {"producer_byte_rate": 1.5}, "whole number"),
        ({"user": "alice"}, {"request_percentage": float("nan")}, "finite"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "empty"),
        ({"user": "alice", "ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}, "must not have"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unknown entity type"),
        ({"ip": "example.com"}, {"connection_creation_rate": 1.0}, "not an IP address"),
        ({"user": ".."}, {"producer_byte_rate": 1.0}, "ZooKeeper allows no znode"),
    ],
)
def test_invalid_changes(play: Play, entity: Entity, values: dict[str, float | None], message: str) -> None:
    async def scenario(server: MemoryServer) -> None:
        entry = await alter(server, entity, **values)
        assert entry.error_code == INVALID
        assert message in entry.error_message

    play(scenario)


def test_addresses(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        for address in ("10.0.0.1", "2001:db8:0:0:0:0:0:1", None):
            assert (await alter(server, {"ip": address}, connection_creation_rate=3.0)).error_code == NONE
        assert server.quotas.table.address_limit("2001:db8::1") == 3.0

    play(scenario)


@pytest.mark.parametrize(
    ("component", "code"),
    [
        ({"entity_type": "", "match_type": 0, "match": "a"}, INVALID),
        ({"entity_type": "group", "match_type": 0, "match": "a"}, UnsupportedVersionError.code),
        ({"entity_type": "user", "match_type": 9, "match": "a"}, INVALID),
    ],
)
def test_invalid_filters(play: Play, component: Message, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        answer = await described(server, component)
        assert (answer.error_code, answer.entries) == (code, None)

    play(scenario)


def test_a_failure_of_zookeeper_is_that_of_its_entity(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: MemoryServer) -> None:
        async def lost(*_: object) -> None:
            raise ConnectionLost("gone")

        monkeypatch.setattr(server.zk, "multi", lost)
        entry = await alter(server, {"user": "alice"}, producer_byte_rate=1.0)
        assert entry.error_code == RequestTimedOutError.code

    play(scenario)


def test_a_request_that_fails_as_a_whole_has_an_entry_for_each_entity(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        error = InvalidRequestError("no")
        request = API_TABLE[ApiKey.ALTER_CLIENT_QUOTAS].request_type(entries=(), validate_only=False)
        assert failure(ApiKey.ALTER_CLIENT_QUOTAS, 1, request, error) == {"throttle_time_ms": 0, "entries": []}

    play(scenario)
