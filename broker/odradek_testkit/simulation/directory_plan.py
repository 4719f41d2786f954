"""Generates the part of a plan that concerns log directories: how many a machine has, which are slow or stall, and how
much of their files is in memory.

`plan.draw` merges it with the rest of the plan. Its random numbers depend only on the seed, so that the rest does not
depend on this part. Invariant: a `SlowDirectory` answers each job long before `log.dir.stall.timeout.ms`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDirectory:
    """Each job of a log directory takes about `job_ms` for a while. `directory` is its place in `log.dirs`."""

    broker: int
    directory: int
    job_ms: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StallDirectory:
    """No job of a log directory ends for `for_ms`. `restart_ms` later, a broker whose directory is offline restarts."""

    broker: int
    directory: int
    for_ms: int
    restart_ms: int


DirectoryFault: TypeAlias = SlowDirectory | StallDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The process of a broker stops running for a while, beside a fault of its directory."""

    broker: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPlan:
    """The directories of one run. Times are virtual milliseconds since the start of the load."""

    count: int = 1
    """Number of log directories of each machine."""
    properties: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[tuple[int, DirectoryFault], ...] = ()
    pauses: tuple[tuple[int, Pause], ...] = ()
    recreated_ms: int | None = None
    """When a side topic is created, deleted and created again; None if it is not."""
    synced_topic: int = 0
    """The place of the topic with required flushes, because only these wait for a directory."""


SHARE: Final = 0.3
"""Share of the plans with two directories."""
COLD_PLANS: Final = 0.25
"""Share of the plans whose machines do not have all files in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdFiles:
    """How much of the files of all machines is in memory."""

    share: float = 0.0
    """Share of the reads of records that find nothing in memory."""
    long_reads: bool = False
    """Whether the reads of threads take long until all faults have ended."""
    properties: Mapping[str, str] = field(default_factory=dict)


def draw_cold_files(seed: int, *, may_stall: bool) -> ColdFiles:
    """Return which reads of a seed need a thread: none, except in a share of the seeds.

    Unless `may_stall`, no read takes so long that a replica leaves the ISR.
    """
    chance = random.Random(f"cold-{seed}")
    if chance.random() >= COLD_PLANS:
        return ColdFiles()
    # With a small cache, the indexes of most sealed segments are not in memory either.
    return ColdFiles(
        share=chance.choice((0.1, 0.5, 1.0)),
        long_reads=chance.random() < 0.5 and may_stall,
        properties={"log.index.cache.bytes": chance.choice(("0", "3000", "67108864"))},
    )


def draw_directories(seed: int, *, brokers: int, load_ms: int, may_stall: bool) -> DirectoryPlan:
    """Return the directories of a seed. Unless `may_stall`, no directory is slow or stalls."""
    chance = random.Random(f"directories-{seed}")
    if chance.random() >= SHARE:
        return DirectoryPlan()
    synced_topic = chance.randrange(2)
    if not may_stall:
        return DirectoryPlan(count=2, synced_topic=synced_topic)
    timeout_ms = chance.choice((3_000, 6_000))
    interval_ms = chance.choice((200, 1_000))
    faults: list[tuple[int, DirectoryFault]] = []
    pauses: list[tuple[int, Pause]] = []
    for _ in range(chance.choice((1, 2, 3))):
        at_ms = chance.randrange(500, load_ms)
        fault = _fault(chance, brokers, timeout_ms)
        faults.append((at_ms, fault))
        if chance.random() < (0.5 if isinstance(fault, SlowDirectory) else 0.3):
            pause = Pause(broker=fault.broker, for_ms=round(timeout_ms * (0.5 + 2 * chance.random())))
            pauses.append((at_ms + chance.randrange(fault.for_ms), pause))
    return DirectoryPlan(
        count=2,
        properties={
            "log.dir.stall.timeout.ms": str(timeout_ms),
            "log.dir.check.interval.ms": str(interval_ms),
            # Not of `chance`, so that the other choices of a seed do not depend on it.
            "log.dir.slow.ms": random.Random(f"slow-{seed}").choice(("0", "150", "500")),
            "log.segment.delete.delay.ms": chance.choice(("500", "60000")),
        },
        faults=tuple(sorted(faults, key=lambda pair: pair[0])),
        pauses=tuple(pauses),
        recreated_ms=_recreated_ms(chance, faults) if chance.random() < 0.6 else None,
        synced_topic=synced_topic,
    )


def _fault(chance: random.Random, brokers: int, timeout_ms: int) -> DirectoryFault:
    broker, directory = chance.randrange(brokers), chance.randrange(2)
    if chance.random() < 0.35:
        # Two jobs in sequence, such as a write and a sync of the same file, must not reach the timeout.
        job_ms = chance.choice((30, 200, timeout_ms // 5, timeout_ms // 5))
        return SlowDirectory(broker=broker, directory=directory, job_ms=job_ms, for_ms=chance.randrange(2_000, 12_000))
    if chance.random() < 0.4:
        for_ms = round(timeout_ms * (0.2 + 0.6 * chance.random()))
    else:
        for_ms = timeout_ms + chance.randrange(3_000, 12_000)
    return StallDirectory(
        broker=broker, directory=directory, for_ms=for_ms, restart_ms=chance.choice((0, 1_500, 6_000))
    )


def _recreated_ms(chance: random.Random, faults: Sequence[tuple[int, DirectoryFault]]) -> int:
    """Return a time at which the first flushes of a new topic are likely to be running when it is deleted."""
    at_ms, fault = chance.choice(faults)
    if isinstance(fault, SlowDirectory):
        return at_ms + chance.choice((10, 100, 500))
    return at_ms - chance.choice((10, 40, 100))
