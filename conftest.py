"""What holds for all tests: marks that follow from their fixtures, and a path for the tests under `operator/`.

A test that asks for a real ZooKeeper or a real cluster is marked `java`, so that none is forgotten. `make test` runs
the others first: they include the property tests, and a cluster's threads would draw random numbers beside them.

pytest's import mode `importlib` names a test by its path, `operator.tests.…`, and imports every parent of that name
that is no package: it would put the folder in the place of the standard library's `operator`. With a path of its own
the module passes for a package, stays what it is, and the tests are found below it.
"""

from __future__ import annotations

import operator
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from odradek.testing.free_ports import RANGE_VARIABLE, range_of

REAL_PARTS = {"odradek_zookeeper", "odradek_cluster", "odradek_cluster_factory"}
"""Fixtures that start Java processes."""

# A property holds or not; how long an example takes, or to draw one, says how busy the machine is.
settings.register_profile("odradek", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odradek")

operator.__path__ = [str(Path(__file__).parent / "operator")]


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several test processes ports that no other one uses."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        os.environ[RANGE_VARIABLE] = range_of(int(worker[2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Java."""
    for item in items:
        if REAL_PARTS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("java")
