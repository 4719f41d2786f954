"""Delegation tokens (KIP-48) for the admin client.

`Admin` inherits these methods. A token is known to the broker that created it at once, and to the others within
moments; a request goes to any broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.base.errors import error_for
from odradek.client.administration.admin_parts import AdminPart
from odradek.client.models import DelegationTokenDescription
from odradek.protocol.codec import Message
from odradek.protocol.messages.delegation_tokens import (
    CreateDelegationTokenResponse,
    DescribeDelegationTokenResponse,
    DescribeDelegationTokenResponseDescribedDelegationToken,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenResponse,
)
from odradek.security.principals import Principal, parse_principal

REQUESTER_SINCE: Final = 3
"""First version of CreateDelegationToken and DescribeDelegationToken with a requester (KIP-373, Kafka 3.3)."""


class TokenAdmin(AdminPart):
    """Creates, renews, expires and describes delegation tokens."""

    async def create_delegation_token(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = -1
    ) -> DelegationTokenDescription:
        """Create a token, with which clients log in as its owner, and return it with its secret, the HMAC.

        `owner`, such as `User:bob`, is the client itself by default. For another user, the client needs CreateTokens on
        that user, and brokers since Kafka 3.3. `renewers` may renew the token, as the owner may. `max_lifetime_ms` is
        at most the brokers' `delegation.token.max.lifetime.ms`, which -1 means.

        If a response is lost, the request is sent again, so there may be a second token, which nobody knows. Raises
        `DelegationTokenAuthDisabledError` if the brokers have no secret, `DelegationTokenRequestNotAllowedError` on a
        connection without a login or with a token, `DelegationTokenAuthorizationFailedError` without the right,
        `UnsupportedVersionError`, and `ConfigError` if a name is not a principal.
        """
        principal = None if owner is None else parse_principal(owner)
        others = [parse_principal(renewer) for renewer in renewers]
        message: Message = {
            "owner_principal_type": None if principal is None else principal.type,
            "owner_principal_name": None if principal is None else principal.name,
            "renewers": [_fields(other) for other in others],
            "max_lifetime_ms": max_lifetime_ms,
        }
        at_least = 0 if principal is None else REQUESTER_SINCE

        async def attempt() -> DelegationTokenDescription:
            answer = await self._cluster.ask_any(CreateDelegationTokenResponse, message, at_least=at_least)
            _check(answer.error_code, "the delegation token cannot be created")
            named = str(Principal(answer.principal_type, answer.principal_name))
            return DelegationTokenDescription(
                token_id=answer.token_id,
                hmac=answer.hmac,
                owner=named,
                requester=_requester(answer) or named,
                renewers=tuple(map(str, others)),
                issue_timestamp=answer.issue_timestamp_ms,
                expiry_timestamp=answer.expiry_timestamp_ms,
                max_timestamp=answer.max_timestamp_ms,
            )

        return await self._retrying(attempt, "creating a delegation token")

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Renew a token and return when it expires, in milliseconds since 1970 UTC: after `period_ms` from now, at most
        at the end of its lifetime; -1 means the brokers' `delegation.token.expiry.time.ms`.

        Raises `DelegationTokenNotFoundError`, `DelegationTokenOwnerMismatchError` if the client is neither the owner
        nor a renewer, `DelegationTokenExpiredError`, and the errors of `create_delegation_token`.
        """

        async def attempt() -> int:
            message: Message = {"hmac": hmac, "renew_period_ms": period_ms}
            answer = await self._cluster.ask_any(RenewDelegationTokenResponse, message)
            _check(answer.error_code, "the delegation token cannot be renewed")
            return answer.expiry_timestamp_ms

        return await self._retrying(attempt, "renewing a delegation token")

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Let a token expire after `period_ms`, or remove it at once (-1), and return when, in milliseconds since 1970
        UTC. Raises the errors of `renew_delegation_token`.
        """

        async def attempt() -> int:
            message: Message = {"hmac": hmac, "expiry_time_period_ms": period_ms}
            answer = await self._cluster.ask_any(ExpireDelegationTokenResponse, message)
            _check(answer.error_code, "the delegation token cannot be changed")
            return answer.expiry_timestamp_ms

        return await self._retrying(attempt, "expiring a delegation token")

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationTokenDescription]:
        """Return the tokens that the client may see, by id, with their HMACs: its own, those that it requested or may
        renew, and others with a right. With `owners`, such as `User:bob`, only those related to one of them.

        Raises the errors of `create_delegation_token`.
        """
        asked = None if owners is None else [_fields(parse_principal(owner)) for owner in owners]

        async def attempt() -> list[DelegationTokenDescription]:
            answer = await self._cluster.ask_any(DescribeDelegationTokenResponse, {"owners": asked})
            _check(answer.error_code, "the delegation tokens cannot be described")
            return sorted(map(_described, answer.tokens), key=lambda token: token.token_id)

        return await self._retrying(attempt, "describing delegation tokens")


_Row = DescribeDelegationTokenResponseDescribedDelegationToken


def _check(code: int, what: str) -> None:
    """Raise the error if `code` is one. `what` describes the failed request."""
    if code:
        raise error_for(code, what)


def _fields(principal: Principal) -> Message:
    return {"principal_type": principal.type, "principal_name": principal.name}


def _requester(answer: CreateDelegationTokenResponse | _Row) -> str:
    """Return the requester; empty before version 3, which has none: it is the owner."""
    name = answer.token_requester_principal_name
    return str(Principal(answer.token_requester_principal_type, name)) if name else ""


def _described(row: _Row) -> DelegationTokenDescription:
    owner = str(Principal(row.principal_type, row.principal_name))
    return DelegationTokenDescription(
        token_id=row.token_id,
        hmac=row.hmac,
        owner=owner,
        requester=_requester(row) or owner,
        renewers=tuple(str(Principal(each.principal_type, each.principal_name)) for each in row.renewers),
        issue_timestamp=row.issue_timestamp,
        expiry_timestamp=row.expiry_timestamp,
        max_timestamp=row.max_timestamp,
    )
