"""`make sim`: replays a seed, or searches seeds for violations.

\b
    run.py --seed 46             replay a seed: print the trace, with the log messages of brokers in virtual time
    run.py --seeds 1-2000        search these seeds
    run.py --hours 2             search new seeds for two hours
    ... --output json            print the violations as JSON lines
    ... --log-level DEBUG        set the level of the brokers' log messages in a replay

The exit status is 1 if a violation was found. Ctrl-C ends a search with the summary of what was played.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import logging
import resource
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from odradek_testkit.net import current_host
from odradek_testkit.simulation.play import Outcome, play
from odradek_testkit.simulation.search import play_many

PROCESSES = 2
WIDTH = 140
HIGHEST_SEED = 10**9


@click.command(help=__doc__)
@click.option("--seed", type=int, help="Replay this seed.")
@click.option("--seeds", metavar="A-B", help="Search these seeds, including both ends.")
@click.option("--hours", type=float, help="Search new seeds for this number of hours.")
@click.option("--processes", type=click.IntRange(1), default=PROCESSES, show_default=True)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", default="INFO", show_default=True, help="Level of the brokers' log messages in a replay.")
def main(seed: int | None, seeds: str | None, hours: float | None, processes: int, output: str, log_level: str) -> None:
    """Replay a seed, or search seeds for violations. The exit status is 1 if a violation was found."""
    if sum(each is not None for each in (seed, seeds, hours)) != 1:
        raise click.UsageError("give one of --seed, --seeds and --hours")
    if seed is not None:
        found = replay(seed, output, log_level)
    elif seeds is not None:
        wanted = _range(seeds)
        found = search(play_many(wanted, processes), len(wanted), output)
    else:
        found = search(_for_hours(hours or 0.0, processes), None, output)
    sys.exit(1 if found else 0)


# Replay


class _InVirtualTime(logging.Formatter):
    """Formats a log message like a line of the trace: time, host, text."""

    def format(self, record: logging.LogRecord) -> str:
        host = current_host()
        name = "" if host is None else f"[{host.name}] "
        try:
            now_s = asyncio.get_running_loop().time()
        except RuntimeError:
            now_s = 0.0
        return f"{now_s:12.4f} {name}{record.levelname} {record.name.removeprefix('odradek.')} {super().format(record)}"


def replay(seed: int, output: str, log_level: str) -> bool:
    """Play one seed and print its trace. Return whether it has a violation."""
    if output == "json":
        logging.disable(logging.CRITICAL)
        outcome = play(seed)
        click.echo(json.dumps(dataclasses.asdict(outcome)))
        return outcome.violation is not None
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_InVirtualTime())
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    outcome = play(seed, on_line=click.echo)
    console = _console()
    console.print(_summary([outcome]))
    if outcome.violation is not None:
        console.print(f"\n[bold red]{outcome.invariant}[/]", highlight=False)
        console.print(outcome.violation, markup=False, highlight=False)
    return outcome.violation is not None


def _console(*, stderr: bool = False) -> Console:
    """Return a console. A table needs more than the 80 columns that rich uses for a file."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=WIDTH)


def _summary(outcomes: Iterable[Outcome]) -> Table:
    table = Table()
    columns = (
        "seed",
        "kind",
        "brokers",
        "virtual s",
        "steps",
        "records",
        "commits",
        "operations",
        "faults",
        "digest",
        "verdict",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("kind", "digest", "verdict") else "right")
    for one in outcomes:
        table.add_row(
            str(one.seed),
            one.kind,
            str(one.brokers),
            f"{one.virtual_s:.1f}",
            str(one.steps),
            str(one.acknowledged),
            str(one.transactions),
            str(one.operations),
            str(one.faults),
            one.digest,
            one.invariant or "[green]holds[/]",
        )
    return table


# Search


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise click.UsageError(f"{text!r} is not a range of seeds such as 1-2000") from None


def _for_hours(hours: float, processes: int) -> Iterator[Outcome]:
    end_s = time.monotonic() + 3600 * hours
    first = secrets.randbelow(HIGHEST_SEED)
    yield from play_many(itertools.takewhile(lambda _: time.monotonic() < end_s, itertools.count(first)), processes)


def search(outcomes: Iterator[Outcome], total: int | None, output: str) -> bool:
    """Print the results. Return whether a violation was found."""
    found: list[Outcome] = []
    kinds: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    console = _console(stderr=output == "json")
    columns = (
        TextColumn("seeds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[red]{task.fields[found]} found"),
    )
    with Progress(*columns, console=console) as progress, suppress(KeyboardInterrupt):
        task = progress.add_task("seeds", total=total, found=0)
        for outcome in outcomes:
            kinds[outcome.kind] += 1
            sums.update(
                steps=outcome.steps,
                records=outcome.acknowledged,
                transactions=outcome.transactions,
                faults=outcome.faults,
            )
            if outcome.violation is not None:
                found.append(outcome)
                _report(outcome, output, progress.console)
            progress.update(task, advance=1, found=len(found))
    seconds = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)
    if output == "json":
        summary = {
            "played": kinds.total(),
            "kinds": kinds,
            **sums,
            "cpu_s": seconds,
            "found": [one.seed for one in found],
        }
        click.echo(json.dumps(summary))
    else:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        console.print(f"{kinds.total()} seeds played ({counts}), {len(found)} with a violation")
        console.print(
            f"{sums['steps']} steps, {sums['records']} records, {sums['transactions']} transactions, "
            f"{sums['faults']} faults, {seconds} s of CPU time"
        )
        if found:
            console.print(_summary(sorted(found, key=lambda one: (one.invariant or "", one.seed))))
    return bool(found)


def _report(outcome: Outcome, output: str, console: Console) -> None:
    if output == "json":
        click.echo(json.dumps(dataclasses.asdict(outcome)))
    else:
        console.print(outcome.text, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
