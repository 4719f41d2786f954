"""The users of one cluster: their Secrets, credentials, access rules and quotas, and what is left of deleted ones.

The loop of a cluster calls it in each round. Nothing is written without a fresh view. A user that is as specified is
looked at again when its resource changes, and after the resync time, which corrects what others have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.zk.layout import LayoutError
from odradek.zk.ownership import ManagedUser
from odradek.zk.port import ZkClient, ZkError
from odradek_operator.crds import Cluster, User, read_object
from odradek_operator.crds.problems import ResourceError
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.finalizers import release_finalizers
from odradek_operator.kube.cluster.kubernetes_events import Events
from odradek_operator.kube.cluster.status_documents import invalid, zookeeper_unreachable
from odradek_operator.kube.cluster.user_secrets import requested
from odradek_operator.kube.cluster.user_settling import UserSettling
from odradek_operator.kube.cluster.user_statuses import UserState, write_user_statuses
from odradek_operator.topics.topic_status import not_ready
from odradek_operator.users.user_plan import plan_removal
from odradek_operator.users.user_store import carry_out_user, principal_of, read_records, read_user

RETRY_SECONDS: Final = 10.0
"""Seconds after which a user that could not be made as specified is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The last result for a user."""

    key: object
    """What it depends on."""
    at: float
    """When it was, in seconds of the event loop."""
    state: UserState
    is_settled: bool
    """Whether the user is as specified, or paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """The User resources of a cluster."""

    valid: Mapping[str, User]
    """Those that are not being deleted, by name."""
    invalid: Mapping[str, str]
    """A message about each that cannot be read."""
    uids: frozenset[str]
    """Uids of all that are not being deleted."""
    leaving: tuple[Object, ...]
    """Those that are being deleted."""

    @classmethod
    def read(cls, bodies: Mapping[str, Object]) -> Users:
        """Read the resources."""
        valid, wrong = {}, {}
        staying = {name: body for name, body in bodies.items() if "deletionTimestamp" not in body["metadata"]}
        for name, body in staying.items():
            try:
                user = read_object(body)
            except ResourceError as error:
                wrong[name] = str(error)
            else:
                assert isinstance(user, User), "the list was of Users"
                valid[name] = user
        return cls(
            valid=valid,
            invalid=wrong,
            uids=frozenset(body["metadata"]["uid"] for body in staying.values()),
            leaving=tuple(body for name, body in bodies.items() if name not in staying),
        )

    @property
    def identities(self) -> object:
        """What decides which records are obsolete."""
        leaving = frozenset(body["metadata"]["uid"] for body in self.leaving)
        return frozenset((user.uid, user.principal) for user in self.valid.values()), self.uids, leaving

    def is_obsolete(self, record: ManagedUser) -> bool:
        """Whether no resource has the user of a record any more. A resource that cannot be read may have it."""
        if any(user.principal.name == record.user for user in self.valid.values()):
            return False
        return record.resource not in self.uids - {user.uid for user in self.valid.values()}

    def holders(self, bodies: Mapping[str, Object], records: Iterable[ManagedUser]) -> dict[str, str]:
        """Return the resource that has each identity: the one in the record, else the oldest."""
        owners = {record.user: record.resource for record in records}

        def rank(name: str) -> tuple[bool, str, str]:
            user = self.valid[name]
            is_other = owners.get(user.principal.name) != user.uid
            return is_other, str(bodies[name]["metadata"].get("creationTimestamp", "")), name

        found: dict[str, str] = {}
        for name in sorted(self.valid, key=rank):
            found.setdefault(self.valid[name].principal.name, name)
        return found


class UserKeeper:
    """Keeps the users of one cluster as specified."""

    def __init__(
        self, client: KubernetesClient, check_fresh: Callable[[], None], events: Events, *, resync_seconds: float
    ) -> None:
        """`check_fresh` raises an error unless this round has a fresh view, before each write except of statuses."""
        self._status_client = client
        self._client = client.checked(check_fresh)
        self._check_fresh = check_fresh
        self._events = events
        self._resync_seconds = resync_seconds
        self._authorities: object = None
        self._known: dict[str, _Known] = {}
        """The last result for each user."""
        self._swept: tuple[object, float] = (None, float("-inf"))
        """For which users obsolete records were last removed, and when."""

    async def settle(
        self,
        cluster: Cluster,
        bodies: Mapping[str, Object],
        zk: ZkClient | None,
        *,
        trouble: str = "",
        authorities: object = None,
    ) -> bool:
        """Change what is not as specified, and write statuses. Returns whether nothing is left to do.

        `zk` is None while ZooKeeper does not answer, because of `trouble`. `authorities` changes with the certificates
        that Secrets of users have. Raises `KubernetesError`.
        """
        self._authorities = authorities
        users = Users.read(bodies)
        states = {name: UserState(condition=invalid(message)) for name, message in users.invalid.items()}
        is_reached = True
        try:
            if zk is None:
                raise ZkError(trouble)
            states |= await self._settle_all(cluster, users, bodies, zk)
        except ZkError as error:
            is_reached = False
            states |= dict.fromkeys(
                users.valid.keys() - states.keys(), UserState(condition=zookeeper_unreachable(str(error)))
            )
        complete = await write_user_statuses(self._status_client, bodies, states)
        settled = is_reached and all(known.is_settled for known in self._known.values())
        return complete and settled and self._is_swept(users)

    async def _settle_all(
        self, cluster: Cluster, users: Users, bodies: Mapping[str, Object], zk: ZkClient
    ) -> dict[str, UserState]:
        keys = {name: (self._authorities, *_key(cluster, user, bodies[name])) for name, user in users.valid.items()}
        self._known = {name: known for name, known in self._known.items() if name in keys}
        due = sorted(name for name, key in keys.items() if not self._is_current(name, key))
        if self._is_swept(users) and not due:
            return {name: known.state for name, known in self._known.items()}
        self._check_fresh()
        records = await read_records(zk)
        if not self._is_swept(users):
            await self._sweep(cluster, users, zk, records)
        holders = users.holders(bodies, records)
        settling = UserSettling(self._client, self._events, cluster, zk)
        for name in due:
            user = users.valid[name]
            holder = holders[user.principal.name]
            state = _duplicate(user, holder) if holder != name else await settling.settle(user, bodies[name])
            self._known[name] = _Known(
                key=keys[name],
                at=asyncio.get_running_loop().time(),
                state=state,
                is_settled=state.is_ready or user.paused,
            )
        return {name: known.state for name, known in self._known.items()}

    def _is_current(self, name: str, key: object) -> bool:
        """Whether the last result for a user still counts."""
        known = self._known.get(name)
        if known is None or known.key != key:
            return False
        seconds = self._resync_seconds if known.is_settled else RETRY_SECONDS
        return asyncio.get_running_loop().time() - known.at < seconds

    def _is_swept(self, users: Users) -> bool:
        identities, at = self._swept
        return identities == users.identities and asyncio.get_running_loop().time() - at < self._resync_seconds

    async def _sweep(self, cluster: Cluster, users: Users, zk: ZkClient, records: Iterable[ManagedUser]) -> None:
        """Remove the rights of users without a resource, then the finalizers of resources that are being deleted."""
        of_cluster = f"{cluster.namespace}/{cluster.name}"
        failed: set[str] = set()
        for record in records:
            if record.cluster != of_cluster or not users.is_obsolete(record):
                continue
            principal = principal_of(record)
            try:
                await carry_out_user(zk, plan_removal(principal, await read_user(zk, principal, ())))
            except LayoutError as error:
                failed.add(record.resource)
                await self._report_kept(users, record, str(error))
        leaving = [body for body in users.leaving if body["metadata"]["uid"] not in failed]
        await release_finalizers(self._client, leaving)
        if not failed:
            self._swept = (users.identities, asyncio.get_running_loop().time())

    async def _report_kept(self, users: Users, record: ManagedUser, why: str) -> None:
        message = f"The rights of {principal_of(record)} cannot be removed: repair the znode. {why}."
        for body in users.leaving:
            if body["metadata"]["uid"] == record.resource:
                name = body["metadata"]["name"]
                state = UserState(condition=not_ready("DeletionWaits", message))
                await write_user_statuses(self._status_client, {name: body}, {name: state})


def _key(cluster: Cluster, user: User, body: Object) -> tuple[object, ...]:
    """Return what the last result for a user depends on."""
    return user, requested(body), cluster.listeners, cluster.certificate_authorities


def _duplicate(user: User, holder: str) -> UserState:
    message = f"User {holder} already is {user.principal}: remove one of the two, or give it another identity."
    return UserState(condition=not_ready("DuplicateUser", message))
