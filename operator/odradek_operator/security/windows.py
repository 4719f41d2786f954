"""Maintenance windows: when pods may restart for renewed certificates. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from odradek_operator.crds.types import MaintenanceWindow

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEK: Final = 7


def is_open(windows: Sequence[MaintenanceWindow], now: datetime) -> bool:
    """Whether a time is in a window. Without windows, every time is. `now` has a time zone."""
    return not windows or any(_contains(window, now.astimezone(UTC)) for window in windows)


def _contains(window: MaintenanceWindow, now: datetime) -> bool:
    """Whether one of the last windows, each of which is a week long at most, contains a time."""
    hour, minute = map(int, window.start.split(":"))
    for days in range(_WEEK + 1):
        begin = (now - timedelta(days=days)).replace(hour=hour, minute=minute, second=0, microsecond=0)
        is_right_day = not window.days or _DAYS[begin.weekday()] in window.days
        if is_right_day and begin <= now < begin + timedelta(minutes=window.minutes):
            return True
    return False
