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

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock
from odradek.security.sasl.credentials import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from odradek.zk import layout
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
