"""Access rules in memory: what is written, notifications, concurrent changes, lost connections, and invalid content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from odradek.security.acls.index import AclVerdict
from odradek.security.acls.model import AclOperation, AclPermission, AclRule, PatternType, ResourcePattern, ResourceType
from odradek.security.acls.nodes import RULE_PATHS, decode_rules, encode_rules, resource_path
from odradek.security.principals import EVERYONE, Principal
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.acls import ATTEMPTS, AccessRules
from odradek.zk.follower import RETRY_MS
from odradek.zk.port import BadVersion, ConnectionLost, SessionEvent
from odradek.zk.registration import CHANGE_RETENTION_MS
from odradek.znode import LayoutError
from odradek_testkit.loop import VirtualClock, run_virtual

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
READ = AclRule(ALICE, AclPermission.ALLOW, AclOperation.READ)
WRITE = AclRule(ALICE, AclPermission.ALLOW, AclOperation.WRITE)
DENY = AclRule(EVERYONE, AclPermission.DENY, AclOperation.READ)
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
OR = ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED)


class Bench:
    """A ZooKeeper with two brokers: each has its own session and its own rules."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.clock = VirtualClock()
        self.tree.wall_ms = self.clock.wall_ms()
        self.zk, self.zk2 = MemoryZk(self.tree), MemoryZk(self.tree)
        self.rules, self.rules2 = AccessRules(self.zk, self.clock), AccessRules(self.zk2, self.clock)

    def may_read(self, who: Principal = ALICE, name: str = "orders") -> bool:
        decision = self.rules.index.decide(who, "127.0.0.1", AclOperation.READ, ResourceType.TOPIC, name)
        return decision.verdict is AclVerdict.ALLOWED


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def play(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            await scenario(bench)
        finally:
            for each in (bench.rules, bench.rules, bench.rules2):
                await each.close()

    run_virtual(main())


def test_the_znodes_of_an_authorizer_are_created() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        for path in RULE_PATHS:
            assert await bench.zk.exists(path) is not None

    play(scenario)


@pytest.mark.parametrize("pattern", [ORDERS, OR])
def test_a_change_has_an_effect_here_at_once_and_on_others_by_notification(pattern: ResourcePattern) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules2.start()
        await bench.rules.start()
        await bench.rules2.change(pattern, add=[READ])
        assert bench.rules2.index.rules_of(pattern) == {READ}
        await turns()
        assert bench.may_read()
        await bench.rules.change(pattern, add=[WRITE], remove=[READ])
        assert not bench.may_read()
        await turns()
        assert bench.rules2.index.rules_of(pattern) == {WRITE}
        await bench.rules.change(pattern, remove=[WRITE])
        assert await bench.zk.exists(resource_path(pattern)) is None, "a pattern without rules has no znode"
        await turns()
        assert bench.rules2.index.rules_of(pattern) == frozenset()

    play(scenario)


def test_rules_from_before_the_start_count() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules2.start()
        await bench.rules2.change(ORDERS, add=[READ])
        await bench.rules.start()
        assert bench.may_read()

    play(scenario)


def test_a_change_of_nothing_writes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        await bench.rules.change(ORDERS, add=[READ])
        await bench.rules.change(ORDERS, add=[READ], remove=[WRITE])
        await bench.rules.change(OR, remove=[READ])
        assert await bench.zk.children("/kafka-acl-changes") == ["acl_changes_0000000000"]
        assert await bench.zk.children("/kafka-acl-extended-changes") == []

    play(scenario)


def test_no_concurrent_change_is_lost() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        await bench.rules2.start()
        rules = [AclRule(Principal("User", str(n)), AclPermission.ALLOW, AclOperation.READ) for n in range(8)]
        both = (bench.rules, bench.rules2)
        await asyncio.gather(*(both[n % 2].change(ORDERS, add=[rule]) for n, rule in enumerate(rules)))
        await turns()
        data, _ = await bench.zk.get(resource_path(ORDERS))
        assert decode_rules(resource_path(ORDERS), data) == set(rules)
        assert bench.rules.index.rules_of(ORDERS) == bench.rules2.index.rules_of(ORDERS) == set(rules)

    play(scenario)


def test_a_change_gives_up_after_some_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        attempts = []

        async def fail(operations: object) -> object:
            attempts.append(operations)
            raise BadVersion("changed")

        monkeypatch.setattr(bench.zk, "multi", fail)
        with pytest.raises(BadVersion, match="orders: other changes came first"):
            await bench.rules.change(ORDERS, add=[READ])
        assert len(attempts) == ATTEMPTS

    play(scenario)


def test_a_pattern_that_cannot_be_decoded_denies_everything_and_affects_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        await bench.rules.change(ResourcePattern(ResourceType.TOPIC, "*"), add=[READ])
        await bench.rules.change(ORDERS, add=[DENY])
        await bench.zk.set(resource_path(ORDERS), b'{"version":2}')
        await bench.rules2.start()
        assert bench.rules2.index.rules_of(ORDERS) == {AclRule(EVERYONE, AclPermission.DENY, AclOperation.ALL)}
        assert bench.may_read(name="returns")
        with pytest.raises(LayoutError, match=r"orders: .*version must be 1"):
            await bench.rules2.change(ORDERS, add=[READ])

    with caplog.at_level(logging.ERROR):
        play(scenario)
    assert "/kafka-acl/Topic/orders" in caplog.text


def test_names_that_no_znode_can_have_are_refused() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        with pytest.raises(LayoutError, match="allows no znode"):
            await bench.rules.change(ResourcePattern(ResourceType.GROUP, "a/b"), add=[READ])

    play(scenario)


@pytest.mark.parametrize("data", [b"nonsense", b"TOPIC:a/b", b"TOPIC:orders"])
def test_a_notification_that_names_no_pattern_loses_no_change(data: bytes) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        await bench.zk2.create(resource_path(ORDERS), encode_rules([READ]))
        await bench.zk2.create("/kafka-acl-changes/acl_changes_", data, sequential=True)
        await turns()
        assert bench.may_read() == (b"/" not in data)

    play(scenario)


def test_the_last_state_holds_while_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        await bench.rules2.start()
        await bench.rules.change(ORDERS, add=[READ])
        await turns()
        read = bench.zk.children_many

        async def fail(paths: object) -> object:
            raise ConnectionLost("gone")

        monkeypatch.setattr(bench.zk, "children_many", fail)
        await bench.rules2.change(ORDERS, remove=[READ])
        await turns()
        assert bench.may_read()
        monkeypatch.setattr(bench.zk, "children_many", read)
        await bench.clock.sleep_ms(2 * RETRY_MS)
        await turns()
        assert not bench.may_read()

    play(scenario)


@pytest.mark.parametrize("event", [SessionEvent.ESTABLISHED, SessionEvent.RESUMED])
def test_a_new_connection_reads_everything_again(event: SessionEvent, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        callbacks: list[Callable[[SessionEvent], None]] = []
        monkeypatch.setattr(bench.zk, "on_session", callbacks.append)
        await bench.rules.start()
        await bench.zk2.create(resource_path(ORDERS), encode_rules([READ]))
        await turns()
        assert not bench.may_read(), "there is no notification"
        for lost in (SessionEvent.SUSPENDED, SessionEvent.EXPIRED, event):
            (callback,) = callbacks
            callback(lost)
        await turns()
        assert bench.may_read()

    play(scenario)


def test_old_notifications_are_deleted() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rules.start()
        await bench.rules.change(ORDERS, add=[READ])
        await turns()
        await bench.clock.sleep_ms(CHANGE_RETENTION_MS + 1)
        bench.tree.wall_ms = bench.clock.wall_ms()
        await bench.rules.change(OR, add=[READ])
        await turns()
        assert await bench.zk.children("/kafka-acl-changes") == []
        assert len(await bench.zk.children("/kafka-acl-extended-changes")) == 1

    play(scenario)
