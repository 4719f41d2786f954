"""Configures pytest for all tests: marks by fixture, and an import path for the tests in `operator/`.

A test that uses a fixture with a real ZooKeeper or a real cluster gets the mark `java`, so that no test lacks it. A
process that runs one of these runs no property test afterwards: the threads of a cluster would take random numbers from
the generator of the property tests. Parallel runs use two kinds of processes for this (docs/design/0010).

pytest's import mode `importlib` derives the name of a test from its path: `operator.tests.…`. It imports every parent
of this name that is not a package yet, so it would replace the standard library's module `operator` by the folder. If
the module has a `__path__`, pytest takes it for a package, does not replace it, and finds the tests.

With `--compiled`, the processes that tests with real parts start, brokers above all, run with the compiled core of
`make compiled`. The process of the tests always imports the interpreted form, because tests and the simulation replace
functions, and compiled code would still call the original ones (docs/design/0019).
"""

from __future__ import annotations

import gc
import operator
import os
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from odradek.base.build_form import build_form
from odradek.testing.free_ports import RANGE_VARIABLE, range_of

ROOT = Path(__file__).parent
COMPILED = str(ROOT / ".compiled")

REAL_PARTS = {"odradek_zookeeper", "odradek_cluster", "odradek_cluster_factory"}
"""Fixtures that start Java processes."""

REAL_FOLDERS = {"contract", "e2e", "interop", "live", "local"}
"""Folders of the tests that need Java. Files named `test_live_*` need it, too."""

# No time limits: the duration of an example, or of generating one, depends on the load of the machine.
settings.register_profile("odradek", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odradek")

operator.__path__ = [str(ROOT / "operator")]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--compiled`."""
    parser.addoption(
        "--compiled",
        action="store_true",
        help="run the processes that tests with real parts start with the core of `make compiled`",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the form of the core, and give each test process its own range of ports, so that parallel processes do
    not use the same ones."""
    if build_form() != "interpreted":
        raise pytest.UsageError("The tests must import the interpreted core: unset PYTHONPATH, and use --compiled.")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if config.getoption("compiled") and worker is None:
        _check_compiled_core()
    if worker is not None:
        os.environ[RANGE_VARIABLE] = range_of(int(worker[2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def _compile_core(option: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "broker/tools/compile_core.py"), option]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _check_compiled_core() -> None:
    """Raise `UsageError` if the compiled core is outdated."""
    answer = _compile_core("--check")
    if answer.returncode:
        raise pytest.UsageError(answer.stderr.strip())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """With `--compiled`, let the processes that a test with real parts starts find the compiled core first."""
    if not item.config.getoption("compiled"):
        return
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != COMPILED]
    if any(item.get_closest_marker(mark) for mark in ("java", "interop")):
        paths.insert(0, COMPILED)
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _uses_real_parts(path: Path) -> bool:
    return not REAL_FOLDERS.isdisjoint(path.parent.parts) or path.name.startswith("test_live_")


class SchedulingByKind(LoadFileScheduling):
    """Gives each process whole files. If tests with and without Java run, half of the processes run only files of the
    folders that need Java. The others run these when nothing else is left.

    Tests with Java wait most of the time, the others compute. Running both kinds at the same time uses the processor
    from the beginning to the end.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        files = self._files_for(node)
        if not files:
            node.shutdown()
            return
        self.workqueue.move_to_end(files[0], last=False)
        super()._assign_work_unit(node)

    def _files_for(self, node: WorkerController) -> list[str]:
        """Return the files that wait and that the process may run, in order."""
        real = [file for file in self.workqueue if _uses_real_parts(Path(file))]
        plain = [file for file in self.workqueue if not _uses_real_parts(Path(file))]
        return real if self._runs_only_java(node) else plain or real

    def _runs_only_java(self, node: WorkerController) -> bool:
        """A process that replaces a crashed one runs anything, so no file waits for a process that does not exist."""
        assert self.collection is not None
        files = {self._split_scope(test) for test in self.collection}
        both_kinds = len({_uses_real_parts(Path(file)) for file in files}) == 2
        number = int(node.gateway.id.removeprefix("gw"))
        return self._selects_java and both_kinds and number % 2 == 0 and 1 < self.numnodes > number

    @cached_property
    def _selects_java(self) -> bool:
        """Whether the expression of `-m` selects tests with the mark `java` and no other."""
        marks = self.config.getoption("markexpr")
        return not marks or Expression.compile(marks).evaluate(lambda name, **_: name == "java")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SchedulingByKind | None:
    """Replace the scheduling of `--dist loadfile`."""
    return SchedulingByKind(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need Java, sort the files, and without a C compiler deselect the tests that need it.

    `.ci/run` fails without a compiler before it runs tests.

    Parallel processes take whole files in this order: files with slow tests are first. A slow file that starts last
    leaves the other processes idle. Without parallel processes, files with tests that need Java are last.
    """
    for item in items:
        if REAL_PARTS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("java")
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    java_files = {item.path for item in items if item.get_closest_marker("java")}
    if misplaced := sorted(str(path) for path in java_files if not _uses_real_parts(path)):
        places = f"a folder {', '.join(sorted(REAL_FOLDERS))}, or a file test_live_*"
        raise pytest.UsageError(f"Tests that need Java must be in {places}. Move {', '.join(misplaced)}.")
    items.sort(key=lambda item: (item.path in java_files, item.path not in slow_files))
    needing = [item for item in items if item.get_closest_marker("compiler")]
    if needing and _compile_core("--can-compile").returncode:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Disable garbage collections while tests are collected: they would examine millions of objects that stay."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude all objects that exist now from later garbage collections."""
    gc.collect()
    gc.freeze()
    gc.enable()
