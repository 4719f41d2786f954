"""Parses `server.properties` and `--override key=value`.

The syntax is that of Java's property files as Kafka users write them: `key=value` or `key: value`, comments with `#` or
`!`, and a backslash at the end of a line continues it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from odradek.base.errors import ConfigError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATOR: Final = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
"""Line ends in Java's property files; `str.splitlines` would also split at other characters."""
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of a file. The last value of a repeated key applies."""
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        parts = _SEPARATOR.split(line, maxsplit=1)
        pairs[_unescaped(parts[0])] = _unescaped(parts[1]) if len(parts) > 1 else ""
    return pairs


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Return the properties in `key=value` arguments. Raises `ConfigError` if there is no `=`."""
    pairs = {}
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--override {override!r} is not of the form key=value")
        pairs[key.strip()] = value.strip()
    return pairs


def _logical_lines(text: str) -> Iterable[str]:
    """Yield lines without comments, with continued lines joined."""
    held = ""
    for raw in _LINE_END.split(text):
        line = held + raw.lstrip()
        if not held and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            held = line[:-1]
            continue
        held = ""
        yield line.rstrip()
    if held:
        yield held.rstrip()


def _unescaped(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        token = match.group(1)
        return chr(int(token[1:], 16)) if len(token) == 5 else _ESCAPES.get(token, token)

    return _ESCAPED.sub(replaced, text)
