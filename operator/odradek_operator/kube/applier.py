"""Brings what is wanted of Kubernetes about: applies what differs, removes what is wanted no longer.

Enters: wanted objects in order. Leaves: objects in the API server, and the references of those that were written.
Called by the loop of a cluster each round. An object is applied when it differs from what was applied last, when
somebody touched it since, and all of them now and then; applying what is there already changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from odradek_operator.kube.api import Kind, Object, Reference, kind_of
from odradek_operator.kube.client import KubernetesClient, KubernetesError
from odradek_operator.objects.wanted import WantedObject

logger = logging.getLogger(__name__)


class Applier:
    """What one cluster's loop has applied so far."""

    def __init__(self, client: KubernetesClient) -> None:
        """Nothing is known to be applied yet."""
        self._client = client
        self._applied: dict[Reference, tuple[str, str]] = {}
        """Of each object: the hash of what was applied, and the mark that the server's answer bore."""
        self.unknown: set[Kind] = set()
        """Kinds of other projects that were to be applied and are not installed."""

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
        """Apply what differs, in order; what was written. Raises `KubernetesError` at the first that fails."""
        written = []
        self.unknown.clear()
        for item in wanted:
            which = Reference.of(item.body)
            digest = sha256(json.dumps(item.body, sort_keys=True).encode()).hexdigest()
            if self._applied.get(which, ("", ""))[0] == digest:
                continue
            try:
                answer = await self._client.apply(item.body)
            except KubernetesError as error:
                if error.status == HTTPStatus.NOT_FOUND and which.kind in _OPTIONAL:
                    self.unknown.add(which.kind)
                    continue
                raise
            self._applied[which] = (digest, _mark(answer))
            written.append(which)
        return written

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


_OPTIONAL = frozenset({Kind.POD_MONITOR, Kind.PROMETHEUS_RULE})


def _mark(body: Object) -> str:
    """What changes when somebody changes the object: its generation where it has one, else its version.

    The version of a StatefulSet also changes with its status, which is nobody's meddling.
    """
    metadata: dict[str, Any] = body["metadata"]
    if kind_of(body) is Kind.SERVICE or "generation" not in metadata:
        return str(metadata.get("resourceVersion", ""))
    return f"{metadata['uid']}/{metadata['generation']}"
