"""The SCRAM credentials in `/config/users`, in memory: logins look them up without waiting.

The broker calls `changed` for each notification in `/config/changes`. A watch reports users that are added or removed
without one, and after a lost connection everything is read again. Invariants: while ZooKeeper does not answer, the last
state holds; an invalid credential is logged without its content, and affects no other user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote_plus

from odradek.base.errors import ConfigError, ResourceNotFoundError, UnacceptableCredentialError
from odradek.base.ports import Clock
from odradek.security.quotas.quota_model import QuotaEntity, entity_path
from odradek.security.sasl.credentials import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from odradek.zk import layout
from odradek.zk.entity_configs import change_entity_config
from odradek.zk.follower import Follower
from odradek.zk.layout import LayoutError
from odradek.zk.port import ZkClient

log = logging.getLogger(__name__)

USERS: Final = f"{layout.CONFIG}/users"
_Credentials = Mapping[str, ScramCredential]
"""The credentials of one user, by mechanism."""


class UserCredentials:
    """The credentials of all users. It reads nothing before `want`."""

    def __init__(self, zk: ZkClient, clock: Clock) -> None:
        """Create it. The client may be unconnected."""
        self._zk = zk
        self._follower = Follower(zk, clock, "credentials", self._read)
        self._users: dict[str, _Credentials] = {}
        """By the name of the znode."""
        self._by_name: dict[str, _Credentials] = {}
        """The same by the name of the user."""
        self._changed: set[str] = set()
        """Znodes to be read again."""
        self._is_loaded = asyncio.Event()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"UserCredentials({len(self._users)} users)"

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of a user, or None. Waits for nothing."""
        return self._by_name.get(user, {}).get(mechanism.name)

    def want(self) -> None:
        """Read all credentials in the background, and follow their changes from now on. Idempotent."""
        if self._follower.is_running or self._is_closed:
            return
        self._follower.listen({USERS: self._follower.want_all})
        self._follower.want_all()
        self._follower.run()

    async def loaded(self) -> None:
        """Wait until they have been read for the first time. Returns at once without `want`."""
        if self._follower.is_running:
            await self._is_loaded.wait()

    def changed(self, entity: str) -> None:
        """Read a user again: `entity` is the path of its znode below `/config/users`."""
        self._changed.add(entity.partition("/")[0])
        self._follower.wake()

    async def close(self) -> None:
        """Stop following. Idempotent."""
        self._is_closed = True
        await self._follower.close()

    async def _read(self) -> None:
        is_all, names = self._follower.take_all(), self._changed
        self._changed = set()
        if is_all:
            found = await self._credentials_of(await self._zk.children_or_none(USERS) or [])
            self._users = found
        else:
            found = await self._credentials_of(names)
            for name in names:
                self._users.pop(name, None)
            self._users |= found
        self._by_name = {unquote_plus(name): each for name, each in self._users.items()}
        self._is_loaded.set()

    async def _credentials_of(self, names: Iterable[str]) -> dict[str, _Credentials]:
        paths = {layout.config_path("users", name): name for name in names if name != layout.DEFAULT_ENTITY}
        found = await self._zk.get_many(list(paths))
        users = {paths[path]: _decoded(path, node[0]) for path, node in found.items() if node is not None}
        return {name: each for name, each in users.items() if each}


async def read_credentials(
    zk: ZkClient, users: Iterable[str] | None
) -> Mapping[str, Mapping[ScramMechanism, int] | ConfigError]:
    """Read which credentials users have: the iterations of each mechanism, or the error if one is invalid.

    `users` are names; None reads all users. Those without credentials are left out. Raises `ZkError`.
    """
    if users is None:
        names = [unquote_plus(name) for name in await zk.children_or_none(USERS) or [] if name != layout.DEFAULT_ENTITY]
    else:
        names = list(users)
    paths: dict[str, str] = {}
    for name in names:
        try:
            paths[f"{layout.CONFIG}/{_path(name)}"] = name
        except LayoutError as error:
            log.debug("a user that no znode can have: %s", error)
    nodes = await zk.get_many(list(paths))
    found: dict[str, Mapping[ScramMechanism, int] | ConfigError] = {}
    for path, node in nodes.items():
        try:
            values = {} if node is None else layout.decode_config(path, node[0])
            iterations = {
                mechanism: ScramCredential.from_text(mechanism, values[name]).iterations
                for name, mechanism in SCRAM_MECHANISMS.items()
                if name in values
            }
        except (LayoutError, ConfigError) as error:
            found[paths[path]] = ConfigError(f"{path}: {error}")
        else:
            if iterations:
                found[paths[path]] = iterations
    return found


async def change_credentials(zk: ZkClient, user: str, changes: Mapping[ScramMechanism, ScramCredential | None]) -> None:
    """Set credentials of a user, and remove those that are None. The user's quotas stay.

    Raises `ResourceNotFoundError` if one that is to be removed does not exist: then nothing was changed. Raises
    `UnacceptableCredentialError` if no znode can have the name, and otherwise as `change_entity_config`.
    """
    try:
        path = _path(user)
    except LayoutError as error:
        raise UnacceptableCredentialError(str(error)) from error

    def change(before: Mapping[str, str]) -> Mapping[str, str]:
        missing = [each.name for each, credential in changes.items() if credential is None and each.name not in before]
        if missing:
            raise ResourceNotFoundError(f"User {user} has no credential for {', '.join(missing)}.")
        removed = {each.name for each, credential in changes.items() if credential is None}
        kept = {key: text for key, text in before.items() if key not in removed}
        return kept | {
            each.name: credential.to_text() for each, credential in changes.items() if credential is not None
        }

    await change_entity_config(zk, path, change)


def _path(user: str) -> str:
    """Return the path of a user below `/config`. Raises `LayoutError`."""
    return entity_path(QuotaEntity(user=user))


def _decoded(path: str, data: bytes) -> _Credentials:
    try:
        values = layout.decode_config(path, data)
    except LayoutError as error:
        log.error("a user has no credentials: %s", error)
        return {}
    found = {}
    for name, mechanism in SCRAM_MECHANISMS.items():
        if name in values:
            try:
                found[name] = ScramCredential.from_text(mechanism, values[name])
            except ConfigError as error:
                log.error("%s: a credential has no effect: %s", path, error)
    return found
