"""Client quotas in memory: what is written, notifications, credentials in the same znode, and lost connections."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

import pytest

from odradek.base.errors import ConfigError
from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind, QuotaLimit, entity_path
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.entity_configs import ATTEMPTS
from odradek.zk.follower import RETRY_MS
from odradek.zk.layout import CONFIG_CHANGES, ConfigChangeNotification, decode_config, encode_config
from odradek.zk.port import BadVersion, ConnectionLost, SessionEvent
from odradek.zk.quotas import ClientQuotas
from odradek.zk.registration import ConfigChangeListener
from odradek.znode import LayoutError
from odradek_testkit.loop import VirtualClock, run_virtual

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
FETCH = QuotaKind.CONSUMER_BYTE_RATE
PERCENTAGE = QuotaKind.REQUEST_PERCENTAGE
ALICE = QuotaEntity(user="alice")
APP = QuotaEntity(client_id="app")
BOTH = QuotaEntity(user="alice", client_id="app 1")
ADDRESS = QuotaEntity(ip="10.0.0.1")
SECRET = "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"


class Bench:
    """A ZooKeeper with two brokers: each has its own session and its own quotas, and follows notifications."""

    def __init__(self) -> None:
        tree, self.clock = MemoryTree(), VirtualClock()
        tree.wall_ms = self.clock.wall_ms()
        self.zk, self.zk2 = MemoryZk(tree), MemoryZk(tree)
        self.quotas, self.quotas2 = ClientQuotas(self.zk, self.clock), ClientQuotas(self.zk2, self.clock)
        self.listeners = [
            ConfigChangeListener(zk, self.clock, quotas.changed)
            for zk, quotas in ((self.zk, self.quotas), (self.zk2, self.quotas2))
        ]

    async def start(self) -> None:
        for listener in self.listeners:
            await listener.start()
        await self.quotas.start()
        await self.quotas2.start()

    async def close(self) -> None:
        for listener in self.listeners:
            await listener.close()
        for quotas in (self.quotas, self.quotas, self.quotas2):
            await quotas.close()

    async def put(self, path: str, data: bytes) -> None:
        """Write a znode as another tool, without a notification."""
        await self.zk2.ensure_path(f"/config/{path}")
        await self.zk2.set(f"/config/{path}", data)

    async def values(self, entity: QuotaEntity) -> dict[str, str]:
        path = f"/config/{entity_path(entity)}"
        return decode_config(path, (await self.zk.get(path))[0])

    async def notified(self) -> list[str]:
        names = await self.zk.children(CONFIG_CHANGES)
        nodes = [(f"{CONFIG_CHANGES}/{name}", await self.zk.get(f"{CONFIG_CHANGES}/{name}")) for name in names]
        return [ConfigChangeNotification.decode(path, data).entity_path for path, (data, _) in nodes]


async def turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


def play(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.zk.ensure_path(CONFIG_CHANGES)
        try:
            await scenario(bench)
        finally:
            await bench.close()

    run_virtual(main())


@pytest.mark.parametrize("entity", [ALICE, APP, BOTH, QuotaEntity(user=DEFAULT, client_id=DEFAULT)])
def test_a_change_has_an_effect_here_at_once_and_on_others_by_notification(entity: QuotaEntity) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start()
        await bench.quotas.change(entity, {PRODUCE: 1024.0, PERCENTAGE: 50.0})
        assert bench.quotas.table.entities == {entity: {PRODUCE: 1024.0, PERCENTAGE: 50.0}}
        await turns()
        assert bench.quotas2.table.entities == bench.quotas.table.entities
        assert await bench.values(entity) == {"producer_byte_rate": "1024", "request_percentage": "50.0"}
        assert await bench.notified() == [entity_path(entity)]
        await bench.quotas2.change(entity, {PRODUCE: None, FETCH: 5.0})
        await turns()
        assert bench.quotas.table.entities == {entity: {FETCH: 5.0, PERCENTAGE: 50.0}}
        await bench.quotas2.change(entity, {FETCH: None, PERCENTAGE: None})
        await turns()
        assert not bench.quotas.table.entities
        assert not bench.quotas2.table.entities

    play(scenario)


def test_quotas_from_before_the_start_count() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.put("users/alice", encode_config({"producer_byte_rate": "1"}))
        await bench.put("users/alice/clients/app%201", encode_config({"consumer_byte_rate": "2"}))
        await bench.put("clients/<default>", encode_config({"request_percentage": "3"}))
        await bench.put("ips/10.0.0.1", encode_config({"connection_creation_rate": "4"}))
        await bench.put("users/bob", b"")
        await bench.start()
        assert bench.quotas.table.entities == {
            ALICE: {PRODUCE: 1.0},
            BOTH: {FETCH: 2.0},
            QuotaEntity(client_id=DEFAULT): {PERCENTAGE: 3.0},
            ADDRESS: {QuotaKind.CONNECTION_CREATION_RATE: 4.0},
        }
        assert bench.quotas.table.client_limit(FETCH, "alice", "app 1") == QuotaLimit("alice", "app 1", 2.0)

    play(scenario)


def test_a_change_keeps_the_credentials_of_the_user() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.put("users/alice", encode_config({"SCRAM-SHA-256": SECRET, "consumer_byte_rate": "9"}))
        await bench.start()
        await bench.quotas.change(ALICE, {PRODUCE: 1024.0, FETCH: None})
        assert await bench.values(ALICE) == {"SCRAM-SHA-256": SECRET, "producer_byte_rate": "1024"}

    play(scenario)


def test_a_znode_that_cannot_be_decoded_is_not_overwritten(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.put("users/alice", b'{"config": "a secret"}')
        await bench.put("users/bob", encode_config({"producer_byte_rate": "many", "consumer_byte_rate": "7"}))
        await bench.start()
        assert bench.quotas.table.entities == {QuotaEntity(user="bob"): {FETCH: 7.0}}
        with pytest.raises(LayoutError, match="/config/users/alice"):
            await bench.quotas.change(ALICE, {PRODUCE: 1.0})
        assert (await bench.zk.get("/config/users/alice"))[0] == b'{"config": "a secret"}'

    with caplog.at_level(logging.DEBUG):
        play(scenario)
    assert "/config/users/alice" in caplog.text
    assert "/config/users/bob: a quota has no effect: producer_byte_rate must be a whole number" in caplog.text
    assert "a secret" not in caplog.text


def test_a_change_of_nothing_writes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start()
        await bench.quotas.change(ALICE, {PRODUCE: None})
        assert await bench.zk.exists("/config/users/alice") is None
        await bench.quotas.change(ALICE, {PRODUCE: 1.0})
        await bench.quotas.change(ALICE, {PRODUCE: 1.0, FETCH: None})
        assert await bench.notified() == ["users/alice"]

    play(scenario)


def test_an_invalid_value_is_refused_before_anything_is_written() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start()
        with pytest.raises(ConfigError, match="producer_byte_rate must be a whole number"):
            await bench.quotas.change(ALICE, {FETCH: 1.0, PRODUCE: 1.5})
        assert await bench.zk.exists("/config/users/alice") is None

    play(scenario)


def test_no_concurrent_change_is_lost() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start()
        both = (bench.quotas, bench.quotas2)
        kinds = [PRODUCE, FETCH, PERCENTAGE, QuotaKind.CONTROLLER_MUTATION_RATE]
        await asyncio.gather(*(both[n % 2].change(ALICE, {kind: float(n)}) for n, kind in enumerate(kinds)))
        await turns()
        expected = {ALICE: {kind: float(n) for n, kind in enumerate(kinds)}}
        assert bench.quotas.table.entities == bench.quotas2.table.entities == expected

    play(scenario)


def test_a_change_gives_up_after_some_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start()
        attempts = []

        async def fail(operations: object) -> object:
            attempts.append(operations)
            raise BadVersion("changed")

        monkeypatch.setattr(bench.zk, "multi", fail)
        with pytest.raises(BadVersion, match="other changes came first"):
            await bench.quotas.change(ALICE, {PRODUCE: 1.0})
        assert len(attempts) == ATTEMPTS

    play(scenario)


@pytest.mark.parametrize(
    "notification",
    [
        {"version": 1, "entity_type": "clients", "entity_name": "app"},
        {"version": 2, "entity_path": "clients/app"},
    ],
)
def test_notifications_of_both_versions_are_followed(notification: dict[str, object]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.put("clients/app", encode_config({"producer_byte_rate": "1"}))
        await bench.start()
        await bench.put("clients/app", encode_config({"producer_byte_rate": "2"}))
        await turns()
        assert bench.quotas.table.entities == {APP: {PRODUCE: 1.0}}, "there is no notification yet"
        await bench.zk2.create(f"{CONFIG_CHANGES}/config_change_", json.dumps(notification).encode(), sequential=True)
        await turns()
        assert bench.quotas.table.entities == {APP: {PRODUCE: 2.0}}

    play(scenario)


def test_entities_are_added_and_removed_without_a_notification() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start()
        await bench.put("clients/app", b"")
        await turns()
        await bench.quotas2.change(ALICE, {PRODUCE: 1.0})
        await turns()
        assert bench.quotas.table.entities == {ALICE: {PRODUCE: 1.0}}
        await bench.zk.delete("/config/users/alice")
        await turns()
        assert not bench.quotas.table.entities
        assert not bench.quotas2.table.entities

    play(scenario)


def test_a_notification_about_no_entity_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start()
        await bench.quotas.change(ALICE, {PRODUCE: 1.0})
        await turns()
        for path in ("users/alice/groups/x", "users/..", "clients/app"):
            bench.quotas.changed(path)
        await turns()
        assert bench.quotas.table.entities == {ALICE: {PRODUCE: 1.0}}

    play(scenario)
    assert "/config/users/alice/groups/x: expected users/U" in caplog.text
    assert "/config/users/..: ZooKeeper allows no znode" in caplog.text


def test_the_last_state_holds_while_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start()
        await bench.quotas2.change(ALICE, {PRODUCE: 1.0})
        await turns()
        read = bench.zk.get_many

        async def fail(paths: object) -> object:
            raise ConnectionLost("gone")

        monkeypatch.setattr(bench.zk, "get_many", fail)
        await bench.put("users/alice", encode_config({"producer_byte_rate": "2"}))
        bench.quotas.changed("users/alice")
        await turns()
        assert bench.quotas.table.entities == {ALICE: {PRODUCE: 1.0}}
        monkeypatch.setattr(bench.zk, "get_many", read)
        await bench.clock.sleep_ms(2 * RETRY_MS)
        await turns()
        assert bench.quotas.table.entities == {ALICE: {PRODUCE: 2.0}}

    play(scenario)


@pytest.mark.parametrize("event", [SessionEvent.ESTABLISHED, SessionEvent.RESUMED])
def test_a_new_connection_reads_everything_again(event: SessionEvent, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        callbacks: list[Callable[[SessionEvent], None]] = []
        monkeypatch.setattr(bench.zk, "on_session", callbacks.append)
        await bench.put("clients/app", b"")
        await bench.start()
        await bench.put("clients/app", encode_config({"producer_byte_rate": "2"}))
        for lost in (SessionEvent.SUSPENDED, SessionEvent.EXPIRED):
            callbacks[-1](lost)
        await turns()
        assert not bench.quotas.table.entities, "there is no notification"
        callbacks[-1](event)
        await turns()
        assert bench.quotas.table.entities == {APP: {PRODUCE: 2.0}}

    play(scenario)
