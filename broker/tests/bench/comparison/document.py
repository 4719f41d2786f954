"""Writes the results as Markdown: one table for each theme and cost curve, and the missed goals. Pure.

`command` calls it. Of the machine, it contains only its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from comparison.curves import CURVES, PREFIX, Curve
from comparison.declarations import Scenario, Theme
from comparison.figures import OURS, THEIRS, Summary, ratio, summary_of
from comparison.goals import GROWTH_BOUND, GROWTHS, METRICS, Metric
from comparison.results import Outcome
from comparison.scenarios import CATALOGUE, THEMES

SHORT: Final = "▼"
NOTHING: Final = "–"


def render(outcomes: Iterable[Outcome], remarks: Mapping[str, str]) -> str:
    """Return the document. `remarks`: why a scenario misses a goal and what was tried, in Markdown."""
    known = {outcome.scenario: outcome for outcome in outcomes}
    parts = [_head(known.values())]
    for theme in THEMES:
        rows = rows_of(theme, known)
        if rows:
            parts.append(f"## {theme.title}\n\n{theme.text}\n\n{table(theme, rows)}")
    parts.append(_cost_curves(known))
    parts.append(_shortfalls(known, remarks))
    parts.append(_provenance(known.values()))
    return "\n\n".join(parts) + "\n"


def rows_of(theme: Theme, known: Mapping[str, Outcome]) -> list[tuple[Scenario, Outcome]]:
    """Return the results of a theme's scenarios, in the order of the catalog."""
    return [(one, known[one.name]) for one in CATALOGUE if one.theme == theme.name and one.name in known]


def table(theme: Theme, rows: Sequence[tuple[Scenario, Outcome]]) -> str:
    """Return the table of a theme."""
    first, *others = (METRICS[name] for name in theme.metrics)
    head = ["scenario", f"Odradek, {first.label}", "Apache Kafka", _goal_head("ratio", first)]
    head += [_goal_head(metric.label, metric) for metric in others]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(_row(theme, scenario, outcome)) + " |" for scenario, outcome in rows]
    return "\n".join(lines)


def _goal_head(label: str, metric: Metric) -> str:
    return label if metric.goal is None else f"{label} ({metric.goal.text})"


def _row(theme: Theme, scenario: Scenario, outcome: Outcome) -> list[str]:
    first, *others = theme.metrics
    ours, theirs = _summaries(outcome, first)
    return [
        scenario.title,
        _with_range(METRICS[first], ours, outcome.failures.get(OURS)),
        _with_range(METRICS[first], theirs, outcome.failures.get(THEIRS)),
        _ratio_cell(METRICS[first], ours, theirs, strong=True),
        *(_pair_cell(METRICS[name], *_summaries(outcome, name)) for name in others),
    ]


def _summaries(outcome: Outcome, metric: str) -> tuple[Summary | None, Summary | None]:
    return summary_of(outcome.runs.get(OURS, ()), metric), summary_of(outcome.runs.get(THEIRS, ()), metric)


def _with_range(metric: Metric, summary: Summary | None, failure: str | None) -> str:
    if summary is None:
        return "failed" if failure else NOTHING
    return f"{metric.form(summary.median)} ({metric.form(summary.low)} … {metric.form(summary.high)})"


def _ratio_cell(metric: Metric, ours: Summary | None, theirs: Summary | None, *, strong: bool = False) -> str:
    value = ratio(ours, theirs)
    if value is None:
        return NOTHING
    text = f"**{value:.2f}**" if strong else f"{value:.2f}"
    return text if metric.goal is None or metric.goal.met(value) else f"{text} {SHORT}"


def _pair_cell(metric: Metric, ours: Summary | None, theirs: Summary | None) -> str:
    if ours is None and theirs is None:
        return NOTHING
    pair = " / ".join(NOTHING if one is None else metric.form(one.median) for one in (ours, theirs))
    return pair if ratio(ours, theirs) is None else f"{pair} = {_ratio_cell(metric, ours, theirs)}"


def shortfalls(scenario: Scenario, outcome: Outcome) -> list[str]:
    """Return a description of each goal that a scenario misses, and of failures."""
    found = [f"{system} failed ({reason})" for system, reason in outcome.failures.items()]
    theme = next(theme for theme in THEMES if theme.name == scenario.theme)
    for name in theme.metrics:
        metric = METRICS[name]
        value = ratio(*_summaries(outcome, name))
        if metric.goal is not None and value is not None and not metric.goal.met(value):
            found.append(f"{metric.label} {value:.2f} ({metric.goal.text})")
    for name, limit in scenario.limits.items():
        summary = summary_of(outcome.runs.get(OURS, ()), name)
        if summary is not None and summary.median > limit:
            metric = METRICS[name]
            found.append(f"{metric.label} {metric.form(summary.median)} (≤ {limit:g})")
    for kind, (before, during) in GROWTHS.items():
        growth = ratio(_summaries(outcome, during)[0], _summaries(outcome, before)[0])
        if growth is not None and growth > GROWTH_BOUND:
            found.append(f"{kind} p99 grows {growth:.1f} times (≤ {GROWTH_BOUND:g})")
    return found


def curve_table(curve: Curve, known: Mapping[str, Outcome]) -> str:
    """Return the table of a curve: a row for each measured size, and what changes from the first to the last one.

    The first metric has a column for each system and one for the ratio, as in the tables of themes.
    """
    first, *others = (METRICS[name] for name in curve.metrics)
    head = [curve.title.lower(), f"Odradek, {first.label}", "Apache Kafka", "ratio"]
    head += [metric.label for metric in others]
    rows = [_curve_row(curve, scenario, known[scenario.name]) for scenario in curve.scenarios if scenario.name in known]
    rows.append(["**added**", *_added_cells(curve, known)])
    rows.append(["**growth**", *_growth_cells(curve, known, lambda factor: f"× {factor:.3g}")])
    rows.append(["**exponent**", *_growth_cells(curve, known, lambda factor: f"{exponent_of(curve, factor):.2f}")])
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:]])


def _curve_row(curve: Curve, scenario: Scenario, outcome: Outcome) -> list[str]:
    first, *others = (replace(METRICS[name], goal=None) for name in curve.metrics)
    ours, theirs = _summaries(outcome, curve.metrics[0])
    return [
        scenario.title,
        _with_range(first, ours, outcome.failures.get(OURS)),
        _with_range(first, theirs, outcome.failures.get(THEIRS)),
        _ratio_cell(first, ours, theirs, strong=True),
        *(
            _pair_cell(metric, *_summaries(outcome, name))
            for metric, name in zip(others, curve.metrics[1:], strict=True)
        ),
    ]


Growth = tuple[float | None, float | None]
"""Growth factors of Odradek and of Apache Kafka."""


def growth_of(curve: Curve, known: Mapping[str, Outcome], metric: str) -> Growth:
    """Return the median at the last size of a curve divided by that at the first; None if either is missing."""
    ours, theirs = _ends(curve, known, metric)
    return ratio(*reversed(ours)), ratio(*reversed(theirs))


def _ends(curve: Curve, known: Mapping[str, Outcome], metric: str) -> list[tuple[Summary | None, Summary | None]]:
    """Return a metric at the first and at the last size of a curve, of Odradek and of Apache Kafka."""
    ends = (known.get(curve.scenarios[0].name), known.get(curve.scenarios[-1].name))
    first, last = ((None, None) if end is None else _summaries(end, metric) for end in ends)
    return list(zip(first, last, strict=True))


def _added_cells(curve: Curve, known: Mapping[str, Outcome]) -> list[str]:
    """Return the cells of the differences between the last and the first size, in the columns of the metrics."""
    cells: list[str] = []
    for place, metric in enumerate(curve.metrics):
        pair = [_added(metric, *ends) for ends in _ends(curve, known, metric)]
        cells += [*pair, ""] if place == 0 else [" / ".join(pair)]
    return cells


def _added(metric: str, first: Summary | None, last: Summary | None) -> str:
    if first is None or last is None:
        return NOTHING
    difference = last.median - first.median
    return f"{'-' if difference < 0 else '+'}{METRICS[metric].form(abs(difference))}"


def exponent_of(curve: Curve, factor: float) -> float:
    """Return the exponent of a growth factor: the metric grows as this power of the size, from the first to the last.

    0: it does not depend on the size; 1: it is proportional to it. -inf for a metric that falls to 0.
    """
    return math.log(factor) / math.log(curve.values[-1] / curve.values[0]) if factor else -math.inf


def _growth_cells(curve: Curve, known: Mapping[str, Outcome], form: Callable[[float], str]) -> list[str]:
    """Return the cells of a row of growths, in the columns of the metrics. `form` returns the text of a factor."""
    cells: list[str] = []
    for place, metric in enumerate(curve.metrics):
        growth = growth_of(curve, known, metric)
        pair = [NOTHING if factor is None else form(factor) for factor in growth]
        mark = SHORT if _grows_faster(metric, growth) else ""
        cells += [*pair, mark] if place == 0 else [f"{' / '.join(pair)} {mark}".strip()]
    return cells


def _grows_faster(metric: str, growth: Growth) -> bool:
    """Whether a cost grows faster than Kafka's, or a rate falls faster. False if a factor is missing."""
    ours, theirs = growth
    return ours is not None and theirs is not None and not METRICS[metric].grows_at_most(ours, theirs)


def curve_verdict(known: Mapping[str, Outcome]) -> str:
    """Return whether a curve grows faster than Kafka's, in one sentence or two."""
    compared = [curve for curve in CURVES if None not in growth_of(curve, known, curve.metrics[0])]
    if not compared:
        return "No curve is measured at its first and last size yet."
    faster: list[str] = []
    for curve in compared:
        worse = [name for name in curve.metrics if _grows_faster(name, growth_of(curve, known, name))]
        if worse:
            faster.append(f"{curve.title.lower()} ({', '.join(METRICS[name].label for name in worse)})")
    verdict = "No curve grows faster than Kafka's."
    if faster:
        verdict = f"Curves that grow faster than Kafka's: {'; '.join(faster)}."
    missing = [curve.title.lower() for curve in CURVES if curve not in compared]
    return f"**{verdict}**" + (f" Not compared yet: {', '.join(missing)}." if missing else "")


def curve_shortfalls(curve: Curve, known: Mapping[str, Outcome]) -> list[str]:
    """Return a description of each metric of a curve that grows worse than Kafka's, and of failures."""
    found = [
        f"{scenario.title}: {system} failed ({reason})"
        for scenario in curve.scenarios
        if scenario.name in known
        for system, reason in known[scenario.name].failures.items()
    ]
    for metric in curve.metrics:
        ours, theirs = growth = growth_of(curve, known, metric)
        if _grows_faster(metric, growth):
            found.append(f"{METRICS[metric].label} × {ours:.3g} (Apache Kafka × {theirs:.3g})")
    return found


def _cost_curves(known: Mapping[str, Outcome]) -> str:
    parts = [
        "## Cost curves\n\n"
        f"Each curve varies one size and keeps the rest (`make bench ONLY={PREFIX}`, which the full run does not "
        "include). The client is that of the busy connections. Pairs are the medians of Odradek / Apache Kafka and "
        "their ratio. Added is the last size's figure minus the first's. Growth is the last size's figure divided by "
        "the first's. The exponent is the power of the size that gives this growth: 0 if the figure does not depend on "
        "the size, 1 if it is proportional to it. The goal is that no cost grows faster than Apache Kafka's, and no "
        f"rate falls faster; {SHORT} marks growth that misses it. A system with a lower cost at the first size can "
        "have more growth although the sizes add less to its cost.\n\n"
        f"{curve_verdict(known)}"
    ]
    for curve in CURVES:
        measured = any(scenario.name in known for scenario in curve.scenarios)
        absent = [f"`{scenario.name}`" for scenario in curve.scenarios if scenario.name not in known]
        parts.append(f"### {curve.title}\n\n{curve.text}")
        parts += [curve_table(curve, known)] * measured
        parts += [f"Not measured yet: {', '.join(absent)}."] * bool(absent)
    return "\n\n".join(parts)


def _head(outcomes: Iterable[Outcome]) -> str:
    days = sorted({outcome.day for outcome in outcomes})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else "no day yet"
    return f"""# Benchmarks

Measured by `make bench`, {when}. Odradek and Apache Kafka 3.9.1 (ZooKeeper mode, with the settings and Java options of
its start scripts, heap 1 GiB, with three brokers 512 MiB each) run in turn on one machine, clients and brokers on the
same cores, with the same clients. Each figure is the median of the runs, with the minimum and the maximum in brackets.
The order of the systems alternates from run to run, and a warm-up precedes the runs of systems that need one. Absolute
figures depend on the machine and the hour; the ratios, Odradek to Apache Kafka, are comparable.

The column heads have the goals; {SHORT} marks figures that miss them, and the last sections give the reasons. CPU is
the processor time of all broker processes and their children over the whole run; memory is their resident size, the
maximum during the run and the last value. How it is measured: [design note 0006](design/0006-benchmarks.md)."""


def _shortfalls(known: Mapping[str, Outcome], remarks: Mapping[str, str]) -> str:
    """Group missed goals with the same reason, followed by the reason."""
    groups: dict[str, list[str]] = {}
    for scenario in CATALOGUE:
        outcome = known.get(scenario.name)
        missed = [] if outcome is None else shortfalls(scenario, outcome)
        if missed:
            remark = remarks.get(scenario.name) or remarks.get(scenario.theme, "")
            line = f"- **{scenario.title}** (`{scenario.name}`): {'; '.join(missed)}."
            groups.setdefault(remark, []).append(line)
    for curve in CURVES:
        if missed := curve_shortfalls(curve, known):
            line = f"- **Growth by {curve.title.lower()}** (`{curve.name}`): {'; '.join(missed)}."
            groups.setdefault(remarks.get(curve.name, ""), []).append(line)
    parts = ["\n".join(lines) + f"\n\n  {remark}" * bool(remark) for remark, lines in groups.items()]
    absent = [f"`{scenario.name}`" for scenario in CATALOGUE if scenario.name not in known]
    if absent:
        parts.append(f"- Not measured yet: {', '.join(absent)}.")
    return "## Missed goals and reasons\n\n" + ("\n\n".join(parts) or "Nothing.")


def _provenance(outcomes: Iterable[Outcome]) -> str:
    lines = ["## Where the figures come from", "", "| scenario | command | day | scale | machine | versions |"]
    lines.append("|" + " --- |" * 6)
    for outcome in outcomes:
        versions = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
        scale = "" if outcome.scale == 1 else f" SCALE={outcome.scale:g}"
        command = f"`make bench ONLY={outcome.scenario}{scale}`"
        lines.append(
            f"| `{outcome.scenario}` | {command} | {outcome.day} | {outcome.scale:g} | {outcome.machine} | {versions} |"
        )
    return "\n".join(lines)
