"""Machines of a world: the state after each way to stop a broker. Equal seeds give equal worlds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.app.broker import BrokerState
from odradek.base.errors import StorageError
from odradek.zk import layout
from odradek_testkit.disk import Fate
from odradek_testkit.loop import run_virtual
from odradek_testkit.simulation.running import run_simulated
from odradek_testkit.simulation.world import World

Scene = Callable[[World], Coroutine[Any, Any, None]]


def play(scene: Scene, brokers: int = 1, seed: int = 0) -> World:
    worlds: list[World] = []

    async def main() -> None:
        world = World(seed, brokers, {"zookeeper.session.timeout.ms": "3000"})
        worlds.append(world)
        for machine in world.machines:
            machine.start()
        await until(lambda: all(machine.is_serving for machine in world.machines))
        await scene(world)

    run_simulated(main, seed)
    return worlds[0]


async def until(condition: Callable[[], bool], within_s: float = 30) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - a condition sends no event
            await asyncio.sleep(0.05)


def is_registered(world: World, broker: int = 0) -> bool:
    return layout.broker_path(broker) in world.ensemble.tree.nodes


def test_a_world_needs_its_loop() -> None:
    async def main() -> None:
        World(0, 1)

    with pytest.raises(TypeError, match="SimulatedLoop"):
        run_virtual(main())


def test_a_killed_broker_leaves_its_session_and_its_disk_and_comes_back() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        before = machine.disk.content("/data")
        machine.kill()
        machine.kill()
        assert not machine.is_on
        assert machine.host is None
        assert machine.partitions() == {}
        assert is_registered(world)
        assert machine.disk.content("/data") == before
        machine.start()
        machine.start()
        assert machine.lives == 2
        await until(lambda: machine.is_serving)

    world = play(scene)
    assert [event.split()[1] for event in world.events] == ["start", "kill", "start"]


def test_a_stopped_broker_takes_its_session_and_closes_its_logs() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        broker = machine.broker
        assert broker is not None
        await machine.stop()
        assert broker.state is BrokerState.NOT_RUNNING
        assert not machine.is_on
        assert not is_registered(world)
        assert "/data/.kafka_cleanshutdown" in machine.disk.content("/data")

    play(scene)


def test_a_broker_that_is_killed_while_it_stops_is_not_ended_again_in_its_next_life() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        machine.freeze()
        stopping = asyncio.create_task(machine.stop())
        await asyncio.sleep(1)
        machine.kill()
        machine.start()
        await stopping
        assert machine.is_serving
        assert machine.lives == 2

    play(scene)


def test_a_frozen_broker_loses_its_session_and_registers_again() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        assert machine.host is not None
        machine.freeze()
        turns = machine.host.turns
        await asyncio.sleep(4)
        assert machine.host.turns == turns
        assert not is_registered(world)
        machine.thaw()
        await until(lambda: is_registered(world))
        assert machine.lives == 1

    assert [event.split()[1] for event in play(scene).events] == ["start", "freeze", "thaw"]


def test_a_session_that_is_ended_is_replaced_by_the_broker() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        machine.end_session()
        assert not is_registered(world)
        await until(lambda: is_registered(world))

    assert "end-session broker-0" in play(scene).events[-1]


def test_a_machine_that_loses_its_power_keeps_what_was_synced() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        file = machine.disk.open("/file", create=True)
        file.pwritev([b"kept"], 0)
        file.sync()
        machine.disk.sync_directory("/")
        file.pwritev([b"lost"], 4)
        machine.lose_power((Fate.LOST,))
        assert machine.disk.content()["/file"] == b"kept"
        assert not machine.is_on

    play(scene)


def test_a_disk_is_replaced_only_while_the_machine_is_off() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        with pytest.raises(RuntimeError, match="is on"):
            machine.wipe()
        machine.kill()
        machine.wipe()
        assert machine.disk.content() == {}
        machine.start()
        await until(lambda: machine.is_serving)

    play(scene)


def test_a_broker_whose_disk_fails_ends_and_is_started_until_it_works_again() -> None:
    async def scene(world: World) -> None:
        machine = world.machines[0]
        machine.kill()
        machine.disk.fail = lambda operation, path: StorageError(f"cannot {operation} {path}", path=path)
        machine.start()
        await until(lambda: any("cannot-start" in event for event in world.events))
        machine.disk.fail = None
        await until(lambda: machine.is_serving)
        assert machine.lives == 2

    play(scene)


def test_equal_seeds_give_equal_worlds() -> None:
    async def scene(world: World) -> None:
        world.machines[1].kill()
        await asyncio.sleep(5)
        world.note("turns", *(machine.host.turns for machine in world.machines if machine.host is not None))

    assert play(scene, 3, seed=5).events == play(scene, 3, seed=5).events
    assert play(scene, 3, seed=5).events != play(scene, 3, seed=6).events
