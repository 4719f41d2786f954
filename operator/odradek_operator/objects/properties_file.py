"""Writes Java properties files. Pure; used by the builders and by the brokers' pods."""

from __future__ import annotations

from collections.abc import Mapping


def render(properties: Mapping[str, str], *, header: str) -> str:
    """Return the text of a properties file, sorted by key. `header` becomes a comment in the first line."""
    lines = (f"{_escaped_key(key)}={_escaped(value)}\n" for key, value in sorted(properties.items()))
    return f"# {header}\n" + "".join(lines)


def _escaped_key(key: str) -> str:
    """Escape a key."""
    return "".join(
        letter if (letter.isascii() and letter.isalnum()) or letter in "._-" else _unicode(letter) for letter in key
    )


def _escaped(value: str) -> str:
    """Escape a value, including line ends and spaces at its ends."""
    text = value.replace("\\", "\\\\")
    return "".join(
        _unicode(letter) if not letter.isprintable() or (letter == " " and index in (0, len(text) - 1)) else letter
        for index, letter in enumerate(text)
    )


def _unicode(letter: str) -> str:
    """Escape a character as Java does: UTF-16 units with four hexadecimal digits."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
