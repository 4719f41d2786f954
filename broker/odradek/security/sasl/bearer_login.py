"""How a client logs in with OAUTHBEARER: its properties as a source of tokens, and an exchange with each token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock
from odradek.security.sasl.http_client import HttpClient, issuer_context
from odradek.security.sasl.jaas import parse_jaas
from odradek.security.sasl.mechanism import NewExchange
from odradek.security.sasl.oauthbearer import LOGIN_MODULE, OAuthBearerClient, extensions_of
from odradek.security.sasl.token_sources import token_source

_CONNECT_TIMEOUT: Final = "sasl.login.connect.timeout.ms"
_READ_TIMEOUT: Final = "sasl.login.read.timeout.ms"
_HTTP_TIMEOUT_MS: Final = 10_000


def bearer_login(properties: Mapping[str, str], clock: Clock, setting: str) -> NewExchange:
    """Return how to log in with tokens. `setting` is the name of the property with the JAAS entry, which is optional.

    Raises `ConfigError`, which names the property.
    """
    options: Mapping[str, str] = {}
    if properties.get(setting):
        entry = parse_jaas(setting, properties[setting])
        entry.require(setting, LOGIN_MODULE)
        options = entry.options
    extensions = extensions_of(setting, options)
    http = HttpClient(
        context=issuer_context(options),
        connect_ms=_timeout(properties, _CONNECT_TIMEOUT),
        read_ms=_timeout(properties, _READ_TIMEOUT),
    )
    source = token_source(properties, setting, options, http, clock)
    return lambda: OAuthBearerClient(source.token(), extensions)


def _timeout(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "").strip()
    if not text:
        return _HTTP_TIMEOUT_MS
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ConfigError(f"{name}={text} is not allowed: it must be a whole number of ms above 0")
    return int(text)
