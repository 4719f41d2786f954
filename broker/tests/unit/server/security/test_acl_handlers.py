"""DescribeAcls, CreateAcls and DeleteAcls in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.base.errors import NONE, InvalidRequestError, RequestTimedOutError, SecurityDisabledError
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.acls.model import AclOperation, AclPermission, PatternType, ResourceType
from odradek.zk.port import ConnectionLost
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
ANY = 1
VERSIONS = range(API_TABLE[ApiKey.CREATE_ACLS].max_version + 1)
INVALID = InvalidRequestError.code


def creation(**changes: object) -> Message:
    return {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
        **changes,
    }


def selection(**changes: object) -> Message:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **changes,
    }


async def create(server: MemoryServer, *creations: Message, version: int = 3) -> list[int]:
    answer = await server.ask(ApiKey.CREATE_ACLS, version, {"creations": creations})
    assert all((row.error_message is None) == (row.error_code == NONE) for row in answer.results)
    return [row.error_code for row in answer.results]


async def described(server: MemoryServer, version: int = 3, **changes: object) -> set[tuple[object, ...]]:
    answer = await server.ask(ApiKey.DESCRIBE_ACLS, version, selection(**changes))
    assert answer.error_code == NONE
    return {
        (one.resource_type, one.resource_name, one.pattern_type, rule.principal, rule.host, rule.operation)
        for one in answer.resources
        for rule in one.acls
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_rules_are_created_described_and_deleted(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        write: Message = {"operation": AclOperation.WRITE, "host": "10.0.0.1"}
        assert await create(server, creation(), creation(**write), creation(), version=version) == [NONE] * 3
        expected = {
            (ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ),
            (ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "10.0.0.1", AclOperation.WRITE),
        }
        assert await described(server, version) == expected
        filters = [selection(operation=AclOperation.WRITE), selection(), selection(resource_name_filter="others")]
        answer = await server.ask(ApiKey.DELETE_ACLS, version, {"filters": filters})
        assert [row.error_code for row in answer.filter_results] == [NONE] * 3
        assert [[rule.operation for rule in row.matching_acls] for row in answer.filter_results] == [
            [AclOperation.WRITE],
            [AclOperation.READ],
            [],
        ]
        assert await described(server, version) == set()

    play(scenario, access_rules=True)


def test_old_versions_know_only_literal_patterns(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        prefixed = creation(resource_pattern_type=PatternType.PREFIXED)
        assert await create(server, prefixed, creation(resource_name="other")) == [NONE, NONE]
        assert {name for _, name, *_ in await described(server, 0)} == {"other"}
        await server.ask(ApiKey.DELETE_ACLS, 0, {"filters": [selection()]})
        assert {name for _, name, *_ in await described(server)} == {"orders"}

    play(scenario, access_rules=True)


def test_filters(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await create(
            server,
            creation(),
            creation(resource_name="*", principal="User:bob"),
            creation(resource_name="ord", resource_pattern_type=PatternType.PREFIXED, principal="User:carol"),
            creation(resource_type=ResourceType.GROUP, principal="User:dave", permission_type=AclPermission.DENY),
        )

        async def who(**changes: object) -> set[object]:
            return {principal for *_, principal, _, _ in await described(server, **changes)}

        topic: Message = {"resource_type_filter": ResourceType.TOPIC, "resource_name_filter": "orders"}
        assert await who(**topic, pattern_type_filter=PatternType.MATCH) == {"User:alice", "User:bob", "User:carol"}
        assert await who(**topic, pattern_type_filter=PatternType.LITERAL) == {"User:alice"}
        assert await who(permission_type=AclPermission.DENY) == {"User:dave"}
        assert await who(principal_filter="User:bob") == {"User:bob"}
        assert await who(principal_filter="without a type") == set()
        assert await who(host_filter="10.0.0.1") == set()

    play(scenario, access_rules=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": ResourceType.ANY},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_name": "a/b"},
        {"resource_type": ResourceType.CLUSTER},
        {"resource_pattern_type": PatternType.MATCH},
        {"resource_pattern_type": PatternType.ANY},
        {"principal": "alice"},
        {"host": ""},
        {"operation": AclOperation.ANY},
        {"operation": AclOperation.UNKNOWN},
        {"permission_type": AclPermission.ANY},
        {"permission_type": 77},
    ],
    ids=str,
)
def test_an_invalid_creation_affects_no_other_one(play: Play, changes: Message) -> None:
    async def scenario(server: MemoryServer) -> None:
        assert await create(server, creation(**changes), creation(principal="User:bob")) == [INVALID, NONE]
        assert {principal for *_, principal, _, _ in await described(server)} == {"User:bob"}

    play(scenario, access_rules=True)


def test_an_invalid_filter(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await create(server, creation())
        answer = await server.ask(ApiKey.DESCRIBE_ACLS, 3, selection(operation=99))
        assert (answer.error_code, answer.resources) == (INVALID, ())
        deleted = await server.ask(ApiKey.DELETE_ACLS, 3, {"filters": [selection(operation=99), selection()]})
        assert [(row.error_code, len(row.matching_acls)) for row in deleted.filter_results] == [(INVALID, 0), (NONE, 1)]

    play(scenario, access_rules=True)


def test_a_change_that_zookeeper_does_not_confirm_is_an_error(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: MemoryServer) -> None:
        await create(server, creation())

        async def lost(*_: object, **__: object) -> Any:
            raise ConnectionLost("the connection was lost")

        monkeypatch.setattr(server.zk, "multi", lost)
        code = RequestTimedOutError.code
        assert await create(server, creation(principal="User:bob"), creation(principal="")) == [code, INVALID]
        answer = await server.ask(ApiKey.DELETE_ACLS, 3, {"filters": [selection()]})
        (row,) = answer.filter_results
        assert (row.error_code, [rule.error_code for rule in row.matching_acls]) == (NONE, [code])
        assert {principal for *_, principal, _, _ in await described(server)} == {"User:alice"}

    play(scenario, access_rules=True)


def test_without_an_authorizer_there_are_no_rules(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        code = SecurityDisabledError.code
        assert (await server.ask(ApiKey.DESCRIBE_ACLS, 3, selection())).error_code == code
        assert await create(server, creation(), creation()) == [code, code]
        answer = await server.ask(ApiKey.DELETE_ACLS, 3, {"filters": [selection()]})
        assert [row.error_code for row in answer.filter_results] == [code]

    play(scenario)
