"""Makes one user as its resource specifies: first the Secret, then credentials, quotas and access rules."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from odradek.base.errors import ConfigError
from odradek.zk.layout import LayoutError
from odradek.zk.port import ZkClient
from odradek_operator.crds import Cluster, User, unknown_field
from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.finalizers import has_finalizer, set_finalizer
from odradek_operator.kube.cluster.kubernetes_events import Events
from odradek_operator.kube.cluster.status_documents import invalid, paused
from odradek_operator.kube.cluster.user_secrets import NEW_PASSWORD, UserError, keep_secret, read_authorities
from odradek_operator.kube.cluster.user_statuses import UserState
from odradek_operator.security.authorities import AuthorityError
from odradek_operator.security.material import Files
from odradek_operator.security.user_material import UserAuthorities, listener_for
from odradek_operator.topics.topic_status import Condition, not_ready, ready
from odradek_operator.topics.zookeeper_writer import OutdatedError
from odradek_operator.users.user_store import ForeignUserError, settle_user

_REFUSALS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)


class UserSettling:
    """Settles users of one cluster, in one round."""

    def __init__(self, client: KubernetesClient, events: Events, cluster: Cluster, zk: ZkClient) -> None:
        """`client` reads and writes Secrets and finalizers."""
        self._client = client
        self._events = events
        self._cluster = cluster
        self._zk = zk
        self._authorities: UserAuthorities | None = None

    async def settle(self, user: User, body: Object) -> UserState:
        """Change what is not as specified. Returns the state of the user.

        Raises `ZkError`, and `KubernetesError` unless Kubernetes refuses an object of this user.
        """
        if user.paused:
            return self._state(user, paused())
        try:
            if not has_finalizer(body):
                await set_finalizer(self._client, body, needed=True)
            files, warnings = await self._secret(user, body)
            await self._zookeeper(user, body, files)
        except (UserError, ForeignUserError) as error:
            return self._state(user, not_ready(error.reason, str(error)))
        except AuthorityError as error:
            return self._state(user, not_ready("AuthorityUnusable", f"{error}."))
        except LayoutError as error:
            return self._state(user, not_ready("ZnodeInvalid", f"{error}."))
        except ConfigError as error:
            return self._state(user, invalid(f"{error}."))
        except OutdatedError as error:
            return self._state(user, not_ready("Reconciling", f"In progress: {error}."))
        except KubernetesError as error:
            if error.status not in _REFUSALS:
                raise
            return self._state(user, not_ready("KubernetesRefuses", f"{error}."))
        parts = "Secret, the access rules" if user.has_secret else "access rules"
        return self._state(user, ready("Reconciled", f"The {parts} and the quotas are as specified."), warnings)

    async def _secret(self, user: User, body: Object) -> tuple[Files, list[str]]:
        """Complete the Secret. Returns its data, nothing for a user without one, and warnings."""
        if not user.has_secret:
            return {}, []
        if self._authorities is None:
            self._authorities = await read_authorities(self._client, self._cluster)
        kept = await keep_secret(self._client, self._cluster, user, body, self._authorities)
        if kept.is_written:
            await self._events.write(body, "SecretWritten", f"Wrote the login to Secret {user.name}.")
        source = user.password_source
        if source is None or not kept.is_request_open:
            return kept.files, []
        return kept.files, [
            f"The annotation {NEW_PASSWORD} has no effect: User {user.name} has the password in entry {source.key} of "
            f"Secret {user.namespace}/{source.name}, which the operator does not change. Change it there and remove "
            "the annotation, or remove spec.authentication.password, and the operator makes a password."
        ]

    async def _zookeeper(self, user: User, body: Object, files: Files) -> None:
        plan = await settle_user(self._zk, user, files)
        if not plan.is_empty:
            await self._events.write(body, "UserChanged", f"Changed {plan.summary} of {user.principal}.")

    def _state(self, user: User, condition: Condition, found: Iterable[str] = ()) -> UserState:
        """`found`: warnings of this round."""
        warnings = [*found, *(unknown_field("User", user.name, path) for path in user.unknown_fields)]
        if user.login is not None and listener_for(self._cluster, user) is None:
            warnings.append(
                f"No listener of Cluster {user.cluster} has authentication of type {user.login}, so this user cannot "
                "log in."
            )
        return UserState(
            condition=condition,
            username=user.principal.name,
            secret=user.name if user.has_secret else None,
            warnings=tuple(warnings),
        )
