"""Delegation tokens (KIP-48): what they are, who may use them, how long they live, and their znodes.

A token has an id and an HMAC of it. A client that knows both logs in with SCRAM as the owner of the token. The key of
the HMAC is the same on all brokers, so ZooKeeper stores only the id: a znode below `TOKENS` for each token. Each change
of a token also creates a sequential znode that has its id, below `TOKEN_CHANGES`.

Kafka before 3.3 reads version 1 of the content only, which has no requester. Later versions read versions 1 to 3.
So a token is written with version 3 only if its requester is not its owner (KIP-373). Pure: time is an argument.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote_plus

from odradek.security.principals import Principal
from odradek.znode import LayoutError, ZnodeJson, is_node_name, url_encoded

TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX: Final = "token_change_"

VERSION: Final = 1
VERSION_WITH_REQUESTER: Final = 3


class TokenKey:
    """The key of all HMACs: `delegation.token.secret.key`."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        """The secret must not be empty."""
        if not secret:
            raise ValueError("the secret of delegation tokens is empty")
        self._secret: Final = secret.encode()

    def __repr__(self) -> str:
        return "TokenKey()"

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token, with SHA-512. It is a secret: with it, anyone can use the token."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """How long tokens live, in milliseconds."""

    max_lifetime_ms: int
    """`delegation.token.max.lifetime.ms`: no token can be renewed beyond it."""
    expiry_time_ms: int
    """`delegation.token.expiry.time.ms`: time until a token expires after its creation or a renewal without a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token without its secret. Times are in milliseconds since 1970-01-01 UTC."""

    token_id: str
    owner: Principal
    """For whom clients with this token act."""
    requester: Principal
    """Who created it. It is the owner, except with the right CreateTokens (KIP-373)."""
    renewers: tuple[Principal, ...] = ()
    """Who else may renew it and let it expire."""
    issue_ms: int
    max_ms: int
    """After this time, it cannot be renewed."""
    expiry_ms: int
    """When it expires unless it is renewed."""

    @classmethod
    def issue(
        cls,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: Iterable[Principal],
        *,
        lifetime_ms: int,
        limits: TokenLimits,
        now_ms: int,
    ) -> DelegationToken:
        """Return a new token. A `lifetime_ms` of 0 or less means the maximum."""
        lifetime_ms = min(lifetime_ms, limits.max_lifetime_ms) if lifetime_ms > 0 else limits.max_lifetime_ms
        return cls(
            token_id=token_id,
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issue_ms=now_ms,
            max_ms=now_ms + lifetime_ms,
            expiry_ms=now_ms + min(lifetime_ms, limits.expiry_time_ms),
        )

    def has_expired(self, now_ms: int) -> bool:
        """Whether it can no longer be used."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def is_related_to(self, principal: Principal) -> bool:
        """Whether a principal is the owner, the requester or a renewer. They may see the token."""
        return principal in (self.owner, self.requester, *self.renewers)

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Whether a principal may renew the token and let it expire: the owner and the renewers, not the requester."""
        return principal in (self.owner, *self.renewers)

    def expiring_in(self, period_ms: int, now_ms: int) -> DelegationToken:
        """Return the token with another expiry, at most the maximum."""
        return replace(self, expiry_ms=min(self.max_ms, now_ms + period_ms))


def token_path(token_id: str) -> str:
    """Return the path of a token. Raises `LayoutError` if no znode can have its id as a name."""
    if not is_node_name(token_id):
        raise LayoutError(TOKENS, f"ZooKeeper allows no znode with the name {token_id!r:.200}")
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """Encode a token, with the lowest version that has all of it."""
    has_requester = token.requester != token.owner
    values = {
        "version": VERSION_WITH_REQUESTER if has_requester else VERSION,
        "owner": url_encoded(str(token.owner)),
        **({"tokenRequester": url_encoded(str(token.requester))} if has_requester else {}),
        "renewers": [url_encoded(str(renewer)) for renewer in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def decode_token(path: str, data: bytes) -> DelegationToken:
    """Decode a token. Raises `LayoutError`, also for an unknown version or if the znode has the name of another id."""
    node = ZnodeJson(path, data)
    version = node.integer("version")
    if not VERSION <= version <= VERSION_WITH_REQUESTER:
        raise node.error("version", f"from {VERSION} to {VERSION_WITH_REQUESTER}")
    token_id = node.text("tokenId")
    if path != f"{TOKENS}/{token_id}":
        raise node.error("tokenId", "the name of the znode")
    owner = _principal(path, node.text("owner"))
    has_requester = version >= VERSION_WITH_REQUESTER
    return DelegationToken(
        token_id=token_id,
        owner=owner,
        requester=_principal(path, node.text("tokenRequester")) if has_requester else owner,
        renewers=tuple(_principal(path, renewer) for renewer in node.text_list("renewers")),
        issue_ms=node.integer("issueTimestamp"),
        max_ms=node.integer("maxTimestamp"),
        expiry_ms=node.integer("expiryTimestamp"),
    )


def encode_token_change(token_id: str) -> bytes:
    """Encode a notification."""
    return token_id.encode()


def decode_token_change(path: str, data: bytes) -> str:
    """Return the id of the token that has changed. Raises `LayoutError`."""
    try:
        token_id = data.decode()
    except UnicodeDecodeError as error:
        raise LayoutError(path, f"not UTF-8: {data[:200]!r}") from error
    token_path(token_id)
    return token_id


def _principal(path: str, text: str) -> Principal:
    """Decode `Type:name`. Either may be empty, since Kafka does not check what clients name as owners and renewers."""
    kind, colon, name = unquote_plus(text).partition(":")
    if not colon:
        raise LayoutError(path, f"{text!r:.200} is not a principal: expected Type:name, URL-encoded")
    return Principal(kind, name)
