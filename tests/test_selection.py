"""The root's `conftest.py` marks the tests that need Java, and knows whether `-m` selects them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]

TESTS = """
import pytest

@pytest.mark.java
def test_with_mark():
    pass

def test_with_fixture(odradek_zookeeper):
    pass

def test_plain():
    pass
"""

EXPRESSIONS = [
    ("java", True),
    ("not java", False),
    ("not (java or interop or e2e)", False),
    ("java and not (interop or e2e or daily)", True),
    ("  java or slow ", True),
    ("slow", False),
    ("not slow", True),
    ("not not java and java", True),
    ("not (slow and java)", True),
    ("slow or not java", False),
    ("java(version=17)", True),
    ("javascript", False),
]


@pytest.fixture
def conftest(pytestconfig: pytest.Config) -> ModuleType:
    """The module `conftest.py` of the root as pytest has loaded it."""
    module = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    assert isinstance(module, ModuleType)
    return module


def selected(path: Path, expression: str) -> set[str]:
    """Return the names of the tests that pytest selects from `TESTS` in a file, with the plugin `conftest`."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "--rootdir", str(path.parent), "-c", os.devnull]
    command += ["-p", "conftest", "-p", "no:cacheprovider", "-W", "ignore", "-m", expression, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return {line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_what_an_expression_selects(conftest: ModuleType, expression: str, expected: bool) -> None:
    assert conftest.selects(expression, "java") is expected


@pytest.mark.parametrize(
    "expression", ["java slow", "(java", "", "java == slow", "java if slow else e2e", "1", "a.java"]
)
def test_other_expressions_are_refused(conftest: ModuleType, expression: str) -> None:
    with pytest.raises(SyntaxError):
        conftest.selects(expression, "java")


@pytest.mark.parametrize(("expression", "expected"), [*EXPRESSIONS[:4], ("not java or interop", False)])
def test_pytest_selects_the_same_and_knows_the_marks_by_fixture(
    tmp_path: Path, expression: str, expected: bool
) -> None:
    names = selected(tmp_path / "live" / "test_it.py", expression)
    assert names == ({"test_with_mark", "test_with_fixture"} if expected else {"test_plain"})
