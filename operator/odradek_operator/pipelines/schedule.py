"""The times of a cron expression in a time zone. Pure: the present time is an argument.

cronsim reads the expressions and treats changes of daylight saving time as Debian's cron does: a job whose time is
skipped runs at the change, and a job whose time comes twice runs once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from odradek.base.errors import OdradekError

CRON_FIELDS: Final = 5


class ScheduleError(OdradekError):
    """The text is no schedule. It says what is allowed."""


def check_cron(cron: str) -> None:
    """Raise `ScheduleError` unless the text is a cron expression with five fields that has a next time."""
    try:
        if len(cron.split()) != CRON_FIELDS:
            raise CronSimError("it needs five fields")
        next(CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        why = str(error).rstrip(".") or "no such time exists"
        raise ScheduleError(
            f"must be minute, hour, day of the month, month and day of the week, such as '0 3 * * *': {why}."
        ) from error


def check_time_zone(name: str) -> None:
    """Raise `ScheduleError` unless the time zone exists."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(f"must be the name of a time zone, such as Europe/Vienna, found {name!r:.80}.") from error


def latest_time(cron: str, time_zone: str, *, after: datetime, now: datetime) -> datetime | None:
    """Return the latest time that is later than `after` and not later than `now`, in UTC; None if there is none."""
    found = next(CronSim(cron, _in(time_zone, now), reverse=True), None)
    # The iterator begins before `now`: a time that is exactly `now` counts, too.
    exact = _next(cron, time_zone, found or after)
    if exact is not None and exact <= now:
        found = exact
    if found is None:
        return None
    found = found.astimezone(UTC)
    return found if found > after else None


def next_time(cron: str, time_zone: str, *, after: datetime) -> datetime | None:
    """Return the first time that is later than `after`, in UTC; None if there is none."""
    return _next(cron, time_zone, after)


def _next(cron: str, time_zone: str, after: datetime) -> datetime | None:
    found = next(CronSim(cron, _in(time_zone, after)), None)
    return None if found is None else found.astimezone(UTC)


def _in(time_zone: str, time: datetime) -> datetime:
    return time.astimezone(ZoneInfo(time_zone))
