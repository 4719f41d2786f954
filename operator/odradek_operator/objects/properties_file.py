"""The text of a Java properties file. Pure; the builders and the broker's pod write their files through it."""

from __future__ import annotations

from collections.abc import Mapping


def render(properties: Mapping[str, str], *, header: str) -> str:
    """The text of a properties file, by key; `header` becomes its first line, a comment."""
    lines = (f"{_escaped_key(key)}={_escaped(value)}\n" for key, value in sorted(properties.items()))
    return f"# {header}\n" + "".join(lines)


def _escaped_key(key: str) -> str:
    """The key without anything that would end it; keys of other versions' properties may be any text."""
    return "".join(
        letter if (letter.isascii() and letter.isalnum()) or letter in "._-" else _unicode(letter) for letter in key
    )


def _escaped(value: str) -> str:
    """The value so that it stays on its line, and keeps the blanks at its ends."""
    text = value.replace("\\", "\\\\")
    return "".join(
        _unicode(letter) if not letter.isprintable() or (letter == " " and index in (0, len(text) - 1)) else letter
        for index, letter in enumerate(text)
    )


def _unicode(letter: str) -> str:
    """As Java's property files write what cannot stand in them: UTF-16 units of four hexadecimal digits."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
