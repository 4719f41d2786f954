"""Which form of the core the processes have that tests start."""

from __future__ import annotations

import subprocess
import sys

import pytest


def form_of_a_process() -> str:
    command = [sys.executable, "-m", "odradek.cli.main", "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.java
def test_with_java_it_is_that_of_the_option(pytestconfig: pytest.Config) -> None:
    form = "compiled" if pytestconfig.getoption("compiled") else "interpreted"
    assert f"{form} core" in form_of_a_process()


def test_without_java_it_is_interpreted() -> None:
    assert "interpreted core" in form_of_a_process()
