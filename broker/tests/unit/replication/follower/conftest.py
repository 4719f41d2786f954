"""A fixture with a fetch loop and a scripted leader."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from odradek_testkit.fetching import Play, play_fetching


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario with a fetch loop, two partitions and their leader."""
    return partial(play_fetching, tmp_path)
