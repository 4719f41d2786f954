"""Configures pytest for all tests: marks by fixture, and an import path for the tests in `operator/`.

A test that uses a fixture with a real ZooKeeper or a real cluster gets the mark `java`, so that no test lacks it. Their
files are last, so a process that runs one runs no property test afterwards: the threads of a cluster would take random
numbers from the generator of the property tests.

pytest's import mode `importlib` derives the name of a test from its path: `operator.tests.…`. It imports every parent
of this name that is not a package yet, so it would replace the standard library's module `operator` by the folder. If
the module has a `__path__`, pytest takes it for a package, does not replace it, and finds the tests.

With `--compiled`, the processes that tests start, brokers above all, run with the compiled core of `make compiled`. The
process of the tests always imports the interpreted form, because tests and the simulation replace functions, and
compiled code would still call the original ones (docs/design/0019).
"""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from odradek.base.build_form import build_form
from odradek.testing.free_ports import RANGE_VARIABLE, range_of

ROOT = Path(__file__).parent

REAL_PARTS = {"odradek_zookeeper", "odradek_cluster", "odradek_cluster_factory"}
"""Fixtures that start Java processes."""

# No time limits: the duration of an example, or of generating one, depends on the load of the machine.
settings.register_profile("odradek", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odradek")

operator.__path__ = [str(ROOT / "operator")]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--compiled`."""
    parser.addoption(
        "--compiled", action="store_true", help="run the processes that tests start with the core of `make compiled`"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the form of the core, and give each test process its own range of ports, so that parallel processes do
    not use the same ones."""
    if build_form() != "interpreted":
        raise pytest.UsageError("The tests must import the interpreted core: unset PYTHONPATH, and use --compiled.")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if config.getoption("compiled") and worker is None:
        _use_compiled_core()
    if worker is not None:
        os.environ[RANGE_VARIABLE] = range_of(int(worker[2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def _compile_core(option: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "broker/tools/compile_core.py"), option]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _use_compiled_core() -> None:
    """Let the processes that tests start find the compiled core first. Raises `UsageError` if it is outdated."""
    answer = _compile_core("--check")
    if answer.returncode:
        raise pytest.UsageError(answer.stderr.strip())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / ".compiled"), os.environ.get("PYTHONPATH")]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need Java, sort the files, and without a C compiler deselect the tests that need it. `.ci/run`
    fails without a compiler before it runs tests.

    Parallel processes take whole files in this order: files with tests that need Java are last, and of both groups those
    with slow tests are first. A slow file that starts last leaves the other processes idle.
    """
    for item in items:
        if REAL_PARTS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("java")
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    java_files = {item.path for item in items if item.get_closest_marker("java")}
    items.sort(key=lambda item: (item.path in java_files, item.path not in slow_files))
    needing = [item for item in items if item.get_closest_marker("compiler")]
    if needing and _compile_core("--can-compile").returncode:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
