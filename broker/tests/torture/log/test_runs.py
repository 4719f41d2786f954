"""A few long random runs on the memory disk, as `make torture` plays them by the hundred.

A failure names its seed; `make torture RUNS=1 SEED=n` plays it again.
"""

from __future__ import annotations

import pytest

from odradek_testkit.torture.runs import play


@pytest.mark.parametrize("seed", range(8))
def test_a_long_run_loses_nothing_that_was_synced(seed: int) -> None:
    report = play(seed)
    assert report.cuts + report.kills + report.stops > 3
    assert report.recoveries > report.cuts
    # A run that left most of what a log can do out would be vain.
    assert len(report.by_operation) > 9
