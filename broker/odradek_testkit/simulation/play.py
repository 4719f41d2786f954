"""Plays one seed from start to verdict.

An `Outcome` has the counts of a run, a digest of all steps, and the violation, if there is one. `search` and
`broker/tests/sim` call it. Invariant: equal plans give equal outcomes in every process: nothing here or below depends
on real time, hashes or the garbage collector.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Final

from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek_testkit.simulation.directory_rules import DirectoryRules
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.faults import inject
from odradek_testkit.simulation.history import Answer, History
from odradek_testkit.simulation.invariants import Invariants
from odradek_testkit.simulation.plan import Kind, Plan, draw
from odradek_testkit.simulation.running import no_last_words, run_simulated
from odradek_testkit.simulation.transactions.transaction_history import TransactionEnd
from odradek_testkit.simulation.transactions.transaction_logs import LogEnds, until_ended
from odradek_testkit.simulation.transactions.transactional_clients import COPIER
from odradek_testkit.simulation.verdict import judge, settle
from odradek_testkit.simulation.workload import Workload
from odradek_testkit.simulation.world import World

FAILURE_LINES: Final = 60
"""Number of trace lines in a failure report."""
ANSWERS_WITHIN_S: Final = 150.0
"""Virtual time after the end of faults and load within which every request must be answered."""
START_WITHIN_S: Final = 60.0
MAX_STEPS: Final = 300_000
"""Limit of the steps of a run, many times those of a normal one."""
NO_STANDSTILL: Final = "no-standstill"

_TIME: Final = Struct("<d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one run."""

    seed: int
    kind: str
    brokers: int
    steps: int
    virtual_s: float
    acknowledged: int
    transactions: int
    """Number of transactions whose commit was acknowledged."""
    refused: int
    read: int
    generations: int
    operations: int
    faults: int
    digest: str
    """Digest of the times of all steps, the trace and the history: equal for equal runs."""
    violation: str | None
    """The violated invariant; None if all hold."""
    invariant: str | None
    trace: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the failure report: the violation, how to reproduce it, and the last events."""
        what = f"seed {self.seed} ({self.kind}, {self.brokers} brokers) after {self.virtual_s:.1f} s: {self.violation}"
        return "\n".join([what, f"replay: make sim SEED={self.seed}", *self.trace[-FAILURE_LINES:]])


class Standstill(KeyboardInterrupt):
    """Raised by a signal handler to end a run that hangs. No other exception leaves a callback of the event loop."""


def play(seed: int, *, plan: Plan | None = None, on_line: Callable[[str], None] | None = None) -> Outcome:
    """Play a seed, or a given plan with a seed; `on_line` receives each line of the trace at once.

    Another exception of a client or of the simulation is reported as the violation "no-surprise"; a run with too many
    steps, or one that `Standstill` ended, as "no-standstill".
    """
    with no_last_words():
        return _played(_Game(draw(seed) if plan is None else plan, on_line), seed)


def _played(game: _Game, seed: int) -> Outcome:
    """Play in a separate function, whose frame has the only reference to the world."""
    violation: Violation | None = None
    try:
        run_simulated(game.run, seed)
    except Violation as error:
        violation = error
    except Standstill as error:
        violation = Violation(NO_STANDSTILL, "".join(traceback.format_tb(error.__traceback__)[-12:]))
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes into the report of this seed
        violation = _as_violation(error)
    return game.outcome(seed, violation)


def _as_violation(error: BaseException) -> Violation:
    """Return the first error in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Violation):
        return error
    notes = "\n".join(getattr(error, "__notes__", ()))
    return Violation("no-surprise", f"{type(error).__name__}: {error}\n{notes}")


class _Game:
    """One run."""

    def __init__(self, plan: Plan, on_line: Callable[[str], None] | None) -> None:
        self._plan: Final = plan
        self._history: Final = History()
        self._on_line: Final = on_line
        self._digest: Final = blake2b(digest_size=8)
        self._world: World | None = None
        self._ended_s = 0.0
        self._steps = 0

    async def run(self) -> None:
        plan = self._plan
        world = self._world = World(
            plan.seed,
            plan.brokers,
            plan.properties,
            slow_syncs=plan.slow_syncs,
            directories=plan.directories,
            are_disks_remote=plan.are_disks_remote,
            cold_share=plan.cold_share,
            small_requests=plan.small_requests,
        )
        self._install(world)
        try:
            await self._play(world)
        finally:
            self._ended_s = world.loop.time()

    def _install(self, world: World) -> None:
        invariants = Invariants(world)
        rules = DirectoryRules(world) if self._plan.directories > 1 else None
        begun_s = world.loop.time()
        printed = 0

        def look() -> None:
            nonlocal printed
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise Violation(NO_STANDSTILL, f"the run did not end within {MAX_STEPS} steps")
            self._ended_s = world.loop.time()
            self._digest.update(_TIME.pack(self._ended_s - begun_s))
            if self._on_line is not None:
                for line in world.events[printed:]:
                    self._on_line(line)
                printed = len(world.events)
            invariants.look()
            if rules is not None:
                rules.look()

        world.loop.before_jumps(look)

    async def _play(self, world: World) -> None:
        plan = self._plan
        for machine in world.machines:
            machine.start()
        await self._until_served(world)
        with world.as_clients():
            workload = Workload(world, plan, self._history)
            await workload.prepare()
            load = asyncio.create_task(workload.run())
        await self._until_quiet(world, load)
        await settle(world, plan)
        with world.as_clients():
            await workload.abort_unknown()
        if plan.transactions.writers and plan.kind is not Kind.UNCLEAN:
            await until_ended(world, plan)
        with world.as_clients():
            await workload.drain(LogEnds(world, plan))
            await workload.close()
            committed = await self._committed(world, workload)
        await settle(world, plan)
        judge(world, plan, self._history, committed)

    async def _until_served(self, world: World) -> None:
        deadline_ms = world.now_ms + 1000 * START_WITHIN_S
        while not all(machine.is_serving for machine in world.machines):
            if world.now_ms >= deadline_ms:
                raise Violation("whole-again", "not all brokers have started")
            await world.clock.sleep_ms(50)

    async def _until_quiet(self, world: World, load: asyncio.Task[None]) -> None:
        """Wait until all faults have ended and all requests are answered."""
        faults = asyncio.create_task(inject(world, self._plan))
        await asyncio.wait([faults, load], return_when=asyncio.FIRST_COMPLETED)
        if load.done():
            load.result()
        await faults
        await asyncio.wait([load], timeout=self._plan.load_ms / 1000 + ANSWERS_WITHIN_S)
        if not load.done():
            await settle(world, self._plan)
            what = f"{ANSWERS_WITHIN_S:.0f} s after the cluster became whole, clients still wait for answers"
            raise Violation("everything-is-answered", what)
        load.result()
        world.note("quiet")

    async def _committed(self, world: World, workload: Workload) -> dict[str, dict[TopicPartition, int]]:
        found = {}
        async with Admin(workload.settings, clock=world.clock) as admin:
            for group_id in (*self._history.groups, *((COPIER,) if self._plan.transactions.copies else ())):
                offsets = await admin.group_offsets(group_id)
                found[group_id] = {partition: position.offset for partition, position in sorted(offsets.items())}
        return found

    def outcome(self, seed: int, violation: Violation | None) -> Outcome:
        world, history = self._world, self._history
        events = () if world is None else tuple(world.events)
        for line in (*events, *history.lines()):
            self._digest.update(line.encode())
        return Outcome(
            seed=seed,
            kind=self._plan.kind.value,
            brokers=self._plan.brokers,
            steps=self._steps,
            virtual_s=self._ended_s - 1000.0,
            acknowledged=history.count(Answer.ACKNOWLEDGED),
            transactions=history.transactions.count(TransactionEnd.COMMITTED),
            refused=history.count(Answer.REFUSED),
            read=sum(len(reading.records) for readings in history.readings.values() for reading in readings.values()),
            generations=len({generation for group in history.groups.values() for generation, _ in group.owners}),
            operations=len(history.operations),
            faults=len(self._plan.faults),
            digest=self._digest.hexdigest(),
            violation=None if violation is None else str(violation),
            invariant=None if violation is None else violation.invariant,
            trace=events,
        )
