"""The direct handler of Heartbeat: access rules, quotas, statistics and errors."""

from __future__ import annotations

import logging

import pytest

from odradek.base.errors import (
    NONE,
    GroupAuthorizationFailedError,
    NetworkError,
    NotCoordinatorError,
    UnknownMemberIdError,
    UnknownServerError,
)
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import encode_request
from odradek.security.acls.index import AclIndex
from odradek.security.principals import ANONYMOUS
from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind, QuotaTable
from odradek.server.authorization.authorizer import AclAuthorizer
from odradek_testkit.coordination import Server, virtual

NAME = "Heartbeat"


def message(member_id: str = "nobody", group_id: str = "group") -> dict[str, object]:
    return {"group_id": group_id, "generation_id": 1, "member_id": member_id, "group_instance_id": None}


async def code(server: Server, **changes: str) -> int:
    answer = await server.ask(ApiKey.HEARTBEAT, 4, message(**changes))
    return int(answer.error_code)


def test_requests_and_errors_are_counted() -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable()
        assert await code(server, member_id=joined.member_id) == NONE
        assert await code(server) == UnknownMemberIdError.code
        assert server.stats.counts == {(NAME, 4): 2}
        assert set(server.stats.error_counts()) == {(NAME, 0, 1), (NAME, UnknownMemberIdError.code, 1)}
        assert server.stats.times[NAME].countdown == 1

    virtual(scenario)


def test_a_broker_that_does_not_coordinate_the_group_says_so() -> None:
    async def scenario(server: Server) -> None:
        assert await code(server) == NotCoordinatorError.code

    virtual(scenario, leads=False)


class NoRules:
    """A cluster without access rules."""

    index = AclIndex()


@pytest.mark.parametrize("may_read", [True, False])
def test_a_member_must_be_allowed_to_read_the_group(may_read: bool) -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable()
        expected = NONE if may_read else GroupAuthorizationFailedError.code
        assert await code(server, member_id=joined.member_id) == expected

    virtual(scenario, authorizer=AclAuthorizer(NoRules(), super_users=[ANONYMOUS] if may_read else []))


def test_a_client_without_the_right_does_not_keep_a_member_alive() -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable()
        for _ in range(3):
            await server.clock.sleep_ms(5_000)
            assert await code(server, member_id=joined.member_id) == GroupAuthorizationFailedError.code
        assert (await server.groups.describe("group")).state == "Empty"

    virtual(scenario, authorizer=AclAuthorizer(NoRules()))


def test_a_client_above_its_quota_of_request_time_is_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: Server) -> None:
        await server.stable()
        quota = {QuotaEntity(client_id=DEFAULT): {QuotaKind.REQUEST_PERCENTAGE: 1.0}}
        server.quotas.table = QuotaTable(quota)
        monkeypatch.setattr(server.throttle, "_spent", lambda request, now_ms: 100.0)
        answer = await server.ask(ApiKey.HEARTBEAT, 4, message())
        assert answer.throttle_time_ms > 0
        began_ms = server.clock.monotonic_ms()
        await server.ask(ApiKey.HEARTBEAT, 4, message())
        assert server.clock.monotonic_ms() - began_ms >= answer.throttle_time_ms

    virtual(scenario)


def test_a_bug_fails_only_its_own_request(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable()
        with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
            broken.setattr(server.groups, "heartbeat", lambda check: 1 / 0)
            assert await code(server) == UnknownServerError.code
        assert await code(server, member_id=joined.member_id) == NONE

    virtual(scenario)
    assert "ZeroDivisionError" in caplog.text


def test_a_request_that_is_too_short_closes_the_connection() -> None:
    async def scenario(server: Server) -> None:
        frame = bytearray(encode_request(ApiKey.HEARTBEAT, 3, 5, "tester", message()))[:-4]
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        with pytest.raises(NetworkError):
            await server.peer.send(bytes(frame))

    virtual(scenario)
