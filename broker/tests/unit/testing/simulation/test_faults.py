"""`inject` begins each fault at its time, applies it, and returns after the last fault has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from odradek_testkit.simulation.directory_plan import SlowDirectory, StallDirectory
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.faults import inject, missing
from odradek_testkit.simulation.plan import (
    EndSession,
    FailDisk,
    Fault,
    Freeze,
    Kill,
    Kind,
    LosePower,
    Partition,
    Reset,
    Slow,
    Stop,
    Wipe,
    ZooKeeperOutage,
    draw,
)
from odradek_testkit.simulation.running import run_simulated
from odradek_testkit.simulation.world import World


def play(
    *faults: tuple[int, Fault],
    kind: Kind = Kind.CRASHES,
    brokers: int = 2,
    before: Callable[[World], None] | None = None,
    directories: int = 1,
) -> tuple[list[str], float]:
    """Return the events after the cluster is complete, without their times, and the duration in virtual seconds."""

    async def main() -> tuple[list[str], float]:
        properties = {
            "zookeeper.session.timeout.ms": "3000",
            "log.dir.stall.timeout.ms": "2000",
            "log.dir.check.interval.ms": "200",
        }
        world = World(3, brokers, properties, directories=directories)
        for machine in world.machines:
            machine.start()
        while missing(world):  # noqa: ASYNC110 - a cluster sends no event when it is complete
            await asyncio.sleep(0.05)
        if before is not None:
            before(world)
        del world.events[:]
        begun_s = world.loop.time()
        await inject(world, replace(draw(0, kind), faults=tuple(faults)))
        network = world.loop.network
        names = ["clients", "zookeeper", *(machine.name for machine in world.machines)]
        assert not any(network.is_blocked(one, other) for one in names for other in names)
        assert all(network.delay_s(one, other) < 0.01 for one in names for other in names)
        assert all(machine.is_on and machine.disk.fail is None for machine in world.machines)
        assert not any(machine.host is not None and machine.host.is_frozen for machine in world.machines)
        assert all(disk.is_healthy for machine in world.machines for disk in machine.disks.by_path.values())
        return [" ".join(event.split()[1:]) for event in world.events], world.loop.time() - begun_s

    return run_simulated(main, 3)


@pytest.mark.parametrize(
    ("fault", "events", "seconds"),
    [
        (Kill(broker=0, down_ms=500, ends_session=False), ["kill broker-0", "start broker-0"], 0.5),
        (
            Kill(broker=0, down_ms=500, ends_session=True),
            ["kill broker-0", "end-session broker-0", "start broker-0"],
            0.52,
        ),
        (
            LosePower(brokers=(0, 1), down_ms=500),
            [f"{what} broker-{n}" for what in ("lose-power", "start") for n in (0, 1)],
            0.5,
        ),
        (Freeze(broker=1, for_ms=700), ["freeze broker-1", "thaw broker-1"], 0.7),
        (EndSession(broker=1), ["end-session broker-1"], 0.0),
        (
            Partition(source="broker-0", target="clients", for_ms=100, both=False),
            ["block broker-0>clients", "open broker-0>clients"],
            0.1,
        ),
        (
            Partition(source="broker-0", target="clients", for_ms=100, both=True),
            ["block broker-0>clients clients>broker-0", "open broker-0>clients clients>broker-0"],
            0.1,
        ),
        (
            Slow(source="clients", target="broker-0", extra_ms=50, for_ms=100),
            ["slow clients broker-0 50", "fast clients broker-0"],
            0.1,
        ),
        (Reset(source="clients", target="broker-0", times=10), ["reset clients broker-0"], 0.7),
        (FailDisk(broker=0, operation="sync", for_ms=10), ["fail-disk broker-0 sync", "mend-disk broker-0"], 0.01),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_fault_is_done_and_taken_back(fault: Fault, events: list[str], seconds: float) -> None:
    noted, took_s = play((1_000, fault))
    assert noted == [*events, "faults-over"]
    assert took_s == pytest.approx(1 + seconds)


@pytest.mark.parametrize(
    ("fault", "events", "seconds"),
    [
        (
            SlowDirectory(broker=1, directory=0, job_ms=50, for_ms=3_000),
            ["slow-directory broker-1 /data-0 50", "quicken-directory broker-1 /data-0"],
            3.0,
        ),
        (
            StallDirectory(broker=1, directory=1, for_ms=1_000, restart_ms=500),
            ["stall-directory broker-1 /data-1", "resume-directory broker-1 /data-1"],
            1.5,
        ),
        (
            StallDirectory(broker=1, directory=1, for_ms=4_000, restart_ms=500),
            [
                "stall-directory broker-1 /data-1",
                "resume-directory broker-1 /data-1",
                "kill broker-1",
                "start broker-1",
            ],
            4.5,
        ),
    ],
    ids=["slow", "short stall", "long stall"],
)
def test_a_fault_of_a_directory_ends(fault: Fault, events: list[str], seconds: float) -> None:
    noted, took_s = play((1_000, fault), directories=2)
    assert noted == [*events, "faults-over"]
    assert took_s == pytest.approx(1 + seconds)


def test_a_stopped_broker_comes_back_after_its_end() -> None:
    events, seconds = play((0, Stop(broker=1, down_ms=2_000)))
    assert events == ["stop broker-1", "start broker-1", "faults-over"]
    assert 2 < seconds < 30


def test_the_session_does_not_end_at_once_if_zookeeper_is_unreachable() -> None:
    way = Partition(source="broker-0", target="zookeeper", for_ms=1_000, both=False)
    events, _ = play((0, way), (500, Kill(broker=0, down_ms=100, ends_session=True)))
    assert "end-session broker-0" not in events


def test_a_way_is_open_when_all_that_block_it_are_over() -> None:
    seen: list[tuple[bool, bool]] = []

    def watch(world: World) -> None:
        def look() -> None:
            network = world.loop.network
            seen.append((network.is_blocked("clients", "broker-0"), network.delay_s("clients", "broker-1") > 0.01))

        for at_s in (0.5, 1.5, 2.5, 3.5):
            world.loop.call_later(at_s, look)

    play(
        (0, Partition(source="clients", target="broker-0", for_ms=3_000, both=False)),
        (0, Slow(source="clients", target="broker-1", extra_ms=50, for_ms=2_000)),
        (1_000, Partition(source="clients", target="broker-0", for_ms=1_000, both=False)),
        (4_000, EndSession(broker=0)),
        before=watch,
    )
    assert seen == [(True, True), (True, True), (True, False), (False, False)]


def test_an_outage_ends_every_session() -> None:
    gone: list[bool] = []

    def watch(world: World) -> None:
        world.loop.call_later(4, lambda: gone.append(world.ensemble.sessions == frozenset()))

    play((0, ZooKeeperOutage(for_ms=4_500)), before=watch)
    assert gone == [True]


def test_a_full_disk_refuses_what_grows_and_nothing_else() -> None:
    failures: list[tuple[bool, bool]] = []

    def watch(world: World) -> None:
        def look() -> None:
            fail = world.machines[0].disk.fail
            assert fail is not None
            error = fail("write", "/x")
            failures.append((error is not None and error.full, fail("remove", "/x") is None))

        world.loop.call_later(0.5, look)

    play((0, FailDisk(broker=0, operation="write", for_ms=1_000)), before=watch)
    assert failures == [(True, True)]


def test_a_loss_waits_until_the_one_before_is_over() -> None:
    events, seconds = play(
        (0, LosePower(brokers=(0,), down_ms=1_000)), (10, Wipe(broker=1, down_ms=0)), kind=Kind.LOSSES
    )
    assert events == [
        "lose-power broker-0",
        "start broker-0",
        "lose-power broker-1",
        "wipe broker-1",
        "start broker-1",
        "faults-over",
    ]
    assert seconds > 3  # broker 0 registers after its previous session has expired


def test_a_loss_that_can_never_come_is_told() -> None:
    def freeze(world: World) -> None:
        world.machines[0].freeze()

    with pytest.raises(Violation, match="whole"):
        play((5_000, LosePower(brokers=(1,), down_ms=0)), kind=Kind.LOSSES, before=freeze)
