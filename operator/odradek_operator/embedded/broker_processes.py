"""Starts, observes, restarts and stops the broker processes of an embedded cluster.

`cluster_reconciler` decides when. A broker that ends by itself is started again after a back-off, as a StatefulSet's
controller restarts pods. A broker that was stopped or killed on purpose stays down until `start`.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from odradek_operator.crds import Cluster
from odradek_operator.embedded.child import BackOff, ChildProcess, system_error
from odradek_operator.embedded.layout import (
    BrokerProperties,
    ServedListeners,
    Site,
    broker_directory,
    broker_properties,
    render_properties,
    volume_ids,
)
from odradek_operator.embedded.observed_processes import ObservedBroker
from odradek_operator.embedded.ports import LOOPBACK, check_ports
from odradek_operator.embedded.probe import is_ready
from odradek_operator.embedded.progress import Event, ProgressKind, Report
from odradek_operator.errors import EmbeddedError
from odradek_operator.lifecycle.dynamic_listeners import BrokerListeners, needs_restart
from odradek_operator.topics.zookeeper_state import Snapshot

_POLL_SECONDS: Final = 0.2
_VOLUME: Final = re.compile(r"volume-(0|[1-9][0-9]*)")
_REPLICA: Final = re.compile(r".+-[0-9]+")
"""Name of the folder of a replica. Folders of deleted ones have a further suffix."""


@dataclass(slots=True)
class _Member:
    """One broker and the state of its process."""

    child: ChildProcess
    held: bool = False
    """Whether it was stopped or killed on purpose and must not be started again."""
    started: BrokerProperties | None = None
    """The properties of its last process."""
    started_at: float = 0.0
    back_off: BackOff = field(default_factory=BackOff)
    announced: bool = False
    """Whether this process has been reported as ready."""
    planned: bool = False
    """Whether we have started or stopped it, and it is not ready since."""
    restart_at: float | None = None
    """When it is to be started; None while it runs, or if it is not known yet that it has ended."""
    problem: str = ""
    """Why it could not be started."""


class BrokerProcesses:
    """The brokers of one cluster, by id. `start` and `add` must be called from a thread that outlives them."""

    def __init__(self, site: Site, report: Report, *, restart: bool = True, grace_seconds: float) -> None:
        """Starts nothing. `follow` must be called before `add`.

        `restart`: whether a broker that ends by itself is started again. `grace_seconds`: from SIGTERM to SIGKILL.
        """
        self._site = site
        self._report = report
        self._restart = restart
        self._grace_seconds = grace_seconds
        self._cluster: Cluster | None = None
        self._listeners: ServedListeners | None = None
        self._members: dict[int, _Member] = {}

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the brokers that run."""
        return {
            number: member.child.pid
            for number, member in self._members.items()
            if member.child.running and member.child.pid is not None
        }

    @property
    def ids(self) -> list[int]:
        """Ids of all brokers, running or not."""
        return sorted(self._members)

    @property
    def starting(self) -> frozenset[int]:
        """Ids of the brokers that are being started or restarted on purpose."""
        return frozenset(number for number, member in self._members.items() if member.planned)

    def log_paths(self) -> dict[int, Path]:
        """Return the file of each broker's output."""
        return {number: member.child.log_path for number, member in self._members.items()}

    # Specification

    def follow(self, cluster: Cluster, listeners: ServedListeners) -> None:
        """Use this specification at every start from now on."""
        self._cluster, self._listeners = cluster, listeners

    def wanted(self, number: int) -> BrokerProperties:
        """Return the properties with which a broker would start now."""
        cluster, listeners = self._specification()
        return broker_properties(
            cluster, number, self._site, further=listeners.further, kept_volumes=self.kept_volumes(number)
        )

    def _specification(self) -> tuple[Cluster, ServedListeners]:
        assert self._cluster is not None, "a specification is given before brokers are added"
        assert self._listeners is not None, "it is given together with the cluster"
        return self._cluster, self._listeners

    def kept_volumes(self, number: int) -> list[int]:
        """Return the volumes of a broker that are no longer in the resource, but hold replicas."""
        cluster, _ = self._specification()
        wanted = volume_ids(cluster)
        return [volume for volume, path in _volumes(self._directory(number)) if volume not in wanted and _is_used(path)]

    def stored(self) -> list[int]:
        """Return the ids of the brokers that have a volume in the data folder, running or not."""
        folders = Path(self._site.data).glob("broker-*")
        numbers = [folder.name.removeprefix("broker-") for folder in folders if _volumes(folder)]
        return sorted(int(number) for number in numbers if number.isdecimal())

    def _directory(self, number: int) -> Path:
        return Path(broker_directory(self._site.data, number))

    # Processes

    def add(self, number: int) -> None:
        """Add a broker. `supervise` starts it, and tries again while one of its ports is in use."""
        directory = self._directory(number)
        command = [sys.executable, "-m", "odradek.cli.main", "broker", str(directory / "server.properties")]
        child = ChildProcess(f"broker {number}", command, directory / "broker.log")
        self._members[number] = _Member(child, planned=True, restart_at=0.0)

    def start(self, number: int) -> None:
        """Write the properties of a broker and start it, unless it runs. Raises `EmbeddedError`."""
        member = self._members[number]
        if member.child.running:
            return
        _, listeners = self._specification()
        if member.started is None:
            # Later, a broker that was killed may still hold its ports for a moment.
            check_ports([*self._site.ports.uses_of_broker(number), *listeners.uses_of_broker(number)])
        properties = self.wanted(number)
        path = self._directory(number) / "server.properties"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(render_properties(properties.file), encoding="utf-8")
        except OSError as error:
            raise EmbeddedError(system_error(f"{path} cannot be written", error)) from error
        member.child.start()
        member.started = properties
        member.started_at = time.monotonic()
        member.held = member.announced = False
        member.restart_at = None
        member.problem = ""
        self._tell(number, "started", pid=member.child.pid)

    async def restart(self, number: int, before_start: Callable[[], Awaitable[None]]) -> None:
        """Stop a broker and start it with its current properties. `before_start` is called in between.

        If it cannot be started, the problem is reported, and `supervise` tries again.
        """
        member = self._members[number]
        member.planned = True
        await self.stop(number, self._grace_seconds)
        await before_start()
        member.held = False
        self._try_start(number, member)

    async def remove(self, number: int) -> None:
        """Stop a broker and forget it. Its folder stays."""
        await self.stop(number, self._grace_seconds)
        del self._members[number]

    async def wait_until_ready(self, timeout_seconds: float) -> None:
        """Return when `/readyz` of every broker that is not held answers 200.

        Raises `EmbeddedError` with the end of its log if one has ended, or after the timeout.
        """
        waiting = {number for number, member in self._members.items() if not member.held}
        deadline = time.monotonic() + timeout_seconds
        while waiting:
            for number in sorted(waiting):
                child = self._members[number].child
                if await self._announce(number):
                    waiting.discard(number)
                elif not child.running:
                    raise EmbeddedError(f"Broker {number} {child.how_it_ended()}")
            if waiting and time.monotonic() > deadline:
                first = min(waiting)
                raise EmbeddedError(
                    f"Broker {first} was not ready within {timeout_seconds:g} s: "
                    f"see its log {self._members[first].child.log_path}."
                )
            await asyncio.sleep(_POLL_SECONDS if waiting else 0)

    async def _probe(self, number: int) -> bool:
        return self._members[number].child.running and await is_ready(LOOPBACK, self._site.ports.broker_metrics(number))

    async def _announce(self, number: int) -> bool:
        """Whether a broker is ready. The first time, this is reported."""
        ready = await self._probe(number)
        member = self._members.get(number)
        if not ready or member is None:
            return False
        if not member.announced:
            member.announced = True
            member.planned = False
            self._tell(number, "ready")
        return True

    async def observe(self, snapshot: Snapshot) -> list[ObservedBroker]:
        """Return the state of each broker. Readiness is probed while a broker has to restart."""
        changed = {number: self._changed(number, member, snapshot) for number, member in self._members.items()}
        probed = [number for number, member in self._members.items() if not member.announced or any(changed.values())]
        answers = dict(zip(probed, await asyncio.gather(*map(self._announce, probed)), strict=True))
        return [
            ObservedBroker(
                broker=number,
                process=member.child.pid if member.child.running else None,
                ready=member.child.running and answers.get(number, member.announced),
                changed=changed[number],
                trouble=self._trouble(member),
                listeners=self._listeners_of(number, member),
            )
            for number, member in self._members.items()
        ]

    def _changed(self, number: int, member: _Member, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the names of changed properties that take a restart of the running process."""
        if member.started is None or not member.child.running:
            return ()
        before, after = member.started.static, self.wanted(number).static
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        listeners = self._listeners_of(number, member)
        if listeners is not None and needs_restart(listeners, snapshot):
            changed.add("listeners")
        return tuple(sorted(changed))

    def _listeners_of(self, number: int, member: _Member) -> BrokerListeners | None:
        if member.started is None or not member.child.running:
            return None
        wanted = self.wanted(number).listeners
        return BrokerListeners(broker=number, started=member.started.listeners, wanted=wanted)

    @staticmethod
    def _trouble(member: _Member) -> str:
        if member.child.running or member.problem:
            return member.problem
        return "It was stopped." if member.held else "Its process has ended."

    async def supervise(self) -> None:
        """Start brokers that were added or have ended by themselves, until cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            for number, member in list(self._members.items()):
                if member.held or number not in self._members:
                    continue
                if member.child.running:
                    if not member.announced:
                        await self._announce(number)
                elif member.restart_at is not None:
                    if time.monotonic() >= member.restart_at:
                        self._try_start(number, member)
                elif self._restart:
                    self._note_end(number, member)

    def _note_end(self, number: int, member: _Member) -> None:
        now = time.monotonic()
        member.back_off = member.back_off.ended(now - member.started_at)
        member.planned = False
        delay = member.back_off.delay_seconds
        member.restart_at = now + delay
        message = f"{member.child.how_it_ended()} It is started again in {delay:g} s."
        self._tell(number, message, good=False, exit_code=member.child.exit_code)

    def _try_start(self, number: int, member: _Member) -> None:
        try:
            self.start(number)
        except EmbeddedError as error:
            member.back_off = member.back_off.ended(0.0)
            member.restart_at = time.monotonic() + member.back_off.delay_seconds
            member.planned = False
            if member.problem != str(error):
                member.problem = str(error)
                self._tell(number, f"cannot be started, and is tried again: {error}", good=False)

    def kill(self, number: int) -> None:
        """Send SIGKILL. The broker stays down until `start`."""
        self._members[number].held = True
        self._members[number].child.kill()

    async def stop(self, number: int, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. The broker stays down until `start`.

        Returns when the process has ended, also when this is cancelled.
        """
        member = self._members[number]
        member.held = True
        if not member.child.running:
            return
        ending = asyncio.ensure_future(asyncio.to_thread(member.child.stop, grace_seconds))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            # A child process must not be used by two threads at once, and the code that cancels us stops it next.
            await ending
            raise
        finally:
            self._tell(number, "stopped", exit_code=member.child.exit_code)

    async def stop_all(self, grace_seconds: float) -> None:
        """Stop every broker, the last one first. Each moves its leaderships to the brokers that still run."""
        for member in self._members.values():
            member.held = True
        for number in sorted(self._members, reverse=True):
            await self.stop(number, grace_seconds)

    def kill_all(self) -> None:
        """Send SIGKILL to every broker that runs."""
        for number in self._members:
            self.kill(number)

    def _tell(self, number: int, message: str, *, good: bool = True, **details: object) -> None:
        self._report(Event(ProgressKind.PROCESS, f"broker {number}", message, {"broker": number, **details}, good))


def _volumes(folder: Path) -> list[tuple[int, Path]]:
    """Return the ids and paths of the volumes in a broker's folder, by id."""
    if not folder.is_dir():
        return []
    found = [(match, path) for path in folder.iterdir() if (match := _VOLUME.fullmatch(path.name)) and path.is_dir()]
    return sorted((int(match.group(1)), path) for match, path in found)


def _is_used(volume: Path) -> bool:
    """Whether a volume holds replicas."""
    return any(_REPLICA.fullmatch(path.name) and path.is_dir() for path in volume.iterdir())
