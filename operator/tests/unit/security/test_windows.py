"""Which times are in a maintenance window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from odradek_operator.crds.types import MaintenanceWindow
from odradek_operator.security.windows import is_open

SATURDAY = datetime(2026, 11, 28, tzinfo=UTC)
NIGHT = MaintenanceWindow(days=("Sat",), start="23:00", minutes=120)
DAILY = MaintenanceWindow(start="02:30", minutes=30)
WEEK = MaintenanceWindow(days=("Mon",), start="00:00", minutes=10_080)


@pytest.mark.parametrize(
    ("windows", "hours", "expected"),
    [
        ((), 0.0, True),
        ((NIGHT,), 22.99, False),
        ((NIGHT,), 23.0, True),
        ((NIGHT,), 24.99, True),
        ((NIGHT,), 25.0, False),
        ((NIGHT,), -0.5, False),
        ((DAILY,), 2.5, True),
        ((DAILY,), 26.9, True),
        ((DAILY,), 3.0, False),
        ((NIGHT, DAILY), 2.6, True),
        ((WEEK,), 2.6, True),
        ((WEEK,), 47.9, True),
    ],
)
def test_windows(windows: tuple[MaintenanceWindow, ...], hours: float, expected: bool) -> None:
    assert is_open(windows, SATURDAY + timedelta(hours=hours)) == expected


def test_times_are_compared_in_utc() -> None:
    there = timezone(timedelta(hours=9))
    assert is_open((NIGHT,), datetime(2026, 11, 29, 8, 30, tzinfo=there))
    assert not is_open((NIGHT,), datetime(2026, 11, 28, 23, 30, tzinfo=there))
