"""Every planted fault is found by its seed, which is green without it: so the checkers see, and see the plant.

A plant that no longer does anything wrong fails its test, too.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from functools import cache

import pytest

from odradek_testkit.simulation.plants import PLANTS, Plant, planted
from odradek_testkit.simulation.play import play
from odradek_testkit.simulation.world import World


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Logged tracebacks would keep whole worlds until their loops are long closed."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@cache
def verdict_without_plant(seed: int) -> str | None:
    return play(seed).violation


def worlds_kept() -> set[int]:
    """Which worlds somebody holds; those that another test keeps stay where they are, and so do their addresses."""
    gc.collect()
    return {id(each) for each in gc.get_objects() if isinstance(each, World)}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_fault_is_found(plant: Plant) -> None:
    kept_before = worlds_kept()
    with planted(plant) as state:
        outcome = play(plant.seed)
    assert state.bites, f"{plant.name} did nothing wrong in seed {plant.seed}: it no longer applies"
    assert outcome.invariant in plant.finds, outcome.text
    assert worlds_kept() <= kept_before, "what ended in the middle would speak up in a later test"
    assert verdict_without_plant(plant.seed) is None


def test_there_are_enough_of_them() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 12
