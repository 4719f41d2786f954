"""Delegation tokens in memory: what is written, notifications, expiry, concurrent changes and invalid content."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from odradek.base.errors import DelegationTokenNotFoundError
from odradek.security.principals import Principal
from odradek.security.sasl.credentials import (
    SCRAM_MECHANISMS,
    SHA_256,
    ScramMechanism,
    credential_from_salted,
    salted_password,
)
from odradek.security.tokens import DelegationToken, TokenKey, decode_token, encode_token, token_path
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.delegation_tokens import ATTEMPTS, DelegationTokens
from odradek.zk.follower import RETRY_MS
from odradek.zk.port import BadVersion, ConnectionLost
from odradek_testkit.loop import VirtualClock, run_virtual

ALICE = Principal("User", "alice")
CHANGES = "/delegation_token/token_changes"
KEY = TokenKey("secret")


T = TypeVar("T")


async def in_loop(function: Callable[[], T]) -> T:
    await asyncio.sleep(0)
    return function()


class Bench:
    """A ZooKeeper with two brokers: each has its own session and its own tokens."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.clock = VirtualClock()
        self.tree.wall_ms = self.clock.wall_ms()
        self.zk, self.zk2 = MemoryZk(self.tree), MemoryZk(self.tree)
        self.tokens, self.tokens2 = (
            DelegationTokens(zk, self.clock, key=KEY, run_blocking=in_loop) for zk in (self.zk, self.zk2)
        )

    def token(self, token_id: str = "id", *, life_ms: int = 1000, owner: Principal = ALICE) -> DelegationToken:
        now_ms = self.clock.wall_ms()
        return DelegationToken(
            token_id=token_id,
            owner=owner,
            requester=ALICE,
            issue_ms=now_ms,
            max_ms=now_ms + 10 * life_ms,
            expiry_ms=now_ms + life_ms,
        )


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def play(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            await scenario(bench)
        finally:
            for each in (bench.tokens, bench.tokens, bench.tokens2):
                await each.close()

    run_virtual(main())


def test_a_token_works_here_at_once_and_on_others_by_notification() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens2.start()
        token = bench.token()
        await bench.tokens.create(token)
        assert bench.tokens.all == [token]
        assert bench.tokens.with_hmac(KEY.hmac("id")) == token
        await turns()
        assert bench.tokens2.all == [token]
        longer = replace(token, expiry_ms=token.expiry_ms + 500)
        assert await bench.tokens2.change("id", lambda _before: longer) == longer
        await turns()
        assert bench.tokens.with_hmac(KEY.hmac("id")) == longer
        assert await bench.tokens.change("id", lambda _before: None) is None
        await turns()
        for each in (bench.tokens, bench.tokens2):
            assert each.all == []
            assert each.credential(SHA_256, "id") is None
            with pytest.raises(DelegationTokenNotFoundError, match="with this HMAC"):
                each.with_hmac(KEY.hmac("id"))
        assert await bench.zk.exists(token_path("id")) is None

    play(scenario)


def test_zookeeper_has_the_token_and_its_id_but_no_hmac() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        token = bench.token()
        await bench.tokens.create(token)
        data, _ = await bench.zk.get(token_path("id"))
        assert data == encode_token(token)
        assert b64encode(bench.tokens.hmac(token)) not in data
        change, _ = await bench.zk.get(f"{CHANGES}/token_change_0000000000")
        assert change == b"id"

    play(scenario)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda each: each.name)
def test_the_hmac_in_base64_is_the_password(mechanism: ScramMechanism) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        token = bench.token()
        await bench.tokens.create(token)
        found = bench.tokens.credential(mechanism, "id")
        assert found is not None
        assert (found.owner, found.expiry_ms) == ("alice", token.expiry_ms)
        keys = found.credential
        salted = salted_password(mechanism, b64encode(KEY.hmac("id")).decode(), keys.salt, keys.iterations)
        assert credential_from_salted(mechanism, salted, keys.salt, keys.iterations) == keys

    play(scenario)


def test_a_renewal_keeps_the_keys_and_extends_them() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        token = bench.token()
        await bench.tokens.create(token)
        before = bench.tokens.credential(SHA_256, "id")
        await bench.tokens.change("id", lambda each: each.expiring_in(5000, each.issue_ms))
        after = bench.tokens.credential(SHA_256, "id")
        assert before is not None
        assert after == replace(before, expiry_ms=token.issue_ms + 5000)

    play(scenario)


def test_tokens_from_before_the_start_count() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens.create(bench.token("a"))
        await bench.tokens.create(bench.token("b"))
        await bench.tokens2.start()
        assert {each.token_id for each in bench.tokens2.all} == {"a", "b"}

    play(scenario)


def test_a_token_that_has_expired_authenticates_nobody_and_is_removed() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens2.start()
        await bench.tokens.create(bench.token("short", life_ms=1000))
        await bench.tokens.create(bench.token("long", life_ms=3000))
        await bench.clock.sleep_ms(1000)
        assert bench.tokens.credential(SHA_256, "short") is not None
        await bench.clock.sleep_ms(1)
        assert bench.tokens.credential(SHA_256, "short") is None
        assert len(bench.tokens.all) == 2
        await bench.tokens.remove_expired()
        await turns()
        assert [each.token_id for each in bench.tokens2.all] == ["long"]
        assert await bench.zk.children("/delegation_token/tokens") == ["long"]

    play(scenario)


def test_a_token_that_another_broker_has_renewed_is_not_removed() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        token = bench.token()
        await bench.tokens.create(token)
        await bench.clock.sleep_ms(1001)
        renewed = token.expiring_in(5000, bench.clock.wall_ms())
        await bench.zk2.set(token_path("id"), encode_token(renewed))
        await bench.tokens.remove_expired()
        assert await bench.zk.children("/delegation_token/tokens") == ["id"]
        assert bench.tokens.all == [renewed]

    play(scenario)


def test_tokens_that_cannot_be_removed_are_logged_and_stay(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        for token_id in ("gone", "damaged", "old"):
            await bench.tokens.create(bench.token(token_id))
        await bench.clock.sleep_ms(1001)
        await bench.zk2.delete(token_path("gone"))
        await bench.zk2.set(token_path("damaged"), b"{}")
        await bench.tokens.remove_expired()
        assert [each.token_id for each in bench.tokens.all] == ["damaged"]
        assert await bench.zk.children("/delegation_token/tokens") == ["damaged"]

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert "not removed yet: /delegation_token/tokens/damaged" in caplog.text


def test_a_token_of_another_type_of_principal_authenticates_nobody() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens.create(bench.token(owner=Principal("Group", "alice")))
        assert len(bench.tokens.all) == 1
        assert bench.tokens.credential(SHA_256, "id") is None

    play(scenario)


def test_no_concurrent_change_is_lost() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens2.start()
        token = bench.token()
        await bench.tokens.create(token)
        await turns()
        both = (bench.tokens, bench.tokens2)
        await asyncio.gather(
            *(
                both[n % 2].change("id", lambda each: replace(each, expiry_ms=each.expiry_ms + 1))
                for n in range(ATTEMPTS)
            )
        )
        await turns()
        data, _ = await bench.zk.get(token_path("id"))
        assert decode_token(token_path("id"), data).expiry_ms == token.expiry_ms + ATTEMPTS
        assert bench.tokens.all == bench.tokens2.all == [decode_token(token_path("id"), data)]

    play(scenario)


def test_a_change_of_nothing_writes_nothing_and_one_of_a_removed_token_fails() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens.create(bench.token())
        await bench.tokens.change("id", lambda each: each)
        assert await bench.zk.children(CHANGES) == ["token_change_0000000000"]
        await bench.zk2.delete(token_path("id"))
        with pytest.raises(DelegationTokenNotFoundError, match="has been removed"):
            await bench.tokens.change("id", lambda _each: None)
        assert bench.tokens.all == []

    play(scenario)


def test_a_change_gives_up_after_some_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens.create(bench.token())
        attempts = []

        async def fail(operations: object) -> object:
            attempts.append(operations)
            raise BadVersion("changed")

        monkeypatch.setattr(bench.zk, "multi", fail)
        with pytest.raises(BadVersion, match="id: other changes came first"):
            await bench.tokens.change("id", lambda _each: None)
        assert len(attempts) == ATTEMPTS

    play(scenario)


def test_a_token_that_cannot_be_decoded_is_none_and_affects_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens.create(bench.token("a"))
        await bench.tokens.create(bench.token("b"))
        await bench.zk2.set(token_path("a"), b'{"version":4}')
        await bench.tokens2.start()
        assert [each.token_id for each in bench.tokens2.all] == ["b"]
        await bench.zk2.create(f"{CHANGES}/token_change_", b"a", sequential=True)
        await turns()
        assert [each.token_id for each in bench.tokens.all] == ["b"]

    with caplog.at_level(logging.ERROR):
        play(scenario)
    assert "/delegation_token/tokens/a: version must be" in caplog.text


@pytest.mark.parametrize("data", [b"\xff", b"a/b", b"", b"id"])
def test_a_notification_that_names_no_token_loses_no_change(data: bytes) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.zk2.create(token_path("id"), encode_token(bench.token()))
        await bench.zk2.create(f"{CHANGES}/token_change_", data, sequential=True)
        await turns()
        assert [each.token_id for each in bench.tokens.all] == ["id"]

    play(scenario)


def test_the_last_state_holds_while_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens2.start()
        await bench.tokens.create(bench.token())
        await turns()
        read = bench.zk.children_many

        async def fail(paths: object) -> object:
            raise ConnectionLost("gone")

        monkeypatch.setattr(bench.zk, "children_many", fail)
        await bench.tokens2.change("id", lambda _each: None)
        await turns()
        assert len(bench.tokens.all) == 1
        monkeypatch.setattr(bench.zk, "children_many", read)
        await bench.clock.sleep_ms(RETRY_MS)
        await turns()
        assert bench.tokens.all == []

    play(scenario)


def test_no_repr_has_a_secret() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.tokens.start()
        await bench.tokens.create(bench.token())
        hmac = bench.tokens.hmac(bench.token())
        assert repr(bench.tokens) == "DelegationTokens(1 tokens)"
        assert repr(hmac) not in repr(vars(bench.tokens)["_known"])

    play(scenario)
