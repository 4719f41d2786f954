r"""The character classes of Java's regular expressions, as sets of the characters that topic names may have.

`java_pattern` uses it. Sets may have other characters too, where a pattern names them; they never match. Invariant: a
class whose members are not known raises `UnsupportedPatternError`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from typing import Final

from odradek.base.errors import OdradekError

TOPIC_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""What a topic name may consist of."""


class UnsupportedPatternError(OdradekError):
    """A regular expression that Java refuses, or that cannot be translated. The message says why."""


_POSIX: Final[dict[str, Callable[[str], bool]]] = {
    "Lower": str.islower,
    "Upper": str.isupper,
    "ASCII": str.isascii,
    "Alpha": str.isalpha,
    "Digit": str.isdigit,
    "Alnum": str.isalnum,
    "Punct": lambda each: each in string.punctuation,
    "Graph": lambda each: each in string.punctuation or each.isalnum(),
    "Print": lambda each: each in string.punctuation or each.isalnum() or each == " ",
    "Blank": lambda each: each in " \t",
    "Cntrl": lambda each: unicodedata.category(each) == "Cc",
    "XDigit": lambda each: each in string.hexdigits,
    "Space": lambda each: each in " \t\n\v\f\r",
    "javaLowerCase": str.islower,
    "javaUpperCase": str.isupper,
    "javaDigit": str.isdigit,
    "javaLetter": str.isalpha,
    "javaLetterOrDigit": str.isalnum,
    "javaAlphabetic": str.isalpha,
    "javaWhitespace": str.isspace,
    "javaSpaceChar": str.isspace,
    "javaTitleCase": lambda _: False,
    "javaMirrored": lambda _: False,
}
_BINARY: Final[dict[str, Callable[[str], bool]]] = {
    "ALPHABETIC": str.isalpha,
    "LETTER": str.isalpha,
    "LOWERCASE": str.islower,
    "UPPERCASE": str.isupper,
    "DIGIT": str.isdigit,
    "PUNCTUATION": lambda each: each in "._-",
    "WHITE_SPACE": str.isspace,
    "HEX_DIGIT": lambda each: each in string.hexdigits,
    "IDEOGRAPHIC": lambda _: False,
    "TITLECASE": lambda _: False,
    "CONTROL": lambda each: unicodedata.category(each) == "Cc",
    "ASSIGNED": lambda _: True,
    "LATIN": str.isalpha,
    "LATN": str.isalpha,
    "COMMON": lambda each: not each.isalpha(),
    "ZYYY": lambda each: not each.isalpha(),
}
"""Binary properties and scripts, which follow `Is`."""
_CATEGORIES: Final = frozenset(
    "L Lu Ll Lt Lm Lo M Mn Me Mc N Nd Nl No Z Zs Zl Zp C Cc Cf Co Cs Cn P Pd Ps Pe Pc Po Pi Pf S Sm Sc Sk So".split()
)
_SHORTHANDS: Final[dict[str, Callable[[str], bool]]] = {
    "d": str.isdigit,
    "w": lambda each: each.isalnum() or each == "_",
    "s": _POSIX["Space"],
    "h": lambda each: each in " \t",
    "v": lambda each: each in "\n\v\f\r",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_HEXADECIMAL: Final = re.compile(r"u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,6})\}")
_OCTAL: Final = re.compile(r"0([0-3]?[0-7]{1,2})")


class CharacterSource:
    """The text of a pattern with a position. Text between `\\Q` and `\\E` is escaped beforehand."""

    def __init__(self, text: str) -> None:
        self._text = _QUOTED.sub(lambda match: _escaped(match[1]), text) if "\\Q" in text else text
        self.position = 0

    @property
    def at_end(self) -> bool:
        """Whether everything has been read."""
        return self.position >= len(self._text)

    def peek(self) -> str:
        """Return the next character; empty at the end."""
        return self._text[self.position : self.position + 1]

    def ahead(self, length: int) -> str:
        """Return the next characters."""
        return self._text[self.position : self.position + length]

    def skip(self, length: int) -> None:
        """Go on behind the next characters."""
        self.position += length

    def next(self) -> str:
        """Read a character. Raises `UnsupportedPatternError` at the end."""
        if self.at_end:
            raise UnsupportedPatternError("it ends too early")
        self.position += 1
        return self._text[self.position - 1]

    def take(self, text: str) -> bool:
        """Read a text if it comes next, and return whether it did."""
        if not self._text.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what matches a pattern here; None if nothing does."""
        found = pattern.match(self._text, self.position)
        if found is not None:
            self.position = found.end()
        return found

    def braced(self, start: str, end: str) -> str:
        """Read what is between two characters."""
        close = self._text.find(end, self.position)
        if not self.take(start) or close < 0:
            raise UnsupportedPatternError(f"{start}...{end} is missing at position {self.position}")
        found = self._text[self.position : close]
        self.position = close + len(end)
        return found

    def skip_comments(self) -> None:
        """Skip white space and comments, which the flag `x` allows."""
        while not self.at_end and (self.peek() in " \t\n\v\f\r" or self.peek() == "#"):
            if self.next() == "#":
                while not self.at_end and self.peek() not in "\n\r":
                    self.next()


def _escaped(text: str) -> str:
    return "".join(each if (each.isascii() and each.isalnum()) or not each.isascii() else f"\\{each}" for each in text)


def with_case(members: frozenset[str], flags: frozenset[str]) -> frozenset[str]:
    """Return a set with both cases of its letters, if the flags have `i`."""
    return members | {each.swapcase() for each in members if each.isascii()} if "i" in flags else members


def shorthand(source: CharacterSource, flags: frozenset[str]) -> frozenset[str] | None:
    r"""Read a class such as `\d` or `\p{Alpha}` behind its backslash; None for another escape, which stays unread."""
    character = source.peek()
    if not character or character.lower() not in {*_SHORTHANDS, "p"}:
        return None
    source.next()
    if character in "pP":
        members = _property(source.braced("{", "}") if source.peek() == "{" else source.next())
    else:
        members = _those(_SHORTHANDS[character.lower()])
    # As in Java, case is ignored before the complement is formed.
    members = with_case(members, flags)
    return TOPIC_CHARACTERS - members if character.isupper() else members


def read_character(source: CharacterSource) -> str:
    """Read an escaped character behind its backslash."""
    match = source.match(_HEXADECIMAL)
    if match is not None:
        code = int(match[1] or match[2] or match[3], 16)
        if code > 0x10FFFF:
            raise UnsupportedPatternError(f"there is no character {match[0]}")
        return chr(code)
    match = source.match(_OCTAL)
    if match is not None:
        return chr(int(match[1], 8))
    character = source.next()
    if character == "c":
        return chr(ord(source.next()) ^ 64)
    if character in _CONTROLS:
        return _CONTROLS[character]
    if character.isascii() and character.isalnum():
        raise UnsupportedPatternError(f"\\{character} is not supported")
    return character


def _those(test: Callable[[str], bool]) -> frozenset[str]:
    return frozenset(filter(test, TOPIC_CHARACTERS))


def _property(name: str) -> frozenset[str]:
    """Return the members of a property by its name in Java."""
    if name in _POSIX:
        return _those(_POSIX[name])
    kind, equals, value = name.partition("=")
    kind = kind.lower()
    if (equals and kind in ("blk", "block")) or name.startswith("In"):
        block = (value if equals else name[2:]).replace(" ", "").replace("_", "").lower()
        if block == "basiclatin":
            return TOPIC_CHARACTERS
    elif equals and kind in ("gc", "general_category"):
        return _category(value, name)
    elif equals and kind in ("sc", "script") and value.upper() in ("LATIN", "LATN", "COMMON", "ZYYY"):
        return _those(_BINARY[value.upper()])
    elif not equals:
        short = name.removeprefix("Is")
        if short in _CATEGORIES or short in ("LC", "LD", "L1", "all"):
            return _category(short, name)
        if name.startswith("Is") and short.upper() in _BINARY:
            return _those(_BINARY[short.upper()])
    raise UnsupportedPatternError(f"the property {name!r} is not supported")


def _category(category: str, name: str) -> frozenset[str]:
    special: dict[str, Callable[[str], bool]] = {
        "LC": str.isalpha,
        "LD": str.isalnum,
        "L1": str.isascii,
        "all": lambda _: True,
    }
    if category in special:
        return _those(special[category])
    if category not in _CATEGORIES:
        raise UnsupportedPatternError(f"the property {name!r} is not supported")
    return _those(lambda each: unicodedata.category(each).startswith(category))


class ClassParser:
    """Reads a class in brackets, with ranges, unions, intersections and classes inside."""

    def __init__(self, source: CharacterSource, flags: frozenset[str]) -> None:
        """The flag `x` allows white space and comments inside of a class, too."""
        self._source = source
        self._flags = flags

    def members(self) -> frozenset[str]:
        """Return the members, from behind the opening bracket up to the closing one."""
        source = self._source
        negated = source.take("^")
        found: frozenset[str] | None = None
        while True:
            part = self._union(first=found is None)
            found = part if found is None else found & part
            if source.take("]"):
                return TOPIC_CHARACTERS - found if negated else found
            source.skip(2)

    def _union(self, *, first: bool) -> frozenset[str]:
        """Return the members up to the end or to the next `&&`."""
        source = self._source
        members: frozenset[str] = frozenset()
        empty = True
        while True:
            if "x" in self._flags:
                source.skip_comments()
            if source.at_end:
                raise UnsupportedPatternError("a ']' is missing")
            if source.ahead(2) == "&&" or (source.peek() == "]" and not (first and empty)):
                if empty or source.ahead(3) == "&&&":
                    raise UnsupportedPatternError("a part of a class with && is empty")
                return members
            members |= self._item()
            empty = False

    def _item(self) -> frozenset[str]:
        source = self._source
        if source.take("["):
            return ClassParser(source, self._flags).members()
        low = source.next()
        if low == "\\":
            members = shorthand(source, self._flags)
            if members is not None:
                return members
            low = read_character(source)
        if source.peek() != "-" or source.ahead(2) in ("-]", "-["):
            return with_case(frozenset(low), self._flags)
        source.next()
        high = source.next()
        if high == "\\":
            high = read_character(source)
        if high < low:
            raise UnsupportedPatternError(f"the range {low}-{high} is backwards")
        return with_case(frozenset(each for each in TOPIC_CHARACTERS if low <= each <= high), self._flags)
