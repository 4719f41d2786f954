"""The raw results of all runs as JSON, which later runs of some scenarios extend. Pure.

`command` reads and writes the file. Invariant: an outcome replaces the whole earlier outcome of its scenario, so that
no median mixes two days or machines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from comparison.figures import Figures

FORMAT: Final = 1


class ResultsError(ValueError):
    """A results file is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The counted runs of a scenario on one day."""

    scenario: str
    day: str
    """ISO date."""
    scale: float
    """1 for the full number of records."""
    machine: str
    versions: Mapping[str, str]
    runs: Mapping[str, tuple[Figures, ...]]
    """Runs by system, in order."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Error message by system, if its runs failed."""


def merge(known: Iterable[Outcome], new: Iterable[Outcome]) -> list[Outcome]:
    """Return all outcomes; a new one replaces the one of its scenario. Ordered by first appearance."""
    merged = {outcome.scenario: outcome for outcome in known}
    merged.update((outcome.scenario, outcome) for outcome in new)
    return list(merged.values())


def encode(outcomes: Iterable[Outcome]) -> str:
    """Return the text of a results file."""
    return json.dumps({"format": FORMAT, "outcomes": [asdict(outcome) for outcome in outcomes]}, indent=1) + "\n"


def decode(text: str) -> list[Outcome]:
    """Return the outcomes in a results file. Raises `ResultsError` if it is invalid."""
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ResultsError(f"results of format {content['format']!r}: only {FORMAT} is supported")
        return [_outcome(entry) for entry in content["outcomes"]]
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ResultsError(f"not a results file: {error!r}") from error


def _outcome(entry: Mapping[str, Any]) -> Outcome:
    runs = {
        str(system): tuple({str(metric): float(value) for metric, value in run.items()} for run in runs)
        for system, runs in entry["runs"].items()
    }
    return Outcome(
        scenario=str(entry["scenario"]),
        day=str(entry["day"]),
        scale=float(entry["scale"]),
        machine=str(entry["machine"]),
        versions={str(name): str(version) for name, version in entry["versions"].items()},
        runs=runs,
        failures={str(system): str(reason) for system, reason in entry["failures"].items()},
    )
