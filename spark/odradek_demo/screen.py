"""Prints the progress of the demonstration: a bar for each running step, a line for each finished one, and a table.

Output that is not a terminal gets a line at the beginning and at the end of each step instead of a bar.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Duration of a finished step."""

    name: str
    seconds: float
    records: int | None

    @property
    def rate(self) -> float | None:
        """Records per second; None if the step does not count records."""
        return None if self.records is None else self.records / max(self.seconds, 1e-9)


class Step:
    """A running step."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        """Only `Screen.step` creates steps."""
        self._progress = progress
        self._task = task
        self.summary = "done"
        self.records: int | None = None

    def show(self, note: str, *, done: float | None = None, of: float | None = None) -> None:
        """Update the bar."""
        self._progress.update(self._task, total=of, completed=done, note=note)

    def finish(self, summary: str, *, records: int | None = None) -> None:
        """Set the summary that is printed at the end, with the rate if `records` is given."""
        self.summary = summary
        self.records = records


@dataclass(frozen=True, slots=True)
class CarrierRow:
    """A row of the final table; the delay is in minutes."""

    carrier: str
    name: str
    departures: int
    departed: int
    mean_delay: float
    archived: int


class Screen:
    """The console output of one run."""

    def __init__(self, console: Console) -> None:
        """`console` may be quiet."""
        self._console = console
        self.steps: list[StepTime] = []

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step while the block runs. A step that raises is not recorded."""
        began = time.monotonic()
        live = self._console.is_terminal
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        if not live:
            self.say(f"… {title}")
        with Progress(*columns, console=self._console, transient=True, disable=not live) as progress:
            step = Step(progress, progress.add_task(title, total=None, note=""))
            yield step
        done = StepTime(name=title, seconds=time.monotonic() - began, records=step.records)
        self.steps.append(done)
        rate = "" if done.rate is None else f", {done.rate:,.0f} records/s"
        self.say(f"[green]✓[/] {title}: {escape(step.summary)} [dim]({done.seconds:.1f} s{rate})[/]")

    def carriers(self, rows: Sequence[CarrierRow]) -> None:
        """Print the table of the busiest carriers."""
        table = Table(
            title="The ten busiest carriers out of New York in 2013, with their mean delay",
            title_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        table.add_column("Code", no_wrap=True)
        table.add_column("Carrier", no_wrap=True, max_width=24)
        for name in ("Departures", "Departed", "Delay", "Archived"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(
                row.carrier,
                row.name,
                f"{row.departures:,}",
                f"{row.departed:,}",
                f"{row.mean_delay:.1f} min",
                f"{row.archived:,}",
            )
        self._console.print(table)
