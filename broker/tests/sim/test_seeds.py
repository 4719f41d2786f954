"""Fixed seeds: whole clusters with load and faults, without a violation. Half of them are played once a day.

The first test plays the seeds of all selected tests in other processes, and each test checks the outcome of its seed.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek_testkit.simulation.plan import Kind, draw
from odradek_testkit.simulation.play import Outcome
from odradek_testkit.simulation.search import play_many

pytestmark = pytest.mark.slow

PROCESSES = 2
LISTS = tomllib.loads(Path(__file__).with_name("seeds.toml").read_text(encoding="utf-8"))
FOUND: Mapping[int, str] = {entry["seed"]: entry["what"] for entry in LISTS["found"]}
DAILY = frozenset(LISTS["daily"])
SEEDS = sorted({*LISTS["fixed"], *DAILY, *FOUND})


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Mapping[int, Outcome]:
    """The outcomes of the seeds whose tests run."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    chosen = sorted({call.params["seed"] for call in calls if call is not None and "seed" in call.params})
    return {outcome.seed: outcome for outcome in play_many(chosen, PROCESSES)}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.daily) if s in DAILY else s for s in SEEDS])
def test_no_invariant_is_violated(outcomes: Mapping[int, Outcome], seed: int) -> None:
    outcome = outcomes[seed]
    assert outcome.violation is None, f"{outcome.text}\n\nthis seed once found: {FOUND.get(seed, 'nothing')}"


def test_there_are_enough_of_each_kind() -> None:
    assert len(SEEDS) >= 100
    assert DAILY.isdisjoint({*LISTS["fixed"], *FOUND})
    kinds = Counter(draw(seed).kind for seed in SEEDS if seed not in DAILY)
    assert min(kinds[kind] for kind in Kind) >= 10
    assert sum(draw(seed).transactions.writers > 0 for seed in SEEDS if seed not in DAILY) >= 20


def test_runs_do_something(outcomes: Mapping[int, Outcome]) -> None:
    """Check the sums of all seeds, because a run without operations has no violation."""
    if outcomes:
        assert all(outcome.acknowledged > 50 and outcome.generations > 0 for outcome in outcomes.values())
        assert sum(outcome.transactions for outcome in outcomes.values()) > len(outcomes)
        assert sum(outcome.faults for outcome in outcomes.values()) > len(outcomes)
