r"""Regular expressions of Java as Python patterns, for subscriptions of the Spark source and of classic consumers.

A pattern is only applied to topic names, which have 65 different characters. So every character class, such as
`\p{Alpha}` or `[a-z&&[^b]]`, is converted to the set of those characters that it contains, and flags are resolved here.
What is left (groups, alternatives, quantifiers, look-around) means the same in Python 3.11 and later. Invariant: a
pattern either matches exactly as in Java, or is refused with a `ConfigError` that says why.

The syntax is that of `java.util.regex.Pattern`. `character_classes` has the classes.
"""

from __future__ import annotations

import re
from typing import Final

from odradek.base.errors import ConfigError
from odradek.client.java_regex.character_classes import (
    TOPIC_CHARACTERS,
    CharacterSource,
    ClassParser,
    UnsupportedPatternError,
    read_character,
    shorthand,
    with_case,
)

_FLAGS: Final = frozenset("idmsuxU")
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{(\d+)(?:,(\d*))?\})[?+]?")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_GROUP_STARTS: Final = {"(?:": "(?:", "(?=": "(?=", "(?!": "(?!", "(?<=": "(?<=", "(?<!": "(?<!", "(?>": "(?>"}
_ANCHORS: Final = {"b": r"\b", "B": r"\B", "A": r"\A", "G": r"\A", "Z": r"\Z", "z": r"\Z"}
_NOTHING: Final = "(?!)"


def compile_pattern(option: str, text: str) -> re.Pattern[str]:
    """Return the pattern for topic names, to use with `search` or `fullmatch`. Raises a `ConfigError` with the option
    and the reason if Java would refuse it, or if it has something that cannot be expressed in Python."""
    try:
        return re.compile(_translated(text))
    except (UnsupportedPatternError, re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{option}={text!r} is not allowed: {error}") from None


def _translated(text: str) -> str:
    """Translate a pattern. Groups capture only if the pattern refers to one: Python before 3.13 fails to search some
    patterns with capturing groups inside of possessive quantifiers (CPython issue 101955)."""
    first = _Translator(text, captures=False)
    found = first.translated()
    if not first.has_references:
        return found
    if first.is_possessive:
        raise UnsupportedPatternError("possessive quantifiers and atomic groups beside a back reference")
    return _Translator(text, captures=True).translated()


class _Translator:
    """Reads a pattern from left to right; one method per element of the grammar."""

    def __init__(self, text: str, *, captures: bool) -> None:
        """`captures`: whether groups capture what they match."""
        self._source = CharacterSource(text)
        self._captures = captures
        self.has_references = False
        self.is_possessive = False
        self._flags: frozenset[str] = frozenset()
        self._groups = 0
        self._names: list[str] = []

    def translated(self) -> str:
        found = self._alternatives()
        if not self._source.at_end:
            raise UnsupportedPatternError(f"unmatched ')' at position {self._source.position}")
        return found

    def _alternatives(self) -> str:
        """Flags that are set inside of a group apply up to its end, also in the following alternatives."""
        branches = [self._sequence()]
        while self._source.take("|"):
            branches.append(self._sequence())
        return "|".join(branches)

    def _sequence(self) -> str:
        parts: list[str] = []
        while True:
            self._skip_comments()
            if self._source.at_end or self._source.peek() in "|)":
                return "".join(parts)
            atom = self._atom()
            self._skip_comments()
            parts.append(self._repeated(atom))

    def _skip_comments(self) -> None:
        if "x" in self._flags:
            self._source.skip_comments()

    def _repeated(self, atom: str) -> str:
        """Return an element with the quantifier that follows it, if there is one. A possessive quantifier becomes an
        atomic group, because Python 3.11.2 does not match some possessive quantifiers correctly."""
        match = self._source.match(_QUANTIFIER)
        if match is None:
            return atom
        if not atom:
            raise UnsupportedPatternError(f"nothing to repeat before position {self._source.position}")
        low, high = match[1], match[2]
        if low is not None and high and int(high) < int(low):
            raise UnsupportedPatternError(f"the repetition {match[0]} has a maximum below its minimum")
        quantifier = match[0]
        if len(quantifier) > 1 and quantifier.endswith("+"):
            self.is_possessive = True
            return f"(?>{atom}{quantifier[:-1]})"
        return atom + quantifier

    def _atom(self) -> str:
        source = self._source
        character = source.next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._of(ClassParser(source, self._flags).members())
        if character == "\\":
            return self._escape()
        if character in "*+?{":
            raise UnsupportedPatternError(f"{character!r} at position {source.position - 1} has nothing to repeat")
        return {".": ".", "^": r"\A", "$": r"\Z"}.get(character) or self._of(
            with_case(frozenset(character), self._flags)
        )

    @staticmethod
    def _of(members: frozenset[str]) -> str:
        """Return an expression for one character of a set. Other characters cannot be in a topic name."""
        found = members & TOPIC_CHARACTERS
        if not found:
            return f"(?:{_NOTHING})"
        if found == TOPIC_CHARACTERS:
            return "."
        if len(found) == 1:
            return re.escape(*found)
        return f"[{''.join(re.escape(each) for each in sorted(found))}]"

    def _escape(self) -> str:
        source = self._source
        character = source.peek()
        if character in _ANCHORS and character:
            source.next()
            if character == "b" and source.peek() == "{":
                raise UnsupportedPatternError(r"\b{g} is not supported")
            return _ANCHORS[character]
        if character in "123456789" and character:
            return self._back_reference()
        if character == "k":
            source.next()
            name = source.braced("<", ">")
            if name not in self._names:
                raise UnsupportedPatternError(f"there is no group {name!r} before its reference")
            return self._reference(f"(?P={name})")
        if character in ("R", "X"):
            source.next()
            # A topic name has no line break and no combining characters.
            return f"(?:{_NOTHING})" if character == "R" else "."
        members = shorthand(source, self._flags)
        return self._of(with_case(frozenset(read_character(source)), self._flags) if members is None else members)

    def _back_reference(self) -> str:
        number = int(self._source.next())
        while self._source.peek().isdigit() and int(f"{number}{self._source.peek()}") <= self._groups:
            number = int(f"{number}{self._source.next()}")
        if number > self._groups:
            raise UnsupportedPatternError(f"there is no group {number} before its reference")
        return self._reference(rf"(?:\{number})")

    def _reference(self, expression: str) -> str:
        self.has_references = True
        return f"(?i:{expression})" if "i" in self._flags else expression

    def _group(self) -> str:
        source = self._source
        before = self._flags
        start = self._group_start()
        if start is None:
            return ""
        found = self._alternatives()
        if not source.take(")"):
            raise UnsupportedPatternError("a ')' is missing")
        self._flags = before
        return f"{start}{found})"

    def _group_start(self) -> str | None:
        """Return the start of a group; None for flags that apply to the rest of the group around them."""
        source = self._source
        if not source.take("?"):
            self._groups += 1
            return "(" if self._captures else "(?:"
        for length in (2, 1):
            kind = source.ahead(length)
            if f"(?{kind}" in _GROUP_STARTS:
                source.skip(length)
                self.is_possessive |= kind == ">"
                return _GROUP_STARTS[f"(?{kind}"]
        if source.peek() == "<":
            name = source.braced("<", ">")
            if _NAME.fullmatch(name) is None or name in self._names:
                raise UnsupportedPatternError(f"{name!r} is not allowed as the name of a group, or exists twice")
            self._groups += 1
            self._names.append(name)
            return f"(?P<{name}>" if self._captures else "(?:"
        return self._inline_flags()

    def _inline_flags(self) -> str | None:
        source = self._source
        flags, adds = self._flags, True
        while True:
            character = source.next()
            if character == "-" and adds:
                adds = False
            elif character in _FLAGS:
                flags = flags | {character} if adds else flags - {character}
            elif character in ":)":
                self._flags = flags
                return "(?:" if character == ":" else None
            else:
                raise UnsupportedPatternError(f"(?{character} is not a group or flag")
