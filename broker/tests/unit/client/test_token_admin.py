"""Delegation tokens with the admin client: what is sent, what is returned, and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.base.errors import (
    ConfigError,
    DelegationTokenAuthDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
)
from odradek.client.administration.token_admin import TokenAdmin
from odradek.client.models import DelegationTokenDescription
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, decode_response, encode_response

HMAC = b"\1\2\3"
TOKEN = DelegationTokenDescription(
    token_id="id",
    hmac=HMAC,
    owner="User:alice",
    requester="User:carol",
    renewers=("User:bob", "User:C:N"),
    issue_timestamp=10,
    expiry_timestamp=20,
    max_timestamp=30,
)
OWNER: Message = {"principal_type": "User", "principal_name": "alice"}
REQUESTER: Message = {"token_requester_principal_type": "User", "token_requester_principal_name": "carol"}
RENEWERS = [{"principal_type": "User", "principal_name": name} for name in ("bob", "C:N")]


class Broker:
    """Stands for a cluster: answers all requests with one message, of a version of its API."""

    def __init__(self, answer: Message, version: int | None = None) -> None:
        self._answer = answer
        self._version = version
        self.asked: list[Message] = []
        self.at_least = 0

    def deadline(self, what: str) -> str:
        return what

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], deadline: str) -> Any:
        return await attempt()

    async def ask_any(self, expected: Any, message: Message, *, at_least: int = 0) -> Any:
        self.asked.append(message)
        self.at_least = at_least
        key: ApiKey = expected.API_KEY
        version = API_TABLE[key].max_version if self._version is None else self._version
        return decode_response(expected, version, encode_response(key, version, 1, self._answer)[4:])


def admin(broker: Broker) -> TokenAdmin:
    return TokenAdmin(broker)  # type: ignore[arg-type]  # the part of a cluster that it needs


def created(code: int = 0) -> Message:
    times = {"issue_timestamp_ms": 10, "expiry_timestamp_ms": 20, "max_timestamp_ms": 30}
    return {"throttle_time_ms": 0, "error_code": code, **OWNER, **REQUESTER, **times, "token_id": "id", "hmac": HMAC}


def listed(code: int = 0) -> Message:
    times = {"issue_timestamp": 10, "expiry_timestamp": 20, "max_timestamp": 30}
    row = {**OWNER, **REQUESTER, **times, "token_id": "id", "hmac": HMAC, "renewers": RENEWERS}
    return {"throttle_time_ms": 0, "error_code": code, "tokens": [] if code else [row]}


async def test_a_token_is_created_for_another_user() -> None:
    broker = Broker(created())
    found = await admin(broker).create_delegation_token(
        owner="User:alice", renewers=["User:bob", "User:C:N"], max_lifetime_ms=9
    )
    assert found == TOKEN
    owner = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    assert broker.asked == [{**owner, "renewers": RENEWERS, "max_lifetime_ms": 9}]
    assert broker.at_least == 3, "older brokers would create a token of the client"


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_old_brokers_have_no_requester(version: int) -> None:
    broker = Broker(created(), version)
    found = await admin(broker).create_delegation_token()
    assert (found.owner, found.requester, found.renewers) == ("User:alice", "User:alice", ())
    assert broker.asked[0]["owner_principal_name"] is None
    assert broker.at_least == 0
    (row,) = await admin(Broker(listed(), version)).describe_delegation_tokens()
    assert (row.owner, row.requester) == ("User:alice", "User:alice")


async def test_tokens_are_described() -> None:
    broker = Broker(listed())
    assert await admin(broker).describe_delegation_tokens(["User:alice"]) == [TOKEN]
    assert await admin(broker).describe_delegation_tokens() == [TOKEN]
    assert broker.asked == [{"owners": [OWNER]}, {"owners": None}]


async def test_a_token_is_renewed_and_expires() -> None:
    broker = Broker({"throttle_time_ms": 0, "error_code": 0, "expiry_timestamp_ms": 77})
    assert await admin(broker).renew_delegation_token(HMAC) == 77
    assert await admin(broker).expire_delegation_token(HMAC, period_ms=5) == 77
    assert broker.asked == [{"hmac": HMAC, "renew_period_ms": -1}, {"hmac": HMAC, "expiry_time_period_ms": 5}]


async def test_errors_are_raised() -> None:
    with pytest.raises(DelegationTokenAuthDisabledError, match="cannot be created"):
        await admin(Broker(created(61))).create_delegation_token()
    with pytest.raises(DelegationTokenAuthDisabledError, match="cannot be described"):
        await admin(Broker(listed(61))).describe_delegation_tokens()
    failed: Message = {"throttle_time_ms": 0, "expiry_timestamp_ms": -1}
    for error in (DelegationTokenNotFoundError, DelegationTokenOwnerMismatchError, DelegationTokenExpiredError):
        broker = Broker({**failed, "error_code": error.code})
        with pytest.raises(error, match="cannot be renewed"):
            await admin(broker).renew_delegation_token(HMAC)
        with pytest.raises(error, match="cannot be changed"):
            await admin(broker).expire_delegation_token(HMAC)


async def test_names_must_be_principals() -> None:
    broker = Broker(created())
    for names in ({"owner": "alice"}, {"renewers": ["bob"]}):
        with pytest.raises(ConfigError, match="is not a principal"):
            await admin(broker).create_delegation_token(**names)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a principal"):
        await admin(broker).describe_delegation_tokens(["alice"])
    assert broker.asked == []


def test_the_secret_is_not_shown() -> None:
    assert repr(HMAC) not in repr(TOKEN)
