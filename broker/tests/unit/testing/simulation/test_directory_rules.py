"""The rules for stalled log directories hold for a correct broker, and each violation is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from posixpath import dirname

import pytest

from odradek.base.errors import StorageError
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.models import NewTopic
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.log.directories.directory_worker import DirectoryWorker
from odradek_testkit.simulation.directory_rules import LATE, NEEDLESS, NOTICED, SERVED, DirectoryRules
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.running import run_simulated
from odradek_testkit.simulation.world import Machine, World

ONE, TWO = "/data-0", "/data-1"
PARTITIONS = 4

Scene = Callable[[World], Coroutine[object, object, None]]


def play(scene: Scene) -> str:
    """Play a scene with two brokers that have two directories each. Return the violated rule, or an empty string."""

    async def main() -> None:
        properties = {
            "log.dir.stall.timeout.ms": "3000",
            "log.dir.check.interval.ms": "200",
            "replica.lag.time.max.ms": "60000",
        }
        world = World(1, 2, properties, directories=2)
        for machine in world.machines:
            machine.start()
        while not all(machine.is_serving for machine in world.machines):  # noqa: ASYNC110 - a machine sends no event
            await asyncio.sleep(0.05)
        with world.as_clients():
            creation = asyncio.create_task(create(world))
        await creation
        while not all(len(machine.partitions()) == PARTITIONS for machine in world.machines):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        world.loop.before_jumps(DirectoryRules(world).look)
        await scene(world)

    try:
        run_simulated(main, 1)
    except Violation as violation:
        return violation.invariant
    return ""


async def create(world: World) -> None:
    async with Admin(ClientSettings.of(world.bootstrap), clock=world.clock) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=PARTITIONS, replication_factor=2)])


async def write(world: World) -> None:
    """Write one record to each partition, without waiting for followers."""
    settings = ClientSettings.of(world.bootstrap, acks=1, enable_idempotence=False)
    async with Producer(settings, clock=world.clock) as producer:
        for partition in range(PARTITIONS):
            await producer.send_and_wait("t", b"value", partition=partition)


def led(machine: Machine, directory: str) -> list[TopicPartition]:
    return [
        topic_partition
        for topic_partition, partition in machine.partitions().items()
        if partition.is_leader and dirname(partition.log.directory) == directory
    ]


def test_a_stalled_directory_goes_offline_alone_and_late_jobs_are_harmless() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        before = len(machine.partitions())
        disk = machine.disks.by_path[ONE]
        disk.stall()
        await asyncio.sleep(10)
        assert machine.offline_directories == (ONE,)
        assert 0 < len(machine.partitions()) < before
        assert all(dirname(each.log.directory) == TWO for each in machine.partitions().values())
        disk.resume()
        await asyncio.sleep(10)
        assert machine.offline_directories == (ONE,)
        machine.kill()
        machine.start()
        await asyncio.sleep(10)
        assert machine.offline_directories == ()
        assert len(machine.partitions()) == before

    assert play(scene) == ""


def test_short_stalls_and_slow_directories_stay_online() -> None:
    async def scene(world: World) -> None:
        disk = world.machines[0].disks.by_path[ONE]
        disk.slow(900)
        await asyncio.sleep(20)
        disk.stall()
        await asyncio.sleep(1.5)
        disk.resume()
        await asyncio.sleep(10)
        assert world.machines[0].offline_directories == ()

    assert play(scene) == ""


def test_a_frozen_broker_notices_nothing_and_imagines_nothing() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        disk = machine.disks.by_path[ONE]
        disk.slow(900)
        for _ in range(10):
            await asyncio.sleep(1.7)
            machine.freeze()
            await asyncio.sleep(9)
            machine.thaw()
        disk.stall()
        machine.freeze()
        await asyncio.sleep(60)
        machine.thaw()
        disk.resume()
        await asyncio.sleep(10)
        assert machine.offline_directories == ()

    assert play(scene) == ""


def test_a_directory_that_goes_offline_without_a_stall_is_reported() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        await asyncio.sleep(1)
        assert machine.broker is not None
        log = next(iter(machine.partitions().values())).log
        machine.broker.logs.directory_failed(log, StorageError("no reason", path=log.directory))
        await asyncio.sleep(1)

    assert play(scene) == NEEDLESS


def test_a_failed_operation_is_a_reason_to_go_offline() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        machine.disk.fail = lambda operation, path: (
            StorageError("cannot sync", path=path) if operation == "sync" and path.startswith(ONE) else None
        )
        await asyncio.sleep(5)
        assert machine.offline_directories == (ONE,)

    assert play(scene) == ""


def test_a_stall_that_nobody_notices_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        monkeypatch.setattr(DirectoryWorker, "stalled", lambda worker, timeout_ms: None)
        world.machines[0].disks.by_path[ONE].stall()
        await asyncio.sleep(20)

    assert play(scene) == NOTICED


@pytest.mark.parametrize("is_healthy", [True, False])
def test_a_partition_of_the_other_directory_that_waits_is_reported(is_healthy: bool) -> None:
    async def scene(world: World) -> None:
        leader, follower = sorted(world.machines, key=lambda machine: not led(machine, TWO))
        assert follower.broker is not None
        (waiting, *_) = led(leader, TWO)
        follower.broker.replicas.fetchers.remove(waiting)
        leader.disks.by_path[ONE].stall()
        if not is_healthy:
            disk = follower.disks.by_path[dirname(follower.partitions()[waiting].log.directory)]
            disk.slow(10)
        with world.as_clients():
            writing = asyncio.create_task(write(world))
        await writing
        await asyncio.sleep(10)

    assert play(scene) == (SERVED if is_healthy else "")


def test_a_late_change_is_reported() -> None:
    async def scene(world: World) -> None:
        world.machines[1].disks.late_changes.append("write /data-0/t-0/file")
        await asyncio.sleep(1)

    assert play(scene) == LATE
