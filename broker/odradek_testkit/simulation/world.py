"""A cluster of production brokers in virtual time, with simulated machines, disks, network and ensemble.

A `World` has `Machine`s, whose methods inject faults and whose brokers the checkers inspect. `play` uses it, and so do
tests that need a cluster without processes. Everything runs on one `SimulatedLoop`; the broker of a machine runs on its
`Host` and dies with it. Invariant: two worlds with equal seeds and equal faults are equal in every step.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from odradek.app.broker import Broker, BrokerState
from odradek.app.system import System
from odradek.base.config import BrokerConfig
from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.replication.partition_table import HostedPartition
from odradek.zk.port import ZkSettings
from odradek_testkit.disk import ANY_FATE, Fate, MemoryFiles
from odradek_testkit.inline_ports import InlineWorkers
from odradek_testkit.loop import VirtualClock
from odradek_testkit.net import Host, SimulatedLoop, as_host
from odradek_testkit.simulation.disk_jobs import DirectoryDisks
from odradek_testkit.zookeeper import ENSEMBLE, SimulatedEnsemble, SimulatedZk

logger = logging.getLogger(__name__)

PORT: Final = 9092
CLIENTS: Final = "clients"
"""The host of everything that is not a broker."""

PROPERTIES: Final[Mapping[str, str]] = {
    "zookeeper.connect": f"{ENSEMBLE}:2181",
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "30000",
    "replica.lag.time.max.ms": "5000",
    "request.timeout.ms": "10000",
    "metrics.port": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "log.index.size.max.bytes": "65536",
    "process.supervision.enable": "false",
    "log.dir.check.interval.ms": "0",
    "log.dir.slow.ms": "0",
    "log.dir.stall.timeout.ms": "0",
}
"""Settings with timeouts that are short enough to expire in a run of a minute."""


class _InlinePool(InlineWorkers):
    """`Workers` without processes."""

    def grow(self, count: int) -> None:
        """Do nothing: the number of calls is not limited."""

    async def close(self) -> None:
        """Do nothing: there are no processes."""


class Machine:
    """The machine of a broker: a name, a disk that outlives the broker, and the broker while it runs."""

    def __init__(self, world: World, broker_id: int) -> None:
        """Create a machine that is off and has an empty disk."""
        self.broker_id: Final = broker_id
        self.name: Final = f"broker-{broker_id}"
        self._cold_chance: Final = random.Random(f"cold-{world.seed}-{broker_id}")
        self.disk = self._empty_disk(world)
        self.broker: Broker | None = None
        self.lives = 0
        """Number of starts."""
        self._world: Final = world
        # Independent of the other random numbers of the run, so that the number of flushes does not change those.
        flush_chance = random.Random(f"sync-{world.seed}-{broker_id}")
        self.disks: Final = DirectoryDisks(
            world.log_directories,
            flush_chance=flush_chance if world.slow_syncs else None,
            read_chance=random.Random(f"read-{world.seed}-{broker_id}") if world.cold_share else None,
            fault_chance=random.Random(f"disk-{world.seed}-{broker_id}"),
            process=lambda: self._process,
            files=lambda: self.disk,
            logs=self._logs,
        )
        self._process = object()
        """Identifies the process, of which a host has several if the broker fails and is restarted."""
        self._host: Host | None = None
        self._life: asyncio.Task[None] | None = None

    def _empty_disk(self, world: World) -> MemoryFiles:
        disk = MemoryFiles()
        disk.wall_ms = world.clock.wall_ms
        disk.remote = "nfs4" if world.are_disks_remote else None
        if world.cold_share:
            disk.is_cold = lambda: self._cold_chance.random() < world.cold_share
        return disk

    @property
    def is_on(self) -> bool:
        """Whether a broker runs or is being started."""
        return self._host is not None

    @property
    def host(self) -> Host | None:
        """The host of the broker's process: a new one for each start, None while the machine is off."""
        return self._host

    @property
    def is_serving(self) -> bool:
        """Whether the broker serves clients."""
        return self.broker is not None and self.broker.state is BrokerState.RUNNING

    def partitions(self) -> Mapping[TopicPartition, HostedPartition]:
        """The broker's replicas; empty while it does not serve."""
        if not self.is_serving:
            return {}
        assert self.broker is not None
        return self.broker.replicas.table.online

    def _logs(self) -> Mapping[str, PartitionLog]:
        return {} if self.broker is None else {log.directory: log for log in self.broker.logs.logs()}

    @property
    def offline_directories(self) -> tuple[str, ...]:
        """The log directories that the broker has taken offline, also while it starts; none while it is off."""
        broker = self.broker
        if broker is None or broker.state not in (BrokerState.RECOVERING, BrokerState.RUNNING):
            return ()
        return broker.logs.offline_directories

    def start(self) -> None:
        """Start the broker, and restart it whenever it fails, until the machine is stopped."""
        if self._host is not None:
            return
        self.lives += 1
        self._host = Host(self.name)
        self._world.note("start", self.name)
        with as_host(self._host):
            self._life = self._world.loop.create_task(self._live(), name=self.name)

    async def stop(self) -> None:
        """Send SIGTERM: a controlled shutdown. Kills what is left of the process afterwards."""
        broker, life, host = self.broker, self._life, self._host
        self._world.note("stop", self.name)
        if broker is not None and life is not None and host is not None:
            with as_host(host):
                closing = self._world.loop.create_task(self._close(broker))
            await asyncio.wait([closing], timeout=STOP_SECONDS)
        if self._host is not host:
            return  # killed meanwhile, and perhaps started again
        self._end(silently=False)
        self.disk.kill()

    async def _close(self, broker: Broker) -> None:
        await broker.stop()

    def kill(self) -> None:
        """Send SIGKILL: the process ends, but all written data is kept."""
        if self._host is None:
            return
        self._world.note("kill", self.name)
        self._end(silently=False)
        self.disk.kill()

    def freeze(self) -> None:
        """Send SIGSTOP: the process stops running but keeps its connections. Does nothing if the machine is off."""
        if self._host is not None and not self._host.is_frozen:
            self._world.note("freeze", self.name)
            self._host.freeze()

    def thaw(self) -> None:
        """Send SIGCONT: the process continues without knowing how long it was stopped."""
        if self._host is not None and self._host.is_frozen:
            self._world.note("thaw", self.name)
            self._host.thaw()

    def end_session(self) -> None:
        """Expire the ZooKeeper session of the broker, which learns of it with its next request."""
        credentials = None if self.broker is None else self.broker.zookeeper.credentials
        if credentials is not None:
            self._world.note("end-session", self.name)
            self._world.ensemble.end(credentials[0])

    def lose_power(self, fates: tuple[Fate, ...] = ANY_FATE) -> None:
        """Cut the power: the machine vanishes; the seed decides whether each unsynced write is lost, torn or kept."""
        self._world.note("lose-power", self.name)
        self._end(silently=True)
        self.disk.crash(self._world.chance, fates)

    def wipe(self) -> None:
        """Replace the disk with an empty one. The machine must be off."""
        if self._host is not None:
            raise RuntimeError(f"{self.name} is on: stop it before its disk is replaced")
        self._world.note("wipe", self.name)
        self.disk = self._empty_disk(self._world)

    def _end(self, *, silently: bool) -> None:
        if self._host is not None:
            self._world.loop.network.kill(self._host, silently=silently)
            self._world.discard(self._host)
        self.broker = self._life = self._host = None

    async def _live(self) -> None:
        """Run one process after another, as Kubernetes restarts an ended container."""
        while True:
            broker = self.broker = self._world.make_broker(self)
            try:
                await broker.start()
                reason = await broker.failed
                self._world.note("failed", self.name, reason)
                await broker.stop()
            except OdradekError as error:
                self._world.note("cannot-start", self.name, str(error))
            self.disk.kill()
            self._process = object()
            await asyncio.sleep(RESTART_SECONDS)


_NEVER: Final = 1 << 62
"""More requests than a broker gets."""
STOP_SECONDS: Final = 60.0
RESTART_SECONDS: Final = 1.0


class World:
    """Machines 0 to `brokers` - 1, the ensemble and the network between them. Create it on a `SimulatedLoop`."""

    def __init__(
        self,
        seed: int,
        brokers: int,
        properties: Mapping[str, str] | None = None,
        *,
        slow_syncs: bool = False,
        directories: int = 1,
        are_disks_remote: bool = False,
        cold_share: float = 0.0,
        small_requests: bool = False,
    ) -> None:
        """All machines are off. `properties` extend `PROPERTIES`. `slow_syncs`: flushes of logs take virtual time.

        `directories`: number of log directories of each machine. `are_disks_remote`: threads write all records.
        `cold_share`: share of the reads of records that find nothing in memory and take virtual time on a thread.
        `small_requests`: no Produce request is timed, so that small ones are handled together from the first one.
        """
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SimulatedLoop):
            raise TypeError("a world needs a SimulatedLoop: run it with simulation.run")
        self.loop: Final = loop
        self.seed: Final = seed
        self.slow_syncs: Final = slow_syncs
        self.are_disks_remote: Final = are_disks_remote
        self.cold_share: Final = cold_share
        self._small_requests: Final = small_requests
        self.log_directories: Final = (
            ("/data",) if directories == 1 else tuple(f"/data-{number}" for number in range(directories))
        )
        self.chance: Final = random.Random(seed)
        self.clock: Final = VirtualClock(seed)
        self.ensemble: Final = SimulatedEnsemble(loop.network)
        self.events: Final[list[str]] = []
        """Faults and their effects, one per line."""
        self._properties: Final = {**PROPERTIES, **(properties or {})}
        self.syncs_everything: Final = self._properties.get("log.flush.interval.messages") == "1"
        """Whether all records are synced before they count, also those of a topic whose settings are not known yet."""
        self._dead: Final[list[Host]] = []
        self._clients: Final = Host(CLIENTS)
        self.machines: Final = tuple(Machine(self, number) for number in range(brokers))

    @property
    def bootstrap(self) -> str:
        """The addresses of all machines."""
        return ",".join(f"{machine.name}:{PORT}" for machine in self.machines)

    @property
    def now_ms(self) -> float:
        """Virtual milliseconds since the start of the run."""
        return self.clock.monotonic_ms()

    def number(self, name: str) -> int:
        """Return a numeric setting of all brokers. It must be one of `PROPERTIES` or of the given properties."""
        return int(self._properties[name])

    def note(self, *words: object) -> None:
        """Add a line to the trace."""
        self.events.append(f"{self.loop.time():12.4f} {' '.join(map(str, words))}")

    @contextmanager
    def as_clients(self) -> Iterator[None]:
        """Run what the block starts on the host of the clients, which never dies."""
        with as_host(self._clients):
            yield

    def zookeeper(self, settings: ZkSettings | None = None) -> SimulatedZk:
        """Return a client of the ensemble for the current host; the caller starts it."""
        return SimulatedZk(self.ensemble, settings or ZkSettings(connect=ENSEMBLE))

    def make_broker(self, machine: Machine) -> Broker:
        """Return a production broker on a machine's disk; call it on behalf of its host."""
        clock = VirtualClock(self.chance.getrandbits(32))
        system = System(
            clock=clock,
            files=machine.disk,
            zookeeper=lambda settings, *, on_latency: SimulatedZk(self.ensemble, settings),
            workers=lambda count, *, niceness=0: _InlinePool(),
            bind=self._bind,
            disk_threads=machine.disks.threads,
        )
        properties = {
            **self._properties,
            "broker.id": str(machine.broker_id),
            "broker.rack": f"rack-{machine.broker_id % 3}",
            "log.dirs": ",".join(self.log_directories),
            "listeners": f"PLAINTEXT://{machine.name}:{PORT}",
        }
        broker = Broker(BrokerConfig.parse(properties)[0], properties, system)
        if self._small_requests:
            broker.request_stats.times_of("Produce").countdown = _NEVER
        return broker

    async def _bind(self, host: str, port: int) -> Any:
        return self.loop.network.bind(host, port)

    def discard(self, host: Host) -> None:
        """Keep a reference to a dead host and thereby to its tasks."""
        self._dead.append(host)
