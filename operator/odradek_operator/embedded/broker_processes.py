"""The broker processes of an embedded cluster: started, watched, started again, stopped.

Enters: a Cluster resource and where its processes live (`layout`). Leaves: running brokers. Called by `cluster`. What a
StatefulSet's controller is for pods: a broker that ends by itself comes back, with back-off, and its log directory
with it, so that replication's recovery can be watched. A broker that was killed on purpose stays away until asked for.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from odradek_operator.crds import Cluster
from odradek_operator.embedded.backoff import BackOff
from odradek_operator.embedded.child import ChildProcess, system_error
from odradek_operator.embedded.layout import Ports, broker_directory, broker_properties, render_properties
from odradek_operator.embedded.ports import LOOPBACK
from odradek_operator.embedded.probe import is_ready
from odradek_operator.embedded.progress import Event, ProgressKind, Report
from odradek_operator.errors import EmbeddedError

_LOOK_SECONDS: Final = 0.2


@dataclass(slots=True)
class _Member:
    """One broker and what is known of its process."""

    child: ChildProcess
    held: bool = True
    """Not to be started when it ends: it was stopped or killed on purpose."""
    started_at: float = 0.0
    back_off: BackOff = field(default_factory=BackOff)
    announced: bool = False
    """Whether it was told that this process serves."""
    restart_at: float | None = None
    """When it is started again; None while it runs, or has not been found ended."""


class BrokerProcesses:
    """All brokers of one cluster, by id."""

    def __init__(self, cluster: Cluster, *, data: Path, ports: Ports, zookeeper: str, report: Report) -> None:
        """Nothing is started or written yet. `data` must be absolute."""
        self._cluster = cluster
        self._data = data
        self._ports = ports
        self._zookeeper = zookeeper
        self._report = report
        self._members: dict[int, _Member] = {}

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the brokers that run."""
        return {
            number: member.child.pid
            for number, member in self._members.items()
            if member.child.running and member.child.pid is not None
        }

    def log_paths(self) -> dict[int, Path]:
        """Where each broker's output goes."""
        return {number: member.child.log_path for number, member in self._members.items()}

    def prepare(self) -> None:
        """Write the properties of every broker. Raises `EmbeddedError`."""
        for number in range(self._cluster.brokers.replicas):
            directory = Path(broker_directory(self._data, number))
            path = directory / "server.properties"
            properties = broker_properties(
                self._cluster, number, data=self._data, ports=self._ports, zookeeper=self._zookeeper
            )
            try:
                directory.mkdir(parents=True, exist_ok=True)
                path.write_text(render_properties(properties), encoding="utf-8")
            except OSError as error:
                raise EmbeddedError(system_error(f"{path} cannot be written", error)) from error
            command = [sys.executable, "-m", "odradek.cli.main", "broker", str(path)]
            self._members[number] = _Member(ChildProcess(f"broker {number}", command, directory / "broker.log"))

    def start(self, number: int) -> None:
        """Start a broker, unless it runs. From a thread that outlives it."""
        member = self._members[number]
        if member.child.running:
            return
        member.child.start()
        member.held = False
        member.announced = False
        member.restart_at = None
        member.started_at = time.monotonic()
        self._tell(number, "started", pid=member.child.pid)

    def start_all(self) -> None:
        """Start every broker that does not run."""
        for number in self._members:
            self.start(number)

    async def wait_until_ready(self, timeout_seconds: float) -> None:
        """Return when `/readyz` of every broker that shall run answers 200.

        Raises `EmbeddedError` with the end of its log when one ended, or when the time is over.
        """
        waiting = {number for number, member in self._members.items() if not member.held}
        deadline = time.monotonic() + timeout_seconds
        while waiting:
            for number in sorted(waiting):
                child = self._members[number].child
                if await self._announce(number):
                    waiting.discard(number)
                elif not child.running:
                    raise EmbeddedError(f"Broker {number} {child.epitaph()}")
            if waiting and time.monotonic() > deadline:
                first = min(waiting)
                raise EmbeddedError(
                    f"Broker {first} was not ready within {timeout_seconds:g} s: "
                    f"see its log {self._members[first].child.log_path}."
                )
            await asyncio.sleep(_LOOK_SECONDS if waiting else 0)

    async def _announce(self, number: int) -> bool:
        """Whether a broker serves; told once of each process."""
        member = self._members[number]
        if not await is_ready(LOOPBACK, self._ports.metrics[number]):
            return False
        if not member.announced:
            member.announced = True
            self._tell(number, "ready")
        return True

    async def supervise(self) -> None:
        """Start again what ends by itself, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for number, member in self._members.items():
                if member.held:
                    continue
                if not member.child.running:
                    self._bring_back(number, member, time.monotonic())
                elif not member.announced:
                    await self._announce(number)

    def _bring_back(self, number: int, member: _Member, now: float) -> None:
        """Note that a broker has ended, or start it again once its time has come."""
        if member.restart_at is None:
            member.back_off = member.back_off.ended(now - member.started_at)
            delay = member.back_off.delay_seconds
            member.restart_at = now + delay
            code = member.child.exit_code
            self._tell(number, f"ended with {code}; it is started again in {delay:g} s", good=False, exit_code=code)
        elif now >= member.restart_at:
            try:
                self.start(number)
            except EmbeddedError as error:
                member.restart_at = now + member.back_off.delay_seconds
                self._tell(number, str(error), good=False)

    def kill(self, number: int) -> None:
        """SIGKILL; the broker stays away until `start`."""
        self._members[number].held = True
        self._members[number].child.kill()

    async def stop(self, number: int, grace_seconds: float) -> None:
        """SIGTERM, and SIGKILL after the grace; the broker stays away until `start`."""
        member = self._members[number]
        member.held = True
        if member.child.running:
            await asyncio.to_thread(member.child.stop, grace_seconds)
            self._tell(number, "stopped", exit_code=member.child.exit_code)

    async def stop_all(self, grace_seconds: float) -> None:
        """Stop every broker, the last one first; each hands its partitions over to those that are left."""
        for member in self._members.values():
            member.held = True
        for number in sorted(self._members, reverse=True):
            await self.stop(number, grace_seconds)

    def kill_all(self) -> None:
        """SIGKILL to every broker that runs."""
        for number in self._members:
            self.kill(number)

    def _tell(self, number: int, message: str, *, good: bool = True, **details: object) -> None:
        self._report(Event(ProgressKind.PROCESS, f"broker {number}", message, {"broker": number, **details}, good))
