"""Plans an infinite sequence of faults from a seed. Pure.

Takes a seed and the properties of the cluster, and yields episodes. `running` plays them in order, and waits after each
until all replicas are in sync. Invariants: every kind occurs once before any occurs again; two faults of an episode
never affect the same process, or more brokers than may fail; a fault that loses data does not overlap with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from ordeal.kinds import TRAITS, Fault, Kind

TOGETHER: Final = 0.2
"""Fraction of the episodes in which a second fault may begin before the first one ends."""


class Step(NamedTuple):
    """The begin or the end of a fault, with the time since the beginning of the episode."""

    at_ms: float
    ends: bool
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The faults between two times at which all replicas are in sync."""

    number: int
    faults: tuple[Fault, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether faults overlap, so that a measured time does not belong to one of them."""
        return len(self.faults) > 1

    def steps(self) -> list[Step]:
        """Return the begins and ends of faults in order. Each fault begins before it ends, even if it has no
        duration."""
        steps = [
            Step(fault.after_ms + ends * fault.lasting_ms, ends, fault)
            for fault in self.faults
            for ends in (False, True)
        ]
        return sorted(steps, key=lambda step: step[:2])

    def __str__(self) -> str:
        return " and ".join(str(fault) for fault in self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The input of a plan."""

    seed: int
    brokers: int
    session_ms: float
    kinds: Sequence[Kind] = tuple(Kind)
    together: float = TOGETHER


def episodes(draw: Draw) -> Iterator[Episode]:
    """Yield the episodes of a seed, without end. Raises `ValueError` if there are no kinds or no brokers."""
    if not draw.kinds or draw.brokers < 1:
        raise ValueError("a plan needs kinds of faults and brokers")
    chance = Random(draw.seed)
    number = 0
    while True:
        kinds = list(draw.kinds)
        chance.shuffle(kinds)
        for kind in kinds:
            number += 1
            yield Episode(number=number, faults=_faults(kind, draw, chance))


def _faults(kind: Kind, draw: Draw, chance: Random) -> tuple[Fault, ...]:
    first = _fault(kind, draw, chance, others=range(draw.brokers))
    if first.trait.takes_data or chance.random() >= draw.together:
        return (first,)
    others = [broker for broker in range(draw.brokers) if broker != first.broker]
    seconds = [
        second
        for second in draw.kinds
        if not TRAITS[second].takes_data and (bool(others) if TRAITS[second].on_broker else first.broker is not None)
    ]
    if not seconds:
        return (first,)
    second = _fault(chance.choice(seconds), draw, chance, others=others)
    begins = chance.uniform(0.0, max(first.lasting_ms, draw.session_ms / 2))
    return (first, _later(second, begins))


def _fault(kind: Kind, draw: Draw, chance: Random, *, others: Sequence[int]) -> Fault:
    trait = TRAITS[kind]
    return Fault(
        kind=kind,
        broker=chance.choice(others) if trait.on_broker else None,
        lasting_ms=round(chance.uniform(*trait.lasting) * draw.session_ms),
        hard=kind in (Kind.WIPE, Kind.ZOOKEEPER_RESTART) and chance.random() < 0.5,
    )


def _later(fault: Fault, after_ms: float) -> Fault:
    return Fault(
        kind=fault.kind, broker=fault.broker, after_ms=round(after_ms), lasting_ms=fault.lasting_ms, hard=fault.hard
    )
