"""Plays a few long random runs on the memory disk; `make torture` plays hundreds.

A failure reports its seed; `make torture RUNS=1 SEED=n` reproduces it.
"""

from __future__ import annotations

import pytest

from odradek_testkit.torture.runs import play

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(8))
def test_a_long_run_loses_nothing_that_was_synced(seed: int) -> None:
    report = play(seed)
    assert report.cuts + report.kills + report.stops > 3
    assert report.recoveries > report.cuts
    # The runs must cover most operations of a log.
    assert len(report.by_operation) > 9
