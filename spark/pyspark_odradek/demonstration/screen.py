"""What a person sees of the demonstration: a bar while something is under way, a line when it is done, a table.

Steps enter; text leaves on the console that was given. On a terminal bars move; elsewhere each step is a line when it
begins and one when it ends, so that a log is never silent either.
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
    """A step that was done."""

    name: str
    seconds: float
    records: int | None

    @property
    def rate(self) -> float | None:
        """Records a second."""
        return None if self.records is None else self.records / max(self.seconds, 1e-9)


class Step:
    """A step under way."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        """Made by `Screen.step`."""
        self._progress = progress
        self._task = task
        self.summary = "done"
        self.records: int | None = None

    def show(self, note: str, *, done: float | None = None, of: float | None = None) -> None:
        """Move the bar."""
        self._progress.update(self._task, total=of, completed=done, note=note)

    def finish(self, summary: str, *, records: int | None = None) -> None:
        """Say what came of it; a rate is added for `records`."""
        self.summary = summary
        self.records = records


@dataclass(frozen=True, slots=True)
class CarrierRow:
    """A line of the final table; the delay in minutes."""

    carrier: str
    name: str
    departures: int
    departed: int
    mean_delay: float
    archived: int


class Screen:
    """One console for the whole run."""

    def __init__(self, console: Console) -> None:
        """`console` may be quiet."""
        self._console = console
        self.steps: list[StepTime] = []

    def say(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step while the block runs; nothing is added when it raises."""
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
        """The table of the busiest carriers."""
        table = Table(
            title="The ten busiest carriers out of New York, 2013",
            title_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        table.add_column("Code", no_wrap=True)
        table.add_column("Carrier", no_wrap=True, max_width=24)
        for name in ("Departures", "Left", "Mean delay", "Archived"):
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
