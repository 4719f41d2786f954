"""One fault of each kind under load, as `make faults` does for half an hour: nothing acknowledged is lost.

Times are not compared with goals here, because the machine may be busy. They are printed. For the same reason, the run
ends after one round, however long that takes, and the session timeouts are as long as in `make faults`, so that no
session expires without a fault. The load is a fifth of that of `make faults`, because other tests run at the same time.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from ordeal.command import rendered
from ordeal.kinds import Kind
from ordeal.running import Settings, run

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.mark.timeout(3600)
def test_no_acknowledged_record_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patient = {"session_ms": 6_000.0, "hang_ms": 5_000.0, "heal_seconds": 900.0}
    settings = Settings(seed=1, minutes=60.0, rounds=1, together=0.0, partitions=20, rate=10.0, **patient)
    report = run(settings, tmp_path, lambda seconds, doing: None)
    with capsys.disabled():
        click.echo(f"\n{rendered(report, 'table')}")
    assert report.broken == []
    assert {outcome.faults[0].kind for outcome in report.outcomes} == set(Kind)
    assert report.acknowledged == report.sent == report.read_back == report.followed > 0
