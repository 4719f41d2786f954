"""Fixtures of all tests with Spark. The folders have sessions with different settings."""

from __future__ import annotations

import pytest

from pyspark_odradek import register


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> None:
    """Make the session the active one of the thread that runs the tests.

    In one run on a busy machine it was lost in the middle of a file, for a reason that is not known.
    """
    if "spark" in request.fixturenames:
        register(request.getfixturevalue("spark"))
