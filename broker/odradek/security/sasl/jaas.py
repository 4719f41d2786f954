"""Reads the value of `sasl.jaas.config`: one entry of Java's JAAS configuration.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="...";

Values are quoted with `"` or `'`, with the escapes of Java, or are words. `//` and `/* */` begin comments. Kafka's
parser is stricter with words (it refuses numbers, for example), so what it accepts is accepted here. Errors show the
position of a mistake, never the text, which has passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.base.errors import ConfigError

CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
"""Java's control flags. With a single module they all have the same effect."""

_TOKEN: Final = re.compile(
    r"""(?P<space> \s+ | //[^\r\n]* | /\*.*?\*/ )
    | (?P<quoted> "(?:[^"\\\r\n]|\\.)*" | '(?:[^'\\\r\n]|\\.)*' )
    | (?P<mark> [=;] )
    | (?P<word> (?:[^\s"'=;/{}\\] | /(?![/*]))+ )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final[Mapping[str, str]] = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options."""

    login_module: str
    """Name of a Java class."""
    options: Mapping[str, str] = field(repr=False)

    def require(self, setting: str, *modules: str) -> None:
        """Raise `ConfigError` unless the login module is one of `modules`."""
        if self.login_module not in modules:
            raise ConfigError(
                f"{setting} has the login module {self.login_module}, but it must be {' or '.join(modules)}"
            )


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse_jaas(setting: str, text: str) -> JaasEntry:
    """Return the only entry of `text`, the value of the property `setting`. Raises `ConfigError`."""
    tokens = _tokens(setting, text)
    module = next(tokens)
    if module.kind == "end":
        raise ConfigError(f"{setting} is empty: it must have one login module")
    if module.kind != "word":
        raise _error(setting, module, "the name of a login module is expected")
    flag = next(tokens)
    if flag.kind != "word" or flag.text.lower() not in CONTROL_FLAGS:
        raise _error(setting, flag, "a control flag is expected after the login module, such as `required`")
    options = dict(_options(setting, tokens))
    rest = next(tokens)
    if rest.kind != "end":
        raise _error(setting, rest, "there is more than one login module, or text after the `;`")
    return JaasEntry(module.text, MappingProxyType(options))


def _options(setting: str, tokens: Iterator[_Token]) -> Iterator[tuple[str, str]]:
    """Yield the options up to the semicolon. If a name is repeated, the last value applies, as in Java."""
    while (name := next(tokens)).text != ";" or name.kind != "mark":
        if name.kind == "end":
            raise _error(setting, name, "the entry must end with `;`")
        equals, value = next(tokens), next(tokens)
        if name.kind == "mark" or equals.kind != "mark" or equals.text != "=":
            raise _error(setting, name, "an option is expected as name=value")
        if value.kind not in ("word", "quoted"):
            raise _error(setting, value, "a value is expected after `=`")
        yield name.text, value.text


def _tokens(setting: str, text: str) -> Iterator[_Token]:
    """Yield the tokens, then tokens of the kind `end` for ever."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _error(setting, _Token("", "", position), "put the value in quotes, and close each quote and comment")
        kind, content = found.lastgroup or "", found.group()
        if kind == "quoted":
            content = _ESCAPE.sub(_unescape, content[1:-1])
        if kind != "space":
            yield _Token(kind, content, position)
        position = found.end()
    while True:
        yield _Token("end", "", position)


def _unescape(found: re.Match[str]) -> str:
    code = found.group(1)
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ESCAPED.get(code, code)


def _error(setting: str, token: _Token, what: str) -> ConfigError:
    return ConfigError(f"{setting} is not valid at character {token.position + 1}: {what}")
