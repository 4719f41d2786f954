"""The User resources of an embedded cluster: their logins as files, and their rights in ZooKeeper.

`watcher` calls it in each round. What belongs to a resource is recorded in ZooKeeper, so that the rights of a removed
one are taken away also if it was removed while nothing ran.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from odradek.base.errors import ConfigError
from odradek.zk.layout import LayoutError
from odradek.zk.ownership import ManagedUser
from odradek.zk.port import ZkClient
from odradek_operator.crds import Cluster, User
from odradek_operator.crds.types import SERVICE_ACCOUNT_LOGIN
from odradek_operator.embedded.secret_files import SecretFiles
from odradek_operator.errors import EmbeddedError
from odradek_operator.objects import names
from odradek_operator.objects.certificate_objects import clients_authority
from odradek_operator.security.authorities import AuthorityError
from odradek_operator.security.material import Files, secrets_of
from odradek_operator.security.user_material import is_usable_password, listener_for, user_authorities, user_files
from odradek_operator.topics.topic_status import Condition, not_ready, ready
from odradek_operator.topics.zookeeper_writer import OutdatedError
from odradek_operator.users.user_plan import plan_removal
from odradek_operator.users.user_store import (
    ForeignUserError,
    carry_out_user,
    principal_of,
    read_records,
    read_user,
    settle_user,
)

CHECK_SECONDS: Final = 30.0
"""Seconds after which a user that is as specified is compared again with ZooKeeper and its files."""
_UID: Final = "embedded/"
"""Beginning of the uid of a resource, which Kubernetes assigns elsewhere. The rest is its name."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The last result for a user."""

    key: object
    at: float
    condition: Condition


class EmbeddedUsers:
    """The users of one cluster."""

    def __init__(self, secrets: SecretFiles) -> None:
        """`secrets`: where the logins are."""
        self._secrets = secrets
        self._known: dict[str, _Known] = {}
        self._swept: tuple[frozenset[str], float] = (frozenset(), float("-inf"))

    async def settle(
        self, zk: ZkClient, cluster: Cluster, users: Mapping[str, User], addresses: Mapping[str, str]
    ) -> dict[str, Condition]:
        """Change what is not as specified. Returns the condition of each user by name.

        `addresses`: those of the cluster's listeners, by name. Raises `ZkError` and `EmbeddedError`.
        """
        await self._sweep(zk, cluster, users)
        now = asyncio.get_running_loop().time()
        self._known = {name: known for name, known in self._known.items() if name in users}
        for name, user in users.items():
            key, known = (
                (user, cluster.listeners, cluster.certificate_authorities, dict(addresses)),
                self._known.get(name),
            )
            if known is None or known.key != key or now - known.at >= CHECK_SECONDS:
                identified = replace(user, uid=f"{_UID}{name}")
                self._known[name] = _Known(key, now, await self._settle(zk, cluster, identified, addresses))
        return {name: known.condition for name, known in self._known.items()}

    async def _settle(self, zk: ZkClient, cluster: Cluster, user: User, addresses: Mapping[str, str]) -> Condition:
        if user.login == SERVICE_ACCOUNT_LOGIN:
            return not_ready("NoServiceAccounts", "There are no ServiceAccounts outside of Kubernetes.")
        if user.paused:
            return not_ready("Paused", f"The annotation {names.PAUSED} is set.")
        try:
            files = await asyncio.to_thread(self._login, cluster, user, addresses) if user.has_secret else {}
            await settle_user(zk, user, files)
        except OutdatedError as error:
            return not_ready("Reconciling", f"In progress: {error}.")
        except (AuthorityError, ConfigError, EmbeddedError, ForeignUserError, LayoutError) as error:
            return not_ready("UserUnusable", f"{str(error).rstrip('.')}.")
        if user.login is not None and listener_for(cluster, user) is None:
            return ready("Reconciled", f"No listener has authentication of type {user.login}, so it cannot log in.")
        login = f": log in with {self._secrets.folder / user.name / names.CLIENT_CONFIG_FILE}" if files else ""
        return ready("Reconciled", f"the access rules and the quotas are as specified{login}")

    def _login(self, cluster: Cluster, user: User, addresses: Mapping[str, str]) -> Files:
        """Complete the files of a user. Returns them. Raises `EmbeddedError` and `AuthorityError`."""
        stored = self._secrets.read(user.name)
        if user.name in secrets_of(cluster) or (stored and names.CLIENT_CONFIG_FILE not in stored):
            folder = self._secrets.folder / user.name
            raise EmbeddedError(f"{folder} is not of this user and is not changed: give the User another name.")
        trusted = self._secrets.read(names.cluster_ca_cert(cluster.name))
        authorities = user_authorities(cluster, self._secrets.read(clients_authority(cluster)), trusted)
        if authorities is None:
            raise EmbeddedError(f"Cluster {cluster.name} has no listener with tls or authentication: add one.")
        password = self._given_password(user)
        now = datetime.now(UTC)
        files = user_files(
            cluster, user, stored, authorities, is_new=False, now=now, password=password, addresses=addresses
        )
        if files != stored:
            self._secrets.write(user.name, files)
        return files

    def _given_password(self, user: User) -> bytes | None:
        """Return the password that the resource names; None if there is none. Raises `EmbeddedError`."""
        source = user.password_source
        if source is None:
            return None
        path = self._secrets.folder / source.name / source.key
        if source.name == user.name:
            raise EmbeddedError(f"{path} is in the Secret of this User: keep the password in another.")
        content = self._secrets.read(source.name).get(source.key)
        if content is None:
            raise EmbeddedError(f"{path} with the password does not exist: create it.")
        if not is_usable_password(content):
            raise EmbeddedError(f"{path} is not a password: it must be text in UTF-8, without control characters.")
        return content.strip()

    async def _sweep(self, zk: ZkClient, cluster: Cluster, users: Mapping[str, User]) -> None:
        """Take the rights of users without a resource away, and remove their files. Raises `ZkError`."""
        staying = frozenset(user.principal.name for user in users.values())
        swept, at = self._swept
        now = asyncio.get_running_loop().time()
        if swept == staying and now - at < CHECK_SECONDS:
            return
        for record in _obsolete(await read_records(zk), cluster, staying):
            principal = principal_of(record)
            await carry_out_user(zk, plan_removal(principal, await read_user(zk, principal, ())))
            await asyncio.to_thread(self._secrets.remove, record.resource.removeprefix(_UID))
        self._swept = (staying, now)


def _obsolete(records: Iterable[ManagedUser], cluster: Cluster, staying: frozenset[str]) -> list[ManagedUser]:
    of_cluster = f"{cluster.namespace}/{cluster.name}"
    return [
        record
        for record in records
        if record.cluster == of_cluster and record.resource.startswith(_UID) and record.user not in staying
    ]
