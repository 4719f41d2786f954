"""`odradek reassign watch`: shows the progress of all reassignments until they have ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, run

if TYPE_CHECKING:
    from odradek.cli.reassign.move_progress import WatchedMoves
    from odradek.client.admin import Admin


@click.command()
@click.option(
    "--interval",
    "interval_ms",
    type=click.IntRange(100),
    default=1000,
    show_default=True,
    metavar="MS",
    help="Time between two requests.",
)
@click.option("--keep-throttle", is_flag=True, help="Do not remove the throttle at the end.")
@connection_options
@output_option
def watch(*, interval_ms: int, keep_throttle: bool, bootstrap: str, as_json: bool) -> None:
    """Show the progress of all reassignments until they have ended, then remove their throttle.

    The command can be stopped with Ctrl-C and started again: the reassignments continue, and the cluster knows their
    state. Without a terminal, a line is printed for each change.

    \b
    Example:
      odradek reassign watch
      odradek reassign watch --interval 5000 --output json
    """
    from odradek.cli.reassign.cluster_moves import lift_throttle
    from odradek.client.admin import Admin

    async def work() -> tuple[WatchedMoves, bool]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            with _display(as_json=as_json) as show_progress:
                watched = await _watch(admin, interval_ms, show_progress)
            return watched, not keep_throttle and await lift_throttle(admin)

    try:
        watched, is_lifted = run(work())
    except KeyboardInterrupt:
        click.echo("The reassignments continue. Start `odradek reassign watch` again to see their progress.", err=True)
        sys.exit(130)
    if as_json:
        return
    ended = "All reassignments have ended." if watched.totals else "No reassignment is in progress."
    click.echo(f"{ended} The throttle was removed." if is_lifted else ended)


async def _watch(admin: Admin, interval_ms: int, show_progress: Callable[[WatchedMoves], None]) -> WatchedMoves:
    from odradek.cli.reassign.cluster_moves import read_moves
    from odradek.cli.reassign.move_progress import WatchedMoves

    watched = WatchedMoves()
    while True:
        watched.update(await read_moves(admin))
        show_progress(watched)
        if watched.is_done:
            return watched
        await asyncio.sleep(interval_ms / 1000)


@contextmanager
def _display(*, as_json: bool) -> Iterator[Callable[[WatchedMoves], None]]:
    """Yield a function that shows the progress: as a bar on a terminal, otherwise as lines or documents."""
    if not as_json and sys.stdout.isatty():
        with _bar() as show_progress:
            yield show_progress
        return
    last: dict[str, object] | None = None

    def print_change(watched: WatchedMoves) -> None:
        nonlocal last
        value = watched.value()
        if value == last:
            return
        last = value
        if as_json:
            echo_json(value)
        elif watched.totals:
            click.echo(watched.text())

    yield print_change


@contextmanager
def _bar() -> Iterator[Callable[[WatchedMoves], None]]:
    # Imported here because rich takes longer to import than everything else together.
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as bar:
        task = bar.add_task("", total=None)

        def show_progress(watched: WatchedMoves) -> None:
            if watched.totals:
                # Partitions without data also count: one unit each.
                total, done = watched.total_bytes + len(watched.totals), watched.copied_bytes + watched.done
                bar.update(task, total=total, completed=done, description=watched.text())

        yield show_progress
