"""Injects the faults of a plan into a world at their times, and ends the lasting ones.

When `inject` returns, the network and all disks work and every machine is on. `play` calls it. All faults are recorded
in the trace of the world. Invariant: in a plan that loses data, each loss waits until the cluster is whole, that is,
also until the machine of the previous loss is back in all ISRs
(docs/design/0008-simulation.md, "What may be lost").
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from odradek.app.broker import BrokerState
from odradek.base.errors import StorageError
from odradek.base.types import TopicPartition
from odradek.zk import layout
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.simulation.directory_plan import SlowDirectory, StallDirectory
from odradek_testkit.simulation.disk_jobs import LONG_READ_MS, READ_MS, DirectoryDisk
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.plan import (
    CLIENTS,
    ENSEMBLE,
    EndSession,
    FailDisk,
    Fault,
    Freeze,
    Kill,
    Kind,
    LosePower,
    Partition,
    Plan,
    Reset,
    Slow,
    Stop,
    Wipe,
    ZooKeeperOutage,
)
from odradek_testkit.simulation.world import Machine, World

WHOLE_WITHIN_S: Final = 120.0
"""Virtual seconds within which a cluster without faults must become whole."""
LOOK_EVERY_S: Final = 0.1
RESET_EVERY_S: Final = 0.07
FAREWELL_S: Final = 0.02
"""Time in which the parent of a broker process notices its death."""

_GROWING: Final = frozenset({"write", "allocate", "create", "make directory"})
"""Operations that fail on a full disk."""


async def inject(world: World, plan: Plan) -> None:
    """Inject all faults at their times. Returns when all have ended, the network works and all machines are on.

    Raises `Violation` if the cluster does not become whole before or after a loss.
    """
    faults = _Faults(world)
    if plan.long_reads:
        faults.lengthen_reads()
    begun_s = world.loop.time()
    tasks: list[asyncio.Task[None]] = []
    try:
        for at_ms, fault in plan.faults:
            await asyncio.sleep(max(0.0, begun_s + at_ms / 1000 - world.loop.time()))
            if plan.kind is Kind.LOSSES and isinstance(fault, LosePower | Wipe):
                await faults.before_loss()
                faults.loss = asyncio.create_task(faults.lose(fault))
                tasks.append(faults.loss)
            else:
                tasks.append(asyncio.create_task(faults.do(fault)))
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    faults.end()


class _Ways:
    """Counts the faults that block or slow each link, so that the end of one does not end the effect of another."""

    def __init__(self, world: World) -> None:
        self._network: Final = world.loop.network
        self._blocked: Final[Counter[tuple[str, str]]] = Counter()
        self._slow: Final[Counter[tuple[str, str]]] = Counter()

    def block(self, ways: Iterable[tuple[str, str]]) -> None:
        self._blocked.update(ways)
        self._apply()

    def open(self, ways: Iterable[tuple[str, str]]) -> None:
        self._blocked.subtract(ways)
        self._apply()

    def slow(self, way: tuple[str, str], extra_ms: int) -> None:
        """Negative `count`: remove it."""
        self._slow[way] += extra_ms
        self._apply()

    def _apply(self) -> None:
        self._network.heal()
        for source, target in sorted(+self._blocked):
            self._network.block(source, target)
        for (source, target), extra_ms in sorted((+self._slow).items()):
            self._network.slow(source, target, extra_ms)


class _Faults:
    """The faults of one run. `do` returns when the fault has ended."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._ways: Final = _Ways(world)
        self.loss: asyncio.Task[None] | None = None
        """The task of the current loss."""
        self._doers: Final[dict[type[Any], Callable[[Any], Awaitable[None]]]] = {
            Kill: self._kill,
            Stop: self._stop,
            LosePower: self._lose_power,
            Wipe: self._wipe,
            Freeze: self._freeze,
            EndSession: self._end_session,
            Partition: self._partition,
            Slow: self._slow,
            Reset: self._reset,
            ZooKeeperOutage: self._outage,
            FailDisk: self._fail_disk,
            SlowDirectory: self._slow_directory,
            StallDirectory: self._stall_directory,
        }

    async def do(self, fault: Fault) -> None:
        await self._doers[type(fault)](fault)

    def lengthen_reads(self) -> None:
        """Let the reads of threads take long until `end`."""
        for machine in self._world.machines:
            machine.disks.read_ms = LONG_READ_MS

    def end(self) -> None:
        """End all remaining faults."""
        self._world.loop.network.heal()
        for machine in self._world.machines:
            machine.disks.read_ms = READ_MS
            machine.disk.fail = None
            machine.thaw()
            self._use_all_directories(machine)
            machine.start()
        self._world.note("faults-over")

    # Losses

    async def before_loss(self) -> None:
        """Wait until the machine that lost data is back and the cluster is whole."""
        if self.loss is not None:
            await self.loss
        await self._whole()

    async def lose(self, fault: Fault) -> None:
        await self.do(fault)
        await self._whole()

    async def _whole(self) -> None:
        deadline_s = self._world.loop.time() + WHOLE_WITHIN_S
        while what := missing(self._world):
            if self._world.loop.time() > deadline_s:
                raise Violation("whole", f"{what}, {WHOLE_WITHIN_S:.0f} s after the last fault")
            await asyncio.sleep(LOOK_EVERY_S)

    # Machines

    async def _again(self, machine: Machine, down_ms: int) -> None:
        await asyncio.sleep(down_ms / 1000)
        machine.start()

    async def _kill(self, fault: Kill) -> None:
        machine = self._world.machines[fault.broker]
        credentials = None if machine.broker is None else machine.broker.zookeeper.credentials
        machine.kill()
        if fault.ends_session and credentials is not None:
            await asyncio.sleep(FAREWELL_S)
            if not self._world.loop.network.is_blocked(machine.name, ENSEMBLE):
                self._world.note("end-session", machine.name)
                self._world.ensemble.end(credentials[0])
        await self._again(machine, fault.down_ms)

    async def _stop(self, fault: Stop) -> None:
        machine = self._world.machines[fault.broker]
        if machine.is_on:
            await machine.stop()
        await self._again(machine, fault.down_ms)

    async def _lose_power(self, fault: LosePower) -> None:
        machines = [self._world.machines[broker] for broker in fault.brokers]
        for machine in machines:
            machine.lose_power()
        await asyncio.sleep(fault.down_ms / 1000)
        for machine in machines:
            machine.start()

    async def _wipe(self, fault: Wipe) -> None:
        machine = self._world.machines[fault.broker]
        machine.lose_power()
        machine.wipe()
        await self._again(machine, fault.down_ms)

    async def _freeze(self, fault: Freeze) -> None:
        machine = self._world.machines[fault.broker]
        machine.freeze()
        await asyncio.sleep(fault.for_ms / 1000)
        machine.thaw()

    async def _end_session(self, fault: EndSession) -> None:
        self._world.machines[fault.broker].end_session()

    async def _fail_disk(self, fault: FailDisk) -> None:
        machine = self._world.machines[fault.broker]
        disk = machine.disk
        self._world.note("fail-disk", machine.name, fault.operation)
        _break(disk, fault.operation)
        await asyncio.sleep(fault.for_ms / 1000)
        disk.fail = None
        self._world.note("mend-disk", machine.name)
        self._use_all_directories(machine)

    # Log directories

    def _disk(self, fault: SlowDirectory | StallDirectory) -> DirectoryDisk:
        world = self._world
        return world.machines[fault.broker].disks.by_path[world.log_directories[fault.directory]]

    async def _slow_directory(self, fault: SlowDirectory) -> None:
        disk, name = self._disk(fault), self._world.machines[fault.broker].name
        self._world.note("slow-directory", name, disk.path, fault.job_ms)
        disk.slow(fault.job_ms)
        await asyncio.sleep(fault.for_ms / 1000)
        disk.quicken(fault.job_ms)
        self._world.note("quicken-directory", name, disk.path)

    async def _stall_directory(self, fault: StallDirectory) -> None:
        disk, machine = self._disk(fault), self._world.machines[fault.broker]
        self._world.note("stall-directory", machine.name, disk.path)
        disk.stall()
        await asyncio.sleep(fault.for_ms / 1000)
        disk.resume()
        self._world.note("resume-directory", machine.name, disk.path)
        await asyncio.sleep(fault.restart_ms / 1000)
        self._use_all_directories(machine)

    @staticmethod
    def _use_all_directories(machine: Machine) -> None:
        """Restart a broker with an offline directory or replica, as an administrator does when the disk works again.

        A directory that failed while the broker was starting stays offline, too.
        """
        broker = machine.broker
        has_offline_replicas = (
            broker is not None and broker.state is BrokerState.RUNNING and bool(broker.replicas.table.offline)
        )
        if machine.offline_directories or has_offline_replicas:
            machine.kill()
            machine.start()

    # Ways

    async def _partition(self, fault: Partition) -> None:
        way, back = (fault.source, fault.target), (fault.target, fault.source)
        await self._block([way, back] if fault.both else [way], fault.for_ms)

    async def _outage(self, fault: ZooKeeperOutage) -> None:
        names = [CLIENTS, *(machine.name for machine in self._world.machines)]
        ways = [way for name in names for way in ((name, ENSEMBLE), (ENSEMBLE, name))]
        await self._block(ways, fault.for_ms)

    async def _block(self, ways: list[tuple[str, str]], for_ms: int) -> None:
        text = " ".join(f"{source}>{target}" for source, target in ways)
        self._world.note("block", text)
        self._ways.block(ways)
        await asyncio.sleep(for_ms / 1000)
        self._world.note("open", text)
        self._ways.open(ways)

    async def _slow(self, fault: Slow) -> None:
        way = (fault.source, fault.target)
        self._world.note("slow", *way, fault.extra_ms)
        self._ways.slow(way, fault.extra_ms)
        await asyncio.sleep(fault.for_ms / 1000)
        self._world.note("fast", *way)
        self._ways.slow(way, -fault.extra_ms)

    async def _reset(self, fault: Reset) -> None:
        self._world.note("reset", fault.source, fault.target)
        for _ in range(fault.times):
            self._world.loop.network.reset(fault.source, fault.target)
            await asyncio.sleep(RESET_EVERY_S)


def _break(disk: MemoryFiles, operation: str) -> None:
    refused = _GROWING if operation == "write" else frozenset({operation})
    is_full = operation == "write"

    def fail(done: str, path: str) -> StorageError | None:
        if done not in refused:
            return None
        return StorageError(f"cannot {done} {path}: the simulation forbids it", path=path, full=is_full)

    disk.fail = fail


def missing(world: World) -> str:
    """Return what is missing for the cluster to be whole, according to ZooKeeper; empty if nothing is."""
    nodes = world.ensemble.tree.nodes
    for machine in world.machines:
        if not machine.is_serving:
            return f"{machine.name} does not serve"
        if layout.broker_path(machine.broker_id) not in nodes:
            return f"{machine.name} is not registered"
    if layout.CONTROLLER not in nodes:
        return "there is no controller"
    if world.ensemble.tree.children(layout.DELETE_TOPICS) if layout.DELETE_TOPICS in nodes else ():
        return "the deletion of a topic is pending"
    for topic in world.ensemble.tree.children(layout.TOPICS) if layout.TOPICS in nodes else ():
        assigned = layout.TopicAssignment.decode(topic, nodes[layout.topic_path(topic)].data)
        for number, assignment in assigned.partitions.items():
            what = _lacks(world, TopicPartition(topic, number), assignment)
            if what:
                return what
    return ""


def _lacks(world: World, partition: TopicPartition, assignment: layout.ReplicaAssignment) -> str:
    if assignment.is_being_reassigned:
        return f"{partition} is being reassigned"
    node = world.ensemble.tree.nodes.get(layout.partition_state_path(partition))
    if node is None:
        return f"{partition} has no state"
    state = layout.PartitionState.decode(partition, node.data)
    if state.leader not in state.isr:
        return f"{partition} has no leader"
    if set(state.isr) != set(assignment.replicas):
        return f"{partition} has the ISR {list(state.isr)} of {list(assignment.replicas)}"
    return ""
