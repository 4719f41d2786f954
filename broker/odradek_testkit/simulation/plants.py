"""Planted bugs: defective variants of production code, which replace the correct code for one run.

They prove that the checkers find violations. Each `Plant` has a seed and the invariants that its bug breaks with it;
`broker/tests/sim/test_planted` plays them. Invariant: a plant that no longer applies is an error: the code that it
replaces must exist, and the defective branch must have been taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from odradek.app import broker as app_broker
from odradek.base.errors import OdradekError
from odradek.base.ports import DiskThreads
from odradek.controller import controller_election as election
from odradek.controller import plans
from odradek.controller.elections import election_rules as elections
from odradek.log.directories.directory_worker import DirectoryWorker, DirectoryWorkers
from odradek.log.flush import NO_LIMIT, FlushTicket
from odradek.log.producers import producer_state
from odradek.log.writes import LogWrites
from odradek.replication.leader import reader
from odradek.replication.partition import Partition
from odradek.replication.roles import ReplicaRoles
from odradek.replication.sessions.follower_session import Followed
from odradek_testkit.simulation.directory_rules import LATE, NEEDLESS, NOTICED, SERVED
from odradek_testkit.simulation.invariants import DURABLE

Bite: TypeAlias = Callable[[], None]
"""Called when a plant behaves differently from the code that it replaces."""
Wrong: TypeAlias = Callable[[Any, Bite], Any]
"""A function from the original code and a `Bite` to its replacement."""


class PlantError(Exception):
    """A plant does not apply to the code as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One fault."""

    name: str
    seed: int
    """Finds it."""
    finds: frozenset[str]
    """Invariants, one of which this seed breaks; the schedule determines which is detected first."""
    patches: tuple[tuple[Any, str, Wrong], ...]
    """Class or module, attribute, and the function that returns its replacement."""


class Planted:
    """An active plant."""

    def __init__(self, plant: Plant) -> None:
        """The defective code has not run yet."""
        self.plant: Final = plant
        self.bites = 0
        """Number of times that the defective code made a difference."""

    def bite(self) -> None:
        """Count that the defective code makes a difference."""
        self.bites += 1


@contextmanager
def planted(plant: Plant) -> Iterator[Planted]:
    """Replace the code while the block runs. Raises `PlantError`."""
    state = Planted(plant)
    with ExitStack() as undo:
        for owner, attribute, wrong in plant.patches:
            if attribute not in vars(owner):
                raise PlantError(f"{plant.name}: {owner.__name__} no longer defines {attribute}")
            right = vars(owner)[attribute]
            undo.callback(setattr, owner, attribute, right)
            function = right.__func__ if isinstance(right, staticmethod) else right
            made = wrong(function, state.bite)
            setattr(owner, attribute, staticmethod(made) if isinstance(right, staticmethod) else made)
        yield state


# Replication


def _acknowledge_at_once(right: Any, bite: Bite) -> Any:
    def acknowledged(self: Any, required_offset: int) -> int | None:
        answer: int | None = right(self, required_offset)
        if answer is None:
            bite()
            return 0
        return answer

    return acknowledged


def _cut_to_high_watermark(right: Any, bite: Bite) -> Any:
    """A follower truncates to its high watermark, as before KIP-101."""

    def follow(self: Any, partition: Any, state: Any) -> None:
        log = partition.log
        if log.high_watermark < log.log_end_offset:
            bite()
            log.truncate_to(log.high_watermark)
        right(self, partition, state)

    return follow


def _count_one_follower(right: Any, bite: Bite) -> Any:
    """The high watermark follows the fastest follower."""

    def advance(self: Any, now_ms: float) -> bool:
        changed: bool = right(self, now_ms)
        fastest = max((replica.log_end_offset for replica in self.followers()), default=-1)
        mark = min(fastest, self.log.log_end_offset)
        if mark > self.log.high_watermark:
            bite()
            self.log.high_watermark = mark
            return True
        return changed

    return advance


def _let_it_fall(right: Any, bite: Bite) -> Any:
    """The high watermark may fall to what is replicated now."""

    def advance(self: Any, now_ms: float) -> bool:
        ends = [replica.log_end_offset for replica in self.followers() if replica.log_end_offset >= 0]
        slowest = min(ends, default=self.log.log_end_offset)
        if slowest < self.log.high_watermark:
            bite()
            self.log.high_watermark = max(slowest, self.log.log_start_offset)
            return True
        changed: bool = right(self, now_ms)
        return changed

    return advance


def _join_early(right: Any, bite: Bite) -> Any:
    """Every follower that fetches joins the ISR."""

    def should_expand(self: Any, replica: Any) -> bool:
        if right(self, replica):
            return True
        if replica.broker_id in self.in_sync.committed or self.in_sync.is_pending:
            return False
        bite()
        return True

    return should_expand


def _no_divergence(right: Any, bite: Bite) -> Any:
    """A leader does not check the epoch of a follower's last record (KIP-595)."""

    def divergence(partition: Any, entry: Any) -> Any:
        if right(partition, entry) is not None:
            bite()

    return divergence


def _read_everything(right: Any, bite: Bite) -> Any:
    """Consumers see records that are not replicated yet."""

    def upper_bound(partition: Any, params: Any) -> int:
        bound: int = right(partition, params)
        end: int = partition.log.log_end_offset
        if bound < end:
            bite()
        return end

    return upper_bound


def _mark_above_log(right: Any, bite: Bite) -> Any:
    """The checkpointed high watermark is used although the log is shorter."""

    def host(self: Any, topic_partition: Any, topic_id: Any, *, is_new: bool) -> Any:
        claimed: list[int] = []
        claim = self._marks.claim

        class Marks:
            @staticmethod
            def claim(wanted: Any) -> int:
                claimed.append(claim(wanted))
                return claimed[-1]

        marks, self._marks = self._marks, Marks
        try:
            partition = right(self, topic_partition, topic_id, is_new=is_new)
        finally:
            self._marks = marks
        if claimed and claimed[0] > partition.log.high_watermark:
            bite()
            partition.log.high_watermark = claimed[0]
        return partition

    return host


# Controller


def _same_election(right: Any, bite: Bite) -> Any:
    async def become_controller(zk: Any, clock: Any, broker_id: int) -> Any:
        election_result = await right(zk, clock, broker_id)
        if election_result is None:
            return None
        bite()
        return replace(election_result, epoch=1)

    return become_controller


def _same_leader_epoch(right: Any, bite: Bite) -> Any:
    """A new leader has the epoch of the previous one."""

    def next_state(self: Any, current: Any, controller_epoch: int) -> Any:
        bite()
        return replace(right(self, current, controller_epoch), leader_epoch=current.leader_epoch)

    return next_state


def _keep_the_dead(right: Any, bite: Bite) -> Any:
    """Replicas of a dead broker stay in the ISRs."""

    def removals(context: Any, replicas: Any, controller_epoch: int) -> Any:
        plan = right(context, replicas, controller_epoch)
        if plan.writes:
            bite()
        return plans.Plan()

    return removals


def _come_back_at_once(right: Any, bite: Bite) -> Any:
    """A broker that may have lost records does not wait until it is removed from the ISRs."""

    async def until(zk: Any, clock: Any, broker_id: int, *, wait_ms: float) -> bool:
        bite()
        return True

    return until


# Log


def _last_batch_only(right: Any, bite: Bite) -> Any:
    def pack_snapshot(entries: Any, earlier: Any) -> bytes:
        if earlier:
            bite()
        packed: bytes = right(entries, ())
        return packed

    return pack_snapshot


def _no_sequences(right: Any, bite: Bite) -> Any:
    def check(header: Any, epoch: int, last_sequence: int, *, unwritten: bool) -> None:
        try:
            right(header, epoch, last_sequence, unwritten=unwritten)
        except OdradekError:
            bite()

    return check


def _no_duplicates(right: Any, bite: Bite) -> Any:
    """A repeated batch of an idempotent producer is written again."""

    def find(producer: Any, header: Any) -> Any:
        if right(producer, header) is not None:
            bite()

    return find


def _acknowledge_unsynced(right: Any, bite: Bite) -> Any:
    """A required flush is requested, but nothing waits for it."""

    def require(self: Any, first_offset: int) -> None:
        right(self, first_offset)
        bite()
        self.durable_limit = NO_LIMIT

    return require


def _count_the_undurable_leader(right: Any, bite: Bite) -> Any:
    """The leader counts itself in the high watermark with its log end."""

    def advance(self: Any, now_ms: float) -> bool:
        limit, self.log.durable_limit = self.log.durable_limit, NO_LIMIT
        try:
            changed: bool = right(self, now_ms)
        finally:
            self.log.durable_limit = limit
        if changed and self.log.high_watermark > limit:
            bite()
        return changed

    return advance


def _report_undurable(right: Any, bite: Bite) -> Any:
    """A follower fetches on while a required flush runs, and so reports records that are not durable."""

    def check_flush(self: Any) -> None:
        right(self)
        if self.awaits_flush:
            bite()
            self.awaits_flush = False

    return check_flush


def _outlive_leadership(right: Any, bite: Bite) -> Any:
    """A request of a deposed leader waits on, and is acknowledged by what a truncation put in its place."""

    def acknowledged(self: Any, required_offset: int) -> int | None:
        if not self.is_leader:
            bite()
            return 0 if self.log.high_watermark >= required_offset else None
        answer: int | None = right(self, required_offset)
        return answer

    return acknowledged


def _never_sync(right: Any, bite: Bite) -> Any:
    """`flush.messages` has no effect."""

    def count(self: Any, records: int) -> None:
        bite()

    return count


# Log directories


def _share_one_thread(right: Any, bite: Bite) -> Any:
    """All directories of a broker share one thread."""

    def at(self: Any, directory: str) -> Any:
        is_new = directory not in {worker.path for worker in self}
        worker = right(self, directory)
        if is_new:
            turn = vars(self).setdefault("turn", asyncio.Lock())
            for lane in worker._lanes:
                lane.threads = _InTurn(lane.threads, turn, bite)
        return worker

    return at


class _InTurn:
    """`DiskThreads` whose calls wait for those of others."""

    def __init__(self, threads: DiskThreads, turn: asyncio.Lock, bite: Bite) -> None:
        self._threads = threads
        self._turn = turn
        self._bite = bite
        self.close = threads.close

    async def __call__(self, function: Callable[[], Any], /) -> Any:
        if self._turn.locked():
            self._bite()
        async with self._turn:
            return await self._threads(function)


def _wait_forever(right: Any, bite: Bite) -> Any:
    """A directory that does not answer stays online."""

    def stalled(self: Any, timeout_ms: float) -> None:
        if right(self, timeout_ms) is not None:
            bite()

    return stalled


def _count_lost_time(right: Any, bite: Bite) -> Any:
    """Time in which the event loop did not run counts for the age of jobs."""

    def forgive(self: Any, time_ms: float) -> None:
        if self.oldest is not None:
            bite()

    return forgive


def _write_late(right: Any, bite: Bite) -> Any:
    """A flush writes files by their names after its log was deleted, and perhaps created again."""

    def check_names(self: Any, path: str) -> None:
        if self.is_deleted():
            bite()

    return check_names


REPLICATED: Final = "replicated"
LOST: Final = "nothing-acknowledged-is-lost"

PLANTS: Final = (
    Plant(
        name="acknowledged before the in-sync set has it",
        seed=1,
        finds=frozenset({LOST}),
        patches=((Partition, "acknowledged", _acknowledge_at_once),),
    ),
    Plant(
        name="cut to the high watermark",
        seed=0,
        finds=frozenset({REPLICATED}),
        patches=((ReplicaRoles, "_follow", _cut_to_high_watermark),),
    ),
    Plant(
        name="high watermark of the fastest follower",
        seed=0,
        finds=frozenset({REPLICATED}),
        patches=((Partition, "advance", _count_one_follower),),
    ),
    Plant(
        name="high watermark falls",
        seed=0,
        finds=frozenset({"high-watermark-falls"}),
        patches=((Partition, "advance", _let_it_fall),),
    ),
    Plant(
        name="in sync before it has caught up",
        seed=0,
        finds=frozenset({REPLICATED}),
        patches=((Partition, "should_expand", _join_early),),
    ),
    Plant(
        name="no epoch check in fetch",
        seed=10,
        finds=frozenset({"same-bytes", REPLICATED, LOST}),
        patches=((reader, "_divergence", _no_divergence),),
    ),
    Plant(
        name="consumers read what is not replicated",
        seed=0,
        finds=frozenset({"seen-replicated", "seen-stays"}),
        patches=((reader, "upper_bound", _read_everything),),
    ),
    Plant(
        name="high watermark above the log",
        seed=13,
        finds=frozenset({"marks"}),
        patches=((ReplicaRoles, "_host", _mark_above_log),),
    ),
    Plant(
        name="two controllers of one epoch",
        seed=0,
        finds=frozenset({"one-controller"}),
        patches=((election, "become_controller", _same_election),),
    ),
    Plant(
        name="two leaders of one epoch",
        seed=0,
        finds=frozenset({"one-leader"}),
        patches=((elections.Elected, "next_state", _same_leader_epoch),),
    ),
    Plant(
        name="the dead stay in sync",
        seed=45,
        finds=frozenset({REPLICATED, LOST, "whole-again"}),
        patches=((plans, "isr_removals", _keep_the_dead),),
    ),
    Plant(
        name="back before the cluster has noticed",
        seed=3,
        finds=frozenset({REPLICATED}),
        patches=((app_broker, "until_out_of_sync", _come_back_at_once),),
    ),
    Plant(
        name="duplicates are written",
        seed=244,
        finds=frozenset({"no-doubles", "in-order"}),
        patches=(
            (producer_state, "_find_duplicate", _no_duplicates),
            (producer_state, "_check_sequence", _no_sequences),
        ),
    ),
    Plant(
        name="a restart forgets all but the last batch",
        seed=1110,
        finds=frozenset({"in-order", "no-doubles"}),
        patches=((producer_state, "pack_snapshot", _last_batch_only),),
    ),
    Plant(
        name="records are not synced",
        seed=597,
        finds=frozenset({LOST, REPLICATED, "seen-stays", DURABLE}),
        patches=((LogWrites, "_count_unflushed", _never_sync),),
    ),
    Plant(
        name="acknowledged before the sync",
        seed=4,
        finds=frozenset({LOST, REPLICATED, "seen-stays", DURABLE}),
        patches=((LogWrites, "_require_flush", _acknowledge_unsynced),),
    ),
    Plant(
        name="high watermark above the durable limit of the leader",
        seed=4,
        finds=frozenset({DURABLE}),
        patches=((Partition, "advance", _count_the_undurable_leader),),
    ),
    Plant(
        name="a follower reports what is not durable",
        seed=4,
        finds=frozenset({DURABLE}),
        patches=((Followed, "check_flush", _report_undurable),),
    ),
    Plant(
        name="a request outlives the leadership and a truncation",
        seed=1,
        finds=frozenset({LOST}),
        patches=((Partition, "acknowledged", _outlive_leadership),),
    ),
    Plant(
        name="a stall blocks the other directory",
        seed=56,
        finds=frozenset({SERVED, NEEDLESS}),
        patches=((DirectoryWorkers, "at", _share_one_thread),),
    ),
    Plant(
        name="a stalled directory never goes offline",
        seed=0,
        finds=frozenset({NOTICED}),
        patches=((DirectoryWorker, "stalled", _wait_forever),),
    ),
    Plant(
        name="a late job writes into a live log",
        seed=282,
        finds=frozenset({LATE}),
        patches=((FlushTicket, "_check_names", _write_late),),
    ),
    Plant(
        name="time in which the loop did not run counts as a stall",
        seed=225,
        finds=frozenset({NEEDLESS}),
        patches=((DirectoryWorker, "forgive", _count_lost_time),),
    ),
)
