"""Reads DER (X.690): just enough for JKS files, for the names in certificates and for limits before a library decodes.

Only definite lengths and tags below 31 occur in these structures. Anything else raises `DerError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31

_CONSTRUCTED: Final = 0x20
_VERSION: Final = 0xA0
_TOO_FEW: Final = "an element has too few parts"
_MAX_DEPTH: Final = 24
"""Nesting that `iteration_counts` follows. A PKCS#12 file with an encrypted key has 12 levels."""


class DerError(ValueError):
    """The bytes are not the DER that is expected."""


class Element(NamedTuple):
    """A tag and its content."""

    tag: int
    content: bytes
    encoded: bytes
    """The element itself: tag, length and content."""


def elements(data: bytes) -> Iterator[Element]:
    """Yield the elements that follow each other in `data`. Raises `DerError`."""
    offset = 0
    while offset < len(data):
        element = element_at(data, offset)
        yield element
        offset += len(element.encoded)


def element_at(data: bytes, offset: int = 0) -> Element:
    """Return the element that begins at the offset. More bytes may follow it. Raises `DerError`."""
    if len(data) - offset < 2:
        raise DerError("an element is cut off")
    tag, length = data[offset], data[offset + 1]
    start = offset + 2
    if tag & 0x1F == 0x1F:
        raise DerError("a tag has more than one byte")
    if length >= 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4 or len(data) - start < size:
            raise DerError("a length is not valid")
        length = int.from_bytes(data[start : start + size])
        start += size
    if len(data) - start < length:
        raise DerError("an element is longer than the data")
    return Element(tag, data[start : start + length], data[offset : start + length])


def content_of(element: Element, tag: int) -> bytes:
    """Return the content of an element that must have this tag. Raises `DerError`."""
    if element.tag != tag:
        raise DerError(f"tag {element.tag:#04x} is found where {tag:#04x} is expected")
    return element.content


def children(element: Element, tag: int, count: int) -> list[Element]:
    """Return the elements in one that must have this tag and at least so many elements. Raises `DerError`."""
    found = list(elements(content_of(element, tag)))
    if len(found) < count:
        raise DerError(_TOO_FEW)
    return found


class CertificateParts(NamedTuple):
    """The parts of a certificate (RFC 5280) that are needed before or without the library `cryptography`.

    It refuses certificates that break rules, such as the serial number 0 of an authority in Java's own truststore.
    """

    issuer: bytes
    """A Name in DER."""
    subject: bytes
    public_key: bytes
    """A SubjectPublicKeyInfo in DER."""


def certificate_parts(certificate: bytes) -> CertificateParts:
    """Return parts of a certificate. Raises `DerError`."""
    signed, algorithm, signature = children(element_at(certificate), SEQUENCE, 3)[:3]
    content_of(algorithm, SEQUENCE)
    content_of(signature, BIT_STRING)
    fields = children(signed, SEQUENCE, 6)
    if fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise DerError(_TOO_FEW)
    issuer, _, subject, public_key = fields[2:6]
    for each in (issuer, subject, public_key):
        content_of(each, SEQUENCE)
    return CertificateParts(issuer.encoded, subject.encoded, public_key.encoded)


def iteration_counts(data: bytes) -> Iterator[int]:
    """Yield the numbers of iterations that a password-protected structure asks for.

    They follow their salt: an INTEGER after an OCTET STRING (RFC 7292 and RFC 8018: MacData, PBEParameter,
    PBKDF2-params; RFC 7914: the cost of scrypt). The structures are also looked for within octet strings, where PKCS#12
    has them. What is encrypted or is no DER is not followed.
    """
    yield from _iteration_counts(data, _MAX_DEPTH)


def _iteration_counts(data: bytes, depth: int) -> Iterator[int]:
    before = 0
    try:
        for tag, content, _ in elements(data):
            if tag == INTEGER and before == OCTET_STRING:
                yield int.from_bytes(content)
            before = tag
            is_nested = tag & _CONSTRUCTED or (tag == OCTET_STRING and content[:1] == bytes([SEQUENCE]))
            if is_nested and depth:
                yield from _iteration_counts(content, depth - 1)
    except DerError:
        return
