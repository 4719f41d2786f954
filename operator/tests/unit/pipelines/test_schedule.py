"""Times of cron expressions: the latest and the next one, time zones, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from odradek_operator.pipelines.schedule import ScheduleError, check_cron, check_time_zone, latest_time, next_time


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


CREATED = at("2026-03-01T00:30")


@pytest.mark.parametrize(
    ("now", "latest", "following"),
    [
        ("2026-03-01T02:59:59", None, "2026-03-01T03:00"),
        ("2026-03-01T03:00", "2026-03-01T03:00", "2026-03-02T03:00"),
        ("2026-03-01T03:00:01", "2026-03-01T03:00", "2026-03-02T03:00"),
        ("2026-03-08T12:00", "2026-03-08T03:00", "2026-03-09T03:00"),
    ],
)
def test_the_latest_and_the_next_time(now: str, latest: str | None, following: str) -> None:
    cron = "0 3 * * *"
    found = latest_time(cron, "UTC", after=CREATED, now=at(now))
    assert found == (None if latest is None else at(latest))
    assert next_time(cron, "UTC", after=at(now)) == at(following)


def test_a_time_is_that_of_its_zone_in_winter_and_in_summer() -> None:
    cron, zone = "0 3 * * *", "Europe/Vienna"
    assert next_time(cron, zone, after=at("2026-01-10T00:00")) == at("2026-01-10T02:00")
    assert next_time(cron, zone, after=at("2026-07-10T00:00")) == at("2026-07-10T01:00")
    assert latest_time(cron, zone, after=CREATED, now=at("2026-07-10T01:00")) == at("2026-07-10T01:00")


def test_every_day_has_one_time_when_clocks_change() -> None:
    """Vienna skips 2:30 on 29 March 2026, and has it twice on 25 October 2026."""
    for start, days in (("2026-03-27T12:00", 4), ("2026-10-23T12:00", 4)):
        time, found = at(start), []
        for _ in range(days):
            following = next_time("30 2 * * *", "Europe/Vienna", after=time)
            assert following is not None
            found.append(following)
            time = following
        assert len({each.date() for each in found}) == days


@pytest.mark.parametrize("cron", ["", "* * * *", "* * * * * *", "61 * * * *", "@daily", "0 0 31 2 *", "a b c d e"])
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(ScheduleError, match=r"such as '0 3 \* \* \*'"):
        check_cron(cron)


@pytest.mark.parametrize("zone", ["Mars/Base", "../../etc/passwd", "/etc/localtime", "Europe/", "UTC\0"])
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ScheduleError, match="such as Europe/Vienna"):
        check_time_zone(zone)


def test_usual_ones_are_accepted() -> None:
    for cron in ("0 3 * * *", "*/5 8-18 * * mon-fri", "0 0 29 2 *"):
        check_cron(cron)
    for zone in ("UTC", "Europe/Vienna", "America/New_York"):
        check_time_zone(zone)
