"""The given options by their documented names, and the values that several of them share.

Spark passes names in lower case; errors have the documented name. An invalid value raises `ConfigError` with the
option, its value and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from odradek.base.errors import ConfigError

CLIENT_PREFIX: Final = "kafka."

_SIZE: Final = re.compile(r"\s*(\d{1,18})\s*([kmg]?)(?:i?b)?\s*")
_UNIT_SHIFT: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_DURATION: Final = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*")
_UNIT_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionValues:
    """The given options, by documented name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Names are compared without regard to case."""
        self._values = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        """Return the value as given; None without the option."""
        return self._values.get(name.lower())

    def present(self, *names: str) -> list[str]:
        """Return those of `names` that are given."""
        return [name for name in names if name.lower() in self._values]

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise ConfigError(f"{name}={value!r} is not allowed: it must be true or false")
        return value.strip().lower() == "true"

    def number(self, name: str, *, low: int) -> int | None:
        """Return a whole number of at least `low`; None without the option."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if number < low:
            raise ConfigError(f"{name}={value!r} is not allowed: it must be a whole number of at least {low}")
        return number

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return one of `allowed`, in lower case; the first is the default."""
        value = self.text(name)
        if value is None:
            return allowed[0]
        if value.strip().lower() not in allowed:
            raise ConfigError(f"{name}={value!r} is not allowed: it must be one of {', '.join(allowed)}")
        return value.strip().lower()

    def client_properties(self) -> dict[str, str]:
        """Return the options that begin with `kafka.`, without it."""
        return {
            name.removeprefix(CLIENT_PREFIX): value
            for name, value in self._values.items()
            if name.startswith(CLIENT_PREFIX)
        }


def duration_ms(values: OptionValues, name: str, *, default_ms: int) -> int:
    """Return a duration such as `500ms` or `15m` in milliseconds; a number without a unit is milliseconds."""
    text = values.text(name)
    if text is None:
        return default_ms
    match = _DURATION.fullmatch(text.lower())
    if match is None:
        raise ConfigError(f"{name}={text!r} is not allowed: it must be a duration like 500ms, 30s, 15m, 1h or 1d")
    return int(int(match[1]) * _UNIT_MS[match[2] or "ms"])


def size_bytes(values: OptionValues, name: str, *, default: int, low: int) -> int:
    """Return a size such as `64m` or `1g` in bytes, as Spark writes sizes; a number without a unit is bytes."""
    text = values.text(name)
    if text is None:
        return default
    match = _SIZE.fullmatch(text.lower())
    size = -1 if match is None else int(match[1]) << _UNIT_SHIFT[match[2]]
    if size < low:
        raise ConfigError(f"{name}={text!r} is not allowed: it must be a size like 64m or 1g, at least {low >> 10}k")
    return size
