"""Figures that are of interest also when a test passes: how long, how many, how often.

Enters: sentences. Leaves: them all, with the tests that told them, at the end of the session. A figure is no verdict:
what a wall clock says is worth something only beside the machine.
"""

from __future__ import annotations

import os
from typing import Final

_told: Final[list[str]] = []


def tell(text: str) -> None:
    """Keep a sentence of the test that runs."""
    where = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].rpartition("::")[2]
    _told.append(f"{where}: {text}")


def told() -> tuple[str, ...]:
    """Everything so far."""
    return tuple(_told)
