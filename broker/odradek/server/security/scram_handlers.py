"""Handlers of DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554), as those of Kafka with ZooKeeper.

Credentials are read from ZooKeeper, because a broker without SCRAM does not keep them in memory. A change of a user is
one transaction with its notification. Every broker serves both requests: a change is a compare-and-set, so it needs no
controller. Salts, keys and salted passwords are in no log and no error.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from odradek.base.errors import (
    NONE,
    ConfigError,
    DuplicateResourceError,
    OdradekError,
    ProtocolError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestScramCredentialDeletion,
    AlterUserScramCredentialsRequestScramCredentialUpsertion,
    DescribeUserScramCredentialsRequest,
)
from odradek.security.sasl.credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential_from_salted,
)
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import wire_error
from odradek.zk.port import ZkClient
from odradek.zk.users import change_credentials, read_credentials

MAX_SALT_BYTES: Final = 1024
"""Salts of clients have 16 to 26 bytes. A longer text would not be accepted when the credential is read."""

_Deletion = AlterUserScramCredentialsRequestScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequestScramCredentialUpsertion
_Changes = dict[ScramMechanism, ScramCredential | None]
_BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()}


class ScramHandlers:
    """Handlers that show which credentials users have, and change them."""

    def __init__(self, zk: ZkClient) -> None:
        """The client is connected when requests arrive."""
        self._zk: Final = zk

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(DescribeUserScramCredentialsRequest, self.describe),
                route(AlterUserScramCredentialsRequest, self.alter),
            ]
        )

    async def describe(self, context: RequestContext, request: DescribeUserScramCredentialsRequest) -> Message:
        """Handle DescribeUserScramCredentials: mechanisms and iterations of the named users, or of all, by name."""
        named = [user.name for user in request.users or ()]
        counts = Counter(named)
        errors: dict[str, ProtocolError] = {
            user: DuplicateResourceError(f"User {user} is named more than once in the request.")
            for user, count in counts.items()
            if count > 1
        }
        if "" in counts:
            errors[""] = ResourceNotFoundError("The name of a user is empty.")
        found = await read_credentials(self._zk, [user for user in counts if user not in errors] if named else None)
        results = []
        for user in counts if named else sorted(found):
            error: OdradekError | None = errors.get(user)
            if error is None and user not in found:
                error = ResourceNotFoundError(f"User {user} has no SCRAM credentials.")
            result: Mapping[ScramMechanism, int] | ConfigError = {} if error is not None else found[user]
            if isinstance(result, ConfigError):
                error, result = result, {}
            infos = [{"mechanism": each.number, "iterations": iterations} for each, iterations in result.items()]
            results.append({**_outcome(user, error), "credential_infos": infos})
        return {"throttle_time_ms": 0, "error_code": NONE, "error_message": None, "results": results}

    async def alter(self, context: RequestContext, request: AlterUserScramCredentialsRequest) -> Message:
        """Handle AlterUserScramCredentials: all changes of a user are made, or none."""
        errors = _illegal(request)
        changes: dict[str, _Changes] = {}
        for item in _items(request):
            of_user = changes.setdefault(item.name, {})
            if item.name in errors:
                continue
            mechanism = _BY_NUMBER[item.mechanism]
            if mechanism in of_user:
                errors[item.name] = DuplicateResourceError(
                    f"The request changes the credential for {mechanism.name} of user {item.name} more than once."
                )
            else:
                of_user[mechanism] = _credential(mechanism, item)

        async def change(user: str) -> OdradekError | None:
            if user in errors:
                return errors[user]
            try:
                await change_credentials(self._zk, user, changes[user])
            except OdradekError as error:
                return error
            return None

        outcomes = await asyncio.gather(*map(change, changes))
        results = [_outcome(user, error) for user, error in zip(changes, outcomes, strict=True)]
        return {"throttle_time_ms": 0, "results": results}


def _items(request: AlterUserScramCredentialsRequest) -> Iterator[_Deletion | _Upsertion]:
    yield from request.deletions
    yield from request.upsertions


def _illegal(request: AlterUserScramCredentialsRequest) -> dict[str, OdradekError]:
    """Return the users with a change that no user can have, and why."""
    errors: dict[str, OdradekError] = {}
    for item in _items(request):
        error = _illegal_item(item)
        if error is not None:
            errors.setdefault(item.name, error)
    return errors


def _illegal_item(item: _Deletion | _Upsertion) -> OdradekError | None:
    if not item.name:
        return UnacceptableCredentialError("The name of a user is empty.")
    mechanism = _BY_NUMBER.get(item.mechanism)
    if mechanism is None:
        known = ", ".join(f"{number} ({each.name})" for number, each in _BY_NUMBER.items())
        return UnsupportedSaslMechanismError(f"Unknown SCRAM mechanism {item.mechanism}: use {known}.")
    if isinstance(item, _Deletion):
        return None
    if not MIN_ITERATIONS <= item.iterations <= MAX_ITERATIONS:
        return UnacceptableCredentialError(
            f"{item.iterations} iterations are not allowed: use {MIN_ITERATIONS} to {MAX_ITERATIONS}."
        )
    if not 0 < len(item.salt) <= MAX_SALT_BYTES:
        return UnacceptableCredentialError(f"The salt must have 1 to {MAX_SALT_BYTES} bytes.")
    return None


def _credential(mechanism: ScramMechanism, item: _Deletion | _Upsertion) -> ScramCredential | None:
    if isinstance(item, _Deletion):
        return None
    return credential_from_salted(mechanism, item.salted_password, item.salt, item.iterations)


def _outcome(user: str, error: OdradekError | None) -> Message:
    if error is None:
        return {"user": user, "error_code": NONE, "error_message": None}
    known = wire_error(error)
    return {"user": user, "error_code": known.code, "error_message": str(known)}
