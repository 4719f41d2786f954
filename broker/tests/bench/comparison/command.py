"""The command line of the benchmark: selects scenarios and runs, prints tables and stores results."""

from __future__ import annotations

import datetime
import logging
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import click
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from comparison import document, machine, results
from comparison.curves import CURVES
from comparison.declarations import Scenario, estimate_seconds
from comparison.results import Outcome
from comparison.running import measure
from comparison.scenarios import THEMES, chosen
from odradek_testkit.interop.apache import jars

BENCH: Final = Path(__file__).resolve().parents[1]
ROOT: Final = BENCH.parents[2]
DOCUMENT: Final = ROOT / "docs" / "benchmarks.md"
RESULTS: Final = BENCH / "results.json"
REMARKS: Final = BENCH / "remarks.toml"
QUICK_SCALE: Final = 0.05
NEEDED_BYTES: Final = 30 << 30

console = Console(stderr=True)


@click.command()
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run these scenarios, or all whose names begin with this text. Cost curves run only if named: curve-.",
)
@click.option("--list", "list_them", is_flag=True, help="List the scenarios and how long each takes.")
@click.option("--quick", is_flag=True, help="One run with a twentieth of the work, to check that the benchmark works.")
@click.option(
    "--runs", default=3, show_default=True, type=click.IntRange(1, 99), help="Number of counted runs of each system."
)
@click.option("--scale", default=1.0, show_default=True, help="Factor for the number of records.")
@click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format: tables or raw results.",
)
@click.option(
    "--results",
    "results_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=RESULTS,
    help="File of raw results, which this run extends. The document is created from the whole file.",
)
@click.option(
    "--document",
    "document_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DOCUMENT,
    help="File for the tables.  [default: docs/benchmarks.md]",
)
@click.option("--verbose", is_flag=True, help="Print stack traces of errors.")
@click.option("--write/--no-write", default=None, help="Store results and write the document.  [default: unless quick]")
def main(
    *,
    only: Sequence[str],
    list_them: bool,
    quick: bool,
    runs: int,
    scale: float,
    output: str,
    results_path: Path,
    document_path: Path,
    verbose: bool,
    write: bool | None,
) -> None:
    """Compare Odradek with Apache Kafka 3.9.1 on the same machine with the same clients.

    Results are stored in a file, so the tables of docs/benchmarks.md may come from several runs. Ctrl-C stops all
    processes, removes temporary files, and keeps the results of completed scenarios.
    """
    logging.basicConfig(level="WARNING", handlers=[RichHandler(console=console, show_path=False)], format="%(message)s")
    logging.getLogger("comparison").setLevel("DEBUG" if verbose else "WARNING")
    signal.signal(signal.SIGTERM, _interrupt)
    runs, scale = (1, scale * QUICK_SCALE) if quick else (runs, scale)
    try:
        scenarios = chosen(only)
        known = results.decode(results_path.read_text(encoding="utf-8")) if results_path.exists() else []
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if list_them:
        _list(scenarios, runs, scale)
        return
    new = _run(scenarios, runs=runs, scale=scale)
    if write or (write is None and not quick):
        merged = results.merge(known, new)
        results_path.write_text(results.encode(merged), encoding="utf-8")
        document_path.write_text(document.render(merged, _remarks()), encoding="utf-8")
    click.echo(results.encode(new) if output == "json" else _tables(new), nl=False)
    if len(new) < len(scenarios) or any(outcome.failures for outcome in new):
        sys.exit(1)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _list(scenarios: Sequence[Scenario], runs: int, scale: float) -> None:
    for scenario in scenarios:
        minutes = estimate_seconds(scenario, runs, scale) / 60
        click.echo(f"{scenario.name:28s} {minutes:5.1f} min  {scenario.theme}: {scenario.title}")
    click.echo(f"{'together':28s} {_minutes(scenarios, runs, scale):5.1f} min")


def _minutes(scenarios: Sequence[Scenario], runs: int, scale: float) -> float:
    return sum(estimate_seconds(scenario, runs, scale) for scenario in scenarios) / 60


def _run(scenarios: Sequence[Scenario], *, runs: int, scale: float) -> list[Outcome]:
    """Run the scenarios. Returns the completed ones, also after Ctrl-C."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < NEEDED_BYTES * min(1.0, scale):
        raise click.ClickException(f"the temporary folder has {free >> 30} GiB free, but up to 30 GiB are needed")
    folder = jars(machine.KAFKA_VERSION, ROOT / ".interop")
    console.print(f"{len(scenarios)} scenarios, about {_minutes(scenarios, runs, scale):.0f} minutes")
    kind, versions = machine.description(), machine.versions(ROOT)
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    new: list[Outcome] = []
    with Progress(*columns, console=console) as progress:
        total = sum(2 * (runs + scenario.warm_ups) for scenario in scenarios)
        task = progress.add_task("starting", total=total)

        def step(what: str) -> None:
            progress.update(task, advance=1, description=what)

        try:
            for scenario in scenarios:
                found = measure(scenario, runs=runs, scale=scale, jars=folder, step=step)
                new.append(
                    Outcome(
                        scenario=scenario.name,
                        day=day,
                        scale=scale,
                        machine=kind,
                        versions=versions,
                        runs=found.runs,
                        failures=found.failures,
                    )
                )
        except KeyboardInterrupt:
            console.print("[bold]Interrupted: all processes were stopped.[/]")
    return new


def _remarks() -> dict[str, str]:
    if not REMARKS.exists():
        return {}
    content = tomllib.loads(REMARKS.read_text(encoding="utf-8"))
    return {str(name): " ".join(str(text).split()) for name, text in content.items()}


def _tables(outcomes: Sequence[Outcome]) -> str:
    """Return the tables of all themes and curves with results."""
    found = {outcome.scenario: outcome for outcome in outcomes}
    tables = [
        (theme.title, document.table(theme, rows)) for theme in THEMES if (rows := document.rows_of(theme, found))
    ]
    measured = [curve for curve in CURVES if any(scenario.name in found for scenario in curve.scenarios)]
    tables += [(curve.title, document.curve_table(curve, found)) for curve in measured]
    return "\n".join(f"{title}\n\n{table}\n" for title, table in tables)
