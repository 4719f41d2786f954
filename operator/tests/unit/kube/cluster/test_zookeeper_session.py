"""The operator's ZooKeeper session: opened when first needed, and again after it ends or the ensemble changes."""

from __future__ import annotations

import pytest

from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk import layout
from odradek.zk.port import ConnectionLost, SessionState, ZkClient, ZkSettings
from odradek_operator.kube.cluster.zookeeper_session import ZooKeeperSession
from odradek_testkit.loop import run_virtual

ONE = ZkSettings(connect="one:2181")
TWO = ZkSettings(connect="two:2181")


class Ensemble:
    """Opens sessions. Counts the sessions and the calls of `wake`."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.opened: list[str] = []
        self.woken = 0
        self.trouble: ConnectionLost | None = None

    async def open(self, settings: ZkSettings) -> ZkClient:
        if self.trouble is not None:
            raise self.trouble
        self.opened.append(settings.connect)
        return MemoryZk(self.tree)

    def wake(self) -> None:
        self.woken += 1

    def session(self) -> ZooKeeperSession:
        return ZooKeeperSession(self.wake, self.open)


def test_a_session_is_kept() -> None:
    async def run() -> None:
        ensemble = Ensemble()
        session = ensemble.session()
        assert ensemble.opened == []
        first = await session.client(ONE)
        assert await session.client(ONE) is first
        assert ensemble.opened == ["one:2181"]
        await session.close()
        await session.close()
        assert first.state is SessionState.CLOSED

    run_virtual(run())


def test_it_is_opened_again_when_it_ended_or_the_ensemble_changed() -> None:
    async def run() -> None:
        ensemble = Ensemble()
        session = ensemble.session()
        first = await session.client(ONE)
        await first.close()
        second = await session.client(ONE)
        assert second is not first
        await session.client(TWO)
        assert second.state is SessionState.CLOSED
        assert ensemble.opened == ["one:2181", "one:2181", "two:2181"]
        await session.close()

    run_virtual(run())


def test_a_failed_opening_is_tried_again() -> None:
    async def run() -> None:
        ensemble = Ensemble()
        session = ensemble.session()
        ensemble.trouble = ConnectionLost("nobody answers")
        with pytest.raises(ConnectionLost):
            await session.client(ONE)
        ensemble.trouble = None
        await session.client(ONE)
        await session.close()

    run_virtual(run())


@pytest.mark.parametrize(
    "path",
    [
        layout.broker_path(1),
        layout.topic_path("orders"),
        layout.delete_topic_path("orders"),
        layout.CONTROLLER,
        layout.REASSIGN_PARTITIONS,
    ],
)
def test_changes_in_zookeeper_wake_the_loop(path: str) -> None:
    async def run() -> None:
        ensemble = Ensemble()
        session = ensemble.session()
        await session.client(ONE)
        other = MemoryZk(ensemble.tree)
        for parent in layout.PERSISTENT_PATHS:
            await other.ensure_path(parent)
        before = ensemble.woken
        await other.create(path, b"{}", make_parents=True)
        assert ensemble.woken > before
        before = ensemble.woken
        await other.delete(path)
        assert ensemble.woken > before
        await other.close()
        await session.close()
        await session.close()

    run_virtual(run())
