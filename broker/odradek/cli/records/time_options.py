"""Times in options: ISO 8601, milliseconds since 1970, or relative to now such as `-1h`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

import click

NOW: Final = "now"
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART: Final = re.compile(r"(\d+)(ms|[smhdw])")
_RELATIVE: Final = re.compile(rf"-(?:{_PART.pattern})+")


def parse_time(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Parse a time of an option and return milliseconds since 1970 UTC. A time without a zone is UTC.

    `-1h30m` is 90 minutes ago; the units are ms, s, m, h, d and w. Raises `click.BadParameter`.
    """
    if value is None:
        return None
    if value.isdecimal():
        return int(value)
    if value == NOW or _RELATIVE.fullmatch(value):
        return time.time_ns() // 1_000_000 - sum(
            int(count) * _UNIT_MS[unit] for count, unit in _PART.findall(value.removeprefix("-"))
        )
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither an ISO 8601 time such as 2013-01-01T05:00:00, nor a number of milliseconds, nor a "
            "time before now such as -1h30m."
        ) from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return int(parsed.timestamp() * 1000)
