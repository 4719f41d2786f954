"""Fixtures of all tests with Spark. The folders have sessions with different settings."""

from __future__ import annotations

import os

import pytest

from odradek_testkit.interop.apache import QUICK_START
from pyspark_odradek import register

# Most of the CPU time of a short test is the start of Spark, and compiling with C1 only halves it.
os.environ["SPARK_LAUNCHER_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"] = " ".join(QUICK_START)


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> None:
    """Make the session the active one of the thread that runs the tests.

    In one run on a busy machine it was lost in the middle of a file, for a reason that is not known.
    """
    if "spark" in request.fixturenames:
        register(request.getfixturevalue("spark"))
