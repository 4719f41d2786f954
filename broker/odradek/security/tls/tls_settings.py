"""The `ssl.*` properties of Kafka for one listener or one client.

Rules and defaults are those of `SslConfigs` and `DefaultSslEngineFactory`. Properties that name Java classes, providers
or algorithms of the JVM are accepted with Kafka's defaults only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from odradek.base.errors import ConfigError
from odradek.security.tls.ciphers import VERSIONS, choose
from odradek.security.tls.stores import PemKeyText, PemTrustText, StoreFile

_JAVA_ONLY: Final = {
    "ssl.provider": frozenset({""}),
    "ssl.engine.factory.class": frozenset({"", "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"}),
    "ssl.keymanager.algorithm": frozenset({"", "SunX509", "PKIX"}),
    "ssl.trustmanager.algorithm": frozenset({"", "PKIX"}),
    "ssl.secure.random.implementation": frozenset({""}),
}
"""Properties for the JVM, with the values that change nothing."""

DEFAULT_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
_PROTOCOLS: Final = {"TLS": DEFAULT_PROTOCOLS, "TLSv1.3": DEFAULT_PROTOCOLS, "TLSv1.2": ("TLSv1.2",)}
"""Versions by `ssl.protocol`, which counts if `ssl.enabled.protocols` is empty. It is the highest version."""


class ClientAuth(StrEnum):
    """Whether a listener asks clients for a certificate (`ssl.client.auth`)."""

    NONE = "none"
    REQUESTED = "requested"
    """A client without a certificate is accepted. One with a certificate that is not trusted is not, as in Java."""
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What a context is made of. `repr` shows no secret."""

    prefix: str = "ssl."
    """The beginning of the names of properties, for errors."""
    keystore: StoreFile | PemKeyText | None = None
    truststore: StoreFile | PemTrustText | None = None
    """None: the authorities of the system."""
    protocols: tuple[str, ...] = DEFAULT_PROTOCOLS
    """TLSv1.2, TLSv1.3 or both."""
    cipher_suites: tuple[str, ...] = ()
    """Names in Java or OpenSSL. If empty, OpenSSL chooses."""
    client_auth: ClientAuth = ClientAuth.NONE
    """For listeners."""
    verify_host_name: bool = True
    """For clients: whether the certificate must be for the host to which they connect."""
    check_revocation: bool = False
    """Whether certificates that a CRL of the truststore lists are refused. Kafka has no property for it, but
    ZooKeeper has."""

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, listener: str | None = None, uses_sasl: bool = False
    ) -> TlsSettings:
        """Return the settings of a listener, or of a client without one. Raises `ConfigError`.

        `listener.name.NAME.ssl.X`, with the name in lower case, precedes `ssl.X`. If the listener authenticates with
        SASL, `ssl.client.auth` counts only with that prefix (KIP-684). No file is read.
        """
        values = _Properties(properties, listener)
        for name, allowed in _JAVA_ONLY.items():
            if values.get(name) not in allowed:
                default = next((each for each in sorted(allowed) if each), "no value")
                raise ConfigError(f"{values.name(name)}={values.get(name)} is not supported: only {default} is")
        protocols = _protocols(values)
        suites = values.words("ssl.cipher.suites")
        choose(protocols, suites, values.name("ssl.cipher.suites").removesuffix("cipher.suites"))
        return cls(
            prefix=f"{values.prefix}ssl.",
            keystore=_keystore(values),
            truststore=_truststore(values),
            protocols=protocols,
            cipher_suites=suites,
            client_auth=_client_auth(values, uses_sasl=uses_sasl),
            verify_host_name=_verifies_host_name(values),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the stores."""
        return tuple(each.location for each in (self.keystore, self.truststore) if isinstance(each, StoreFile))


class _Properties:
    """Properties with the overrides of one listener."""

    def __init__(self, properties: Mapping[str, str], listener: str | None) -> None:
        self.prefix = "" if listener is None else f"listener.name.{listener.lower()}."
        self._properties = properties

    def name(self, name: str) -> str:
        """Return the name under which the property is set."""
        return self.prefix + name if self.has_override(name) else name

    def has_override(self, name: str) -> bool:
        return bool(self.prefix) and self.prefix + name in self._properties

    def get(self, name: str, default: str = "") -> str:
        return self._properties.get(self.name(name), default).strip()

    def text(self, name: str) -> str | None:
        return self._properties.get(self.name(name)) or None

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(each.strip() for each in self.get(name).split(",") if each.strip())


def _protocols(values: _Properties) -> tuple[str, ...]:
    protocol = values.get("ssl.protocol") or "TLSv1.3"
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"{values.name('ssl.protocol')}={protocol} is not supported: it must be TLSv1.2 or TLSv1.3")
    enabled = values.words("ssl.enabled.protocols")
    for name in enabled:
        if name not in VERSIONS:
            raise ConfigError(
                f"{values.name('ssl.enabled.protocols')} has {name}, which is not supported: TLSv1.2 and TLSv1.3 are"
            )
    return enabled or _PROTOCOLS[protocol]


def _client_auth(values: _Properties, *, uses_sasl: bool) -> ClientAuth:
    if uses_sasl and not values.has_override("ssl.client.auth"):
        return ClientAuth.NONE
    text = values.get("ssl.client.auth") or "none"
    try:
        return ClientAuth(text.lower())
    except ValueError:
        name = values.name("ssl.client.auth")
        raise ConfigError(f"{name}={text} is not valid: it must be none, requested or required") from None


def _verifies_host_name(values: _Properties) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    text = values.get(name, "https")
    if text.lower() not in ("https", ""):
        raise ConfigError(f"{values.name(name)}={text} is not supported: it must be https or empty")
    return bool(text)


def _keystore(values: _Properties) -> StoreFile | PemKeyText | None:
    key, chain = values.text("ssl.keystore.key"), values.text("ssl.keystore.certificate.chain")
    name = values.name("ssl.keystore.key" if key else "ssl.keystore.certificate.chain")
    password = values.text("ssl.keystore.password")
    if key is None and chain is None:
        return _file(values, "ssl.keystore", password)
    if key is None or chain is None:
        raise ConfigError(f"{name} is set: ssl.keystore.key and ssl.keystore.certificate.chain need each other")
    _check_text(values, "ssl.keystore", name, password)
    setting = name.removesuffix(".key")
    return PemKeyText(setting=setting, key=key, chain=chain, key_password=values.text("ssl.key.password"))


def _truststore(values: _Properties) -> StoreFile | PemTrustText | None:
    name = "ssl.truststore.certificates"
    certificates, password = values.text(name), values.text("ssl.truststore.password")
    if certificates is None:
        return _file(values, "ssl.truststore", password)
    _check_text(values, "ssl.truststore", values.name(name), password)
    setting = values.name(name).removesuffix(".certificates")
    return PemTrustText(setting=setting, certificates=certificates)


def _check_text(values: _Properties, store: str, name: str, password: str | None) -> None:
    """Check the properties that must go with a store as text, or must not."""
    if values.get(f"{store}.type").upper() != "PEM":
        raise ConfigError(f"{name} is set: it requires {values.name(f'{store}.type')}=PEM")
    for other in (f"{store}.location", f"{store}.password"):
        if values.text(other) is not None:
            raise ConfigError(f"{name} and {values.name(other)} are set: only one of them is possible")


def _file(values: _Properties, store: str, password: str | None) -> StoreFile | None:
    location = values.get(f"{store}.location")
    kind = values.get(f"{store}.type") or "JKS"
    if not location:
        if password is not None:
            name = values.name(f"{store}.password")
            raise ConfigError(f"{name} is set, but {values.name(f'{store}.location')} is not")
        return None
    if kind.upper() == "PEM" and password is not None:
        hint = "ssl.key.password decrypts the private key" if store == "ssl.keystore" else "a PEM file has none"
        raise ConfigError(f"{values.name(f'{store}.password')} is not possible with {store}.type=PEM: {hint}")
    key_password = values.text("ssl.key.password") if store == "ssl.keystore" else None
    setting = values.name(f"{store}.location").removesuffix(".location")
    return StoreFile(setting=setting, location=location, kind=kind, password=password, key_password=key_password)
