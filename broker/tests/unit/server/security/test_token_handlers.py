"""The APIs of delegation tokens in every version: who may do what, lifetimes, and errors in Kafka's order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

import pytest

from odradek.base.errors import (
    NONE,
    DelegationTokenAuthDisabledError,
    DelegationTokenAuthorizationFailedError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    InvalidPrincipalTypeError,
    ProtocolError,
    RequestTimedOutError,
)
from odradek.cluster import ClusterImage
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.security.principals import ANONYMOUS, Identity, Principal
from odradek.security.tokens import TokenKey, TokenLimits
from odradek.server.authorization.guards import guarded
from odradek.server.authorization.required import GUARDS
from odradek.server.dispatch import RequestContext
from odradek.server.failures import failure
from odradek.server.security.token_handlers import TokenHandlers
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.delegation_tokens import DelegationTokens
from odradek.zk.port import ConnectionLost
from odradek_testkit.loop import VirtualClock, run_virtual

CREATE: Final = ApiKey.CREATE_DELEGATION_TOKEN
RENEW: Final = ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE: Final = ApiKey.EXPIRE_DELEGATION_TOKEN
DESCRIBE: Final = ApiKey.DESCRIBE_DELEGATION_TOKEN
LIMITS: Final = TokenLimits(max_lifetime_ms=1000, expiry_time_ms=100)
KEY: Final = TokenKey("secret")
WITH_OWNER: Final = 3
"""First version of CreateDelegationToken and DescribeDelegationToken with owner and requester (KIP-373)."""


def identity(name: str, **changes: object) -> Identity:
    return Identity(Principal("User", name), "10.0.0.1", "SECURE", "SASL_SSL", "PLAIN")._replace(**changes)


ALICE, BOB, CAROL = map(identity, ("alice", "bob", "carol"))
Right = tuple[AclOperation, ResourceType, str]
T = TypeVar("T")


class Rights:
    """An authorizer that allows what is listed."""

    generation: object = None

    def __init__(self, *rights: Right) -> None:
        self.rights = set(rights)

    def denied(
        self,
        identity: Identity,
        operation: AclOperation,
        kind: ResourceType,
        names: Iterable[str],
        request: str,
        *,
        is_logged: bool = True,
    ) -> frozenset[str]:
        return frozenset(name for name in names if (operation, kind, name) not in self.rights)

    def allows_any(self, identity: Identity, operation: AclOperation, kind: ResourceType, request: str) -> bool:
        raise AssertionError("tokens do not ask it")

    def operations(self, identity: Identity, kind: ResourceType, name: str) -> int:
        raise AssertionError("tokens do not ask it")


async def in_loop(function: Callable[[], T]) -> T:
    return function()


class Bench:
    """The handlers of one broker, and its clients."""

    def __init__(self, *, enabled: bool = True, rights: Rights | None = None) -> None:
        self.clock = VirtualClock()
        self.zk = MemoryZk(MemoryTree())
        self.tokens = DelegationTokens(self.zk, self.clock, key=KEY, run_blocking=in_loop)
        self.handlers = TokenHandlers(self.tokens if enabled else None, LIMITS, self.clock).handlers()
        if rights is not None:
            self.handlers = guarded(self.handlers, GUARDS, rights, ClusterImage)

    async def ask(self, who: Identity, key: ApiKey, message: Message, version: int | None = None) -> Any:
        """Return the answer as the client decodes it."""
        version = API_TABLE[key].max_version if version is None else version
        frame = codec.encode_request(key, version, 5, "tester", message)[4:]
        header, position = codec.decode_header(frame)
        request = codec.decode_request(header, frame, position)
        context = RequestContext(
            api_key=key,
            api_version=version,
            client_id=None,
            client_host=who.host,
            listener=who.listener,
            identity=who,
        )
        answer: Message | None
        try:
            answer = await self.handlers[key](context, request)
        except ProtocolError as error:
            answer = failure(key, version, request, error)
        assert answer is not None
        return codec.decode_response(key, version, codec.encode_response(key, version, 5, answer)[4:])

    async def create(
        self,
        who: Identity = ALICE,
        *renewers: str,
        owner: str | None = None,
        owner_type: str | None = "User",
        renewer_type: str = "User",
        lifetime_ms: int = -1,
        version: int = WITH_OWNER,
    ) -> Any:
        message: Message = {
            "owner_principal_type": owner_type if owner else None,
            "owner_principal_name": owner,
            "renewers": [{"principal_type": renewer_type, "principal_name": name} for name in renewers],
            "max_lifetime_ms": lifetime_ms,
        }
        return await self.ask(who, CREATE, message, version)

    async def renew(self, who: Identity, hmac: bytes, period_ms: int = -1, version: int | None = None) -> Any:
        return await self.ask(who, RENEW, {"hmac": hmac, "renew_period_ms": period_ms}, version)

    async def expire(self, who: Identity, hmac: bytes, period_ms: int = -1, version: int | None = None) -> Any:
        return await self.ask(who, EXPIRE, {"hmac": hmac, "expiry_time_period_ms": period_ms}, version)

    async def described(self, who: Identity, *owners: str, version: int | None = None) -> Any:
        asked = [{"principal_type": "User", "principal_name": name} for name in owners] if owners else None
        return await self.ask(who, DESCRIBE, {"owners": asked}, version)


def play(scenario: Callable[[Bench], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        bench = Bench(**options)
        await bench.tokens.start()
        try:
            await scenario(bench)
        finally:
            await bench.tokens.close()

    run_virtual(main())


@pytest.mark.parametrize("version", range(4))
def test_a_token_is_created_renewed_described_and_removed(version: int) -> None:
    async def scenario(bench: Bench) -> None:
        others = min(version, 2)
        now_ms = bench.clock.wall_ms()
        created = await bench.create(ALICE, "bob", version=version)
        assert created.error_code == NONE
        assert (created.principal_type, created.principal_name) == ("User", "alice")
        assert (created.issue_timestamp_ms, created.expiry_timestamp_ms) == (now_ms, now_ms + 100)
        assert created.max_timestamp_ms == now_ms + 1000
        assert created.hmac == KEY.hmac(created.token_id)
        await bench.clock.sleep_ms(50)
        for who, period_ms, expiry_ms in ((ALICE, -1, 150), (BOB, 300, 350), (BOB, 2**62, 1000), (ALICE, 10, 60)):
            renewed = await bench.renew(who, created.hmac, period_ms, version=others)
            assert (renewed.error_code, renewed.expiry_timestamp_ms) == (NONE, now_ms + expiry_ms)
        shorter = await bench.expire(BOB, created.hmac, 20, version=others)
        assert (shorter.error_code, shorter.expiry_timestamp_ms) == (NONE, now_ms + 70)
        (row,) = (await bench.described(ALICE, version=version)).tokens
        assert (row.token_id, row.hmac) == (created.token_id, created.hmac)
        assert (row.principal_type, row.principal_name) == ("User", "alice")
        assert (row.issue_timestamp, row.max_timestamp) == (now_ms, now_ms + 1000)
        assert row.expiry_timestamp == now_ms + 70
        assert [(each.principal_type, each.principal_name) for each in row.renewers] == [("User", "bob")]
        if version >= WITH_OWNER:
            assert (created.token_requester_principal_type, created.token_requester_principal_name) == ("User", "alice")
            assert (row.token_requester_principal_type, row.token_requester_principal_name) == ("User", "alice")
        removed = await bench.expire(ALICE, created.hmac, version=others)
        assert (removed.error_code, removed.expiry_timestamp_ms) == (NONE, bench.clock.wall_ms())
        assert (await bench.described(ALICE, version=version)).tokens == ()
        missing = await bench.renew(ALICE, created.hmac, version=others)
        assert (missing.error_code, missing.expiry_timestamp_ms) == (DelegationTokenNotFoundError.code, -1)

    play(scenario)


@pytest.mark.parametrize(
    "who",
    [
        identity("alice", protocol="PLAINTEXT"),
        identity("alice", protocol="SSL", principal=ANONYMOUS),
        identity("alice", token=True),
    ],
    ids=["plaintext", "without a certificate", "with a token"],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_some_connections_cannot_manage_tokens(who: Identity, enabled: bool) -> None:
    async def scenario(bench: Bench) -> None:
        code = DelegationTokenRequestNotAllowedError.code
        created = await bench.create(who, "bob", owner="dave", renewer_type="Group")
        assert created.error_code == code
        assert (created.principal_name, created.token_requester_principal_name) == ("dave", who.principal.name)
        assert (created.issue_timestamp_ms, created.expiry_timestamp_ms, created.max_timestamp_ms) == (-1, -1, -1)
        assert (await bench.renew(who, b"x")).error_code == code
        assert (await bench.expire(who, b"x")).error_code == code
        assert (await bench.expire(who, b"x", 5)).error_code == code
        assert (await bench.described(who)).error_code == code

    play(scenario, enabled=enabled, rights=Rights())


@pytest.mark.parametrize(
    "who", [identity("alice", protocol="SASL_PLAINTEXT"), identity("CN=alice", protocol="SSL", mechanism=None)]
)
def test_other_connections_can(who: Identity) -> None:
    async def scenario(bench: Bench) -> None:
        assert (await bench.create(who)).error_code == NONE

    play(scenario, rights=Rights())


def test_without_a_secret_there_are_no_tokens() -> None:
    async def scenario(bench: Bench) -> None:
        code = DelegationTokenAuthDisabledError.code
        created = await bench.create(ALICE)
        assert (created.error_code, created.principal_name, created.max_timestamp_ms) == (code, "alice", -1)
        assert (await bench.create(ALICE, "bob", renewer_type="Group")).error_code == InvalidPrincipalTypeError.code
        for answer in (
            await bench.renew(ALICE, b"x"),
            await bench.expire(ALICE, b"x"),
            await bench.expire(ALICE, b"x", 5),
            await bench.described(ALICE),
        ):
            assert answer.error_code == code

    play(scenario, enabled=False)


def test_owners_and_renewers_are_users() -> None:
    async def scenario(bench: Bench) -> None:
        code = InvalidPrincipalTypeError.code
        assert (await bench.create(ALICE, "bob", renewer_type="Group")).error_code == code
        assert (await bench.create(ALICE, owner="bob", owner_type="Group")).error_code == code
        assert (await bench.create(ALICE, owner="bob", owner_type=None)).error_code == code
        assert bench.tokens.all == []

    play(scenario)


def test_an_empty_owner_is_the_client() -> None:
    async def scenario(bench: Bench) -> None:
        created = await bench.create(ALICE, owner="")
        assert (created.error_code, created.principal_name) == (NONE, "alice")

    play(scenario, rights=Rights())


def test_a_token_for_another_user_needs_a_right() -> None:
    rights = Rights()

    async def scenario(bench: Bench) -> None:
        refused = await bench.create(ALICE, "carol", owner="bob")
        assert refused.error_code == DelegationTokenAuthorizationFailedError.code
        assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
        assert (refused.issue_timestamp_ms, refused.token_id, refused.hmac) == (-1, "", b"")
        assert bench.tokens.all == []
        rights.rights.add((AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
        created = await bench.create(ALICE, "carol", owner="bob")
        assert created.error_code == NONE
        assert (created.principal_name, created.token_requester_principal_name) == ("bob", "alice")
        for who in (ALICE, BOB, CAROL):
            (row,) = (await bench.described(who)).tokens
            assert (row.principal_name, row.token_requester_principal_name) == ("bob", "alice")
        mismatch = DelegationTokenOwnerMismatchError.code
        assert (await bench.renew(ALICE, created.hmac)).error_code == mismatch, "the requester is no renewer"
        assert (await bench.expire(ALICE, created.hmac)).error_code == mismatch
        assert (await bench.renew(BOB, created.hmac)).error_code == NONE
        assert (await bench.expire(CAROL, created.hmac)).error_code == NONE

    play(scenario, rights=rights)


def test_tokens_of_others_are_seen_only_with_a_right() -> None:
    rights = Rights()

    async def scenario(bench: Bench) -> None:
        first = await bench.create(ALICE)
        second = await bench.create(ALICE, lifetime_ms=50)
        third = await bench.create(BOB)

        async def seen(who: Identity, *owners: str) -> set[str]:
            answer = await bench.described(who, *owners)
            assert answer.error_code == NONE
            return {row.token_id for row in answer.tokens}

        assert await seen(CAROL) == set()
        assert await seen(BOB) == {third.token_id}
        assert await seen(BOB, "alice") == set()
        rights.rights.add((AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, second.token_id))
        assert await seen(CAROL) == {second.token_id}
        rights.rights.add((AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice"))
        assert await seen(CAROL) == {first.token_id, second.token_id}
        assert await seen(BOB) == {first.token_id, second.token_id, third.token_id}
        assert await seen(BOB, "bob") == {third.token_id}
        assert await seen(BOB, "alice", "bob") == {first.token_id, second.token_id, third.token_id}
        assert await seen(BOB, "dave") == set()
        nobody = await bench.ask(BOB, DESCRIBE, {"owners": []})
        assert (nobody.error_code, nobody.tokens) == (NONE, ())

    play(scenario, rights=rights)


def test_without_an_authorizer_everyone_sees_and_creates_all() -> None:
    async def scenario(bench: Bench) -> None:
        assert (await bench.create(ALICE, owner="bob")).error_code == NONE
        assert len((await bench.described(CAROL)).tokens) == 1

    play(scenario)


def test_an_expired_token_can_only_be_removed() -> None:
    async def scenario(bench: Bench) -> None:
        created = await bench.create(ALICE)
        assert (await bench.renew(BOB, created.hmac)).error_code == DelegationTokenOwnerMismatchError.code
        await bench.clock.sleep_ms(101)
        expired = DelegationTokenExpiredError.code
        assert (await bench.renew(BOB, created.hmac)).error_code == DelegationTokenOwnerMismatchError.code
        assert (await bench.renew(ALICE, created.hmac)).error_code == expired
        assert (await bench.expire(ALICE, created.hmac, 10)).error_code == expired
        assert (await bench.expire(ALICE, created.hmac)).error_code == NONE
        assert (await bench.expire(ALICE, created.hmac)).error_code == DelegationTokenNotFoundError.code

    play(scenario)


def test_a_renewal_of_no_time_expires_the_token() -> None:
    async def scenario(bench: Bench) -> None:
        created = await bench.create(ALICE)
        now_ms = bench.clock.wall_ms()
        assert (await bench.renew(ALICE, created.hmac, 0)).expiry_timestamp_ms == now_ms
        await bench.clock.sleep_ms(1)
        assert (await bench.renew(ALICE, created.hmac)).error_code == DelegationTokenExpiredError.code

    play(scenario)


def test_a_client_tries_again_while_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        async def fail(operations: object) -> object:
            raise ConnectionLost("gone")

        monkeypatch.setattr(bench.zk, "multi", fail)
        answer = await bench.create(ALICE)
        assert (answer.error_code, answer.principal_name) == (RequestTimedOutError.code, "alice")
        assert bench.tokens.all == []

    play(scenario)


def test_concurrent_renewals_are_all_made() -> None:
    async def scenario(bench: Bench) -> None:
        created = await bench.create(ALICE, "bob")
        answers = await asyncio.gather(*(bench.renew(who, created.hmac, 500) for who in (ALICE, BOB, ALICE)))
        assert [answer.error_code for answer in answers] == [NONE] * 3

    play(scenario)
