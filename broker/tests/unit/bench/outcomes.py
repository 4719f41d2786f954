"""Outcomes of scenarios for the tests of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from comparison.results import Outcome


def outcome(
    name: str, ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]], **failures: str
) -> Outcome:
    """Return the outcome of a scenario: the figures of each run of Odradek and of Apache Kafka, and the failures."""
    return Outcome(
        scenario=name,
        day="2026-01-02",
        scale=1.0,
        machine="a machine",
        versions={"Odradek": "1"},
        runs={"odradek": tuple(ours), "apache": tuple(theirs)},
        failures=failures,
    )
