"""All delegation tokens of the cluster, in memory: logins and requests look them up without waiting.

The follower reads the tokens that the notifications below `TOKEN_CHANGES` name; after a lost connection it reads all of
them again. The keys of a token for SCRAM are derived in a thread before the token is in memory, and kept with it. Each
change is a compare-and-set loop whose transaction has the notification, so Kafka's brokers see it, and the other way
round.

Invariants:
- While ZooKeeper does not answer, the last state holds. A token that has expired authenticates nobody, whether or not
  it has been removed.
- A znode that cannot be decoded is logged and is no token; all others are unaffected.
- After `create` or `change` has returned, this broker knows the change, or a later one.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.base.errors import DelegationTokenNotFoundError
from odradek.base.ports import Clock, RunBlocking
from odradek.security.principals import USER
from odradek.security.sasl.credentials import (
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
    derive,
)
from odradek.security.tokens import (
    TOKEN_CHANGE_PREFIX,
    TOKEN_CHANGES,
    TOKENS,
    DelegationToken,
    TokenKey,
    decode_token,
    decode_token_change,
    encode_token,
    encode_token_change,
    token_path,
)
from odradek.zk.follower import Follower, Notifications
from odradek.zk.port import BadVersion, Create, Delete, NoNode, Operation, SetData, ZkClient, ZkError
from odradek.znode import LayoutError

log = logging.getLogger(__name__)

ATTEMPTS: Final = 10
"""Number of times that a change is tried while others change the same token."""

_Keys = Mapping[str, ScramCredential]
"""The credentials of a token by mechanism."""


class _Known(NamedTuple):
    token: DelegationToken
    hmac: bytes
    keys: _Keys

    def __repr__(self) -> str:
        return f"_Known({self.token!r})"


class DelegationTokens:
    """The tokens of all users. There are none before `start`."""

    def __init__(self, zk: ZkClient, clock: Clock, *, key: TokenKey, run_blocking: RunBlocking) -> None:
        """The client may be unconnected. `run_blocking` derives keys: a few milliseconds of CPU time for each token."""
        self._zk: Final = zk
        self._clock: Final = clock
        self._key: Final = key
        self._run_blocking: Final = run_blocking
        self._known: dict[str, _Known] = {}
        """By the id."""
        self._ids: dict[bytes, str] = {}
        """By the HMAC."""
        self._notifications = Notifications(zk, clock, [TOKEN_CHANGES])
        self._follower = Follower(zk, clock, "delegation tokens", self._read_new)
        self._reading = asyncio.Lock()
        """Reads and what they change in memory are in the same order."""

    def __repr__(self) -> str:
        return f"DelegationTokens({len(self._known)} tokens)"

    # Looking up

    @property
    def all(self) -> list[DelegationToken]:
        """All tokens, including those that have expired and are not removed yet."""
        return [known.token for known in self._known.values()]

    def hmac(self, token: DelegationToken) -> bytes:
        """Return the HMAC of a token. It is a secret."""
        return self._key.hmac(token.token_id)

    def with_hmac(self, hmac: bytes) -> DelegationToken:
        """Return the token with an HMAC. Raises `DelegationTokenNotFoundError`."""
        token_id = self._ids.get(hmac)
        if token_id is None:
            raise DelegationTokenNotFoundError("There is no delegation token with this HMAC.")
        return self._known[token_id].token

    def credential(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """Return with what a client that has a token logs in; None if there is no such token or it has expired.

        A login makes a principal of the type User of the owner's name, so a token of another type gives none.
        """
        known = self._known.get(token_id)
        if known is None or known.token.owner.type != USER or known.token.has_expired(self._clock.wall_ms()):
            return None
        return TokenCredential(known.token.owner.name, known.token.expiry_ms, known.keys[mechanism.name])

    # Changes

    async def create(self, token: DelegationToken) -> None:
        """Store a new token. Raises `ZkError`, which leaves it open whether it is stored."""
        path = token_path(token.token_id)
        await self._zk.multi([Create(path, encode_token(token)), _notification(token.token_id)])
        await self._read([token.token_id])

    async def change(
        self, token_id: str, decide: Callable[[DelegationToken], DelegationToken | None]
    ) -> DelegationToken | None:
        """Replace a token by what `decide` returns for it, or remove it if that is None. Returns the result.

        Raises what `decide` raises, `DelegationTokenNotFoundError` if the token has been removed, `LayoutError` if it
        cannot be decoded, and `ZkError`, which leaves it open whether the change was made.
        """
        path = token_path(token_id)
        for _ in range(ATTEMPTS):
            found = await self._zk.get_or_none(path)
            if found is None:
                await self._read([token_id])
                raise DelegationTokenNotFoundError("The delegation token has been removed.")
            before = decode_token(path, found[0])
            after = decide(before)
            if after == before:
                break
            version = found[1].version
            write: Operation = Delete(path, version) if after is None else SetData(path, encode_token(after), version)
            try:
                await self._zk.multi([write, _notification(token_id)])
                break
            except (BadVersion, NoNode):
                continue
        else:
            raise BadVersion(f"other changes came first {ATTEMPTS} times: try again", path)
        await self._read([token_id])
        return after

    async def remove_expired(self) -> None:
        """Remove the tokens that have expired. Errors are logged, and the tokens stay until the next call."""
        now_ms = self._clock.wall_ms()
        for token in self.all:
            if not token.has_expired(now_ms):
                continue
            try:
                # Another broker may have renewed it.
                await self.change(token.token_id, lambda fresh: None if fresh.has_expired(now_ms) else fresh)
            except DelegationTokenNotFoundError:
                continue
            except (LayoutError, ZkError) as error:
                log.warning("an expired delegation token is not removed yet: %s", error)
            else:
                log.info("the delegation token %s of %s has expired", token.token_id, token.owner)

    # Following

    async def start(self) -> None:
        """Create the znodes that Kafka's brokers create, read all tokens, and follow their changes from now on.

        Raises `ZkError`.
        """
        for path in (TOKEN_CHANGES, TOKENS):
            await self._zk.ensure_path(path)
        self._follower.listen({TOKEN_CHANGES: self._follower.wake})
        await self._read_new()
        self._follower.run()

    async def close(self) -> None:
        """Stop following. Idempotent."""
        await self._follower.close()

    async def _read_new(self) -> None:
        """Read the tokens that new notifications name, or all."""
        found = await self._notifications.new()
        if self._follower.take_all():
            await self._read_all()
        else:
            await self._read(self._named_by(found))
        await self._notifications.handled()

    def _named_by(self, found: Mapping[str, bytes | None]) -> list[str]:
        """Return the ids in notifications. If one is missing or invalid, all tokens are read next."""
        ids: dict[str, None] = {}
        for path, data in found.items():
            try:
                if data is None:
                    raise LayoutError(path, "another broker has deleted it")
                ids[decode_token_change(path, data)] = None
            except LayoutError as error:
                log.warning("all delegation tokens are read, because a notification cannot be: %s", error)
                self._follower.want_all()
        return list(ids)

    async def _read_all(self) -> None:
        async with self._reading:
            found = await self._tokens_of(await self._zk.children_or_none(TOKENS) or [])
            await self._replace(found, {})

    async def _read(self, ids: Iterable[str]) -> None:
        async with self._reading:
            await self._replace(await self._tokens_of(ids), self._known)

    async def _tokens_of(self, ids: Iterable[str]) -> dict[str, DelegationToken | None]:
        paths = {token_path(token_id): token_id for token_id in ids}
        found = await self._zk.get_many(list(paths))
        return {paths[path]: None if node is None else _decoded(path, node[0]) for path, node in found.items()}

    async def _replace(self, found: Mapping[str, DelegationToken | None], kept: Mapping[str, _Known]) -> None:
        """Keep some tokens in memory, and what was found: a token, or none, for each id."""
        hmacs = {token_id: self._key.hmac(token_id) for token_id, token in found.items() if token is not None}
        missing = {token_id: hmac for token_id, hmac in hmacs.items() if token_id not in self._known}
        derived = await self._run_blocking(lambda: _derived(missing)) if missing else {}
        known = {token_id: each for token_id, each in kept.items() if token_id not in found}
        for token_id, token in found.items():
            if token is not None:
                keys = derived[token_id] if token_id in derived else self._known[token_id].keys
                known[token_id] = _Known(token, hmacs[token_id], keys)
        self._known = known
        self._ids = {each.hmac: token_id for token_id, each in known.items()}


def _decoded(path: str, data: bytes) -> DelegationToken | None:
    try:
        return decode_token(path, data)
    except LayoutError as error:
        log.error("a delegation token cannot be used until its znode is repaired: %s", error)
        return None


def _derived(hmacs: Mapping[str, bytes]) -> dict[str, _Keys]:
    """Return the keys of each token. It takes about 3 ms of CPU time for each."""
    return {
        token_id: {name: derive(b64encode(hmac).decode(), mechanism) for name, mechanism in SCRAM_MECHANISMS.items()}
        for token_id, hmac in hmacs.items()
    }


def _notification(token_id: str) -> Operation:
    return Create(f"{TOKEN_CHANGES}/{TOKEN_CHANGE_PREFIX}", encode_token_change(token_id), sequential=True)
