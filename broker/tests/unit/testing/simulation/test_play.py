"""The run of one seed: the same seed repeats the same run, and every failure becomes an outcome."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from odradek_testkit.simulation import play as game
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.group_plan import GroupPlan
from odradek_testkit.simulation.plan import ACKED, QUICK, Kill, Kind, Plan, TopicPlan
from odradek_testkit.simulation.play import Outcome, Standstill, play
from odradek_testkit.simulation.transactions.transaction_plan import TransactionPlan
from odradek_testkit.simulation.wholeness import missing
from odradek_testkit.simulation.world import World

PLAN = Plan(
    seed=1,
    kind=Kind.CRASHES,
    brokers=3,
    properties={"zookeeper.session.timeout.ms": "2000"},
    topics=(
        TopicPlan(name=ACKED, partitions=2, replicas=3, configs={"min.insync.replicas": "2"}, acks=-1),
        TopicPlan(name=QUICK, partitions=1, replicas=3, acks=1),
    ),
    transactions=TransactionPlan(),
    group=GroupPlan(),
    producers=1,
    consumers=1,
    directories=1,
    are_disks_remote=False,
    cold_share=0.0,
    long_reads=False,
    slow_syncs=False,
    small_requests=False,
    load_ms=4000,
    operations=(),
    faults=((1000, Kill(broker=1, down_ms=500, ends_session=False)),),
)
"""Four seconds of load and one crash."""


@pytest.fixture(autouse=True)
def _no_logs() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_run_that_holds_repeats_itself() -> None:
    lines: list[str] = []
    outcome = play(1, plan=PLAN, on_line=lines.append)
    assert outcome.violation is None, outcome.text
    assert outcome == play(1, plan=PLAN)
    assert tuple(lines) == outcome.trace
    assert any("kill broker-1" in line for line in lines)
    assert outcome.acknowledged > 10
    assert outcome.generations > 0
    assert outcome.faults == 1


def test_another_seed_is_another_run() -> None:
    assert play(1, plan=PLAN).digest != play(1, plan=dataclasses.replace(PLAN, seed=2)).digest


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_run_does_not_depend_on_its_process(hash_seed: str) -> None:
    """The hash seed of the process determines the order of sets of strings."""
    script = (
        "import logging; logging.disable(50)\nfrom odradek_testkit.simulation.play import play\nprint(play(3).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    output = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == play(3).digest


def failing(monkeypatch: pytest.MonkeyPatch, make_error: Callable[[], BaseException]) -> Outcome:
    """Run the plan with an error at the end, in `settle`.

    The error is created there, because pytest keeps parameters alive, and an error that was raised keeps its world.
    """

    async def settle(world: World, plan: Plan) -> None:
        raise make_error()

    monkeypatch.setattr(game, "settle", settle)
    return play(1, plan=PLAN)


@pytest.mark.parametrize(
    ("make_error", "invariant", "output"),
    [
        (lambda: Violation("in-order", "what"), "in-order", "in-order: what"),
        (lambda: BaseExceptionGroup("", [Violation("one-owner", "who")]), "one-owner", "one-owner: who"),
        (lambda: KeyError("a bug"), "no-surprise", "KeyError: 'a bug'"),
        (Standstill, "no-standstill", "no-standstill"),
    ],
)
def test_whatever_goes_wrong_is_reported(
    monkeypatch: pytest.MonkeyPatch, make_error: Callable[[], BaseException], invariant: str, output: str
) -> None:
    outcome = failing(monkeypatch, make_error)
    assert outcome.invariant == invariant
    assert outcome.violation is not None
    assert output in outcome.violation
    assert "make sim SEED=1" in outcome.text
    assert outcome.trace[-1] in outcome.text


def test_a_run_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game, "MAX_STEPS", 100)
    assert play(1, plan=PLAN).invariant == "no-standstill"


def test_a_client_bug_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("odradek_testkit.simulation.readers.Reader.run", run)
    outcome = play(1, plan=PLAN)
    assert outcome.invariant == "no-surprise"
    assert "ZeroDivisionError" in (outcome.violation or "")


def test_a_machine_that_stays_away_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    async def settle(world: World, plan: Plan) -> None:
        while missing(world):
            await world.clock.sleep_ms(250)
        world.machines[2].kill()
        await world.clock.sleep_ms(5000)
        seen.append(missing(world))
        raise Violation("enough", "seen")

    monkeypatch.setattr(game, "settle", settle)
    assert play(1, plan=PLAN).invariant == "enough"
    output = "; ".join(seen[0])
    for what in ("broker-2 does not serve: off", "only 0, 1 are registered", "acked-0 has the ISR ("):
        assert what in output
