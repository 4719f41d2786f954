"""The validated settings of the exporter. All durations are in seconds.

`exporter_command` creates them from options and environment variables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from odradek.base.errors import ConfigError

EVERYTHING: Final = ".*"
NOTHING: Final = "^$"

_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "interval": (0.1, 3600.0),
    "sizes_interval": (0.1, 86_400.0),
    "request_timeout": (0.1, 300.0),
    "stale_after": (1.0, 86_400.0),
    "lag_cap": (1.0, 10 * 365 * 86_400.0),
    "brokers_at_once": (1, 1000),
    "groups_per_topic": (0, 10_000),
    "max_groups": (1, 1_000_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFilter:
    """Selects names that match `include` completely and do not match `exclude` completely."""

    include: re.Pattern[str] = field(default_factory=lambda: re.compile(EVERYTHING))
    exclude: re.Pattern[str] = field(default_factory=lambda: re.compile(NOTHING))

    @classmethod
    def of(cls, include: str, exclude: str) -> NameFilter:
        """Compile two regular expressions. Raises `ConfigError` if one is invalid."""
        return cls(include=_pattern(include), exclude=_pattern(exclude))

    def takes(self, name: str) -> bool:
        """Whether the name is selected."""
        return self.include.fullmatch(name) is not None and self.exclude.fullmatch(name) is None


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is not a regular expression: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """Intervals, timeouts, limits and selections."""

    interval: float = 10.0
    """Time from the start of a collection to the start of the next. A collection that takes longer delays the next."""
    sizes_interval: float = 30.0
    """Interval in which log sizes and offsets in ZooKeeper are read."""
    request_timeout: float = 5.0
    """Timeout of a request to a broker. After a timeout, the collection skips the broker's other requests."""
    stale_after: float = 60.0
    """Age at which a value expires."""
    lag_cap: float = 7 * 86_400.0
    """Maximum reported lag in seconds."""
    brokers_at_once: int = 8
    """Brokers that are queried concurrently, each with one request at a time."""
    groups_per_topic: int = 20
    """Maximum number of groups per topic in the report. Those with the largest lag are kept."""
    max_groups: int = 5_000
    """Maximum number of observed groups per broker, the first by name."""
    topics: NameFilter = field(default_factory=NameFilter)
    groups: NameFilter = field(default_factory=NameFilter)

    def __post_init__(self) -> None:
        """Raise `ConfigError` if a value is out of bounds, or `stale_after` is not greater than `interval`."""
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name.replace('_', '-')}={value} is not allowed: it must be from {low} to {high}")
        if self.stale_after <= self.interval:
            raise ConfigError(
                f"stale-after={self.stale_after} is not allowed: it must be greater than interval={self.interval}, "
                "because otherwise values would expire before they are updated"
            )

    @property
    def sizes_stale_after(self) -> float:
        """Age at which a log size or an offset from ZooKeeper expires. They are updated less often than other
        values."""
        return self.stale_after + self.sizes_interval
