"""Kills processes that write to a real disk; `make torture MINUTES=n` does it for longer."""

from __future__ import annotations

from pathlib import Path
from random import Random

from odradek_testkit.torture.killing import KillLoop

KILLS = 5


def test_a_killed_process_leaves_all_acknowledged_records(tmp_path: Path) -> None:
    loop = KillLoop(str(tmp_path), Random(4))
    for _ in range(KILLS):
        loop.once()
    assert all(loop.acknowledged.values())
