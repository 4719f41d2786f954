"""Planted bugs: defective variants of production code, which replace the correct code for one run.

They prove that the checkers find violations. Each `Plant` has a seed and the invariants that its bug breaks with it;
`broker/tests/sim/test_planted` plays them. Invariant: a plant that no longer applies is an error: the code that it
replaces must exist, and the defective branch must have been taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

REPLICATED: Final = "replicated"
LOST: Final = "nothing-acknowledged-is-lost"
"""Invariants that many plants break."""

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
    transacts: bool = True
    """Whether the run has the transactions of the seed. They change the schedule, so that rare faults escape."""
    new_epochs: bool = False
    """Whether the cluster finalizes transaction version 2 (KIP-890) if the seed says so."""
    newer_groups: bool = False
    """Whether the members have the protocol and the assignor of the seed."""
    small_requests: bool = False
    """Whether brokers handle small Produce requests together at once if the seed says so."""


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
