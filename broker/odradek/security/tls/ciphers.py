"""Protocol versions and cipher suites: Java's names to what OpenSSL can be given."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.base.errors import ConfigError

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""What OpenSSL and Java offer for TLS 1.3. The module `ssl` cannot select among them before Python 3.15."""
_SIGNALLING_SUITE: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""Java lists it among the suites. OpenSSL always sends it."""


class CipherChoice(NamedTuple):
    """What a context is limited to."""

    minimum: ssl.TLSVersion
    maximum: ssl.TLSVersion
    suites: tuple[str, ...]
    """OpenSSL's names of suites of TLS 1.2. If empty, OpenSSL chooses."""


def choose(protocols: Sequence[str], suites: Sequence[str], prefix: str) -> CipherChoice:
    """Return versions and suites for the values of `enabled.protocols` and `cipher.suites`.

    As in Java, a version without a suite in the list is not used. Raises a `ConfigError` that names the property, which
    begins with `prefix`.
    """
    enabled = [name for name in VERSIONS if name in protocols]
    wanted = [name for name in suites if name != _SIGNALLING_SUITE]
    newer = _TLS_1_3_SUITES.intersection(wanted)
    older = tuple(openssl_cipher(name) for name in wanted if name not in newer)
    if wanted and not newer:
        enabled = [name for name in enabled if name != "TLSv1.3"]
    if wanted and not older:
        enabled = [name for name in enabled if name != "TLSv1.2"]
    if not enabled:
        raise ConfigError(f"{prefix}cipher.suites has no suite of {' or '.join(protocols)}, the enabled protocols")
    if "TLSv1.3" in enabled and newer and newer != _TLS_1_3_SUITES:
        missing = ", ".join(sorted(_TLS_1_3_SUITES - newer))
        raise ConfigError(
            f"{prefix}cipher.suites has some suites of TLSv1.3, but OpenSSL always offers all three: add {missing}, or "
            f"remove TLSv1.3 of {prefix}enabled.protocols"
        )
    versions = [VERSIONS[name] for name in enabled]
    return CipherChoice(versions[0], versions[-1], older)


def apply_choice(context: ssl.SSLContext, choice: CipherChoice, prefix: str) -> None:
    """Limit a context. Raises a `ConfigError` that names a suite that OpenSSL does not support."""
    context.minimum_version, context.maximum_version = choice.minimum, choice.maximum
    if choice.suites:
        # One after the other first, because OpenSSL ignores unknown names beside known ones.
        for name in (*choice.suites, ":".join(choice.suites)):
            try:
                context.set_ciphers(name)
            except ssl.SSLError:
                raise ConfigError(
                    f"{prefix}cipher.suites: OpenSSL does not support the TLS 1.2 cipher suite {name}"
                ) from None


def openssl_cipher(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 cipher suite with a Java name. Other names are returned unchanged.

    >>> openssl_cipher("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return name
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")
