"""SCRAM credentials in memory: notifications, users without one, lost connections, and invalid content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from odradek.security.sasl.credentials import SHA_256, SHA_512, ScramMechanism, derive
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.follower import RETRY_MS
from odradek.zk.layout import encode_config
from odradek.zk.port import ConnectionLost
from odradek.zk.users import UserCredentials
from odradek_testkit.loop import VirtualClock, run_virtual

CREDENTIALS = {each: derive("secret", each) for each in (SHA_256, SHA_512)}


class Bench:
    """A ZooKeeper whose reads can fail, and the credentials."""

    def __init__(self) -> None:
        self.zk = MemoryZk(MemoryTree())
        self.users = UserCredentials(self.zk, VirtualClock())

    async def write(self, name: str, *mechanisms: ScramMechanism, text: bytes | None = None) -> None:
        values = {each.name: CREDENTIALS[each].to_text() for each in mechanisms}
        path = f"/config/users/{name}"
        await self.zk.ensure_path(path)
        await self.zk.set(path, encode_config(values) if text is None else text)

    def has(self, name: str, mechanism: ScramMechanism = SHA_256) -> bool:
        return self.users.credential(mechanism, name) == CREDENTIALS[mechanism]


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def play(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.zk.ensure_path("/config/users")
        try:
            await scenario(bench)
        finally:
            await bench.users.close()
            await bench.users.close()

    run_virtual(main())


def test_users_are_read_at_the_start_and_by_notification() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.write("alice", SHA_256)
        await bench.users.loaded()
        assert not bench.has("alice"), "nobody wants them yet"
        bench.users.want()
        bench.users.want()
        await bench.users.loaded()
        assert bench.has("alice")
        assert not bench.has("alice", SHA_512)
        await bench.write("alice", SHA_512)
        bench.users.changed("alice")
        await turns()
        assert not bench.has("alice")
        assert bench.has("alice", SHA_512)

    play(scenario)


def test_users_are_added_and_removed_without_a_notification() -> None:
    async def scenario(bench: Bench) -> None:
        bench.users.want()
        await bench.users.loaded()
        await bench.write("alice", SHA_256)
        await turns()
        await bench.write("bob", SHA_256)
        bench.users.changed("bob/clients/reader")
        await turns()
        assert bench.has("alice")
        assert bench.has("bob")
        await bench.zk.delete("/config/users/alice")
        await turns()
        assert not bench.has("alice")
        assert bench.has("bob")

    play(scenario)


@pytest.mark.parametrize(("znode", "user"), [("CN%3Dalice%2CO%3Dx", "CN=alice,O=x"), ("a%20b%2A", "a b*")])
def test_names_are_encoded_in_znodes(znode: str, user: str) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.write(znode, SHA_256)
        bench.users.want()
        await bench.users.loaded()
        assert bench.has(user)
        assert not bench.has(znode)

    play(scenario)


def test_invalid_content_affects_one_user_and_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.write("alice", SHA_256)
        await bench.write("broken", text=b'{"config": "a secret"}')
        await bench.write("wrong", text=encode_config({"SCRAM-SHA-256": "salt=a secret"}))
        await bench.write("<default>", SHA_256)
        bench.users.want()
        await bench.users.loaded()
        assert bench.has("alice")
        for name in ("broken", "wrong", "<default>"):
            assert bench.users.credential(SHA_256, name) is None
        assert repr(bench.users) == "UserCredentials(1 users)"

    with caplog.at_level(logging.DEBUG):
        play(scenario)
    assert "/config/users/broken" in caplog.text
    assert "/config/users/wrong" in caplog.text
    assert "secret" not in caplog.text.replace("may contain secrets", "")


def test_the_last_state_holds_while_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.write("alice", SHA_256)
        bench.users.want()
        await bench.users.loaded()
        read = bench.zk.get_many

        async def fail(paths: object) -> object:
            raise ConnectionLost("gone")

        monkeypatch.setattr(bench.zk, "get_many", fail)
        await bench.write("bob", SHA_256)
        bench.users.changed("bob")
        await turns()
        assert bench.has("alice")
        assert not bench.has("bob")
        monkeypatch.setattr(bench.zk, "get_many", read)
        await VirtualClock().sleep_ms(2 * RETRY_MS)
        assert bench.has("bob")

    play(scenario)
