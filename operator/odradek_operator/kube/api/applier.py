"""Applies the objects of a Cluster, Pipeline or Mirror and deletes those that are no longer needed.

The loop of the resource calls it in each round. An object is applied if it differs from what was applied last, if it
was changed since, and regularly in any case; applying an unchanged object has no effect. Objects of other owners are
never changed: they are reported, and all others are applied.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference, kind_of
from odradek_operator.kube.api.owners import is_leaving, owner_of
from odradek_operator.lifecycle.steps import Waiting
from odradek_operator.objects import names
from odradek_operator.objects.wanted import WantedObject

logger = logging.getLogger(__name__)


_REFUSALS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Status codes of refusals by a quota, a policy or a rule of Kubernetes: the other objects are still applied."""


class Applier:
    """Applies the objects of one resource and remembers what it applied."""

    def __init__(self, client: KubernetesClient, resource: Kind = Kind.CLUSTER) -> None:
        """Start without knowledge of applied objects. `resource`: the kind that the objects belong to."""
        self._client = client
        self._word = resource.word
        self._applied: dict[Reference, tuple[str, str]] = {}
        """For each object, the hash of what was applied and the version in the server's answer."""
        self.unknown: set[Kind] = set()
        """Kinds of other projects that are not installed here."""
        self.waiting: tuple[Waiting, ...] = ()
        """What the last `apply` did not apply, and why."""

    def touched(self, body: Object) -> bool:
        """Note an observed object. Returns True if it belongs to the cluster and was changed by someone else."""
        which = Reference.of(body)
        ours = self._applied.get(which)
        if ours is None or ours[1] == _mark(body):
            return False
        del self._applied[which]
        return True

    def vanished(self, which: Reference) -> bool:
        """Note a deleted object. Returns True if it belonged to the cluster."""
        return self._applied.pop(which, None) is not None

    def forget(self) -> None:
        """Apply all objects again in the next round."""
        self._applied.clear()

    async def apply(self, wanted: Sequence[WantedObject]) -> list[Reference]:
        """Apply what differs, in order. Returns what was written.

        Does not apply objects of other owners and objects that Kubernetes refuses (see `waiting`), nor the pods of a
        component whose ConfigMap or ServiceAccount is not applied, because they would restart without it. Raises
        `KubernetesError` for any other failure.
        """
        written = []
        waiting: list[Waiting] = []
        incomplete: set[str] = set()
        self.unknown.clear()
        for item in wanted:
            which = Reference.of(item.body)
            digest = sha256(json.dumps(item.body, sort_keys=True).encode()).hexdigest()
            component = (item.body["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL, "")
            if which.kind in _WORKLOADS and component in incomplete:
                continue
            if self._applied.get(which, ("", ""))[0] == digest:
                continue
            try:
                answer = await self._apply_one(which, item.body)
            except KubernetesError as error:
                if error.status == HTTPStatus.NOT_FOUND and which.kind in _OPTIONAL:
                    self.unknown.add(which.kind)
                    continue
                if error.status not in (*_REFUSALS, HTTPStatus.CONFLICT):
                    raise
                answer = _refused(which, error)
            if isinstance(answer, Waiting):
                waiting.append(answer)
                if which.kind in _NEEDED_BY_PODS:
                    incomplete.add(component)
                continue
            self._applied[which] = (digest, _mark(answer))
            written.append(which)
        self.waiting = tuple(waiting)
        return written

    async def _apply_one(self, which: Reference, body: Object) -> Object | Waiting:
        """Apply an object that belongs to the cluster or does not exist yet. Else returns why it is not applied.

        The uid prevents a write to a newer object of the same name. If the object did not exist, it is applied without
        force, so that it conflicts with an object that someone created since.
        """
        present = await self._client.get(which.kind, which.namespace, which.name)
        if present is None:
            return await self._client.apply(body, force=False)
        owner = owner_of(present, body)
        if owner is None:
            uid = {"uid": present["metadata"]["uid"]}
            return await self._client.apply({**body, "metadata": {**body["metadata"], **uid}})
        if is_leaving(present, body):
            return Waiting(
                what="apply",
                reason="ObjectIsLeaving",
                message=f"{which} still exists and belongs to {owner}: it is created again once it is deleted.",
            )
        return Waiting(
            what="apply",
            reason="ForeignObject",
            message=f"{which} belongs to {owner} and is not changed, so this {self._word.lower()} lacks it. Give the "
            f"{self._word} another name or namespace, or remove that object.",
            needs_person=True,
        )

    def is_applied(self, which: Reference) -> bool:
        """Whether an object is unchanged since it was applied, as far as known."""
        return which in self._applied

    def warnings(self) -> tuple[str, ...]:
        """Return a message about each required kind that is not installed."""
        return tuple(
            f"{kind.word} is unknown here: install {_INSTALLED_WITH[kind]}."
            for kind in sorted(self.unknown, key=lambda kind: kind.word)
        )

    async def prune(
        self, wanted: Sequence[WantedObject], kinds: Iterable[Kind], *, namespace: str, selector: str
    ) -> list[Reference]:
        """Delete the cluster's objects of these kinds that are no longer needed. Returns what was deleted."""
        keep = {Reference.of(item.body) for item in wanted}
        deleted = []
        for kind in kinds:
            for body in await self._present(kind, namespace, selector):
                which = Reference.of({"apiVersion": kind.api_version, "kind": kind.word, **body})
                if which in keep or "deletionTimestamp" in body["metadata"]:
                    continue
                if await self._client.delete(which, uid=body["metadata"]["uid"]):
                    self._applied.pop(which, None)
                    deleted.append(which)
        return deleted

    async def _present(self, kind: Kind, namespace: str, selector: str) -> list[Object]:
        try:
            return await self._client.list(kind, namespace if kind.namespaced else None, selector=selector)
        except KubernetesError as error:
            # Kinds of other projects, such as PodMonitor, may not be installed: then there is nothing to delete.
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN) and kind in _OPTIONAL:
                return []
            raise


def _refused(which: Reference, error: KubernetesError) -> Waiting:
    if error.status == HTTPStatus.CONFLICT:
        message = f"{which} was changed concurrently: {error.reason.rstrip('.')}. It is retried."
        return Waiting(what="apply", reason="ObjectChanged", message=message)
    return Waiting(
        what="apply",
        reason="KubernetesRefuses",
        message=f"Kubernetes rejects {which}: {error.reason.rstrip('.')}.",
        needs_person=True,
    )


_NEEDED_BY_PODS: Final = frozenset({Kind.CONFIG_MAP, Kind.SERVICE_ACCOUNT})
_WORKLOADS: Final = frozenset({Kind.STATEFUL_SET, Kind.DEPLOYMENT})
_INSTALLED_WITH: Final = {
    Kind.CERTIFICATE: "cert-manager, or remove issuerRef (spec.certificateAuthorities)",
    Kind.POD_MONITOR: "the Prometheus operator, or disable it (spec.monitoring)",
    Kind.PROMETHEUS_RULE: "the Prometheus operator, or disable it (spec.monitoring)",
}
"""Kinds of other projects, and what to do if they are not installed."""
_OPTIONAL: Final = frozenset(_INSTALLED_WITH)


def _mark(body: Object) -> str:
    """Return a value that changes when someone changes the object: its generation if it has one, else its version.

    The version of a StatefulSet also changes with its status.
    """
    metadata: dict[str, Any] = body["metadata"]
    if kind_of(body) is Kind.SERVICE or "generation" not in metadata:
        return str(metadata.get("resourceVersion", ""))
    return f"{metadata['uid']}/{metadata['generation']}"
