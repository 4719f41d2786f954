"""Brings what is wanted of Kubernetes about: applies what differs, removes what is wanted no longer.

Enters: wanted objects in order. Leaves: objects in the API server, and the references of those that were written.
Called by the loop of a cluster each round. An object is applied when it differs from what was applied last, when
somebody touched it since, and all of them now and then; applying what is there already changes nothing. An object of
another owner is never touched: it is refused by name, and all others are applied.
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
"""By a quota, a policy, or a rule of Kubernetes: it concerns this object, and the others are applied."""


class Applier:
    """What one cluster's loop has applied so far."""

    def __init__(self, client: KubernetesClient) -> None:
        """Nothing is known to be applied yet."""
        self._client = client
        self._applied: dict[Reference, tuple[str, str]] = {}
        """Of each object: the hash of what was applied, and the mark that the server's answer bore."""
        self.unknown: set[Kind] = set()
        """Kinds of other projects that were to be applied and are not installed."""
        self.waiting: tuple[Waiting, ...] = ()
        """What the last `apply` left alone, and why."""

    def touched(self, body: Object) -> bool:
        """Note that an object was seen; True where it is one of ours and not as we left it."""
        which = Reference.of(body)
        ours = self._applied.get(which)
        if ours is None or ours[1] == _mark(body):
            return False
        del self._applied[which]
        return True

    def vanished(self, which: Reference) -> bool:
        """Note that an object was deleted; True where it was one of ours."""
        return self._applied.pop(which, None) is not None

    def forget(self) -> None:
        """Apply everything anew in the next round."""
        self._applied.clear()

    async def apply(self, wanted: Sequence[WantedObject]) -> list[Reference]:
        """Apply what differs, in order; what was written.

        Objects of other owners and what Kubernetes refuses are left out: see `waiting`; so are the pods of a component
        whose ConfigMap or account is left out, since they would restart without them. Raises `KubernetesError` at the
        first that fails for another reason.
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
        """Apply an object that is ours or not there yet; else why not.

        The uid keeps the write from another object of that name that came since. Of an object that was not there,
        no field is taken from whoever has made it since: without force, that is a conflict.
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
                sentence=f"{which} is still there, of {owner}: it is made again when it is gone.",
            )
        return Waiting(
            what="apply",
            reason="ForeignObject",
            sentence=f"{which} belongs to {owner} and is left as it is, so this cluster lacks it. Give the Cluster "
            "another name or namespace, or remove that object.",
            needs_person=True,
        )

    def is_applied(self, which: Reference) -> bool:
        """Whether an object is as it was last applied, as far as is known."""
        return which in self._applied

    def warnings(self) -> tuple[str, ...]:
        """A sentence about each kind that is asked for and that this Kubernetes does not know."""
        return tuple(
            f"{kind.word} is unknown here: install the Prometheus operator, or ask for none (spec.monitoring)."
            for kind in sorted(self.unknown, key=lambda kind: kind.word)
        )

    async def prune(
        self, wanted: Sequence[WantedObject], kinds: Iterable[Kind], *, namespace: str, selector: str
    ) -> list[Reference]:
        """Delete our objects of these kinds that are wanted no longer; what was deleted."""
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
            # Kinds of other projects, such as PodMonitor, need not be installed: then there is nothing to prune.
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN) and kind in _OPTIONAL:
                return []
            raise


def _refused(which: Reference, error: KubernetesError) -> Waiting:
    if error.status == HTTPStatus.CONFLICT:
        sentence = f"{which} was changed at the same time: {error.reason.rstrip('.')}. It is looked at again."
        return Waiting(what="apply", reason="ObjectChanged", sentence=sentence)
    return Waiting(
        what="apply",
        reason="KubernetesRefuses",
        sentence=f"Kubernetes refuses {which}: {error.reason.rstrip('.')}.",
        needs_person=True,
    )


_NEEDED_BY_PODS: Final = frozenset({Kind.CONFIG_MAP, Kind.SERVICE_ACCOUNT})
_WORKLOADS: Final = frozenset({Kind.STATEFUL_SET, Kind.DEPLOYMENT})
_OPTIONAL: Final = frozenset({Kind.POD_MONITOR, Kind.PROMETHEUS_RULE})


def _mark(body: Object) -> str:
    """What changes when somebody changes the object: its generation where it has one, else its version.

    The version of a StatefulSet also changes with its status, which is nobody's meddling.
    """
    metadata: dict[str, Any] = body["metadata"]
    if kind_of(body) is Kind.SERVICE or "generation" not in metadata:
        return str(metadata.get("resourceVersion", ""))
    return f"{metadata['uid']}/{metadata['generation']}"
