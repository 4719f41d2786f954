"""Java's regular expressions and replacement texts, as far as Python can do the same.

A rule that maps names to principals must mean what it means in Kafka, or it would give a client the rights of another.
So what Python does not know, or understands in another way, is refused instead of guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_SAME_ESCAPES: Final = frozenset("dDwWsSbBAntrf")
_DOT: Final = "[^\\n\\r\\x85\\u2028\\u2029]"
"""Java's dot excludes more line ends than Python's."""
_DOTALL: Final = re.compile(r"\(\?[a-z]*s")


def java_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of `java.util.regex.Pattern`. Raises `ValueError` if Python does not support it."""
    dot = "." if _DOTALL.search(text) else _DOT
    translated = []
    offset = 0
    while offset < len(text):
        if text[offset] == "[":
            end = _class_end(text, offset)
            translated.append(text[offset:end])
            offset = end
            continue
        part, offset = _translate(text, offset, dot)
        translated.append(part)
    try:
        return re.compile("".join(translated), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern is not valid: {error}") from error


def _translate(text: str, offset: int, dot: str) -> tuple[str, int]:
    """Translate what begins at the offset, outside a character class. Return it and the offset after it."""
    if text[offset] == "\\":
        end = _escape_end(text, offset)
        return text[offset:end], end
    if text.startswith("(?<", offset) and text[offset + 3 : offset + 4] not in ("=", "!"):
        return "(?P<", offset + 3
    if text.startswith("(?P", offset):
        raise ValueError("(?P is not valid in Java")
    return (dot if text[offset] == "." else text[offset]), offset + 1


def _escape_end(text: str, offset: int) -> int:
    """Return the end of an escape that means the same in both languages."""
    letter = text[offset + 1 : offset + 2]
    if letter in _SAME_ESCAPES or letter in "123456789":
        if not letter:
            raise ValueError("a backslash ends the pattern")
        return offset + 2
    for prefix, digits in (("x", 2), ("u", 4)):
        if letter == prefix and re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text[offset + 2 : offset + 2 + digits]):
            return offset + 2 + digits
    if letter.isalnum() or not letter.isascii():
        raise ValueError(f"the escape \\{letter} is not supported")
    return offset + 2


def _class_end(text: str, offset: int) -> int:
    """Return the end of a character class without nested classes and intersections, which only Java has."""
    start = offset
    offset += 2 if text.startswith("[^", offset) else 1
    if text[offset : offset + 1] == "]":
        raise ValueError("a ] at the beginning of a character class must be escaped")
    while offset < len(text):
        if text[offset] == "]":
            return offset + 1
        if text[offset] == "[":
            raise ValueError("character classes within character classes are not supported")
        if text[offset : offset + 2] in ("&&", "--", "~~", "||"):
            raise ValueError(f"{text[offset : offset + 2]} in a character class is not supported")
        offset = _escape_end(text, offset) if text[offset] == "\\" else offset + 1
    raise ValueError(f"the character class {text[start:]} has no end")


def java_replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """Compile a replacement text of `java.util.regex.Matcher`. Raises `ValueError` if it is not valid.

    `$1` is a group: as many digits belong to it as make a group that exists. `${name}` is a named one, and a backslash
    makes the next character literal. As in Kafka, a reference to a group that does not exist is literal text if the
    pattern has groups at all.
    """
    parts: list[str | int] = []
    offset = 0
    while offset < len(text):
        if text[offset] == "\\":
            if offset + 1 == len(text):
                raise ValueError("a backslash ends the replacement")
            parts.append(text[offset + 1])
            offset += 2
        elif text[offset] == "$":
            part, offset = _reference(text, offset, pattern)
            parts.append(part)
        else:
            parts.append(text[offset])
            offset += 1
    return lambda match: "".join(each if isinstance(each, str) else match[each] or "" for each in parts)


def _reference(text: str, offset: int, pattern: re.Pattern[str]) -> tuple[str | int, int]:
    named = re.compile(r"\$\{([a-zA-Z][a-zA-Z0-9]*)\}").match(text, offset)
    if named:
        if named[1] not in pattern.groupindex:
            raise ValueError(f"the replacement refers to the group {named[1]}, which does not exist")
        return pattern.groupindex[named[1]], named.end()
    end = offset + 1
    group = -1
    while text[end : end + 1] in tuple("0123456789"):
        longer = max(group, 0) * 10 + int(text[end])
        if longer > pattern.groups:
            break
        group, end = longer, end + 1
    if group >= 0:
        return group, end
    if not re.match(r"[0-9]", text[offset + 1 :]):
        raise ValueError("a $ in the replacement must be escaped if no group follows")
    if not pattern.groups:
        raise ValueError(f"the replacement refers to the group {text[offset + 1]}, but the pattern has no groups")
    return "$", offset + 1
