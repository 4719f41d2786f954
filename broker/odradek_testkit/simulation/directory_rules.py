"""Checks the rules for slow and stalled log directories after each step of a run.

`play` calls `look` in runs whose machines have several directories. The rules are those of
docs/design/0008-simulation.md: a stall affects only its directory, is noticed, and is not imagined; a late job changes
no newer log. Times count only while the broker's process runs: a frozen broker can notice nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from posixpath import dirname
from typing import Final, NamedTuple

from odradek.app.broker import Broker
from odradek.base.types import TopicPartition
from odradek.replication.partition_table import HostedPartition
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.world import Machine, World

SERVED: Final = "other-directories-serve"
"""A stalled directory keeps the partitions of another directory of its broker waiting."""
NOTICED: Final = "stalls-are-noticed"
"""A directory that does not answer is still online long after the timeout."""
NEEDLESS: Final = "answering-directories-stay-online"
"""A directory went offline although its disk answers."""
LATE: Final = "late-jobs-change-nothing"
"""A job changed the files of a log that was created after the job was submitted."""

SERVED_WITHIN_MS: Final = 6_000.0
"""A record is replicated to a healthy ISR within this time: longer than the backoffs of fetchers and connections."""
NOTICED_WITHIN_MS: Final = 3_000.0
"""Time beyond the timeout and the interval of the checks until a stalled directory is offline."""


class _Pending(NamedTuple):
    """The records of a leader that its ISR does not have yet: its state, its log end, and since when they wait."""

    state: tuple[object, ...]
    end: int
    since_ms: float


@dataclass(slots=True)
class _Watched:
    """A machine between two starts of its broker."""

    machine: Machine
    broker: Broker | None = None
    offline: frozenset[str] = frozenset()
    stalled_ms: dict[str, float] = field(default_factory=dict)
    """For how long directories have been stalled while the broker ran."""
    ended_ms: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When the last stall of a directory ended, and how long it was."""
    stalled_before: set[str] = field(default_factory=set)
    """Directories whose stall began before the broker served clients: it has waited for them longer than observed."""
    failed_ms: float = -inf
    """When an operation of the disk was last made to fail."""
    was_awake: bool = False
    pending: dict[TopicPartition, _Pending] = field(default_factory=dict)

    def renew(self, broker: Broker | None) -> None:
        """Forget everything, because the broker was restarted or stops."""
        self.broker, self.was_awake = broker, False
        self.offline = frozenset() if broker is None else frozenset(broker.logs.offline_directories)
        disks = self.machine.disks.by_path
        self.stalled_before = {path for path, disk in disks.items() if disk.is_stalled}
        self.stalled_ms.clear()
        self.ended_ms.clear()
        self.pending.clear()
        self.failed_ms = -inf


class DirectoryRules:
    """Checks the rules, and stores for how long directories are stalled and records are waiting."""

    def __init__(self, world: World) -> None:
        """Start without observations."""
        self._world: Final = world
        self._timeout_ms: Final = world.number("log.dir.stall.timeout.ms")
        self._check_ms: Final = world.number("log.dir.check.interval.ms")
        self._watched: Final = {machine.broker_id: _Watched(machine) for machine in world.machines}
        self._looked_ms = world.now_ms

    def look(self) -> None:
        """Check everything. Raises `Violation`."""
        now_ms = self._world.now_ms
        elapsed_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        for watched in self._watched.values():
            machine = watched.machine
            for change in machine.disks.late_changes:
                raise Violation(LATE, f"on {machine.name}: {change}")
            broker = machine.broker if machine.is_serving else None
            if broker is not watched.broker:
                watched.renew(broker)
            if broker is None or not self._timeout_ms:
                continue
            self._count(watched, now_ms, elapsed_ms if watched.was_awake else 0.0)
            self._check_offline(watched, broker, now_ms)
            watched.was_awake = machine.host is not None and not machine.host.is_frozen
            if watched.was_awake and watched.stalled_ms:
                self._check_noticed(watched)
                self._check_served(watched, now_ms)
            else:
                watched.pending.clear()

    @staticmethod
    def _count(watched: _Watched, now_ms: float, elapsed_ms: float) -> None:
        if watched.machine.disk.fail is not None:
            watched.failed_ms = now_ms
        for path, disk in watched.machine.disks.by_path.items():
            if disk.is_stalled:
                watched.stalled_ms[path] = watched.stalled_ms.get(path, 0.0) + elapsed_ms
            elif path in watched.stalled_ms:
                watched.ended_ms[path] = (now_ms, watched.stalled_ms.pop(path) + elapsed_ms)
            elif now_ms - watched.ended_ms.get(path, (-inf, 0.0))[0] >= _SOON_MS:
                watched.stalled_before.discard(path)

    # Offline

    def _check_offline(self, watched: _Watched, broker: Broker, now_ms: float) -> None:
        offline = broker.logs.offline_directories
        if len(offline) == len(watched.offline):
            return
        for path in sorted({*offline} - watched.offline):
            ended_ms, lasted_ms = watched.ended_ms.get(path, (-inf, 0.0))
            stalled_ms = watched.stalled_ms.get(path, lasted_ms if now_ms - ended_ms < _SOON_MS else 0.0)
            has_failed = now_ms - watched.failed_ms < _SOON_MS
            if stalled_ms < self._timeout_ms / 2 and not has_failed and path not in watched.stalled_before:
                what = f"{path} of {watched.machine.name} went offline after a stall of {stalled_ms:.0f} ms"
                raise Violation(NEEDLESS, f"{what}, and the timeout is {self._timeout_ms:.0f} ms")
        watched.offline = frozenset(offline)

    def _check_noticed(self, watched: _Watched) -> None:
        for path, stalled_ms in watched.stalled_ms.items():
            limit_ms = self._timeout_ms + self._check_ms + NOTICED_WITHIN_MS
            if path not in watched.offline and stalled_ms > limit_ms:
                what = f"{path} of {watched.machine.name} has not answered for {stalled_ms:.0f} ms"
                raise Violation(NOTICED, f"{what} and is online")

    # The other directories

    def _check_served(self, watched: _Watched, now_ms: float) -> None:
        pending = watched.pending
        for topic_partition, led in watched.machine.partitions().items():
            log = led.log
            if log.high_watermark >= log.log_end_offset or not self._is_healthy(watched, led):
                pending.pop(topic_partition, None)
                continue
            state = (led, led.leader_epoch, led.in_sync)
            before = pending.get(topic_partition)
            if before is None or before.state != state or log.high_watermark >= before.end:
                pending[topic_partition] = _Pending(state, log.log_end_offset, now_ms)
            elif now_ms - before.since_ms > SERVED_WITHIN_MS:
                what = f"{topic_partition} in {dirname(log.directory)} of {watched.machine.name} waits at"
                stalled = " and ".join(watched.stalled_ms)
                raise Violation(SERVED, f"{what} {log.high_watermark} of {before.end} while {stalled} is stalled")

    def _is_healthy(self, watched: _Watched, led: HostedPartition) -> bool:
        """Whether a leader and its ISR are able to replicate and sync records without delay."""
        if not led.is_leader or led.in_sync.is_pending or len(led.in_sync.committed) < led.min_in_sync:
            return False
        return all(self._is_able(watched.machine, led, member) for member in led.in_sync.maximal)

    def _is_able(self, leader: Machine, led: HostedPartition, member: int) -> bool:
        watched = self._watched.get(member)
        other = None if watched is None else watched.machine.partitions().get(led.topic_partition)
        if watched is None or other is None:
            return False
        machine, network = watched.machine, self._world.loop.network
        if other.leader_id != led.local_id or other.leader_epoch != led.leader_epoch:
            return False
        if machine.host is None or machine.host.is_frozen or machine.disk.fail is not None:
            return False
        disk = machine.disks.by_path.get(dirname(other.log.directory))
        if disk is None or not disk.is_healthy:
            return False
        return network.is_clear(leader.name, machine.name) and network.is_clear(machine.name, leader.name)


_SOON_MS: Final = 1_000.0
"""A directory may go offline this long after the stall or the failure that caused it."""
