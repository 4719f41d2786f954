"""Plays a few long random runs on the memory disk; `make torture` plays hundreds.

A failure reports its seed; `make torture RUNS=1 SEED=n` reproduces it.
"""

from __future__ import annotations

import pytest

from odradek.log.flush import NO_LIMIT
from odradek.log.partition_log import PartitionLog
from odradek_testkit.torture.model import TornLogError
from odradek_testkit.torture.runs import play

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(8))
def test_a_long_run_loses_nothing_that_was_synced(seed: int) -> None:
    report = play(seed)
    assert report.cuts + report.kills + report.stops > 3
    assert report.recoveries > report.cuts
    # The runs must cover most operations of a log.
    assert len(report.by_operation) > 9


def test_an_acknowledgement_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed has flush.messages=1."""
    require_flush = PartitionLog._require_flush

    def require_and_forget(self: PartitionLog, first_offset: int) -> None:
        require_flush(self, first_offset)
        self.durable_limit = NO_LIMIT

    monkeypatch.setattr(PartitionLog, "_require_flush", require_and_forget)
    with pytest.raises(TornLogError, match="durable records are lost"):
        play(7)
