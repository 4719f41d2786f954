"""Parses `server.properties` and `--override key=value`.

The library javaproperties reads the syntax of Java's property files. Unlike Java, the parser removes white space at the
end of a line, as Kafka does later for most settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import javaproperties

from odradek.base.errors import ConfigError

_TRAILING_SPACE: Final = re.compile(r"(?<!\\)[ \t\f]+$", re.MULTILINE)
"""White space at the end of a line, except an escaped space."""


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of a file. The last value of a repeated key applies.

    Raises `ConfigError` for an invalid escape sequence.
    """
    try:
        return javaproperties.loads(_TRAILING_SPACE.sub("", text))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"the properties file has an invalid escape sequence {error.escape}") from error


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Return the properties in `key=value` arguments. Raises `ConfigError` if there is no `=`."""
    pairs = {}
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--override {override!r} is not of the form key=value")
        pairs[key.strip()] = value.strip()
    return pairs
