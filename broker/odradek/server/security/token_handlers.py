"""Handlers of CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (KIP-48).

Errors and their order are those of Kafka with ZooKeeper. Tokens are read from memory and changed in ZooKeeper. An
answer to a change comes when this broker has it; the others get the notification. `server/authorization/token_guards`
checks the rights to tokens of other users (KIP-373).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol
from uuid import UUID

from odradek.base.errors import (
    NONE,
    DelegationTokenAuthDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    InvalidPrincipalTypeError,
    OdradekError,
)
from odradek.base.ports import Clock
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from odradek.security.principals import USER, Identity, Principal
from odradek.security.tokens import DelegationToken, TokenLimits
from odradek.server.authorization.token_guards import may_manage_tokens, owner_fields, owner_of, refused_creation
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import wire_error
from odradek.zk.layout import encode_uuid

logger = logging.getLogger(__name__)


class TokenStore(Protocol):
    """The tokens of the cluster: `zk/delegation_tokens`."""

    @property
    def all(self) -> list[DelegationToken]:
        """All tokens."""
        ...

    def hmac(self, token: DelegationToken) -> bytes:
        """Return the HMAC of a token."""
        ...

    def with_hmac(self, hmac: bytes) -> DelegationToken:
        """Return the token with an HMAC. Raises `DelegationTokenNotFoundError`."""
        ...

    async def create(self, token: DelegationToken) -> None:
        """Store a new token."""
        ...

    async def change(
        self, token_id: str, decide: Callable[[DelegationToken], DelegationToken | None]
    ) -> DelegationToken | None:
        """Replace or remove a token."""
        ...


class TokenHandlers:
    """Handlers that show and change delegation tokens."""

    def __init__(self, tokens: TokenStore | None, limits: TokenLimits, clock: Clock) -> None:
        """`tokens` is None without a secret: all requests get DELEGATION_TOKEN_AUTH_DISABLED."""
        self._tokens: Final = tokens
        self._limits: Final = limits
        self._clock: Final = clock

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(CreateDelegationTokenRequest, self.create),
                route(RenewDelegationTokenRequest, self.renew),
                route(ExpireDelegationTokenRequest, self.expire),
                route(DescribeDelegationTokenRequest, self.describe),
            ]
        )

    def _enabled(self) -> TokenStore:
        if self._tokens is None:
            raise DelegationTokenAuthDisabledError(
                "This broker has no delegation tokens: set delegation.token.secret.key."
            )
        return self._tokens

    async def create(self, context: RequestContext, request: CreateDelegationTokenRequest) -> Message:
        """Handle CreateDelegationToken."""
        try:
            tokens, token = await self._create(context.identity, request)
        except OdradekError as error:
            return refused_creation(context, request, wire_error(error))
        logger.info("%s has created the delegation token %s of %s", token.requester, token.token_id, token.owner)
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            **owner_fields(token.owner, token.requester),
            "issue_timestamp_ms": token.issue_ms,
            "expiry_timestamp_ms": token.expiry_ms,
            "max_timestamp_ms": token.max_ms,
            "token_id": token.token_id,
            "hmac": tokens.hmac(token),
        }

    async def _create(
        self, identity: Identity, request: CreateDelegationTokenRequest
    ) -> tuple[TokenStore, DelegationToken]:
        _require_login(identity)
        owner = owner_of(request, identity)
        renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
        # Kafka checks renewers only. A token of Group:a would let its clients log in as User:a.
        for principal in (owner, *renewers):
            if principal.type != USER:
                raise InvalidPrincipalTypeError(f"Owners and renewers must be of the type {USER}.")
        tokens = self._enabled()
        token = DelegationToken.issue(
            encode_uuid(UUID(bytes=self._clock.token_bytes(16), version=4)),
            owner,
            identity.principal,
            renewers,
            lifetime_ms=request.max_lifetime_ms,
            limits=self._limits,
            now_ms=self._clock.wall_ms(),
        )
        await tokens.create(token)
        return tokens, token

    async def renew(self, context: RequestContext, request: RenewDelegationTokenRequest) -> Message:
        """Handle RenewDelegationToken. A negative period means `delegation.token.expiry.time.ms`."""
        period_ms = self._limits.expiry_time_ms if request.renew_period_ms < 0 else request.renew_period_ms
        return await self._set_expiry(context.identity, request.hmac, period_ms)

    async def expire(self, context: RequestContext, request: ExpireDelegationTokenRequest) -> Message:
        """Handle ExpireDelegationToken. A negative period removes the token now, even if it has expired."""
        if request.expiry_time_period_ms >= 0:
            return await self._set_expiry(context.identity, request.hmac, request.expiry_time_period_ms)
        _require_login(context.identity)
        tokens, client = self._enabled(), context.identity.principal
        token = tokens.with_hmac(request.hmac)

        def decide(fresh: DelegationToken) -> None:
            _require_renewer(fresh, client)

        await tokens.change(token.token_id, decide)
        logger.info("%s has removed the delegation token %s of %s", client, token.token_id, token.owner)
        return _expiry(self._clock.wall_ms())

    async def _set_expiry(self, identity: Identity, hmac: bytes, period_ms: int) -> Message:
        _require_login(identity)
        tokens, now_ms = self._enabled(), self._clock.wall_ms()

        def decide(fresh: DelegationToken) -> DelegationToken:
            _require_renewer(fresh, identity.principal)
            if fresh.has_expired(now_ms):
                raise DelegationTokenExpiredError("The delegation token has expired.")
            return fresh.expiring_in(period_ms, now_ms)

        changed = await tokens.change(tokens.with_hmac(hmac).token_id, decide)
        assert changed is not None, "it was not removed"
        logger.info("%s has changed the expiry of the delegation token %s", identity.principal, changed.token_id)
        return _expiry(changed.expiry_ms)

    async def describe(self, context: RequestContext, request: DescribeDelegationTokenRequest) -> Message:
        """Handle DescribeDelegationToken: return the tokens that belong to, were requested by, or may be renewed by
        one of the owners in the request; all tokens without owners (null). The guard hides what the client may not see.
        """
        _require_login(context.identity)
        tokens = self._enabled()
        found = tokens.all
        if request.owners is not None:
            owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]
            found = [token for token in found if any(map(token.is_related_to, owners))]
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "tokens": [_row(token, tokens.hmac(token)) for token in found],
        }


def _require_login(identity: Identity) -> None:
    if not may_manage_tokens(identity):
        raise DelegationTokenRequestNotAllowedError(
            "Delegation tokens can be managed only by clients that have authenticated, but not with a delegation token."
        )


def _require_renewer(token: DelegationToken, client: Principal) -> None:
    if not token.may_be_renewed_by(client):
        raise DelegationTokenOwnerMismatchError("The client is not the owner or a renewer of the delegation token.")


def _expiry(expiry_ms: int) -> Message:
    return {"throttle_time_ms": 0, "error_code": NONE, "expiry_timestamp_ms": expiry_ms}


def _row(token: DelegationToken, hmac: bytes) -> Message:
    return {
        **owner_fields(token.owner, token.requester),
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": hmac,
        "renewers": [{"principal_type": each.type, "principal_name": each.name} for each in token.renewers],
    }
