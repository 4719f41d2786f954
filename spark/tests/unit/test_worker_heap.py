"""Processes of Spark exclude their modules from garbage collections; other processes are left alone.

`local/test_source.py` looks at the workers of a real Spark.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys
from importlib.machinery import ModuleSpec
from pyspark_odradek.worker_heap import freeze_modules

sys.modules["__main__"].__spec__ = ModuleSpec({name!r}, None)
counts = []
kept = []
for _ in range(3):
    freeze_modules()
    counts.append(gc.get_freeze_count())
    kept += [[] for _ in range(1000)]
print(counts[0] > 5_000, counts[1] >= counts[0] + 1000, counts[2] == counts[1])
"""


@pytest.mark.parametrize(
    ("name", "frozen"), [("pyspark.daemon", "True True True"), ("pyspark.worker", "False False True")]
)
def test_modules_are_frozen_twice_and_only_in_processes_that_spark_reuses(name: str, frozen: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(name=name)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == frozen
