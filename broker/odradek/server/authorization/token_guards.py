"""Who may manage delegation tokens (KIP-48), and the guards of their APIs (KIP-373).

A client needs no right for its own tokens. It needs an authenticated connection, but not one that was authenticated by
a token: otherwise a stolen token could be replaced by ones that outlive it.
"""

from __future__ import annotations

from typing import cast

from odradek.base.errors import ProtocolError
from odradek.protocol.codec import Message
from odradek.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
)
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.security.principals import ANONYMOUS, Identity, Principal
from odradek.server.authorization.guards import Access, Proceed, refusal, rows_of
from odradek.server.dispatch import RequestContext
from odradek.server.failures import failure


def may_manage_tokens(identity: Identity) -> bool:
    """Whether the connection of a client allows requests about delegation tokens at all."""
    if identity.token or identity.protocol == "PLAINTEXT":
        return False
    # Without a certificate, the client of an SSL listener is anonymous.
    return identity.protocol != "SSL" or identity.principal != ANONYMOUS


def owner_of(request: CreateDelegationTokenRequest, identity: Identity) -> Principal:
    """Return the owner of a token that is to be created: the one in the request, or the client."""
    if not request.owner_principal_name:
        return identity.principal
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def refused_creation(context: RequestContext, request: CreateDelegationTokenRequest, error: ProtocolError) -> Message:
    """Return the answer to a client that cannot create a token. As in Kafka, it has the owner and the requester."""
    answer = failure(context.api_key, context.api_version, request, error)
    assert answer is not None, "the response has an error code"
    return {**answer, **owner_fields(owner_of(request, context.identity), context.identity.principal)}


def owner_fields(owner: Principal, requester: Principal) -> Message:
    """Return the fields of responses that have the owner and the requester of a token."""
    return {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
    }


async def create_token(
    access: Access, request: CreateDelegationTokenRequest, proceed: Proceed[CreateDelegationTokenRequest]
) -> Message:
    """Require CreateTokens on another user who is to be the owner."""
    identity = access.context.identity
    owner = owner_of(request, identity)
    # The handler refuses other connections, with another error that comes first.
    is_checked = owner != identity.principal and may_manage_tokens(identity)
    if is_checked and not access.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return refused_creation(access.context, request, refusal(AclOperation.CREATE_TOKENS, ResourceType.USER))
    return await proceed(request)


async def describe_tokens(
    access: Access, request: DescribeDelegationTokenRequest, proceed: Proceed[DescribeDelegationTokenRequest]
) -> Message:
    """Return the client's own tokens, which it has, requested or may renew, and those with Describe on the token or
    DescribeTokens on the owner."""
    answer = await proceed(request)
    client = access.context.identity.principal
    rows = rows_of(answer, "tokens")
    owners = {str(row["token_id"]): str(_related(row)[0]) for row in rows if client not in _related(row)}
    hidden = access.denied(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, owners, is_logged=False)
    users = {owners[token_id] for token_id in hidden}
    hidden_users = access.denied(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, users, is_logged=False)
    removed = {token_id for token_id in hidden if owners[token_id] in hidden_users}
    return {**answer, "tokens": [row for row in rows if row["token_id"] not in removed]}


def _related(row: Message) -> list[Principal]:
    """Return the owner, the requester and the renewers in a row of the response."""
    found = [(row[f"{prefix}principal_type"], row[f"{prefix}principal_name"]) for prefix in ("", "token_requester_")]
    found += [(each["principal_type"], each["principal_name"]) for each in rows_of(row, "renewers")]
    return [Principal(cast(str, kind), cast(str, name)) for kind, name in found]
