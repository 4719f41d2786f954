"""The delegation tokens of a broker: when there are some, and which broker removes expired ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import pytest

from odradek.app.delegation import Delegation
from odradek.base.config import BrokerConfig
from odradek.security.principals import Principal
from odradek.security.sasl.credentials import SHA_256
from odradek.security.tokens import TOKENS, DelegationToken, encode_token, token_path
from odradek.testing.memory_zk import MemoryZk
from odradek_testkit.inline_ports import inline_threads
from odradek_testkit.loop import VirtualClock, run_virtual

ALICE: Final = Principal("User", "alice")
SECRET: Final = "delegation.token.secret.key"
MASTER: Final = "delegation.token.master.key"
INTERVAL: Final = "delegation.token.expiry.check.interval.ms"


class Bench:
    """A broker with some settings, and a token in ZooKeeper that expires after a second."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        properties = {"broker.id": "1", "zookeeper.connect": "localhost", "log.dirs": "data", **settings}
        self.clock = VirtualClock()
        self.zk = MemoryZk()
        self.is_controller = False
        self.delegation = Delegation(BrokerConfig.parse(properties)[0], self.zk, self.clock, inline_threads)

    async def start(self) -> None:
        now_ms = self.clock.wall_ms()
        token = DelegationToken(
            token_id="id", owner=ALICE, requester=ALICE, issue_ms=now_ms, max_ms=now_ms + 1000, expiry_ms=now_ms + 1000
        )
        await self.zk.ensure_path(TOKENS)
        await self.zk.create(token_path("id"), encode_token(token))
        await self.delegation.start()

    @property
    def owner(self) -> str | None:
        """Who a client with the token is."""
        found = self.delegation.credential(SHA_256, "id")
        return None if found is None else found.owner


def play(scenario: Callable[[Bench], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        bench = Bench({name.replace("_", "."): value for name, value in settings.items()})
        await bench.start()
        try:
            await scenario(bench)
        finally:
            await bench.delegation.close()
            await bench.delegation.close()

    run_virtual(main())


@pytest.mark.parametrize(
    ("settings", "owner"),
    [
        ({SECRET: "s"}, "alice"),
        ({MASTER: "s"}, "alice"),
        ({SECRET: "s", MASTER: "t"}, "alice"),
        ({}, None),
        ({SECRET: ""}, None),
        ({SECRET: "", MASTER: "t"}, None),
    ],
)
def test_there_are_tokens_with_a_secret(settings: Mapping[str, str], owner: str | None) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.owner == owner
        assert len(bench.delegation.handlers()) == 4

    play(scenario, **settings)


def test_the_controller_removes_expired_tokens_at_intervals() -> None:
    async def scenario(bench: Bench) -> None:
        work = asyncio.create_task(bench.delegation.remove_expired(lambda: bench.is_controller))
        await bench.clock.sleep_ms(2500)
        assert bench.owner is None, "it has expired"
        assert await bench.zk.children(TOKENS) == ["id"], "another broker is the controller"
        bench.is_controller = True
        await bench.clock.sleep_ms(400)
        assert await bench.zk.children(TOKENS) == ["id"], "it is not time yet"
        await bench.clock.sleep_ms(200)
        assert await bench.zk.children(TOKENS) == []
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    play(scenario, **{SECRET: "s", INTERVAL: "1000"})


def test_without_tokens_there_is_nothing_to_remove() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.delegation.remove_expired(lambda: True)
        assert await bench.zk.children(TOKENS) == ["id"]

    play(scenario)
