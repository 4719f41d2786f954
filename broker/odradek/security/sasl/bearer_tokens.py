"""Verifies the JSON Web Tokens of OAUTHBEARER (RFC 7519, KIP-768), with Kafka's `sasl.oauthbearer.*` properties.

Signatures must be asymmetric (RS, PS, ES, EdDSA): a token without signature, or with one that its readers could make,
is refused whatever the key set has. As in Kafka, `exp` and `iat` are required, and a token with an audience needs
`sasl.oauthbearer.expected.audience`. Verification takes 0.1 ms of CPU time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from jwt.exceptions import InvalidAudienceError, InvalidIssuerError, PyJWTError

from odradek.base.errors import ConfigError
from odradek.security.sasl.http_client import Http, checked_url
from odradek.security.sasl.key_sets import (
    ALGORITHMS,
    FILE_REFRESH_MS,
    RefreshTimes,
    VerificationKeys,
    endpoint_loader,
    file_loader,
)
from odradek.security.sasl.mechanism import is_utf8, shown
from odradek.security.sasl.oauthbearer import BearerToken, TokenError

PREFIX: Final = "sasl.oauthbearer."
JWKS_URL: Final = f"{PREFIX}jwks.endpoint.url"
AUDIENCE: Final = f"{PREFIX}expected.audience"
ISSUER: Final = f"{PREFIX}expected.issuer"

LOGIN_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
"""The handler of Java clients that gets signed tokens. Their default makes tokens without signature."""

MAX_TOKEN: Final = 1 << 16
"""Maximum length, in characters, of a token."""

MAX_HEADER: Final = 1 << 14
"""Maximum length, in characters, of the header of a token. It may have a chain of certificates, which is not used."""

MAX_EXPIRY_S: Final = 253_402_300_799
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerSettings:
    """The properties of a listener for OAUTHBEARER. Names and defaults are Kafka's."""

    jwks_url: str
    """`http:`, `https:` or `file:`."""
    times: RefreshTimes = field(default_factory=RefreshTimes)
    audience: tuple[str, ...] = ()
    """A token must have one of them. Empty: a token must have no audience."""
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BearerSettings:
        """Return the settings in `properties`, whose names have no prefix of a listener. Raises `ConfigError`."""
        url = properties.get(JWKS_URL, "").strip()
        if not url:
            raise ConfigError(
                f"{JWKS_URL} is missing: OAUTHBEARER needs the keys of the issuer of the tokens. Kafka's default, "
                "which accepts tokens without signature, is not supported"
            )
        checked_url(JWKS_URL, url, "http", "https", "file")
        audience = tuple(part.strip() for part in properties.get(AUDIENCE, "").split(",") if part.strip())
        return cls(
            jwks_url=url,
            times=RefreshTimes(
                refresh_ms=_number(properties, "jwks.endpoint.refresh.ms", 3_600_000, minimum=1),
                backoff_ms=_number(properties, "jwks.endpoint.retry.backoff.ms", 100, minimum=1),
                max_backoff_ms=_number(properties, "jwks.endpoint.retry.backoff.max.ms", 10_000, minimum=1),
            ),
            audience=audience,
            issuer=properties.get(ISSUER, "").strip() or None,
            clock_skew_s=_number(properties, "clock.skew.seconds", 30, minimum=0),
            scope_claim=properties.get(f"{PREFIX}scope.claim.name", "").strip() or "scope",
            sub_claim=properties.get(f"{PREFIX}sub.claim.name", "").strip() or "sub",
        )


def _number(properties: Mapping[str, str], name: str, default: int, *, minimum: int) -> int:
    text = properties.get(PREFIX + name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= minimum):
        raise ConfigError(f"{PREFIX}{name}={text} is not allowed: it must be a whole number of at least {minimum}")
    return int(text)


def verification_keys(settings: BearerSettings, http: Http) -> VerificationKeys:
    """Return the keys of a listener, not yet loaded: run `keep_fresh`. `http` is for an address, not for a file."""
    parts = checked_url(JWKS_URL, settings.jwks_url, "http", "https", "file")
    if parts.scheme != "file":
        return VerificationKeys(settings.jwks_url, endpoint_loader(settings.jwks_url, http), settings.times)
    times = RefreshTimes(
        refresh_ms=min(settings.times.refresh_ms, FILE_REFRESH_MS),
        backoff_ms=settings.times.backoff_ms,
        max_backoff_ms=settings.times.max_backoff_ms,
    )
    return VerificationKeys(settings.jwks_url, file_loader(parts.path), times)


class TokenVerifier:
    """Verifies tokens with the keys and rules of one listener."""

    def __init__(self, settings: BearerSettings, keys: VerificationKeys) -> None:
        self._settings: Final = settings
        self._keys: Final = keys

    def __call__(self, token: str) -> BearerToken:
        """Return what the token says. Raises `TokenError`. Call it on the event loop: it waits for nothing."""
        if len(token) > MAX_TOKEN or not token.isascii():
            raise TokenError(f"the token is longer than {MAX_TOKEN} characters, or not ASCII")
        try:
            key_id, algorithm = self._header(token)
            key = self._keys.find(key_id, algorithm)
            if key is None:
                raise TokenError(self._without_key(key_id, algorithm))
            claims = jwt.decode(
                token,
                key.public_key,
                algorithms=[algorithm],
                audience=self._settings.audience or None,
                issuer=self._settings.issuer,
                leeway=self._settings.clock_skew_s,
                options={"require": ["exp", "iat"]},
            )
        except PyJWTError as error:
            raise TokenError(self._reason(error)) from error
        return self._checked(claims)

    @staticmethod
    def _header(token: str) -> tuple[str | None, str]:
        """Return the id of the key and the algorithm, neither of which can be trusted yet."""
        encoded = token.partition(".")[0]
        if len(encoded) > MAX_HEADER:
            raise TokenError(f"the header of the token is longer than {MAX_HEADER} characters")
        # PyJWT would also decode the other parts, which costs far more than the header, for any token that is sent.
        header = jwt.get_unverified_header(f"{encoded}..")
        key_id, algorithm = header.get("kid"), header.get("alg")
        if isinstance(algorithm, str) and algorithm.lower() == "none":
            raise TokenError(
                "the token has no signature. Set sasl.oauthbearer.token.endpoint.url of the client, and, if it is a "
                f"Java client, sasl.login.callback.handler.class={LOGIN_HANDLER}"
            )
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise TokenError(
                f"the algorithm {shown(str(algorithm))} of the token is not accepted: it must be one of "
                f"{', '.join(sorted(ALGORITHMS))}"
            )
        return key_id if isinstance(key_id, str) else None, algorithm

    def _without_key(self, key_id: str | None, algorithm: str) -> str:
        if not len(self._keys):
            return f"the key set {self._keys.place} is not loaded"
        if key_id is None:
            return f"the token names no key, and the key set {self._keys.place} has not exactly one for {algorithm}"
        return f"the key set {self._keys.place} has no key {shown(key_id)} for {algorithm}; it is loaded again soon"

    def _reason(self, error: PyJWTError) -> str:
        if isinstance(error, InvalidAudienceError):
            expected = ", ".join(self._settings.audience) or "no audience"
            return f"the audience (aud) of the token is another one than {AUDIENCE}: {expected}"
        if isinstance(error, InvalidIssuerError):
            return f"the issuer (iss) of the token is another one than {ISSUER}: {self._settings.issuer}"
        return f"the token is not valid: {shown(str(error))}"

    def _checked(self, claims: Mapping[str, Any]) -> BearerToken:
        """Return the claims that a broker needs. PyJWT accepts times as text and as truth values."""
        expiry = claims["exp"]
        if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not 0 < expiry <= MAX_EXPIRY_S:
            raise TokenError("the claim exp of the token is not a number of seconds up to the year 9999")
        name = claims.get(self._settings.sub_claim)
        if not isinstance(name, str) or not name.strip() or not is_utf8(name):
            raise TokenError(f"the claim {self._settings.sub_claim} of the token is not text, or is empty or missing")
        return BearerToken(principal_name=name.strip(), expiry_ms=int(expiry * 1000), scopes=self._scopes(claims))

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """Return the scopes: text with spaces between them (RFC 8693), or a list."""
        value = claims.get(self._settings.scope_claim, ())
        if isinstance(value, str):
            return frozenset(value.split())
        if isinstance(value, list | tuple) and all(isinstance(each, str) and each.strip() for each in value):
            return frozenset(each.strip() for each in value)
        raise TokenError(f"the claim {self._settings.scope_claim} of the token is neither text nor a list of texts")
