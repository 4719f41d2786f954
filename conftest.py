"""Configures pytest for all tests: marks by fixture, and an import path for the tests in `operator/`.

A test that uses a fixture with a real ZooKeeper or a real cluster gets the mark `java`, so that no test lacks it.
`make test` runs the other tests first, in separate processes: they include the property tests, and the threads of a
cluster would take random numbers from the same generator.

pytest's import mode `importlib` derives the name of a test from its path: `operator.tests.…`. It imports every parent
of this name that is not a package yet, so it would replace the standard library's module `operator` by the folder. If
the module has a `__path__`, pytest takes it for a package, does not replace it, and finds the tests.
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

# No time limits: the duration of an example, or of generating one, depends on the load of the machine.
settings.register_profile("odradek", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odradek")

operator.__path__ = [str(Path(__file__).parent / "operator")]


def pytest_configure(config: pytest.Config) -> None:
    """Give each test process its own range of ports, so that parallel processes do not use the same ones."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        os.environ[RANGE_VARIABLE] = range_of(int(worker[2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need Java, and move files with slow tests to the front.

    Parallel processes take whole files in this order. A slow file that starts last leaves the other processes idle.
    """
    for item in items:
        if REAL_PARTS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("java")
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)
