"""Where a client gets its bearer token: a setting, a file, or the client credentials grant of OAuth 2 (RFC 6749, 4.4).

As in Kafka, `sasl.oauthbearer.token.endpoint.url` is an address, for which the JAAS entry has `clientId`,
`clientSecret` and perhaps `scope`, or the `file:` URL of a file, such as the projected token of a ServiceAccount. The
JAAS option `token`, which Kafka does not have, is the token itself. Sources block: call them in a thread, for each
exchange.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote_plus, urlencode

import jwt
from jwt.exceptions import PyJWTError

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock
from odradek.security.sasl.http_client import Http, OutboundRequest, checked_url
from odradek.security.sasl.mechanism import TokenSourceError, is_utf8, shown
from odradek.security.sasl.oauthbearer import is_bearer_token

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
URLENCODE: Final = "sasl.oauthbearer.header.urlencode"

MAX_TOKEN_BYTES: Final = 1 << 16

MAX_LIFETIME_S: Final = 86_400.0
"""A token is kept for a day at most, whatever lifetime it has."""

REFRESH_FACTOR: Final = 0.8
"""Part of the lifetime of a token after which a new one is requested (Kafka's `sasl.login.refresh.window.factor`)."""


class TokenSource(Protocol):
    """Gives a token."""

    def token(self) -> str:
        """Return a token that should still be valid. Blocks. Raises `TokenSourceError`."""
        ...


@dataclass(frozen=True, slots=True)
class StaticToken:
    """The value of a setting."""

    value: str = field(repr=False)

    def token(self) -> str:
        """Return the value. Raises `TokenSourceError` if it is not a token."""
        return _checked(self.value, "the option token")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that another process renews. It is read for each exchange."""

    path: str

    def token(self) -> str:
        """Return the content of the file without the white space around it. Raises `TokenSourceError`."""
        try:
            with Path(self.path).open("rb") as file:
                data = file.read(MAX_TOKEN_BYTES + 1)
        except OSError as error:
            raise TokenSourceError(f"the token file {self.path} cannot be read: {error.strerror}") from error
        return _checked(data.decode("latin-1").strip(), f"the token file {self.path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """What a client shows to the issuer of tokens."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    is_encoded: bool = False
    """Whether id and secret are encoded as in a form, as RFC 6749 demands and few servers expect."""

    def request(self) -> OutboundRequest:
        """Return the request for a token."""
        pair = self.client_id, self.client_secret
        if self.is_encoded:
            pair = quote_plus(self.client_id), quote_plus(self.client_secret)
        basic = b64encode(":".join(pair).encode()).decode()
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded"}
        return OutboundRequest(self.url, headers, urlencode(form).encode())


class GrantedToken:
    """A token of the client credentials grant. It is kept until `REFRESH_FACTOR` of its lifetime is over. Threads may
    share it; only one of them requests."""

    def __init__(self, credentials: ClientCredentials, http: Http, clock: Clock) -> None:
        """Nothing is requested yet."""
        self._credentials: Final = credentials
        self._http: Final = http
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._token: str | None = None
        self._refresh_ms = 0.0
        self._expiry_ms = 0.0

    def __repr__(self) -> str:
        return f"GrantedToken({self._credentials!r})"

    def token(self) -> str:
        """Return the token, or a new one. If there is no new one, the old one is returned until it expires. Raises
        `TokenSourceError`."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._token is not None and now_ms < self._refresh_ms:
                return self._token
            try:
                token, lifetime_s = self._granted()
            except TokenSourceError:
                if self._token is not None and now_ms < self._expiry_ms:
                    return self._token
                raise
            self._token = token
            self._refresh_ms = now_ms + lifetime_s * 1000 * REFRESH_FACTOR
            self._expiry_ms = now_ms + lifetime_s * 1000
            return token

    def _granted(self) -> tuple[str, float]:
        """Request a token. Returns it with its lifetime in seconds, 0 if that is not known."""
        url = self._credentials.url
        try:
            response = self._http(self._credentials.request())
        except OSError as error:
            raise TokenSourceError(f"{TOKEN_URL}={url} does not answer: {error.strerror or error}") from error
        content = _json(response.body)
        if response.status not in (200, 201):
            reason = " ".join(shown(str(content[key])) for key in ("error", "error_description") if key in content)
            raise TokenSourceError(f"{TOKEN_URL}={url} answers with status {response.status}: {reason or 'no reason'}")
        token = content.get("access_token")
        if not isinstance(token, str):
            raise TokenSourceError(f"{TOKEN_URL}={url} answers without access_token")
        token = _checked(token.strip(), f"the token of {TOKEN_URL}={url}")
        lifetime = content.get("expires_in")
        if isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and lifetime > 0:
            return token, min(lifetime, MAX_LIFETIME_S)
        return token, self._lifetime_of(token)

    def _lifetime_of(self, token: str) -> float:
        """Return the remaining lifetime that the token itself has, in seconds. The server verifies the token."""
        try:
            expiry = jwt.decode(token, options={"verify_signature": False}).get("exp")
        except PyJWTError:
            return 0.0
        if isinstance(expiry, bool) or not isinstance(expiry, int | float):
            return 0.0
        now_s = self._clock.wall_ms() / 1000
        # The number may be too large for the difference.
        return min(max(expiry, now_s), now_s + MAX_LIFETIME_S) - now_s


def token_source(
    properties: Mapping[str, str], setting: str, options: Mapping[str, str], http: Http, clock: Clock
) -> TokenSource:
    """Return the source for client properties. `options` are those of the JAAS entry of the property `setting`.

    Raises `ConfigError`.
    """
    url, value = properties.get(TOKEN_URL, "").strip(), options.get("token", "").strip()
    if value:
        if not is_bearer_token(value):
            raise ConfigError(f"{setting}: the option token is not a bearer token")
        return StaticToken(value)
    if not url:
        raise ConfigError(
            f"{TOKEN_URL} is missing: it must be the address of the issuer's token endpoint, or file: and a path. "
            "Kafka's default, a token without signature, is not supported"
        )
    parts = checked_url(TOKEN_URL, url, "http", "https", "file")
    if parts.scheme == "file":
        return TokenFile(parts.path)
    client_id, secret = options.get("clientId", "").strip(), options.get("clientSecret", "").strip()
    if not client_id or not secret:
        raise ConfigError(f"{setting} must have the options clientId and clientSecret for {TOKEN_URL}")
    scope = options.get("scope", "").strip()
    is_encoded = properties.get(URLENCODE, "").strip().lower() or "false"
    if is_encoded not in ("true", "false"):
        raise ConfigError(f"{URLENCODE}={is_encoded} is not allowed: it must be true or false")
    if not (is_utf8(client_id) and is_utf8(secret) and is_utf8(scope)):
        raise ConfigError(f"{setting}: clientId, clientSecret and scope must have only characters of UTF-8")
    credentials = ClientCredentials(
        url=url,
        client_id=client_id,
        client_secret=secret,
        scope=scope or None,
        is_encoded=is_encoded == "true",
    )
    return GrantedToken(credentials, http, clock)


def _checked(token: str, what: str) -> str:
    if len(token) > MAX_TOKEN_BYTES or not is_bearer_token(token):
        raise TokenSourceError(f"{what} is not a bearer token of at most {MAX_TOKEN_BYTES} characters")
    return token


def _json(body: bytes) -> Mapping[str, Any]:
    """Return an object in JSON, or an empty one."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
