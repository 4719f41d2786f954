"""The declarations of the cost curves, and their part of the document."""

from __future__ import annotations

import math

import pytest
from comparison.curves import CURVES, Curve
from comparison.document import SHORT, curve_table, curve_verdict, exponent_of, growth_of, render
from comparison.goals import METRICS
from comparison.results import Outcome
from comparison.scenarios import CATALOGUE, CURVE_SCENARIOS, chosen
from comparison.workloads.producing import ProduceBusy

from .outcomes import outcome

BY_NAME = {curve.name: curve for curve in CURVES}
PARTITIONS = BY_NAME["curve-partitions"]


def measured(curve: Curve, metric: str, ours: list[float], theirs: list[float]) -> dict[str, Outcome]:
    pairs = zip(curve.scenarios, ours, theirs, strict=True)
    return {one.name: outcome(one.name, [{metric: mine}], [{metric: other}]) for one, mine, other in pairs}


def test_points_of_the_curves() -> None:
    assert {name: list(curve.values) for name, curve in BY_NAME.items()} == {
        "curve-partitions": [1, 10, 100, 1_000, 10_000],
        "curve-connections": [1, 10, 100, 1_000, 5_000],
        "curve-brokers": [3, 6, 9],
        "curve-record-size": [10, 100, 1_000, 10_000, 100_000, 1_000_000],
    }
    labels = [scenario.title for scenario in BY_NAME["curve-record-size"].scenarios]
    assert labels == ["10 B", "100 B", "1 kB", "10 kB", "100 kB", "1 MB"]


@pytest.mark.parametrize(
    ("name", "field"),
    [("curve-partitions", "partitions"), ("curve-connections", "connections"), ("curve-record-size", "record_bytes")],
)
def test_a_curve_varies_its_size(name: str, field: str) -> None:
    curve = BY_NAME[name]
    assert [getattr(scenario.workload, field) for scenario in curve.scenarios] == list(curve.values)


def test_the_curve_of_brokers_varies_only_their_number() -> None:
    scenarios = BY_NAME["curve-brokers"].scenarios
    assert [scenario.brokers for scenario in scenarios] == [3, 6, 9]
    assert len({scenario.workload for scenario in scenarios}) == 1


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_each_point_sends_requests_on_each_connection_in_quick_mode_too(curve: Curve) -> None:
    assert set(curve.metrics) <= METRICS.keys()
    for scenario in curve.scenarios:
        quick = scenario.workload.scaled(0.05)
        assert isinstance(quick, ProduceBusy)
        assert quick.requests >= 10 * quick.connections
        assert quick.connections >= scenario.brokers


def test_curves_run_only_if_they_are_named() -> None:
    assert chosen([]) == list(CATALOGUE)
    assert [scenario.name for scenario in chosen(["curve-partitions-1"])] == ["curve-partitions-1"]
    assert chosen(["curve-"]) == list(CURVE_SCENARIOS)
    assert len(chosen(["curve-brokers", "idle"])) == 4
    names = [scenario.name for scenario in (*CATALOGUE, *CURVE_SCENARIOS)]
    assert len(set(names)) == len(names)


def test_growth_is_the_last_point_by_the_first() -> None:
    known = measured(PARTITIONS, "cpu_us", [10, 11, 12, 15, 20], [5, 6, 7, 8, 15])
    assert growth_of(PARTITIONS, known, "cpu_us") == (2.0, 3.0)
    *_, added, growth, exponent = curve_table(PARTITIONS, known).splitlines()
    assert added == "| **added** | +10.0 | +10.0 |  | – / – | – / – | – / – |"
    assert growth == "| **growth** | × 2 | × 3 |  | – / – | – / – | – / – |"
    assert exponent == "| **exponent** | 0.08 | 0.12 |  | – / – | – / – | – / – |"


def test_a_metric_that_falls_has_a_negative_difference() -> None:
    known = measured(PARTITIONS, "records_per_s", [90_000, 1, 1, 1, 20_000], [40_000, 1, 1, 1, 41_000])
    added = curve_table(PARTITIONS, known).splitlines()[-3]
    assert added == "| **added** | – | – |  | -70 k / +1000 | – / – | – / – |"


@pytest.mark.parametrize(
    ("factor", "exponent"), [(1, 0.0), (10_000, 1.0), (100, 0.5), (1e8, 2.0), (0.01, -0.5), (0, -math.inf)]
)
def test_the_exponent_is_the_power_of_the_size(factor: float, exponent: float) -> None:
    assert exponent_of(PARTITIONS, factor) == pytest.approx(exponent)


def test_the_verdict_names_the_curves_that_grow_faster() -> None:
    assert curve_verdict({}) == "No curve is measured at its first and last size yet."
    partitions = measured(PARTITIONS, "cpu_us", [10, 11, 12, 15, 20], [5, 6, 7, 8, 15])
    brokers = measured(BY_NAME["curve-brokers"], "cpu_us", [10, 11, 30], [10, 11, 12])
    assert curve_verdict(partitions) == (
        "**No curve grows faster than Kafka's.** Not compared yet: connections, brokers, record size."
    )
    assert curve_verdict(partitions | brokers) == (
        "**Curves that grow faster than Kafka's: brokers (CPU per record, µs).** "
        "Not compared yet: connections, record size."
    )
    every = {}
    for curve in CURVES:
        every |= measured(curve, "cpu_us", [1.0] * len(curve.values), [1.0] * len(curve.values))
    assert curve_verdict(every) == "**No curve grows faster than Kafka's.**"
    assert "**No curve grows faster than Kafka's.**" in render(every.values(), {})


def test_a_row_has_both_systems_and_their_ratio() -> None:
    known = measured(PARTITIONS, "cpu_us", [10, 11, 12, 15, 20], [5, 6, 7, 8, 15])
    lines = curve_table(PARTITIONS, known).splitlines()
    assert lines[0].startswith("| partitions | Odradek, CPU per record, µs | Apache Kafka | ratio | records/s |")
    assert lines[2] == "| 1 | 10.0 (10.0 … 10.0) | 5.00 (5.00 … 5.00) | **2.00** | – | – | – |"
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("metric", "ours", "theirs", "missed"),
    [
        ("cpu_us", 30.0, 20.0, True),
        ("cpu_us", 20.0, 30.0, False),
        ("cpu_us", 20.0, 20.0, False),
        ("records_per_s", 5.0, 8.0, True),
        ("records_per_s", 8.0, 5.0, False),
    ],
)
def test_growth_that_is_worse_than_the_other_is_marked_and_listed(
    metric: str, ours: float, theirs: float, missed: bool
) -> None:
    known = measured(PARTITIONS, metric, [10, 10, 10, 10, ours], [10, 10, 10, 10, theirs])
    assert [SHORT in line for line in curve_table(PARTITIONS, known).splitlines()[-2:]] == [missed, missed]
    text = render(known.values(), {"curve-partitions": "Each partition has a file."})
    assert ("**Growth by partitions** (`curve-partitions`): " in text) is missed
    assert ("Each partition has a file." in text) is missed


def test_growth_needs_both_ends() -> None:
    known = measured(PARTITIONS, "cpu_us", [10, 11, 12, 15, 20], [5, 6, 7, 8, 15])
    del known["curve-partitions-10000"]
    assert growth_of(PARTITIONS, known, "cpu_us") == (None, None)
    text = render(known.values(), {})
    assert "× " not in text
    assert "Not measured yet: `curve-partitions-10000`." in text


def test_a_failed_point_is_shown_and_listed() -> None:
    failed = outcome("curve-brokers-9", [{"cpu_us": 9.0}], [], apache="run 1: it broke")
    text = render([failed], {})
    assert "| 9 | 9.00 (9.00 … 9.00) | failed | – |" in text
    assert "(`curve-brokers`): 9: apache failed (run 1: it broke)." in text


def test_every_curve_has_a_section_in_the_document() -> None:
    section = render([], {}).partition("## Cost curves")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("### ")] == [
        f"### {curve.title}" for curve in CURVES
    ]
    assert all(f"`{scenario.name}`" in section for scenario in CURVE_SCENARIOS)
