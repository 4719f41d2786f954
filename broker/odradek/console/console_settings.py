"""The settings of the console, and the client settings of each user. Pure.

The properties of the cluster contain no credentials. With credentials of the console, every visitor would see what the
user of the console may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from odradek.base.errors import ConfigError
from odradek.client.settings import ClientSettings

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
"""SASL mechanisms of the login page, in its order."""

_API_TIMEOUT_MS: Final = 10_000
"""Shorter than the default of clients, because a person waits for the page."""
_KAFKA: Final = "org.apache.kafka.common.security"
_MODULES: Final = {
    "PLAIN": f"{_KAFKA}.plain.PlainLoginModule",
    "OAUTHBEARER": f"{_KAFKA}.oauthbearer.OAuthBearerLoginModule",
}
_SCRAM_MODULE: Final = f"{_KAFKA}.scram.ScramLoginModule"
_CREDENTIALS: Final = ("sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url")
_CERTIFICATES: Final = ("ssl.keystore.location", "ssl.keystore.key")
_MAX_CREDENTIAL: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a user enters on the login page."""

    mechanism: str
    user: str = ""
    """Empty with OAUTHBEARER, whose token names the user."""
    secret: str = field(repr=False)
    """Password or token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """Limits of one search in the messages of a topic. The search ends at the first that it reaches."""

    time_ms: int = 10_000
    records: int = 200_000
    """Records that are compared with the filters."""
    size_bytes: int = 64 << 20
    """Keys and values that are read."""
    results: int = 500
    """Highest number of messages on one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Where the console listens, what it shows, and how long a login lasts."""

    properties: Mapping[str, str]
    """Client properties of the cluster, with `bootstrap.servers`, without credentials."""
    host: str = "127.0.0.1"
    port: int = 8080
    """0 for a free port."""
    host_names: tuple[str, ...] = ()
    """Names, other than `localhost` and addresses, with which browsers may reach the console."""
    certificate: Path | None = None
    """PEM file with the certificate chain of the web server; None for HTTP."""
    key: Path | None = None
    """PEM file with its private key; None if the file of the certificate has it."""
    is_behind_tls: bool = False
    """Whether a proxy in front of the console accepts only HTTPS."""
    allow_changes: bool = False
    idle_ms: int = 30 * 60_000
    """A session ends after this time without a request."""
    session_ms: int = 12 * 3_600_000
    """A session ends after this time in any case."""
    max_sessions: int = 200
    limits: ScanLimits = field(default_factory=ScanLimits)

    def __post_init__(self) -> None:
        """Check the settings. Raises `ConfigError`."""
        for name in _CREDENTIALS:
            if self.properties.get(name):
                raise ConfigError(
                    f"{name} is not allowed for the console: every visitor would have the rights of that user. "
                    "Remove it; users log in on the page"
                )
        for name in _CERTIFICATES:
            if self.properties.get(name) and not self.needs_login:
                raise ConfigError(
                    f"{name} is not allowed for the console: every visitor would have the rights of that certificate. "
                    "Connect to a listener with SASL, so that users log in on the page"
                )
        if self.key is not None and self.certificate is None:
            raise ConfigError("The private key of the web server has no certificate: set --tls-certificate too")
        if self.needs_login and not self.uses_https and not _is_loopback(self.host):
            raise ConfigError(
                f"The console would accept passwords without encryption on {self.host}: set --tls-certificate, "
                "or --behind-tls-proxy if a proxy in front of it accepts only HTTPS"
            )
        mechanism = self.properties.get("sasl.mechanism", "")
        if mechanism and mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism={mechanism} is not supported: it must be one of {', '.join(MECHANISMS)}")
        # Wrong values of other properties are found now, not at the first login.
        self.client_settings(
            Credentials(mechanism=self.mechanisms[0], user="user", secret="secret") if self.needs_login else None
        )

    @property
    def needs_login(self) -> bool:
        """Whether the cluster authenticates clients with SASL."""
        return self.properties.get("security.protocol", "").strip().upper().startswith("SASL")

    @property
    def uses_https(self) -> bool:
        """Whether browsers reach the console by HTTPS only."""
        return self.certificate is not None or self.is_behind_tls

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that users can choose."""
        fixed = self.properties.get("sasl.mechanism", "")
        return (fixed,) if fixed else MECHANISMS

    def client_settings(self, credentials: Credentials | None) -> ClientSettings:
        """Return the settings with which a user connects; None for a cluster without logins.

        Raises `ConfigError` for credentials that cannot be sent.
        """
        defaults = {"client.id": "odradek-console", "default.api.timeout.ms": str(_API_TIMEOUT_MS)}
        login = {} if credentials is None else self._login(credentials)
        return ClientSettings.parse({**defaults, **self.properties, **login})[0]

    def _login(self, credentials: Credentials) -> dict[str, str]:
        mechanism = credentials.mechanism
        if mechanism not in self.mechanisms:
            raise ConfigError(f"The mechanism must be one of {', '.join(self.mechanisms)}")
        if max(len(credentials.user), len(credentials.secret)) > _MAX_CREDENTIAL:
            raise ConfigError(f"User and password must have at most {_MAX_CREDENTIAL} characters")
        if mechanism == "OAUTHBEARER":
            options = {"token": credentials.secret.strip()}
        else:
            options = {"username": credentials.user, "password": credentials.secret}
        if not all(options.values()):
            raise ConfigError(f"Enter {' and '.join(options)}")
        module = _MODULES.get(mechanism, _SCRAM_MODULE)
        text = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {text};"}


def _quoted(value: str) -> str:
    """Return a value as a quoted word of JAAS."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
