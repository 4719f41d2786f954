"""Generates the plan of a run from a seed: cluster size, settings, topics, load, and faults with their times.

A `Plan` consists of plain values; equal seeds give equal plans. `faults` injects the faults, `workload` creates the
load. Invariant: a plan contains no combination of faults that a cluster cannot survive (docs/design/0008-simulation.md,
"What may be lost"): its kind limits which faults may occur together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from odradek_testkit.simulation.directory_plan import DirectoryFault, DirectoryPlan, draw_cold_files, draw_directories
from odradek_testkit.simulation.group_plan import GroupPlan, draw_group
from odradek_testkit.simulation.transactions.transaction_plan import (
    COPIES,
    REPLICAS,
    TransactionPlan,
    draw_transactions,
)

ACKED: Final = "acked"
"""Topic that idempotent producers write to with acks=all: no record may be lost, duplicated or reordered."""
QUICK: Final = "quick"
"""Topic that is written to with acks=1: it may lose its newest records, but all replicas must be equal."""
SIDE: Final = "side"
"""Prefix of topics that are created and deleted during the run."""

CLIENTS: Final = "clients"
ENSEMBLE: Final = "zookeeper"
"""Names of the hosts that are not machines of brokers."""


class Kind(Enum):
    """Which failures of disks a plan may have."""

    CRASHES = "crashes"
    """Failures that lose no written data."""
    LOSSES = "losses"
    """One machine at a time loses its power or disk, while everything else works."""
    SYNCED = "synced"
    """Every record is synced before it is acknowledged, and the power may fail on any machines."""
    UNCLEAN = "unclean"
    """As `CRASHES`, with unclean leader elections."""


# Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL; restart after `down_ms`. `ends_session`: the parent process ends its ZooKeeper session at once."""

    broker: int
    down_ms: int
    ends_session: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """SIGTERM; restart `down_ms` after the process has ended."""

    broker: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LosePower:
    """Power failure of several machines at once, which lose unsynced data; restart after `down_ms`."""

    brokers: tuple[int, ...]
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wipe:
    """Power failure of a machine, which restarts with an empty disk after `down_ms`."""

    broker: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """SIGSTOP, and SIGCONT after `for_ms`."""

    broker: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    """The broker's ZooKeeper session ends although the broker lives."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The network blocks data from host `source` to host `target`, and in the other direction if `both`."""

    source: str
    target: str
    for_ms: int
    both: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """Data from `source` to `target` takes `extra_ms` longer."""

    source: str
    target: str
    extra_ms: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """All connections between two hosts are reset, `times` in quick succession."""

    source: str
    target: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperOutage:
    """No host can reach the ensemble."""

    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailDisk:
    """An operation of a disk fails for a while: `write`, as if the disk was full, or `sync`."""

    broker: int
    operation: str
    for_ms: int


Fault: TypeAlias = (
    Kill
    | Stop
    | LosePower
    | Wipe
    | Freeze
    | EndSession
    | Partition
    | Slow
    | Reset
    | ZooKeeperOutage
    | FailDisk
    | DirectoryFault
)


# Operations of administrators


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic to be created. `acks` of its producers: -1 or 1; 0 if it has none."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str] = field(default_factory=dict)
    acks: int = 0
    assignments: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    """Brokers of each partition; empty: the controller chooses. Not in traces, so that old seeds keep their digests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create a topic."""

    topic: TopicPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Delete a topic."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Increase the number of partitions of a topic to `total`."""

    name: str
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTopicConfig:
    """Set one of a topic's settings."""

    name: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign:
    """Move a partition to other replicas."""

    name: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReassignment:
    """Cancel a reassignment if it is still in progress."""

    name: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectPreferred:
    """Elect the preferred leaders of all partitions."""


AdminOperation: TypeAlias = (
    CreateTopic | DeleteTopic | AddPartitions | SetTopicConfig | Reassign | CancelReassignment | ElectPreferred
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. Times are virtual milliseconds since the start of the load, in order."""

    seed: int
    kind: Kind
    brokers: int
    properties: Mapping[str, str]
    """Settings of all brokers, in addition to those of the world."""
    topics: tuple[TopicPlan, ...]
    """Topics that are created before the load starts."""
    directories: int
    """Number of log directories of each machine."""
    are_disks_remote: bool
    """Whether the log directories are on remote file systems, so that threads write all records."""
    cold_share: float
    """Share of the reads of records that find nothing in memory, so that a thread reads. 0: everything is in memory."""
    long_reads: bool
    """Whether the reads of threads take long until all faults have ended."""
    slow_syncs: bool
    """Whether flushes take virtual time. Otherwise they are immediate."""
    small_requests: bool
    """Whether brokers handle small Produce requests together at once, not only after a thousand that are timed."""
    transactions: TransactionPlan
    """The clients with transactions."""
    producers: int
    consumers: int
    group: GroupPlan
    """How the consumers rebalance."""
    load_ms: int
    operations: tuple[tuple[int, AdminOperation], ...]
    faults: tuple[tuple[int, Fault], ...]


REMOTE_SHARE: Final = 0.2
"""Share of the plans with log directories on remote file systems."""


def draw(
    seed: int, kind: Kind | None = None, *, transacts: bool = True, new_epochs: bool = True, newer_groups: bool = True
) -> Plan:
    """Return the plan of a seed. Without `kind`, the seed chooses that, too.

    Without transactions, version 2 of them (`new_epochs`) or newer groups (classic members), the rest is the same.
    """
    chance = random.Random(f"plan-{seed}")
    (drawn,) = chance.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))
    kind = kind or drawn
    brokers = chance.choice((3, 3, 4, 5))
    load_ms = chance.randrange(20_000, 36_000)
    # A stall of a directory takes replicas out of the ISR, so that a loss could hit the only member.
    may_stall = kind is not Kind.LOSSES
    directories = draw_directories(seed, brokers=brokers, load_ms=load_ms, may_stall=may_stall)
    cold = draw_cold_files(seed, may_stall=may_stall)
    transactions = draw_transactions(seed, newer=new_epochs) if transacts else TransactionPlan()
    group = draw_group(seed) if newer_groups else GroupPlan()
    synced = _synced_topics(random.Random(f"synced-{seed}"), kind)
    synced |= {(ACKED, QUICK)[directories.synced_topic]} if directories.count > 1 else frozenset()
    properties = dict(_properties(chance, kind))
    for part in (directories, cold, transactions, group):
        properties |= part.properties
    return Plan(
        seed=seed,
        kind=kind,
        brokers=brokers,
        properties=MappingProxyType(properties),
        topics=(*_topics(chance, kind, brokers, synced), *_copies(transactions, kind)),
        directories=directories.count,
        are_disks_remote=random.Random(f"remote-{seed}").random() < REMOTE_SHARE,
        cold_share=cold.share,
        long_reads=cold.long_reads,
        slow_syncs=bool(synced),
        small_requests=random.Random(f"small-{seed}").random() < 0.5,
        transactions=transactions,
        producers=chance.choice((1, 2, 2, 3)),
        consumers=chance.choice((1, 2, 3)),
        group=group,
        load_ms=load_ms,
        operations=_merged(
            _timed(chance, _operations(chance, kind, brokers), load_ms, in_order=True),
            _recreations(directories, brokers),
        ),
        faults=_merged(
            _timed(chance, _FAULTS[kind](chance, brokers), load_ms, in_order=kind is Kind.LOSSES),
            (*directories.faults, *_pauses(directories)),
        ),
    )


_WEIGHTS: Final[Mapping[Kind, int]] = {Kind.CRASHES: 5, Kind.LOSSES: 2, Kind.SYNCED: 2, Kind.UNCLEAN: 1}

_T = TypeVar("_T")


def _timed(chance: random.Random, things: Sequence[_T], load_ms: int, *, in_order: bool) -> tuple[tuple[int, _T], ...]:
    """Return times spread over the load; sometimes two are nearly equal."""
    times = [chance.randrange(500, load_ms) for _ in things]
    for index in range(1, len(times)):
        if chance.random() < 0.25:
            times[index] = times[index - 1] + chance.choice((0, 1, 20, 300, 1_500))
    if in_order:
        times.sort()
    return tuple(sorted(zip(times, things, strict=True), key=lambda pair: pair[0]))


def _merged(one: Sequence[tuple[int, _T]], other: Sequence[tuple[int, _T]]) -> tuple[tuple[int, _T], ...]:
    """Merge two lists of things with their times."""
    return tuple(sorted((*one, *other), key=lambda pair: pair[0]))


def _recreations(directories: DirectoryPlan, brokers: int) -> tuple[tuple[int, AdminOperation], ...]:
    """Return the operations that create a topic, delete it, and create it again while a directory is slow or stalls.

    A topic cannot be created again before its deletion is durable in all directories, so there are several attempts.
    """
    at_ms = directories.recreated_ms
    if at_ms is None:
        return ()
    # With one replica each, all logs have a leader epoch, which their first flush writes. A fixed assignment creates
    # the logs on the same brokers again.
    assignments = tuple((number % brokers,) for number in range(3 * brokers))
    topic = TopicPlan(name=f"{SIDE}-again", partitions=len(assignments), replicas=1, assignments=assignments)
    again = CreateTopic(topic=topic)
    attempts = [(at_ms + delay_ms, again) for delay_ms in (450, 1_450, 2_450, 4_450, 8_450)]
    return (at_ms, again), (at_ms + 300, DeleteTopic(name=topic.name)), *attempts


def _pauses(directories: DirectoryPlan) -> tuple[tuple[int, Fault], ...]:
    return tuple((at_ms, Freeze(broker=pause.broker, for_ms=pause.for_ms)) for at_ms, pause in directories.pauses)


# Settings and topics


def _properties(chance: random.Random, kind: Kind) -> Mapping[str, str]:
    """Return the settings of all brokers. Intervals are short, so that everything happens in a run of a minute."""
    drawn = {
        "zookeeper.session.timeout.ms": chance.choice(("2000", "4000", "6000", "9000")),
        "replica.lag.time.max.ms": chance.choice(("1500", "3000", "6000")),
        "replica.fetch.wait.max.ms": chance.choice(("100", "500")),
        "replica.fetch.backoff.ms": chance.choice(("100", "1000")),
        "replica.fetch.max.bytes": chance.choice(("300", "1048576")),
        "replica.high.watermark.checkpoint.interval.ms": chance.choice(("300", "5000")),
        "num.replica.fetchers": chance.choice(("1", "1", "2")),
        "max.incremental.fetch.session.cache.slots": chance.choice(("0", "1000", "1000")),
        "auto.leader.rebalance.enable": chance.choice(("true", "false")),
        "leader.imbalance.check.interval.seconds": chance.choice(("3", "15")),
        "leader.imbalance.per.broker.percentage": chance.choice(("0", "10")),
        "controlled.shutdown.enable": chance.choice(("true", "true", "false")),
        "controlled.shutdown.retry.backoff.ms": chance.choice(("200", "2000")),
        "inter.broker.protocol.version": chance.choice(("2.7-IV1", "2.7", "2.8", "3.2", "3.9", "3.9")),
        "log.segment.bytes": chance.choice(("1000", "8000", "1073741824")),
        "log.flush.offset.checkpoint.interval.ms": chance.choice(("1000", "60000")),
        "offsets.topic.num.partitions": chance.choice(("1", "2")),
        "offsets.topic.segment.bytes": chance.choice(("1000", "104857600")),
        "offsets.commit.timeout.ms": "3000",
        "unclean.leader.election.enable": str(kind is Kind.UNCLEAN).lower(),
    }
    if kind is Kind.SYNCED:
        drawn["log.flush.interval.messages"] = "1"
    return MappingProxyType(drawn)


def _synced_topics(chance: random.Random, kind: Kind) -> frozenset[str]:
    """Return the topics with `flush.messages=1`: all of `SYNCED`, and one in a quarter of the other plans.

    `chance` is not that of the plan, so that the other choices do not depend on it.
    """
    if kind is Kind.SYNCED:
        return frozenset({ACKED, QUICK})
    return frozenset({chance.choice((ACKED, QUICK))}) if chance.random() < 0.25 else frozenset()


def _flushes(topic: str, synced: frozenset[str]) -> Mapping[str, str]:
    return {"flush.messages": "1"} if topic in synced else {}


def _topics(chance: random.Random, kind: Kind, brokers: int, synced: frozenset[str]) -> tuple[TopicPlan, ...]:
    return (
        TopicPlan(
            name=ACKED,
            partitions=chance.choice((1, 2, 3)),
            replicas=min(brokers, chance.choice((3, 3, 3, 4))),
            configs=MappingProxyType({"min.insync.replicas": "2", **_flushes(ACKED, synced)}),
            acks=-1,
        ),
        TopicPlan(
            name=QUICK,
            partitions=chance.choice((1, 2)),
            replicas=_quick_replicas(chance, kind),
            configs=MappingProxyType(_flushes(QUICK, synced)),
            acks=1,
        ),
    )


def _copies(transactions: TransactionPlan, kind: Kind) -> tuple[TopicPlan, ...]:
    """Return the topic of the copier, if there is one."""
    if not transactions.copies:
        return ()
    synced = frozenset({COPIES} if kind is Kind.SYNCED else ())
    configs = MappingProxyType({"min.insync.replicas": "2", **_flushes(COPIES, synced)})
    return (TopicPlan(name=COPIES, partitions=transactions.partitions, replicas=REPLICAS, configs=configs),)


def _quick_replicas(chance: random.Random, kind: Kind) -> int:
    """Return the number of replicas. Two could both be lost: one by its disk, one by its session."""
    return 3 if kind is Kind.LOSSES else chance.choice((2, 3))


def _operations(chance: random.Random, kind: Kind, brokers: int) -> list[AdminOperation]:
    """Return admin operations in a possible order: side topics are created before they are extended and deleted."""
    done: list[AdminOperation] = []
    for number in range(chance.choice((0, 1, 1, 2))):
        name = f"{SIDE}-{number}"
        partitions = chance.choice((1, 2))
        topic = TopicPlan(name=name, partitions=partitions, replicas=chance.choice((1, 2, 3)))
        done.append(CreateTopic(topic=topic))
        if chance.random() < 0.4:
            done.append(AddPartitions(name=name, total=partitions + 1))
        if chance.random() < 0.6:
            done.append(DeleteTopic(name=name))
            if chance.random() < 0.5:
                done.append(CreateTopic(topic=topic))
    for _ in range(chance.choice((0, 1, 1, 2))):
        topic_name = chance.choice((ACKED, ACKED, QUICK))
        size = 3 if topic_name == ACKED else _quick_replicas(chance, kind)
        done.append(Reassign(name=topic_name, partition=0, replicas=tuple(chance.sample(range(brokers), size))))
        if chance.random() < 0.25:
            done.append(CancelReassignment(name=topic_name, partition=0))
    if chance.random() < 0.5:
        done.append(ElectPreferred())
    if chance.random() < 0.3:
        done.append(SetTopicConfig(name=QUICK, key="segment.bytes", value=chance.choice(("600", "5000"))))
    return done


# Faults of each kind


def _down_ms(chance: random.Random) -> int:
    """Return a downtime: from so short that no broker notices it, to longer than all timeouts."""
    return round(chance.choice((0, 400, 3_000, 12_000)) * (0.5 + chance.random()))


def _kill(chance: random.Random, brokers: int) -> Fault:
    return Kill(broker=chance.randrange(brokers), down_ms=_down_ms(chance), ends_session=chance.random() < 0.6)


def _stop(chance: random.Random, brokers: int) -> Fault:
    return Stop(broker=chance.randrange(brokers), down_ms=_down_ms(chance))


def _freeze(chance: random.Random, brokers: int) -> Fault:
    for_ms = round(chance.choice((300, 2_500, 11_000)) * (0.5 + chance.random()))
    return Freeze(broker=chance.randrange(brokers), for_ms=for_ms)


def _end_session(chance: random.Random, brokers: int) -> Fault:
    return EndSession(broker=chance.randrange(brokers))


def _ends(chance: random.Random, brokers: int) -> tuple[str, str]:
    """Return two hosts, one of which is a machine."""
    one = chance.randrange(brokers)
    others = [_host(other) for other in range(brokers) if other != one]
    other = chance.choice([*others, ENSEMBLE, ENSEMBLE, CLIENTS, CLIENTS])
    return (_host(one), other) if chance.random() < 0.5 else (other, _host(one))


def _host(broker: int) -> str:
    return f"broker-{broker}"


def _partition(chance: random.Random, brokers: int) -> Fault:
    source, target = _ends(chance, brokers)
    for_ms = round(chance.choice((500, 4_000, 12_000)) * (0.5 + chance.random()))
    return Partition(source=source, target=target, for_ms=for_ms, both=chance.random() < 0.6)


def _slow(chance: random.Random, brokers: int) -> Fault:
    source, target = _ends(chance, brokers)
    extra_ms = chance.choice((20, 200, 1_200))
    return Slow(source=source, target=target, extra_ms=extra_ms, for_ms=chance.randrange(1_000, 10_000))


def _reset(chance: random.Random, brokers: int) -> Fault:
    source, target = _ends(chance, brokers)
    return Reset(source=source, target=target, times=chance.choice((1, 10, 40)))


def _outage(chance: random.Random, brokers: int) -> Fault:
    return ZooKeeperOutage(for_ms=round(chance.choice((800, 5_000, 12_000)) * (0.5 + chance.random())))


def _fail_disk(chance: random.Random, brokers: int) -> Fault:
    return FailDisk(
        broker=chance.randrange(brokers),
        operation=chance.choice(("write", "sync")),
        for_ms=chance.randrange(1_000, 8_000),
    )


def _lose_power(chance: random.Random, brokers: int) -> Fault:
    """Return one, several or all machines."""
    count = chance.choice((1, 1, 2, brokers))
    return LosePower(brokers=tuple(sorted(chance.sample(range(brokers), count))), down_ms=_down_ms(chance))


_Draw: TypeAlias = Callable[[random.Random, int], Fault]

_SURVIVED: Final[tuple[tuple[_Draw, int], ...]] = (
    (_kill, 5),
    (_stop, 3),
    (_freeze, 3),
    (_end_session, 3),
    (_partition, 5),
    (_slow, 2),
    (_reset, 2),
    (_outage, 1),
    (_fail_disk, 1),
)


def _many(chance: random.Random, brokers: int, weights: Sequence[tuple[_Draw, int]]) -> list[Fault]:
    count = chance.choice((2, 4, 6, 8))
    draws = chance.choices([one for one, _ in weights], [weight for _, weight in weights], k=count)
    return [one(chance, brokers) for one in draws]


def _crashes(chance: random.Random, brokers: int) -> list[Fault]:
    return _many(chance, brokers, _SURVIVED)


def _synced(chance: random.Random, brokers: int) -> list[Fault]:
    return _many(chance, brokers, (*_SURVIVED, (_lose_power, 8)))


def _losses(chance: random.Random, brokers: int) -> list[Fault]:
    """Return losses, each with at most one other fault.

    One session may expire and messages may be slow, but below all timeouts. If a second session expired, an ISR could
    contain only the machine that lost data.
    """
    found: list[Fault] = []
    for _ in range(chance.choice((1, 2))):
        broker = chance.randrange(brokers)
        loss = LosePower(brokers=(broker,), down_ms=_down_ms(chance))
        found.append(loss if chance.random() < 0.6 else Wipe(broker=broker, down_ms=loss.down_ms))
        if chance.random() < 0.6:
            found.append(EndSession(broker=(broker + 1 + chance.randrange(brokers - 1)) % brokers))
        if chance.random() < 0.4:
            source, target = _ends(chance, brokers)
            found.append(Slow(source=source, target=target, extra_ms=30, for_ms=chance.randrange(1_000, 8_000)))
    return found


_FAULTS: Final[Mapping[Kind, Callable[[random.Random, int], list[Fault]]]] = {
    Kind.CRASHES: _crashes,
    Kind.LOSSES: _losses,
    Kind.SYNCED: _synced,
    Kind.UNCLEAN: _crashes,
}
