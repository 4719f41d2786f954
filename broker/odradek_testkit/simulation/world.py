"""A cluster of production brokers in virtual time: machines with disks, a network, an ensemble, nothing else real.

A seed and the brokers' properties enter; a `World` of `Machine`s leaves, to which faults are done by its methods and
whose brokers the checkers look into. Called by `simulation.run` and by tests that need a cluster without processes.
Everything runs on one `SimulatedLoop`; what runs on a machine runs as its `Host` and dies with it. Invariant: two
worlds of equal seeds, to which equal things are done, are equal in every step.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from odradek.app.broker import Broker, BrokerState
from odradek.app.system import System
from odradek.base.config import BrokerConfig
from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.replication.partition_table import HostedPartition
from odradek.zk.port import ZkSettings
from odradek_testkit.disk import ANY_FATE, Fate, MemoryFiles
from odradek_testkit.loop import VirtualClock
from odradek_testkit.net import Host, SimulatedLoop, as_host
from odradek_testkit.workers import InlineWorkers
from odradek_testkit.zookeeper import ENSEMBLE, SimulatedEnsemble, SimulatedZk

logger = logging.getLogger(__name__)

T = TypeVar("T")

PORT: Final = 9092
CLIENTS: Final = "clients"
"""The host that everything runs on which is no broker."""

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
}
"""Time-outs short enough for a run of a minute to see them end."""


async def _at_once(function: Callable[..., T], /, *arguments: Any) -> T:
    return function(*arguments)


class _InlinePool(InlineWorkers):
    """Worker processes that are none."""

    def grow(self, count: int) -> None:
        """There is always room."""

    async def close(self) -> None:
        """There is nothing to end."""


class Machine:
    """A broker's place: a name, a disk that outlives the broker, and the broker while one runs."""

    def __init__(self, world: World, broker_id: int) -> None:
        """Switched off, with an empty disk."""
        self.broker_id: Final = broker_id
        self.name: Final = f"broker-{broker_id}"
        self.disk = MemoryFiles()
        self.broker: Broker | None = None
        self.lives = 0
        """How often it was started."""
        self._world: Final = world
        self._host: Host | None = None
        self._life: asyncio.Task[None] | None = None

    @property
    def is_on(self) -> bool:
        """Whether a broker runs, or is being started, here."""
        return self._host is not None

    @property
    def host(self) -> Host | None:
        """What its broker's process runs as; None while it is off, another one in each life."""
        return self._host

    @property
    def is_serving(self) -> bool:
        """Whether its broker serves clients."""
        return self.broker is not None and self.broker.state is BrokerState.RUNNING

    def partitions(self) -> Mapping[TopicPartition, HostedPartition]:
        """What the broker knows of its replicas; nothing while it does not serve."""
        if not self.is_serving:
            return {}
        assert self.broker is not None
        return self.broker.replicas.table.online

    def start(self) -> None:
        """Switch it on; it starts by itself, and again when it fails, until it is ended."""
        if self._host is not None:
            return
        self.lives += 1
        self._host = Host(self.name)
        self._world.note("start", self.name)
        with as_host(self._host):
            self._life = self._world.loop.create_task(self._live(), name=self.name)

    async def stop(self) -> None:
        """SIGTERM: controlled shutdown, then the end. What is left of the process afterwards is killed."""
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
        """SIGKILL: the process ends, the machine and all that was written stay."""
        if self._host is None:
            return
        self._world.note("kill", self.name)
        self._end(silently=False)
        self.disk.kill()

    def freeze(self) -> None:
        """SIGSTOP: the process stands still and holds its connections; nothing to do when it is off."""
        if self._host is not None and not self._host.is_frozen:
            self._world.note("freeze", self.name)
            self._host.freeze()

    def thaw(self) -> None:
        """SIGCONT: it goes on, and does not know for how long it stood."""
        if self._host is not None and self._host.is_frozen:
            self._world.note("thaw", self.name)
            self._host.thaw()

    def end_session(self) -> None:
        """Its ZooKeeper session expires now; it hears of that when it asks the next time."""
        credentials = None if self.broker is None else self.broker.zookeeper.credentials
        if credentials is not None:
            self._world.note("end-session", self.name)
            self._world.ensemble.end(credentials[0])

    def lose_power(self, fates: tuple[Fate, ...] = ANY_FATE) -> None:
        """The machine vanishes without a word, and what was not synced is lost, torn or kept as the seed has it."""
        self._world.note("lose-power", self.name)
        self._end(silently=True)
        self.disk.crash(self._world.chance, fates)

    def wipe(self) -> None:
        """A new, empty disk; the machine must be off."""
        if self._host is not None:
            raise RuntimeError(f"{self.name} is on: end it before its disk is taken out")
        self._world.note("wipe", self.name)
        self.disk = MemoryFiles()
        self.disk.wall_ms = self._world.clock.wall_ms

    def _end(self, *, silently: bool) -> None:
        if self._host is not None:
            self._world.loop.network.kill(self._host, silently=silently)
            self._world.bury(self._host)
        self.broker = self._life = self._host = None

    async def _live(self) -> None:
        """One process after another, as Kubernetes restarts a container that ended."""
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
            await asyncio.sleep(RESTART_SECONDS)


STOP_SECONDS: Final = 60.0
RESTART_SECONDS: Final = 1.0


class World:
    """Machines 0 to `brokers` - 1, the ensemble and the ways between them. Make it on a `SimulatedLoop`."""

    def __init__(self, seed: int, brokers: int, properties: Mapping[str, str] | None = None) -> None:
        """All machines are off. `properties` come on top of `PROPERTIES`."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SimulatedLoop):
            raise TypeError("a world needs a SimulatedLoop: run it by simulation.run")
        self.loop: Final = loop
        self.chance: Final = random.Random(seed)
        self.clock: Final = VirtualClock(seed)
        self.ensemble: Final = SimulatedEnsemble(loop.network)
        self.events: Final[list[str]] = []
        """What was done to the world and what became of it, a line each."""
        self._properties: Final = {**PROPERTIES, **(properties or {})}
        self._dead: Final[list[Host]] = []
        self._clients: Final = Host(CLIENTS)
        self.machines: Final = tuple(Machine(self, number) for number in range(brokers))
        for machine in self.machines:
            machine.disk.wall_ms = self.clock.wall_ms

    @property
    def bootstrap(self) -> str:
        """Addresses of all machines."""
        return ",".join(f"{machine.name}:{PORT}" for machine in self.machines)

    @property
    def now_ms(self) -> float:
        """Virtual milliseconds since the beginning of the run."""
        return self.clock.monotonic_ms()

    def note(self, *words: object) -> None:
        """Add a line to the trace."""
        self.events.append(f"{self.loop.time():12.4f} {' '.join(map(str, words))}")

    @contextmanager
    def as_clients(self) -> Iterator[None]:
        """What is started inside is no broker: it never dies."""
        with as_host(self._clients):
            yield

    def zookeeper(self, settings: ZkSettings | None = None) -> SimulatedZk:
        """A client of the ensemble, of the current host; `start` it."""
        return SimulatedZk(self.ensemble, settings or ZkSettings(connect=ENSEMBLE))

    def make_broker(self, machine: Machine) -> Broker:
        """A production broker on a machine's disk; called on behalf of its host."""
        clock = VirtualClock(self.chance.getrandbits(32))
        system = System(
            clock=clock,
            files=machine.disk,
            zookeeper=lambda settings, *, on_latency: SimulatedZk(self.ensemble, settings),
            workers=lambda count, *, niceness=0: _InlinePool(),
            bind=self._bind,
            run_blocking=_at_once,
        )
        properties = {
            **self._properties,
            "broker.id": str(machine.broker_id),
            "broker.rack": f"rack-{machine.broker_id % 3}",
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://{machine.name}:{PORT}",
        }
        return Broker(BrokerConfig.parse(properties)[0], properties, system)

    async def _bind(self, host: str, port: int) -> Any:
        return self.loop.network.bind(host, port)

    def bury(self, host: Host) -> None:
        """Keep a dead host, and so its tasks."""
        self._dead.append(host)
