"""Tables as values, which `render` builds, and a function that prints them with rich.

On a terminal a table fits the width. In a pipe it has no colours and is as wide as necessary, so no text is cut off.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_PIPE_WIDTH: Final = 100_000
"""Maximum width of tables in a pipe."""
_UNITS: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Numbers are right-aligned."""

    heading: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with headings. Rows in `marked` are highlighted."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()
    empty: str = "Nothing."
    """Text instead of a table without rows."""


def size_text(size_bytes: float | None) -> str:
    """Return a size with a binary unit, such as `1.5 GiB`. None and negative sizes are unknown."""
    if size_bytes is None or size_bytes < 0:
        return "unknown"
    for unit, factor in _UNITS:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def show(tables: Sequence[Table]) -> None:
    """Print tables on standard output."""
    # Imported here because rich takes longer to import than everything else together.
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
            # Text objects, because names may contain what rich would treat as markup.
            shown.add_row(*(Text(cell) for cell in row), style="yellow" if index in table.marked else None)
        console.print(shown)
