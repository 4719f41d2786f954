"""How a client is secured: Kafka's client properties as TLS settings and a way to log in.

Brokers use it as well, for their connections to each other. Nothing here opens a connection: `network/channel_security`
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock
from odradek.security.sasl import plain, scram
from odradek.security.sasl.credentials import SCRAM_MECHANISMS
from odradek.security.sasl.jaas import JaasEntry, parse_jaas
from odradek.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN, NewExchange, SaslError
from odradek.security.tls.tls_settings import TlsSettings

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"

_DEFAULT_MECHANISM: Final = "GSSAPI"
"""Kafka's default, which is not supported."""
_OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer."
_CLASSES: Final = {
    "sasl.client.callback.handler.class": frozenset({""}),
    "sasl.login.callback.handler.class": frozenset(
        {"", *(f"{_OAUTHBEARER}{each}OAuthBearerLoginCallbackHandler" for each in ("", "secured."))}
    ),
    "sasl.login.class": frozenset({""}),
}
"""Properties that name Java classes, with the values whose effect this client has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """The security of a client's connections. `repr` shows no secret."""

    tls: TlsSettings | None = None
    """None: without TLS."""
    new_exchange: NewExchange | None = field(default=None, repr=False)
    """None: without SASL."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], clock: Clock) -> Self:
        """Return the security that Kafka's client properties describe: `security.protocol`, `ssl.*` and `sasl.*`.

        No file is read. Raises `ConfigError`, which names the property and shows no secret.
        """
        protocol = properties.get(PROTOCOL, "").strip() or PROTOCOLS[0]
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(f"{PROTOCOL}={protocol} is not allowed: it must be one of {', '.join(PROTOCOLS)}")
        tls = TlsSettings.from_properties(properties) if protocol.upper().endswith("SSL") else None
        if not protocol.upper().startswith("SASL"):
            return cls(tls=tls)
        mechanism = properties.get(MECHANISM, "").strip() or _DEFAULT_MECHANISM
        return cls(tls=tls, new_exchange=login_of(properties, clock, mechanism, mechanism_setting=MECHANISM))


def login_of(
    properties: Mapping[str, str],
    clock: Clock,
    mechanism: str,
    *,
    mechanism_setting: str,
    jaas_setting: str = JAAS,
) -> NewExchange:
    """Return how to log in with a mechanism. `properties` has the JAAS entry as `jaas_setting`; `mechanism_setting` is
    the property with the mechanism, for errors. Raises `ConfigError`."""
    for name, allowed in _CLASSES.items():
        if properties.get(name, "").strip() not in allowed:
            raise ConfigError(f"{name}={properties[name]} is not supported: Java classes cannot be loaded. Remove it")
    if mechanism == OAUTHBEARER:
        # Imports an HTTP client and `jwt`, which other mechanisms do not need.
        from odradek.security.sasl.bearer_login import bearer_login

        return bearer_login(properties, clock, jaas_setting)
    if mechanism == PLAIN:
        user, password, _ = _user(properties, jaas_setting, plain.LOGIN_MODULE)
        return _checked(lambda: plain.PlainClient(user, password), jaas_setting)
    scram_mechanism = SCRAM_MECHANISMS.get(mechanism)
    if scram_mechanism is None:
        raise ConfigError(
            f"{mechanism_setting}={mechanism} is not supported: it must be one of {', '.join(MECHANISMS)}"
        )
    user, password, entry = _user(properties, jaas_setting, scram.LOGIN_MODULE)
    is_token = entry.options.get(scram.TOKEN_EXTENSION, "").lower() == "true"
    return _checked(
        lambda: scram.ScramClient(scram_mechanism, user, password, is_delegation_token=is_token), jaas_setting
    )


def _user(properties: Mapping[str, str], setting: str, module: str) -> tuple[str, str, JaasEntry]:
    """Return user, password and the JAAS entry."""
    example = f'{module} required username="alice" password="...";'
    text = properties.get(setting)
    if not text:
        raise ConfigError(f"{setting} is missing: it must have user and password, for example {example}")
    entry = parse_jaas(setting, text)
    entry.require(setting, module)
    user, password = entry.options.get("username", ""), entry.options.get("password", "")
    if not user or not password:
        raise ConfigError(f"{setting} must have the options username and password, for example {example}")
    return user, password, entry


def _checked(new_exchange: NewExchange, setting: str) -> NewExchange:
    """Return `new_exchange` after a trial. Raises `ConfigError` if user or password cannot be sent."""
    try:
        new_exchange()
    except SaslError as error:
        raise ConfigError(f"{setting} is not valid: {error.log_text}") from None
    return new_exchange
