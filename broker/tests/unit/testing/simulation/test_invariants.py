"""Each violation of an invariant is reported as that invariant, and a correct world causes no violation.

The tests damage one world in many ways. Each damage is undone before the next one, and the virtual time stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from odradek.app.broker import Broker
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.models import NewTopic
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.replication.isr import InSyncSet
from odradek.replication.partition_table import HostedPartition
from odradek.zk import layout
from odradek.zk.port import SetData
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.invariants import Invariants
from odradek_testkit.simulation.running import run_simulated
from odradek_testkit.simulation.world import World

T0 = TopicPartition("t", 0)


@dataclass(frozen=True, slots=True)
class Scene:
    """A world with one partition on all machines."""

    world: World

    def broker(self, broker_id: int) -> Broker:
        broker = self.world.machines[broker_id].broker
        assert broker is not None
        return broker

    @property
    def state(self) -> layout.PartitionState:
        return layout.PartitionState.decode(T0, self.world.ensemble.tree.nodes[layout.partition_state_path(T0)].data)

    @property
    def leader(self) -> HostedPartition:
        return self.world.machines[self.state.leader].partitions()[T0]

    @property
    def follower(self) -> HostedPartition:
        return self.world.machines[(self.state.leader + 1) % 3].partitions()[T0]

    @property
    def controller(self) -> int:
        (active,) = (m.broker_id for m in self.world.machines if m.broker is not None and m.broker.controller.is_active)
        return active

    def write(self, path: str, data: bytes) -> None:
        self.world.ensemble.tree.transaction([SetData(path, data, -1)], 0)

    def write_state(self, **changes: Any) -> None:
        self.write(layout.partition_state_path(T0), replace(self.state, **changes).encode())


def put(scene: Scene, owner: Any, attribute: str, value: Any, undo: ExitStack) -> None:
    undo.callback(setattr, owner, attribute, getattr(owner, attribute))
    setattr(owner, attribute, value)


def high_watermark(step: int) -> Callable[[Scene, ExitStack], None]:
    return lambda scene, undo: put(scene, scene.leader.log, "high_watermark", scene.leader.high_watermark + step, undo)


def two_controllers(scene: Scene, undo: ExitStack) -> None:
    one, other = scene.broker(scene.controller), scene.broker((scene.controller + 1) % 3)
    put(scene, other.controller, "_active", one.controller._active, undo)


def older_controller(scene: Scene, undo: ExitStack) -> None:
    leadership = scene.broker(0).replicas.roles
    put(scene, leadership, "controller_epoch", leadership.controller_epoch - 1, undo)


def missing_records(scene: Scene, undo: ExitStack) -> None:
    put(scene, scene.follower.log, "log_end_offset", 1, undo)
    put(scene, scene.follower.log, "high_watermark", 1, undo)


def another_leader(scene: Scene, undo: ExitStack) -> None:
    put(scene, scene.follower, "leader_id", (scene.state.leader + 2) % 3, undo)


def stable_offset_falls(scene: Scene, undo: ExitStack) -> None:
    put(scene, HostedPartition, "last_stable_offset", property(lambda partition: partition.log.log_start_offset), undo)
    put(scene, scene.leader, "partition_epoch", scene.leader.partition_epoch + 1, undo)


TAMPERED: Final[Mapping[str, tuple[str, Callable[[Scene, ExitStack], None]]]] = {
    "a mark above the log": ("marks", high_watermark(1)),
    "a mark that falls": ("high-watermark-falls", high_watermark(-1)),
    "a stable offset that falls": ("last-stable-offset-falls", stable_offset_falls),
    "an epoch that falls": (
        "leader-epoch-falls",
        lambda scene, undo: put(scene, scene.follower, "leader_epoch", scene.follower.leader_epoch - 1, undo),
    ),
    "a partition epoch that falls": (
        "partition-epoch-falls",
        lambda scene, undo: put(scene, scene.leader, "partition_epoch", scene.leader.partition_epoch - 1, undo),
    ),
    "a follower of another": ("one-leader", another_leader),
    "nobody in sync": ("in-sync-set", lambda scene, undo: put(scene, scene.leader, "in_sync", InSyncSet(), undo)),
    "a stranger in sync": (
        "in-sync-set",
        lambda scene, undo: put(scene, scene.leader, "in_sync", InSyncSet((0, 1, 7), (0, 1, 7)), undo),
    ),
    "a member without the records": ("replicated", missing_records),
    "two controllers": ("one-controller", two_controllers),
    "a former controller obeyed": ("controller-epoch-falls", older_controller),
    "a controller epoch that falls": (
        "controller-epoch-falls",
        lambda scene, undo: scene.write(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(0)),
    ),
    "a reign of a former controller": (
        "fenced-controller",
        lambda scene, undo: scene.write_state(leader_epoch=scene.state.leader_epoch + 1, controller_epoch=0),
    ),
    "a state of an older epoch": (
        "leader-epoch-falls",
        lambda scene, undo: scene.write_state(leader_epoch=scene.state.leader_epoch - 1),
    ),
    "a state of another leader": (
        "one-leader",
        lambda scene, undo: scene.write_state(leader=(scene.state.leader + 1) % 3),
    ),
    "a state with nobody in sync": ("in-sync-set", lambda scene, undo: scene.write_state(isr=())),
    "a state with a stranger in sync": ("in-sync-set", lambda scene, undo: scene.write_state(isr=(0, 1, 7))),
}


@contextmanager
def taken_back(scene: Scene) -> Iterator[ExitStack]:
    tree = scene.world.ensemble.tree
    nodes = dict(tree.nodes)
    with ExitStack() as undo:
        yield undo
    tree.nodes = nodes


def advance(world: World) -> None:
    """Count a turn of each machine, because `look` skips machines that have not run since the last call."""
    for machine in world.machines:
        assert machine.host is not None
        machine.host.turns += 1


def look_at(scene: Scene, tamper: Callable[[Scene, ExitStack], None]) -> str:
    """Return the invariant that the damage violates, or an empty string."""
    invariants = Invariants(scene.world)
    invariants.look()
    with taken_back(scene) as undo:
        tamper(scene, undo)
        advance(scene.world)
        try:
            invariants.look()
        except Violation as violation:
            return violation.invariant
        return ""


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    async def main() -> dict[str, str]:
        world = World(1, 3)
        for machine in world.machines:
            machine.start()
        while not all(machine.is_serving for machine in world.machines):  # noqa: ASYNC110 - a machine sends no event
            await asyncio.sleep(0.05)
        with world.as_clients():
            load = asyncio.create_task(write(world))
        await load
        await asyncio.sleep(2)
        scene = Scene(world)
        found = {name: look_at(scene, tamper) for name, (_, tamper) in TAMPERED.items()}
        found["nothing"] = look_at(scene, lambda scene, undo: None)
        return found

    return run_simulated(main, 1)


async def write(world: World) -> None:
    settings = ClientSettings.of(world.bootstrap)
    async with Admin(settings, clock=world.clock) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=3)])
    async with Producer(settings, clock=world.clock) as producer:
        for number in range(3):
            await producer.send_and_wait("t", b"%d" % number)


@pytest.mark.parametrize("name", TAMPERED)
def test_what_is_broken_is_found(found: dict[str, str], name: str) -> None:
    assert found[name] == TAMPERED[name][0]


def test_what_is_whole_passes(found: dict[str, str]) -> None:
    assert found["nothing"] == ""


def test_a_machine_that_stood_still_is_not_looked_into() -> None:
    async def main() -> None:
        world = World(1, 1)
        machine = world.machines[0]
        machine.start()
        while not machine.is_serving:  # noqa: ASYNC110 - a machine sends no event
            await asyncio.sleep(0.05)
        invariants = Invariants(world)
        invariants.look()
        assert machine.broker is not None
        leadership = machine.broker.replicas.roles
        leadership.controller_epoch = -7
        invariants.look()
        advance(world)
        with pytest.raises(Violation, match="controller-epoch-falls"):
            invariants.look()

    run_simulated(main, 1)


def test_a_new_life_may_begin_anywhere() -> None:
    async def main() -> None:
        world = World(1, 1)
        machine = world.machines[0]
        invariants = Invariants(world)
        for _ in range(2):
            machine.start()
            while not machine.is_serving:
                await asyncio.sleep(0.05)
                invariants.look()
            machine.kill()
            invariants.look()

    run_simulated(main, 1)
