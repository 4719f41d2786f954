"""Names of certificates and patterns, compared with Java's own classes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import py4j
import pyspark
import pytest
from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from odradek.security.tls.java_patterns import java_pattern, java_replacement
from odradek.security.tls.names import rfc2253_name

pytestmark = pytest.mark.java

CN, ORG, EMAIL, SERIAL, UID, DC = (
    "0603550403",
    "060355040a",
    "06092a864886f70d010901",
    "0603550405",
    "060a0992268993f22c640101",
    "060a0992268993f22c640119",
)
UTF8, PRINTABLE, TELETEX, IA5, BMP, UNIVERSAL, INTEGER = 0x0C, 0x13, 0x14, 0x16, 0x1E, 0x1C, 0x02


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """A JVM of these tests. Spark, if tests of the same process used it, has replaced how py4j raises Java's errors."""
    jar = Path(pyspark.__file__).parent / "jars" / f"py4j-{py4j.version.__version__}.jar"
    port, token = launch_gateway(jarpath=str(jar), die_on_exit=True, enable_auth=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java_gateway, "get_return_value", protocol.get_return_value)
        yield gateway.jvm
    gateway.shutdown()


def tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([tag]) + (bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2)) + content


def attribute(kind: str, value: bytes, tag: int = UTF8) -> bytes:
    return tlv(0x30, bytes.fromhex(kind) + tlv(tag, value))


def name(*parts: bytes | list[bytes]) -> bytes:
    sets = (tlv(0x31, b"".join(part) if isinstance(part, list) else part) for part in parts)
    return tlv(0x30, b"".join(sets))


NAMES = [
    name(),
    name(attribute(ORG, b"Example"), attribute(CN, b"broker")),
    name(attribute(CN, "J\u00fcrgen \u6771\u4eac \U0001f600".encode())),
    name(attribute(CN, b' ,=+<>#;"\\ ')),
    name(attribute(CN, b"# first")),
    name(attribute(CN, b"")),
    name(attribute(CN, b" ")),
    name(attribute(CN, b"  a  b  ")),
    name(attribute(CN, b"\r a \r")),
    name(attribute(CN, b"\n\ta\n")),
    name(attribute(CN, b"a\x00b")),
    name(attribute(CN, b"a/b@c:d'e?f(g)*h_i!j~k|l")),
    name([attribute(ORG, b"one"), attribute(CN, b"two")]),
    name([attribute(CN, b"two"), attribute(ORG, b"one")]),
    name(attribute(EMAIL, b"a@b", IA5), attribute(CN, b"x")),
    name(attribute(SERIAL, b"12", PRINTABLE)),
    name(attribute(UID, b"u"), attribute(DC, b"example", IA5), attribute(DC, b"org", IA5)),
    name(attribute(CN, b"printable", PRINTABLE)),
    name(attribute(CN, b"caf\xe9", TELETEX)),
    name(attribute(CN, "bmp \u00e4".encode("utf-16-be"), BMP)),
    name(attribute(CN, "ucs4".encode("utf-32-be"), UNIVERSAL)),
    name(attribute(CN, b"\x05", INTEGER)),
    name(attribute(CN, b"x", 0x03)),
    name(attribute("06032a0304", b"private")),
    name(attribute("060a2b0601040182378d8d01", b"long")),
    name(attribute("0603883703", b"joint")),
    name(attribute("0603550408", b"State"), attribute("0603550409", b"Street"), attribute("0603550407", b"Place")),
    name(attribute("0603550406", b"DE", PRINTABLE), attribute("060355040b", b"Unit")),
    name(attribute("060355040c", b"title"), attribute("0603550404", b"surname")),
]


@pytest.mark.parametrize("der", NAMES, ids=range(len(NAMES)))
def test_names_are_javas(jvm: Any, der: bytes) -> None:
    assert rfc2253_name(der) == jvm.javax.security.auth.x500.X500Principal(der).getName()


def test_random_names_are_javas(jvm: Any) -> None:
    source = random.Random(1)
    letters = [*' ,=+<>#;"\\\0\r\n', "a", "\u00e4", "\u3000"]
    for _ in range(200):
        values = ["".join(source.choices(letters, k=source.randrange(6))).encode() for _ in range(3)]
        der = name(*(attribute(source.choice([CN, ORG, EMAIL]), value) for value in values))
        assert rfc2253_name(der) == jvm.javax.security.auth.x500.X500Principal(der).getName()


PATTERNS = [
    "^CN=(.*?),OU=ServiceUsers.*$",
    "^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$",
    r"^CN=((\\, *|\w)+)(,.*|$)",
    "(?i)^cn=(?<name>[^,]+),?.*",
    ".*",
    "",
    "(a)|(b)",
    r"CN=(\d+)\s(\S*)\u00e4\x41.*+",
    "(?s)CN=(.)(.*)",
    "CN=(.)(.*)",
    r"[\w.\-]+=([^=]*)(?=,|$).*",
    r"(CN|O)=([a-z]+),\1=.*",
]
REPLACEMENTS = ["$1", "$0-$1", "$12", r"\$1\\x", "$2$1", "x"]
SUBJECTS = [
    "CN=Duke,OU=ServiceUsers,O=x",
    "CN=a\\, b,O=c",
    "cn=x",
    "CN=12 z\u00e4Arest",
    "CN=a,CN=b",
    "a",
    "CN=x\ry",
    "",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_and_replacements_are_javas(jvm: Any, pattern: str) -> None:
    compiled = java_pattern(pattern)
    java = jvm.java.util.regex.Pattern.compile(pattern)
    for subject in SUBJECTS:
        assert bool(compiled.fullmatch(subject)) == java.matcher(subject).matches(), subject
        for replacement in REPLACEMENTS:
            try:
                expected = java.matcher(subject).replaceAll(replacement)
            except Py4JJavaError:
                continue  # a group that does not exist: Kafka makes it literal, see the unit tests
            assert compiled.sub(java_replacement(replacement, compiled), subject) == expected, (subject, replacement)
