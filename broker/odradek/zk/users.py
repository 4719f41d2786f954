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
from odradek.zk.layout import LayoutError
from odradek.zk.port import SessionEvent, Watch, ZkClient, ZkError

log = logging.getLogger(__name__)

USERS: Final = f"{layout.CONFIG}/users"
RETRY_MS: Final = 1_000
"""Milliseconds before ZooKeeper is read again after a failure."""

_Credentials = Mapping[str, ScramCredential]
"""The credentials of one user, by mechanism."""


class UserCredentials:
    """The credentials of all users. It reads nothing before `want`."""

    def __init__(self, zk: ZkClient, clock: Clock) -> None:
        """Create it. The client may be unconnected."""
        self._zk = zk
        self._clock = clock
        self._users: dict[str, _Credentials] = {}
        """By the name of the znode."""
        self._by_name: dict[str, _Credentials] = {}
        """The same by the name of the user."""
        self._changed: set[str] = set()
        """Znodes to be read again."""
        self._is_all_wanted = False
        self._is_work_wanted = asyncio.Event()
        self._is_loaded = asyncio.Event()
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"UserCredentials({len(self._users)} users)"

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of a user, or None. Waits for nothing."""
        return self._by_name.get(user, {}).get(mechanism.name)

    def want(self) -> None:
        """Read all credentials in the background, and follow their changes from now on. Idempotent."""
        if self._task is not None or self._is_closed:
            return
        self._zk.on_session(self._session_event)
        self._watch = self._zk.watch_children(USERS, self._want_all)
        self._want_all()
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="user-credentials")

    async def loaded(self) -> None:
        """Wait until they have been read for the first time. Returns at once without `want`."""
        if self._task is not None:
            await self._is_loaded.wait()

    def changed(self, entity: str) -> None:
        """Read a user again: `entity` is the path of its znode below `/config/users`."""
        self._changed.add(entity.partition("/")[0])
        self._is_work_wanted.set()

    async def close(self) -> None:
        """Stop following. Idempotent."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _session_event(self, event: SessionEvent) -> None:
        if event in (SessionEvent.ESTABLISHED, SessionEvent.RESUMED):
            self._want_all()

    def _want_all(self) -> None:
        self._is_all_wanted = True
        self._is_work_wanted.set()

    async def _follow(self) -> None:
        while True:
            await self._is_work_wanted.wait()
            self._is_work_wanted.clear()
            try:
                await self._read()
            except ZkError as error:
                log.warning("credentials cannot be read; the broker uses those that it has, and tries again: %s", error)
                self._want_all()
                await self._clock.sleep_ms(RETRY_MS)

    async def _read(self) -> None:
        is_all, names = self._is_all_wanted, self._changed
        self._is_all_wanted, self._changed = False, set()
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
