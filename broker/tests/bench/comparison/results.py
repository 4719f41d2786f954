"""Raw results and their file: what each run of each scenario gave, kept so that later partial runs add to it. Pure.

Outcomes enter, JSON leaves, and the other way round. Read and written by `command`, read by `document`.
Invariant: an outcome replaces the whole outcome of the same scenario, so that no median mixes two days or machines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from comparison.figures import Figures

FORMAT: Final = 1


class ResultsError(ValueError):
    """A file of results cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario's counted runs on one day."""

    scenario: str
    day: str
    """ISO date."""
    scale: float
    """1 for the full number of records."""
    machine: str
    versions: Mapping[str, str]
    runs: Mapping[str, tuple[Figures, ...]]
    """System to its runs in order."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """System to the sentence that ended its runs."""


def merge(known: Iterable[Outcome], new: Iterable[Outcome]) -> list[Outcome]:
    """All outcomes, a new one in the place of a known one of its scenario; ordered by first appearance."""
    merged = {outcome.scenario: outcome for outcome in known}
    merged.update((outcome.scenario, outcome) for outcome in new)
    return list(merged.values())


def encode(outcomes: Iterable[Outcome]) -> str:
    """The text of a file of results."""
    return json.dumps({"format": FORMAT, "outcomes": [asdict(outcome) for outcome in outcomes]}, indent=1) + "\n"


def decode(text: str) -> list[Outcome]:
    """What `encode` wrote. `ResultsError` for anything else."""
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ResultsError(f"results of format {content['format']!r}: only {FORMAT} is known")
        return [_outcome(entry) for entry in content["outcomes"]]
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ResultsError(f"not a file of results: {error!r}") from error


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
