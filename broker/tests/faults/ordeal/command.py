"""The command line of the fault run: options, a progress bar, a table or JSON at the end.

The exit status is 0 if there was no violation. Otherwise it is 1, the violations are printed, and the directory with
all logs is kept.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from odradek.base.errors import OdradekError
from ordeal.figures import HEADINGS, cells, markdown, plain, summaries
from ordeal.kinds import TRAITS, Kind
from ordeal.running import REQUEST_TIMEOUT_MS, Report, Settings, run

NEEDED_BYTES: Final = 4 << 30

console = Console(stderr=True)


@click.command()
@click.option(
    "--minutes",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0.1, 24 * 60),
    help="Duration of the run in minutes.",
)
@click.option(
    "--rounds", type=click.IntRange(1), help="End after this number of faults of each kind, even if there is time left."
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="Seed of the plan: the same seed gives the same faults in the same order.",
)
@click.option(
    "--only", multiple=True, type=click.Choice([kind.value for kind in Kind]), help="Inject only faults of this kind."
)
@click.option(
    "--partitions",
    default=50,
    show_default=True,
    type=click.IntRange(2, 1000),
    help="Number of partitions of the topic.",
)
@click.option("--rate", default=20.0, show_default=True, help="Records per second for each partition.")
@click.option(
    "--session-timeout-ms",
    default=6_000,
    show_default=True,
    help="Timeout of the brokers' ZooKeeper sessions, in milliseconds.",
)
@click.option(
    "--output",
    type=click.Choice(["table", "markdown", "json"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@click.option("--goals/--no-goals", default=True, help="Whether a time above its goal is a failure.")
@click.option("--keep", is_flag=True, help="Keep all files even if there was no violation.")
def main(
    *,
    minutes: float,
    rounds: int | None,
    seed: int,
    only: Sequence[str],
    partitions: int,
    rate: float,
    session_timeout_ms: int,
    output: str,
    goals: bool,
    keep: bool,
) -> None:
    """Kill, pause, stop and wipe three brokers under load at random. No acknowledged record may be lost.

    The brokers and ZooKeeper are real processes. Two producers (Odradek's and librdkafka) write with acks=all and
    idempotence, a consumer reads all records, and the effect of each fault on each partition is measured. Ctrl-C ends
    all processes and removes all files.
    """
    logging.disable(
        logging.CRITICAL
    )  # The clients in this process lose their connections during faults, which is intended.
    signal.signal(signal.SIGTERM, _interrupt)
    settings = Settings(
        seed=seed,
        minutes=minutes,
        rounds=rounds,
        partitions=partitions,
        rate=rate,
        session_ms=session_timeout_ms,
        kinds=tuple(Kind(name) for name in only) or tuple(Kind),
    )
    if shutil.disk_usage(tempfile.gettempdir()).free < NEEDED_BYTES:
        raise click.ClickException(f"{NEEDED_BYTES >> 30} GiB must be free in the temporary folder")
    directory = Path(tempfile.mkdtemp(prefix="odradek-faults-"))
    wanted = keep
    try:
        report = _run(settings, directory)
        wanted = keep or bool(report.broken) or (goals and bool(report.missed))
    except OdradekError as error:
        wanted = True
        raise click.ClickException(f"{error}\nAll logs are in {directory}.") from error
    except KeyboardInterrupt:
        console.print("[bold]Interrupted: all processes were stopped.[/]")
        sys.exit(130)
    except BaseException:
        wanted = True
        console.print(f"All logs are in {directory}.")
        raise
    finally:
        if not wanted:
            shutil.rmtree(directory)
    click.echo(rendered(report, output), nl=False)
    _judge(report, directory, goals=goals, kept=wanted)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(settings: Settings, directory: Path) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("starting the cluster", total=settings.minutes * 60)

        def progress(seconds: float, doing: str) -> None:
            bar.update(task, completed=min(seconds, settings.minutes * 60), description=doing)

        return run(settings, directory, progress)


def _judge(report: Report, directory: Path, *, goals: bool, kept: bool) -> None:
    for message in report.broken:
        click.echo(f"Broken: {message}", err=True)
    for message in report.missed:
        click.echo(f"Above its goal: {message}", err=True)
    if kept:
        click.echo(f"All logs are in {directory}.", err=True)
    if report.broken or (goals and report.missed):
        sys.exit(1)


def rendered(report: Report, output: str) -> str:
    """Return the text of a report."""
    rows = summaries(report.outcomes, report.settings.timeouts)
    if output == "json":
        return json.dumps(_content(report), indent=1) + "\n"
    if output == "markdown":
        return f"{markdown(rows)}\n{_words(report)}\n"
    table = Table(title="Milliseconds in which a partition could not be written")
    for index, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if index else "left")
    for row in rows:
        table.add_row(*cells(row), style="red" if row.missed else None)
    wide = Console(width=160, highlight=False)
    with wide.capture() as captured:
        wide.print(table)
    return f"{captured.get()}{_words(report)}\n"


def _words(report: Report) -> str:
    settings = report.settings
    faults = sum(len(outcome.faults) for outcome in report.outcomes)
    return (
        f"{faults} faults in {report.seconds / 60:.1f} minutes, seed {settings.seed}; {settings.partitions} "
        f"partitions, {settings.rate:g} records/s each, session timeout {settings.session_ms:g} ms, request timeout "
        f"of the clients {REQUEST_TIMEOUT_MS} ms. {report.sent} records sent, {report.acknowledged} acknowledged, "
        f"{report.followed} read along, {report.read_back} read back; {len(report.broken)} promises broken, "
        f"{len(report.missed)} goals missed. The load itself was late by at most {report.late_ms:.0f} ms."
    )


def _content(report: Report) -> dict[str, Any]:
    return {
        "settings": plain(asdict(report.settings)),
        "seconds": round(report.seconds, 1),
        "sent": report.sent,
        "acknowledged": report.acknowledged,
        "followed": report.followed,
        "readBack": report.read_back,
        "lateMs": round(report.late_ms, 1),
        "broken": report.broken,
        "missed": report.missed,
        "kinds": plain(summaries(report.outcomes, report.settings.timeouts)),
        "episodes": plain(report.outcomes),
        "titles": {kind.value: trait.title for kind, trait in TRAITS.items()},
    }
