"""A worker excludes its modules from garbage collections once; other processes are left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc
from pyspark import TaskContext
from pyspark_odradek.worker_heap import freeze_modules

if {in_task}:
    TaskContext._setTaskContext(TaskContext())
freeze_modules()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
freeze_modules()
print(first > 10_000, gc.get_freeze_count() == first, len(kept))
"""


@pytest.mark.parametrize(("in_task", "frozen"), [(True, "True"), (False, "False")])
def test_modules_are_frozen_once_and_only_in_a_task(in_task: bool, frozen: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(in_task=in_task)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [frozen, "True", "1000"]
