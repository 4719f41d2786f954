"""The name of a client certificate, and the rules that make the name of a principal of it.

Kafka takes `X500Principal.getName()` of Java, which is the RFC 2253 form of the subject, and applies the first rule of
`ssl.principal.mapping.rules` that matches (KIP-371). ACLs contain the result, so it must be the same to the character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.base.errors import ConfigError
from odradek.security.tls.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    SET,
    DerError,
    Element,
    certificate_parts,
    children,
    content_of,
    element_at,
)
from odradek.security.tls.java_patterns import java_pattern, java_replacement

MAPPING_RULES: Final = "ssl.principal.mapping.rules"

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attribute types that RFC 2253 names. Java writes all others as numbers, with the value in hexadecimal digits."""

_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8, Printable, Teletex, IA5, General and BMPString."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def certificate_name(certificate: bytes) -> str:
    """Return the name of the subject of a certificate in DER. Raises `DerError`."""
    return rfc2253_name(certificate_parts(certificate).subject)


def rfc2253_name(name: bytes) -> str:
    """Return a distinguished name in DER as Java prints it. Raises `DerError`.

    The most specific part comes first, the opposite of the order in the certificate.
    """
    parts = [
        "+".join(_attribute(each) for each in children(part, SET, 1))
        for part in children(element_at(name), SEQUENCE, 0)
    ]
    return ",".join(reversed(parts))


def _attribute(attribute: Element) -> str:
    kind, value = children(attribute, SEQUENCE, 2)[:2]
    number = _dotted(content_of(kind, OBJECT_IDENTIFIER))
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_escape(value.content)}"


def _escape(value: bytes) -> str:
    """Return a value as Java does: decoded as UTF-8 whatever its type, with escapes where the syntax needs them."""
    text = value.decode("utf-8", "replace")
    core = text.strip(" \r")
    start = len(text) - len(text.lstrip(" \r"))
    ends = (text[:start], text[start + len(core) :]) if core else (text, "")
    before, after = ("".join(f"\\{each}" for each in end) for end in ends)
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in core)
    return before + escaped + after


def _dotted(encoded: bytes) -> str:
    """Return the text form of an object identifier (X.690, 8.19)."""
    numbers: list[int] = []
    number = 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers or encoded[-1] >= 0x80:
        raise DerError("an object identifier is not valid")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]
    case: str


@dataclass(frozen=True, slots=True)
class PrincipalRules:
    """The rules of `ssl.principal.mapping.rules`. The first one that matches the whole name applies.

    `RULE:pattern/replacement/` replaces each match of the pattern, `L` after it makes the result lower case and `U`
    upper case. `DEFAULT` is the name itself.
    """

    text: str
    _rules: Sequence[_Rule | None]
    """None: DEFAULT."""

    @classmethod
    def parse(cls, text: str = "DEFAULT") -> PrincipalRules:
        """Read the value of the property. Raises `ConfigError`.

        The patterns are Java's. What Python's library would understand in another way is refused (`java_patterns`).
        """
        rules: list[_Rule | None] = []
        offset = 0
        while offset < len(text):
            if text[offset] == "," or text[offset].isspace():
                offset += 1
                continue
            found = _RULE.match(text, offset)
            if found is None:
                raise ConfigError(
                    f"{MAPPING_RULES} is not valid from {text[offset : offset + 80]!r} on: rules are DEFAULT and "
                    "RULE:pattern/replacement/ with an optional L or U, separated by commas"
                )
            rules.append(_compile(found))
            offset = found.end()
        return cls(text, tuple(rules))

    def apply(self, name: str) -> str | None:
        """Return the name of the principal. None: no rule matches, and Kafka refuses the connection."""
        for rule in self._rules:
            if rule is None:
                return name
            if rule.pattern.fullmatch(name):
                mapped = rule.pattern.sub(rule.replace, name)
                return mapped.lower() if rule.case == "L" else mapped.upper() if rule.case == "U" else mapped
        return None


_RULE: Final = re.compile(
    r"(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)


def _compile(found: re.Match[str]) -> _Rule | None:
    if found["default"]:
        return None
    try:
        pattern = java_pattern(found["pattern"])
        return _Rule(pattern, java_replacement(found["replacement"], pattern), found["case"])
    except ValueError as error:
        raise ConfigError(f"{MAPPING_RULES}: the rule {found[0].rstrip(', ')} cannot be used: {error}") from error
