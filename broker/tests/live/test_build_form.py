"""Brokers run the form of the core that the tests ask for: compiled with `--compiled`, otherwise interpreted."""

from __future__ import annotations

import pytest

from odradek.base import VERSION
from odradek.testing.running_cluster import RunningCluster


def test_the_first_line_of_the_log_has_the_form(odradek_single: RunningCluster, pytestconfig: pytest.Config) -> None:
    (log,) = (odradek_single.directory / "data").rglob("broker.log")
    first = log.read_text(encoding="utf-8").splitlines()[0]
    expected = "compiled" if pytestconfig.getoption("compiled") else "interpreted"
    assert f"odradek {VERSION} starts: {expected} core, Python " in first
