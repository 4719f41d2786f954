"""The content of files in pods: Java properties, and the digest of certificates. Pure.

The builders of objects and the pods use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

DIGEST_LETTERS: Final = 16


def render(properties: Mapping[str, str], *, header: str) -> str:
    """Return the text of a properties file, sorted by key. `header` becomes a comment in the first line."""
    lines = (f"{_escaped_key(key)}={_escaped(value)}\n" for key, value in sorted(properties.items()))
    return f"# {header}\n" + "".join(lines)


def certificates_digest(files: Mapping[str, bytes]) -> str:
    """Return the digest of the files of members: their keystore and the authorities that they trust."""
    digest = sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:DIGEST_LETTERS]


def _escaped_key(key: str) -> str:
    """Escape all characters of a key except ASCII letters, digits, `.`, `_` and `-`."""
    return "".join(
        letter if (letter.isascii() and letter.isalnum()) or letter in "._-" else _unicode(letter) for letter in key
    )


def _escaped(value: str) -> str:
    """Escape backslashes, unprintable characters, and spaces at the start and the end of a value."""
    text = value.replace("\\", "\\\\")
    return "".join(
        _unicode(letter) if not letter.isprintable() or (letter == " " and index in (0, len(text) - 1)) else letter
        for index, letter in enumerate(text)
    )


def _unicode(letter: str) -> str:
    """Return the escape sequence of a character: `\\u` and four hexadecimal digits for each of its UTF-16 code
    units."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
