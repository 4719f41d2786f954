"""Writes the statuses of User resources: one patch for each that has changed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek_operator.crds import read_metadata
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Object, Reference
from odradek_operator.kube.cluster.status_documents import conditions, merge_patch
from odradek_operator.topics.topic_status import Condition, Truth, not_ready

STATUSES_A_ROUND: Final = 40
"""Number of statuses that a round writes at most. The next rounds write the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserState:
    """What is known about a user after a round."""

    condition: Condition
    username: str | None = None
    secret: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether everything is as specified."""
        return self.condition.status is Truth.TRUE


def user_document(state: UserState, generation: int, *, previous: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the status of a User. `previous`: the present status; `now`: seconds since the epoch."""
    document: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions([state.condition], generation, previous=previous, now=now),
        "username": state.username or previous.get("username"),
        "secret": state.secret,
        "warnings": list(state.warnings) or None,
    }
    return {key: value for key, value in document.items() if value is not None}


async def write_user_statuses(
    client: KubernetesClient, bodies: Mapping[str, Object], states: Mapping[str, UserState]
) -> bool:
    """Write the statuses that have changed. Returns whether all of them were written."""
    written = 0
    for name, state in sorted(states.items()):
        body = bodies[name]
        before: Mapping[str, Any] = body.get("status") or {}
        document = user_document(state, read_metadata(body).generation, previous=before, now=time.time())
        if patch := merge_patch(before, document):
            if written >= STATUSES_A_ROUND:
                return False
            await client.merge(Reference.of(body), {"status": patch}, sub="status")
            written += 1
    return True


async def write_why_kept(client: KubernetesClient, bodies: Mapping[str, Object], why: str) -> None:
    """Write why the rights of Users that are being deleted are not removed yet."""
    leaving = {name: body for name, body in bodies.items() if "deletionTimestamp" in body["metadata"]}
    message = f"The rights of the user are not removed yet. {why[:1].upper()}{why[1:]}"
    states = {name: UserState(condition=not_ready("DeletionWaits", message)) for name in leaving}
    await write_user_statuses(client, leaving, states)
