"""Figures that are interesting even when a test passes: durations, sizes and counts.

Prints all of them, with the names of their tests, at the end of the session. A figure fails no test: a duration means
something only together with the machine on which it was measured.
"""

from __future__ import annotations

import os
from typing import Final

_lines: Final[list[str]] = []


def tell(text: str) -> None:
    """Record a line of text for the running test."""
    where = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].rpartition("::")[2]
    _lines.append(f"{where}: {text}")


def lines() -> tuple[str, ...]:
    """All lines so far."""
    return tuple(_lines)
