"""Runs a fault run from start to end: cluster, load, faults, recovery, and the checks afterwards.

Takes `Settings`, and returns a `Report` or raises the `OdradekError` that ended the run early. `command` and the test
call it. Each wait has a deadline, the load has a rate, and the run has a maximum of minutes or rounds. Closing ends
every process, also after an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from odradek.base.errors import OdradekError
from ordeal import replicas
from ordeal.arena import BROKERS, TOPIC, Arena
from ordeal.clients.calling import Client
from ordeal.figures import Outcome, missed
from ordeal.gaps import longest_gaps
from ordeal.kinds import Fault, Kind, Timeouts
from ordeal.plan import TOGETHER, Draw, Episode, episodes
from ordeal.records import ACK, Acks, read_acks
from ordeal.sightings import Sightings
from ordeal.watching import Watch

REQUEST_TIMEOUT_MS: Final = 3_000
"""Request timeout of the clients, with which they notice a paused broker. Kafka's default is ten times as long."""

HEAL_SECONDS: Final = 180.0
_END_SECONDS: Final = 600.0
_QUIET_SECONDS: Final = 2.0
_AFTER_SECONDS: Final = 0.5
"""Time in which the acknowledgements of an episode are written to the ledgers."""
_LOOK_SECONDS: Final = 0.05
_ELECT_SECONDS: Final = 5.0
_FRESH_SECONDS: Final = 1.0
"""Maximum age of a response of a broker."""
_OTHER_CLIENT: Final = 5
"""librdkafka writes to one of this number of partitions. It sends a request for each partition, and an idempotent
producer has at most five in flight. With many partitions, the delay of its queue would be measured."""

_NEVER: Final = threading.Event()
"""Faults begin and end at their times, and the run waits in between. The load continues."""


class NotWholeError(OdradekError):
    """The cluster did not recover in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run."""

    seed: int = 0
    minutes: float = 30.0
    rounds: int | None = None
    """Maximum number of rounds of all kinds, even if there is time left."""
    partitions: int = 50
    rate: float = 20.0
    """Records per second for each partition."""
    session_ms: float = 6_000.0
    hang_ms: float = 5_000.0
    kinds: tuple[Kind, ...] = tuple(Kind)
    together: float = TOGETHER
    heal_seconds: float = HEAL_SECONDS
    """Time in which all replicas must be in sync again after each episode."""

    @property
    def timeouts(self) -> Timeouts:
        """The settings that determine maximum durations."""
        return Timeouts(session_ms=self.session_ms, hang_ms=self.hang_ms)


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of a run."""

    settings: Settings
    outcomes: list[Outcome] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Violations. Must be empty."""
    missed: list[str] = field(default_factory=list)
    """Goals for times that were missed."""
    sent: int = 0
    acknowledged: int = 0
    read_back: int = 0
    followed: int = 0
    late_ms: float = 0.0
    """The maximum delay that a load process caused by itself. Shorter times cannot be measured."""
    seconds: float = 0.0


Progress = Callable[[float, str], None]
"""Called with the seconds since the first fault and a description of the current step."""


def run(settings: Settings, directory: Path, progress: Progress) -> Report:
    """Run. All files are written below `directory`, which the caller removes or keeps."""
    report = Report(settings=settings)
    with ExitStack() as everything:
        arena = everything.enter_context(Arena(directory, partitions=settings.partitions, timeouts=settings.timeouts))
        watch = everything.enter_context(Watch(arena.addresses, TOPIC, settings.partitions))
        clients = everything.enter_context(_clients(arena, settings, directory))
        ordeal = _Ordeal(settings, arena, watch, clients, progress)
        ordeal.play(report)
        ordeal.finish(report, directory)
        volumes = {broker: arena.volume(broker) for broker in range(BROKERS)}
    progress(report.seconds, "comparing the replicas")
    report.broken += replicas.differences(volumes, TOPIC, settings.partitions)
    report.broken += replicas.damages(volumes)
    report.missed += [message for outcome in report.outcomes if (message := missed(outcome, settings.timeouts))]
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clients:
    """The client processes."""

    loads: tuple[Client, ...]
    ledgers: tuple[Path, ...]
    follower: Client
    common: dict[str, Any]


@contextmanager
def _clients(arena: Arena, settings: Settings, directory: Path) -> Iterator[_Clients]:
    common = {
        "bootstrap": arena.cluster.bootstrap,
        "topic": TOPIC,
        "partitions": settings.partitions,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "rate": settings.rate,
    }
    loads, ledgers = [], []
    everything = range(settings.partitions)
    others = everything[1::_OTHER_CLIENT]
    for module, own in (("ours", sorted(set(everything) - set(others))), ("librdkafka", list(others))):
        ledger = directory / f"{module}.acks"
        loads.append(Client(module, directory, module, {**common, "partitions": own, "ledger": str(ledger)}))
        ledgers.append(ledger)
    follower = Client("following", directory, "following", common)
    started = [*loads, follower]
    try:
        for client in started:
            client.start()
        yield _Clients(loads=tuple(loads), ledgers=tuple(ledgers), follower=follower, common=common)
    finally:
        for client in started:
            client.kill()


class _Ordeal:
    """The state of a run."""

    def __init__(self, settings: Settings, arena: Arena, watch: Watch, clients: _Clients, progress: Progress) -> None:
        self._settings = settings
        self._arena = arena
        self._watch = watch
        self._clients = clients
        self._progress = progress
        self._began = time.monotonic()
        self._places = dict.fromkeys(clients.ledgers, 0)
        """Number of entries of each ledger that were read."""
        self._loaded: set[int] = set()
        """Partitions with at least one acknowledgement."""
        self._doing = ""
        self._elected = "there was none"

    def play(self, report: Report) -> None:
        """All episodes."""
        settings = self._settings
        self._doing = "waiting for the load"
        self._until(self._is_loaded, "the load on every partition")
        draw = Draw(
            seed=settings.seed,
            brokers=BROKERS,
            session_ms=settings.session_ms,
            kinds=settings.kinds,
            together=settings.together,
        )
        most = None if settings.rounds is None else settings.rounds * len(settings.kinds)
        self._began = time.monotonic()
        for episode in episodes(draw):
            over = self._now() >= settings.minutes * 60 or (most is not None and episode.number > most)
            if over:
                break
            try:
                report.outcomes.append(self._episode(episode))
            except NotWholeError as error:
                # Acknowledged records must exist nevertheless, and the measurements are valid.
                report.broken.append(f"episode {episode.number}: {error}")
                break
        report.seconds = self._now()

    def _now(self) -> float:
        return time.monotonic() - self._began

    # ------------------------------------------------------------------------------------------------ one episode

    def _episode(self, episode: Episode) -> Outcome:
        self._doing = f"episode {episode.number}: leaders go back to their first replicas"
        given_back = self._settle()
        self._doing = f"episode {episode.number}: quiet"
        quiet_from = time.monotonic()
        self._pause(_QUIET_SECONDS)
        first = episode.faults[0]
        led = self._led(first)
        self._watch.ask(Sightings.forget_moves)
        self._doing = f"episode {episode.number}: {episode}"
        began = self._inflict(episode)
        self._doing = f"episode {episode.number}: healing after {episode}"
        since = self._surely_after(episode)
        self._until(lambda: self._is_whole(since), f"healing after {episode}")
        whole = time.monotonic()
        self._pause(_AFTER_SECONDS)
        acks = self._new_acks()
        count = self._settings.partitions
        gaps = longest_gaps(acks, count, began, whole)
        others = sorted(set(range(count)) - set(led))
        broker = first.broker
        return Outcome(
            number=episode.number,
            faults=episode.faults,
            began_s=began - self._began,
            led=tuple(float(gaps[number]) for number in led),
            others=tuple(float(gaps[number]) for number in others),
            elsewhere=()
            if broker is None
            else tuple(self._watch.ask(lambda seen: seen.elsewhere_ms(led, broker, began))),
            quiet=tuple(float(each) for each in longest_gaps(acks, count, quiet_from, began)),
            given_back=given_back,
            whole_ms=(whole - began) * 1000,
        )

    def _settle(self) -> tuple[float, ...]:
        """Return when all replicas are in sync and every partition has its preferred leader. Return the times of the
        moves."""
        self._new_acks()
        wrong = self._watch.ask(Sightings.unbalanced)
        asked: list[float] = []

        def settled() -> bool:
            now = time.monotonic()
            if self._watch.ask(lambda seen: seen.is_whole(now - _FRESH_SECONDS) and not seen.unbalanced()):
                return True
            if not asked or now - asked[-1] > _ELECT_SECONDS:
                asked.append(now)
                self._elected = self._watch.elect_preferred()
            return False

        self._until(settled, "leaders on their first replicas")
        end = time.monotonic()
        if not asked:
            return ()
        self._pause(_AFTER_SECONDS)
        gaps = longest_gaps(self._new_acks(), self._settings.partitions, asked[0], end)
        return tuple(float(gaps[number]) for number in wrong)

    def _surely_after(self, episode: Episode) -> float:
        """Return the time from which the brokers' metadata shows the effects of an episode.

        Sessions that expire because of a ZooKeeper outage expire only after ZooKeeper is available again. Until then,
        the brokers do not know it.
        """
        wait_ms = 0.0 if all(fault.trait.on_broker for fault in episode.faults) else self._settings.session_ms
        return time.monotonic() + wait_ms / 1000

    def _led(self, fault: Fault) -> list[int]:
        """Return the partitions that a fault affects: those of its broker, or all."""
        broker = fault.broker
        if broker is None:
            return list(range(self._settings.partitions))
        return self._watch.ask(lambda seen: seen.led_by(broker))

    def _inflict(self, episode: Episode) -> float:
        """Begin and end each fault at its time. Return the monotonic time at which the first one began."""
        start = time.monotonic()
        began: float | None = None
        for at_ms, ends, fault in episode.steps():
            self._pause(start + at_ms / 1000 - time.monotonic())
            at = self._arena.end(fault) if ends else self._arena.begin(fault)
            began = at if began is None else began
        assert began is not None, "an episode has a fault"
        return began

    # ------------------------------------------------------------------------------------------------ waiting

    def _is_loaded(self) -> bool:
        self._loaded.update(self._new_acks()["partition"].tolist())
        return len(self._loaded) == self._settings.partitions

    def _is_whole(self, since: float) -> bool:
        return self._watch.ask(lambda seen: seen.is_whole(since))

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        most = self._settings.heal_seconds
        deadline = time.monotonic() + most
        while not condition():
            if time.monotonic() > deadline:
                lacks = self._watch.ask(Sightings.lacks)
                raise NotWholeError(
                    f"timeout of {most:g} s while waiting for {what}; {lacks}; the last election: {self._elected}"
                )
            self._look_around(_LOOK_SECONDS)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._look_around(min(left, _LOOK_SECONDS))

    def _look_around(self, seconds: float) -> None:
        for client in (*self._clients.loads, self._clients.follower):
            client.check()
        self._progress(self._now(), self._doing)
        _NEVER.wait(seconds)

    def _new_acks(self) -> Acks:
        """Return the entries that were added to the ledgers since the last call."""
        found = []
        for path, place in self._places.items():
            if not path.exists():
                continue
            with path.open("rb") as ledger:
                ledger.seek(place)
                acks = read_acks(ledger.read())
            self._places[path] = place + len(acks) * ACK.itemsize
            found.append(acks)
        return np.concatenate(found) if found else np.empty(0, ACK)

    # ------------------------------------------------------------------------------------------------ the end

    def finish(self, report: Report, directory: Path) -> None:
        """Stop the load, read all records and compare."""
        clients = self._clients
        self._doing = "waiting for the last acknowledgements"
        self._look_around(0)
        for load in clients.loads:
            load.ask_to_stop()
        for load in clients.loads:
            summary = load.result(_END_SECONDS)
            report.sent += summary["sent"] * len(summary["partitions"])
            report.acknowledged += summary["acknowledged"]
            report.late_ms = max(report.late_ms, summary["late_ms"])
            report.broken += summary["failures"]
        if report.acknowledged != report.sent:
            report.broken.append(f"{report.sent} records were sent and {report.acknowledged} acknowledged")
        clients.follower.ask_to_stop()
        summary = clients.follower.result(_END_SECONDS)
        report.followed = summary["records"]
        report.broken += [f"read during the faults: {message}" for message in summary["complaints"]]
        self._progress(self._now(), "reading all records")
        wanted = {**clients.common, "ledgers": [str(path) for path in clients.ledgers]}
        reader = Client("reading_back", directory, "reading-back", wanted)
        reader.start()
        try:
            summary = reader.result(_END_SECONDS)
        finally:
            reader.kill()
        report.read_back = summary["records"]
        report.broken += [f"read after the faults: {message}" for message in summary["complaints"]]
        for name, count in (("read along", report.followed), ("read back", report.read_back)):
            if count != report.sent:
                report.broken.append(f"{report.sent} records were sent and {count} {name}")
