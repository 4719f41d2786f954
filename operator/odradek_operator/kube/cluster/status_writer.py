"""Writes statuses: one patch per resource whose status has changed, with limits.

The loops and the manager call it; `status_documents` decides on the content. To protect the API server with thousands
of topics, the status of a new topic is written once it is ready or after a delay, changes of sizes and lag only
periodically, and a round writes a limited number. The next rounds write the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek_operator.crds import Cluster, ListenerType, Topic, read_metadata, unknown_field
from odradek_operator.exporter.report import Report
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Object, Reference
from odradek_operator.kube.cluster.cluster_view import View
from odradek_operator.kube.cluster.status_documents import (
    ClusterView,
    cluster_document,
    deletion_waits,
    invalid,
    invalid_cluster,
    merge_patch,
    no_cluster,
    paused,
    topic_document,
    topic_is_deleted,
    with_condition,
    zookeeper_unreachable,
)
from odradek_operator.kube.cluster.topic_finalizers import waits_for_deletion
from odradek_operator.lifecycle.observed_cluster import KubernetesState
from odradek_operator.lifecycle.steps import ClusterDecision
from odradek_operator.objects import names
from odradek_operator.objects.listeners import served
from odradek_operator.topics.reconcile import Outcome
from odradek_operator.topics.topic_status import Condition, not_ready
from odradek_operator.topics.zookeeper_state import Snapshot

SETTLE_SECONDS: Final = 4.0
"""Seconds that a new topic has to become ready before a status without Ready is written."""
FIGURES_SECONDS: Final = 30.0
"""Seconds between two writes of a topic's status if only sizes or lag have changed."""
TOPICS_A_ROUND: Final = 40
_FIGURES: Final = frozenset({"sizeBytes", "size", "groups"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of one round of a cluster."""

    cluster: Cluster
    view: View
    topics: Mapping[str, Topic]
    invalid: Mapping[str, str]
    """Messages about invalid Topics, by name."""
    outcome: Outcome | None
    """State in ZooKeeper; None while it does not answer, with the reason in `trouble`."""
    trouble: str
    decision: ClusterDecision
    report: Report | None
    notices: tuple[str, ...]
    topic_warnings: tuple[str, ...] = ()
    """Message for all Topics."""


@dataclass(slots=True)
class Statuses:
    """Writes the statuses of one cluster and its topics."""

    client: KubernetesClient
    unsettled: bool = False
    """Whether the last round left something not ready, or postponed a write."""
    _first_seen: dict[str, float] = field(default_factory=dict)
    _figures_at: dict[str, float] = field(default_factory=dict)

    async def write(self, found: Findings) -> None:
        """Write all statuses that have changed, that of the cluster first."""
        now = time.time()
        snapshot = None if found.outcome is None else found.outcome.snapshot
        cluster_view = ClusterView(
            snapshot=snapshot,
            trouble=found.trouble,
            state=found.view.state,
            decision=found.decision,
            bootstrap=bootstrap(found.cluster, snapshot),
            notices=found.notices,
        )
        before = _status(found.view.cluster)
        of_cluster = cluster_document(found.cluster, cluster_view, previous=before, now=now)
        self.unsettled = not _is_ready(of_cluster)
        await self._patch(found.view.cluster, of_cluster)
        written = 0
        for name, body in sorted(found.view.topics.items()):
            if "deletionTimestamp" in body["metadata"]:
                await self._leaving(found, name, body)
                continue
            document = self._topic(found, name, body, now)
            self.unsettled = self.unsettled or not _is_ready(document)
            if written >= TOPICS_A_ROUND:
                self.unsettled = True
                break
            if self._due(name, _status(body), document):
                written += await self._patch(body, document)
        for gone in self._first_seen.keys() - found.view.topics.keys():
            del self._first_seen[gone]
            self._figures_at.pop(gone, None)

    def _topic(self, found: Findings, name: str, body: Object, now: float) -> Mapping[str, Any]:
        before = _status(body)
        generation = body["metadata"].get("generation", 1)
        condition: Condition | None = None
        if name in found.invalid:
            condition = invalid(found.invalid[name])
        elif found.topics[name].paused:
            condition = paused()
        elif found.outcome is None:
            condition = zookeeper_unreachable(found.trouble)
        if condition is not None or found.outcome is None:
            assert condition is not None, "without an outcome, `trouble` is the reason"
            return with_condition(condition, generation, previous=before, now=now)
        return topic_document(
            found.topics[name],
            found.outcome.snapshot,
            found.outcome.plan.decisions[name],
            report=None if found.report is None else found.report.topics.get(name),
            previous=before,
            now=now,
            warnings=(
                *(unknown_field("Topic", name, path) for path in found.topics[name].unknown_fields),
                *found.topic_warnings,
                *filter(None, [found.decision.crowded.get(name)]),
            ),
        )

    async def _leaving(self, found: Findings, name: str, body: Object) -> None:
        """Write what a Topic that is being deleted waits for."""
        if not waits_for_deletion(body):
            return
        namespace = body["metadata"]["namespace"]
        if found.outcome is None:
            await self._write_condition(body, deletion_waits(namespace, name, found.trouble))
        elif refusals := found.outcome.plan.decisions[name].refusals:
            await self._write_condition(body, deletion_waits(namespace, name, refusals[0].message))
        elif name in found.outcome.snapshot.topics or name in found.outcome.snapshot.deleting:
            await self._write_condition(body, topic_is_deleted(namespace, name))

    async def held(self, topics: Mapping[str, Object], why: str) -> None:
        """Write why nothing is done for Topics that are being deleted."""
        for name, body in sorted(topics.items()):
            if waits_for_deletion(body):
                await self._write_condition(body, deletion_waits(body["metadata"]["namespace"], name, why))

    def _due(self, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Whether a change is written now."""
        now = asyncio.get_running_loop().time()
        first = self._first_seen.setdefault(name, now)
        if not before.get("conditions") and not _is_ready(after):
            return now - first >= SETTLE_SECONDS
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        if changed and changed <= _FIGURES and before.keys() & _FIGURES:
            if now - self._figures_at.get(name, -FIGURES_SECONDS) < FIGURES_SECONDS:
                return False
            self._figures_at[name] = now
        return bool(changed)

    async def invalid(self, body: Object, message: str, topics: Mapping[str, Object]) -> None:
        """Write the statuses of an invalid Cluster without an earlier valid specification, and of its Topics."""
        await self._write_condition(body, invalid(message))
        condition, written = invalid_cluster(body["metadata"]["name"]), 0
        self.unsettled = False
        for _, topic in sorted(topics.items()):
            if "deletionTimestamp" in topic["metadata"]:
                continue
            if written >= TOPICS_A_ROUND:
                self.unsettled = True
                break
            written += await self._write_condition(topic, condition)

    async def waits(self, body: Object, reason: str, message: str) -> None:
        """Write the status of a Cluster for which nothing can be done yet."""
        await self._write_condition(body, not_ready(reason, message))

    async def paused(self, body: Object, state: KubernetesState) -> None:
        """Write the status of a paused Cluster, including the number of ready pods."""
        document = with_condition(paused(), read_metadata(body).generation, previous=_status(body), now=time.time())
        for field_name, pods in (("brokersReady", state.brokers), ("zookeeper", state.ensemble)):
            if field_name in document:
                document[field_name] = _counted(
                    document[field_name], sum(pod.slots for pod in pods.values() if pod.ready)
                )
        await self._patch(body, document)

    async def without_cluster(self, body: Object, cluster: str) -> None:
        """Write the status of a Topic or User whose Cluster does not exist."""
        await self._write_condition(body, no_cluster(body["kind"], cluster), keep_figures=False)

    async def _write_condition(self, body: Object, condition: Condition, *, keep_figures: bool = True) -> bool:
        document = with_condition(
            condition,
            read_metadata(body).generation,
            previous=_status(body),
            now=time.time(),
            keep_figures=keep_figures,
        )
        return await self._patch(body, document)

    async def _patch(self, body: Object, document: Mapping[str, Any]) -> bool:
        """Write a status if it differs. Returns whether it did."""
        patch = merge_patch(_status(body), document)
        if not patch:
            return False
        await self.client.merge(Reference.of(body), {"status": patch}, sub="status")
        return True


def bootstrap(cluster: Cluster, snapshot: Snapshot | None) -> dict[str, str]:
    """Return the bootstrap addresses by listener, without listeners that no broker has reported yet."""
    found = {}
    for listener in served(cluster):
        if listener.type is ListenerType.INTERNAL:
            found[listener.name] = f"{names.bootstrap_service(cluster.name)}.{cluster.namespace}.svc:{listener.port}"
        elif snapshot is not None:
            # Outside the cluster each broker has its own address, which it determined when it started.
            addresses = [
                str(endpoint)
                for _, registration in sorted(snapshot.brokers.items())
                for endpoint in registration.endpoints
                if endpoint.listener.lower() == listener.name
            ]
            if addresses:
                found[listener.name] = ",".join(addresses)
    return found


def _counted(before: Any, ready: int) -> Any:
    """`2/3`, or `{ready: 2/3}`, with another first number."""
    if isinstance(before, Mapping):
        return {**before, "ready": _counted(before.get("ready", ""), ready)}
    return f"{ready}/{str(before).partition('/')[2]}"


def _status(body: Object) -> Mapping[str, Any]:
    status: Mapping[str, Any] = body.get("status") or {}
    return status


def _is_ready(document: Mapping[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in document["conditions"])
