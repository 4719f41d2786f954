"""A table as a value, and how it is shown.

Renderers (`render`) build tables from typed results; this prints them with rich. At a terminal a table fits its width;
in a pipe it is as wide as it needs to be, without colour, so that nothing is cut off.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_PIPE_WIDTH: Final = 100_000
"""Tables take what they need of it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading; numbers stand to the right."""

    heading: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings. A cell in a row of `marked` is what a person should look at."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()
    empty: str = "Nothing."
    """What is said instead of a table without rows."""


def show(tables: Sequence[Table]) -> None:
    """Print tables on standard output, one under the other."""
    # Here and not above: rich takes longer to import than everything else together.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else _PIPE_WIDTH, highlight=False)
    for table in tables:
        if table.title:
            console.print(Text(table.title, style="bold"))
        if not table.rows:
            console.print(Text(table.empty))
            continue
        shown = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in table.columns:
            shown.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
        for index, row in enumerate(table.rows):
            # As text objects: names may hold what rich would take for markup.
            shown.add_row(*(Text(cell) for cell in row), style="yellow" if index in table.marked else None)
        console.print(shown)
