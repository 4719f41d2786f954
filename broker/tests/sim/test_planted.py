"""The seed of each planted fault finds it, and passes without it. So the checkers detect violations, and the fault
works.

A planted fault that no longer has an effect also fails its test.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from odradek_testkit.simulation.plan import Plan, draw
from odradek_testkit.simulation.plants.catalog import PLANTS
from odradek_testkit.simulation.plants.planting import Plant, planted
from odradek_testkit.simulation.play import play
from odradek_testkit.simulation.world import World

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Disable logging: logged tracebacks would keep simulated worlds in memory after their event loops are closed."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def plan_of(seed: int, transacts: bool, new_epochs: bool, newer_groups: bool, small_requests: bool) -> Plan:
    plan = draw(seed, transacts=transacts, new_epochs=new_epochs, newer_groups=newer_groups)
    return plan if small_requests else replace(plan, small_requests=False)


@cache
def verdict_without_plant(*choices: Any) -> str | None:
    plan = plan_of(*choices)
    return play(plan.seed, plan=plan).violation


def worlds_kept() -> set[int]:
    """Return the addresses of the worlds in memory. Those that another test keeps do not change."""
    gc.collect()
    return {id(each) for each in gc.get_objects() if isinstance(each, World)}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_fault_is_found(plant: Plant) -> None:
    kept_before = worlds_kept()
    choices = (plant.seed, plant.transacts, plant.new_epochs, plant.newer_groups, plant.small_requests)
    with planted(plant) as state:
        outcome = play(plant.seed, plan=plan_of(*choices))
    assert state.bites, f"{plant.name} has no effect in seed {plant.seed}: it no longer applies"
    assert outcome.invariant in plant.finds, outcome.text
    assert worlds_kept() <= kept_before, "a run that ended early would fail in a later test"
    assert verdict_without_plant(*choices) is None


def test_there_are_enough_of_them() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 12
