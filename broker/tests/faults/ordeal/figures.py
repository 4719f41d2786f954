"""Summarizes the measurements by kind of fault and compares them with the goals: values, a table, JSON. Pure.

`running` adds an `Outcome` for each episode. The results are `Summary` rows and the text. Invariants: an episode of
overlapping faults counts for no kind, because it is unknown which of them made a client wait; a value that was not
measured is None, never 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ordeal.kinds import TRAITS, Fault, Kind, Timeouts, goal_ms

MISSED: Final = "▼"
_QUIET: Final = "no fault"
_GIVEN_BACK: Final = "preferred election"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The effect of one episode on clients. Times are in milliseconds."""

    number: int
    faults: tuple[Fault, ...]
    began_s: float
    """Time since the start of the run."""
    led: tuple[float, ...]
    """Longest time without an acknowledgement of each partition that the broker led, or of all if it was not a
    broker."""
    others: tuple[float, ...]
    """The same for the other partitions, whose leaders did not change."""
    elsewhere: tuple[float, ...]
    """For each partition that the broker led and that got another leader: the time until a broker named that leader."""
    quiet: tuple[float, ...]
    """The same just before the fault: the part of the time that the measurement adds."""
    given_back: tuple[float, ...]
    """The same for partitions whose leadership was moved back to the preferred leader before."""
    whole_ms: float
    """Time from the fault until every replica was in sync again."""

    @property
    def is_mixed(self) -> bool:
        """Whether faults overlapped."""
        return len(self.faults) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A row of the table."""

    title: str
    kind: str | None = None
    count: int = 0
    goal_ms: float | None = None
    p50_ms: float | None = None
    max_ms: float | None = None
    elsewhere_p50_ms: float | None = None
    elsewhere_max_ms: float | None = None
    others_p50_ms: float | None = None
    others_max_ms: float | None = None
    whole_p50_ms: float | None = None
    missed: int = 0
    """Number of episodes in which a partition waited longer than the goal."""


def missed(outcome: Outcome, timeouts: Timeouts) -> str | None:
    """Return a description of the goal that an episode missed; None if it missed none."""
    if outcome.is_mixed or not outcome.led:
        return None
    fault = outcome.faults[0]
    goal = goal_ms(fault, timeouts)
    worst = max(outcome.led)
    if goal is None or worst <= goal:
        return None
    return f"episode {outcome.number}, {fault}: a partition waited {worst:.0f} ms, but the goal is {goal:.0f} ms"


def summaries(outcomes: Sequence[Outcome], timeouts: Timeouts) -> list[Summary]:
    """Return the rows: times without a fault, then each kind, then overlapping faults."""
    rows = [
        *_plain_row(_QUIET, [outcome.quiet for outcome in outcomes]),
        *_plain_row(_GIVEN_BACK, [outcome.given_back for outcome in outcomes]),
    ]
    for kind in Kind:
        for hard in (False, True):
            found = [o for o in outcomes if not o.is_mixed and (o.faults[0].kind, o.faults[0].hard) == (kind, hard)]
            if found:
                title = TRAITS[kind].title + (", with SIGKILL" if hard else "")
                rows.append(_row(title, kind.value, found, timeouts))
    mixed = [outcome for outcome in outcomes if outcome.is_mixed]
    if mixed:
        rows.append(_row("two faults at once", None, mixed, timeouts))
    return rows


def _plain_row(title: str, measured: Sequence[Sequence[float]]) -> list[Summary]:
    """Return the row of measurements without a fault, if there are any."""
    times = [time for each in measured for time in each]
    if not times:
        return []
    count = sum(bool(each) for each in measured)
    return [Summary(title=title, count=count, p50_ms=statistics.median(times), max_ms=max(times))]


def _row(title: str, kind: str | None, outcomes: Sequence[Outcome], timeouts: Timeouts) -> Summary:
    led = [time for outcome in outcomes for time in outcome.led]
    others = [time for outcome in outcomes for time in outcome.others]
    elsewhere = [time for outcome in outcomes for time in outcome.elsewhere]
    return Summary(
        title=title,
        kind=kind,
        count=len(outcomes),
        goal_ms=None if kind is None else goal_ms(outcomes[0].faults[0], timeouts),
        p50_ms=_median(led),
        max_ms=max(led, default=None),
        elsewhere_p50_ms=_median(elsewhere),
        elsewhere_max_ms=max(elsewhere, default=None),
        others_p50_ms=_median(others),
        others_max_ms=max(others, default=None),
        whole_p50_ms=_median([outcome.whole_ms for outcome in outcomes]),
        missed=sum(missed(outcome, timeouts) is not None for outcome in outcomes),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


HEADINGS: Final = (
    "fault",
    "times",
    "led: p50",
    "max",
    "goal",
    "new leader: p50",
    "max",
    "others: p50",
    "max",
    "whole again",
)


def cells(row: Summary) -> tuple[str, ...]:
    """Return a row as text, with times in milliseconds."""
    worst = _number(row.max_ms) + (f" {MISSED} {row.missed}×" if row.missed else "")
    return (
        row.title,
        str(row.count),
        _number(row.p50_ms),
        worst,
        _number(row.goal_ms),
        _number(row.elsewhere_p50_ms),
        _number(row.elsewhere_max_ms),
        _number(row.others_p50_ms),
        _number(row.others_max_ms),
        _number(row.whole_p50_ms),
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def markdown(rows: Iterable[Summary]) -> str:
    """Return the table in Markdown."""
    lines = [HEADINGS, ("---",) + ("---:",) * (len(HEADINGS) - 1), *map(cells, rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def plain(value: Any) -> Any:
    """Convert a dataclass of this package for JSON, with the names of kinds."""
    if isinstance(value, Kind):
        return value.value
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    slots = getattr(value, "__dataclass_fields__", None)
    return value if slots is None else {name: plain(getattr(value, name)) for name in slots}
