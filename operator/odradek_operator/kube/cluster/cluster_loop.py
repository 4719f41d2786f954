"""The reconciliation loop of one cluster. It observes, decides, acts and reports after events and periodically.

`manager` starts it for each cluster, and `handlers` wake it. It changes objects in Kubernetes and state in ZooKeeper,
and writes statuses and Events. Decisions depend only on what a round reads, not on earlier rounds, so an operator that
was killed at any point continues where it stopped.

A round begins with a view from the cache. If it has to change anything but statuses and Events, it begins again with a
fresh view, and carries out only what the fresh view still asks for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from typing import Final

from odradek.zk.layout import CLUSTER_ID, ClusterId, LayoutError
from odradek.zk.port import ZkClient, ZkError
from odradek_operator.crds import Cluster, Topic, notices_of
from odradek_operator.dashboards.files import dashboard_texts
from odradek_operator.dashboards.queries import only
from odradek_operator.dashboards.rules import rule_groups
from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.applier import Applier
from odradek_operator.kube.api.claims import grow_claims, remake_sets
from odradek_operator.kube.api.object_cache import FreshReadNeededError, ObjectCache
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference, kind_named
from odradek_operator.kube.api.unowned import remove_unowned
from odradek_operator.kube.cluster.cluster_secrets import ClusterSecrets
from odradek_operator.kube.cluster.cluster_view import View, ViewReader, is_paused
from odradek_operator.kube.cluster.exporter_reports import Reports
from odradek_operator.kube.cluster.finalizers import release_finalizers
from odradek_operator.kube.cluster.kubernetes_events import Events, EventType
from odradek_operator.kube.cluster.record_keeper import keep_record
from odradek_operator.kube.cluster.specification import Specification, read_topics, specification
from odradek_operator.kube.cluster.status_documents import INVALID_SPEC
from odradek_operator.kube.cluster.status_writer import Findings, Statuses
from odradek_operator.kube.cluster.tls_reports import AskBrokers, ask_brokers
from odradek_operator.kube.cluster.topic_events import CompletedAction, write_topic_events
from odradek_operator.kube.cluster.topic_finalizers import DeletedTopics, keep_finalizers, release_protected
from odradek_operator.kube.cluster.user_keeper import UserKeeper
from odradek_operator.kube.cluster.user_statuses import write_why_kept
from odradek_operator.kube.cluster.znode_owners import own_znodes
from odradek_operator.kube.cluster.zookeeper_session import (
    AskMembers,
    Opener,
    ZooKeeperSession,
    ask_members,
    open_kazoo,
    session_settings,
)
from odradek_operator.kube.job_reports import AskDriver, ask_driver
from odradek_operator.kube.mirrors.mirror_reports import AskMirror, ask_mirror
from odradek_operator.kube.operator_metrics import ReconciliationOutcome, Reconciliations
from odradek_operator.kube.operator_settings import OperatorSettings
from odradek_operator.kube.resource_metrics import MirrorMetrics, PipelineMetrics
from odradek_operator.lifecycle.cluster_plan import decide, per_pod_now
from odradek_operator.lifecycle.cluster_record import Ensemble, ensemble_of, next_record, other_cluster, settled
from odradek_operator.lifecycle.lost import is_homeless
from odradek_operator.lifecycle.observed_cluster import Quorum, Record
from odradek_operator.lifecycle.spreading import MAX_NOTICES
from odradek_operator.lifecycle.steps import ClusterDecision, KubernetesStep, ReleaseClaims, RestartPod, Waiting
from odradek_operator.lifecycle.tls_links import Links, change, next_links
from odradek_operator.objects import names
from odradek_operator.objects.broker_objects import with_slots
from odradek_operator.objects.cluster_properties import split, zookeeper_connect
from odradek_operator.objects.ensemble_security import client_port
from odradek_operator.objects.names import Component, EnsembleLink
from odradek_operator.objects.wanted import PRUNED_KINDS, Extras, hashes, prune_selector, wanted_objects
from odradek_operator.topics.reconcile import Outcome, reconcile
from odradek_operator.topics.topic_decisions import wanted_factors
from odradek_operator.topics.topic_plan import Wanted
from odradek_operator.topics.zookeeper_state import Snapshot
from odradek_operator.topics.zookeeper_writer import OutdatedError, carry_out_step

logger = logging.getLogger(__name__)

MIN_PAUSE_SECONDS: Final = 0.3
"""Pause between two rounds, so that several events cause one round. After a round with more computing time, the pause
is as long as that: a loop uses at most half of a core. Waiting for permission to write does not count."""
ERROR_PAUSE_SECONDS: Final = 3.0
BUSY_SECONDS: Final = 2.0
"""Pause while something is in progress that causes no event, such as a growing ISR."""
BUSY_CACHE_SECONDS: Final = 30.0
"""How long the cache is used after a list while something is in progress."""
REPLICAS_SHARE_POD: Final = "ReplicasSharePod"
"""Reason of the Event about a topic with more replicas than pods."""

_REFUSALS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the loops of all resources share."""

    client: KubernetesClient
    cache: ObjectCache
    events: Events
    settings: OperatorSettings
    reconciliations: Reconciliations
    pipelines: PipelineMetrics
    mirrors: MirrorMetrics
    reports: Reports
    ask_brokers: AskBrokers = ask_brokers
    """Asks brokers which certificates they use."""
    ask_members: AskMembers = ask_members
    """Asks members of an ensemble for their roles."""
    ask_driver: AskDriver = ask_driver
    """Asks the driver of a Pipeline for its report."""
    ask_mirror: AskMirror = ask_mirror
    """Asks a pod of a Mirror for its report."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """Returns the present time, in UTC."""
    opened: Opener = open_kazoo
    """Connects to a cluster's ZooKeeper."""


class ClusterLoop:
    """Reconciles one cluster."""

    def __init__(self, shared: Shared, namespace: str, name: str) -> None:
        """`name`: name of the Cluster, which may not exist yet."""
        self.namespace: Final = namespace
        self.name: Final = name
        self._shared = shared
        self._client = shared.client.checked(self._check_write)
        """For all writes but statuses and Events."""
        self._reader = ViewReader(shared.client, shared.cache, namespace, name)
        self._max_age = 0.0
        """How old the lists may be with which the next round begins, in seconds."""
        self._is_fresh = False
        """Whether the view of this round is fresh."""
        self._fresh_at = float("-inf")
        """Time of the event loop at which the last fresh view was begun."""
        self._woken = asyncio.Event()
        self._applier = Applier(self._client)
        self._secrets = ClusterSecrets(self._client, self._check_write, shared.ask_brokers)
        self._users = UserKeeper(
            shared.client, self._check_write, shared.events, resync_seconds=shared.settings.resync_seconds
        )
        self._statuses = Statuses(shared.client)
        self._session = ZooKeeperSession(self.wake, shared.opened)
        self._resync_at = 0.0
        self._deleted_topics = DeletedTopics()

    def wake(self) -> None:
        """Start a round soon, because something changed."""
        self._woken.set()

    def specification_changed(self) -> None:
        """Start a round with a fresh view soon, because a user changed the Cluster or a Topic."""
        self._max_age = 0.0
        self.wake()

    def topic_deleted(self, body: Object) -> None:
        """Remember a Topic that a watch reported as deleted, and start a round soon."""
        self._deleted_topics.add(body)
        self.specification_changed()

    def object_changed(self, body: Object, *, deleted: bool) -> None:
        """Apply an object again if others changed or deleted it, and start a round soon."""
        if deleted:
            self._applier.vanished(Reference.of(body))
        else:
            self._applier.touched(body)
        self.wake()

    async def run(self) -> None:
        """Run until the Cluster resource is deleted."""
        periodic = False
        try:
            while True:
                self._woken.clear()
                began = time.process_time()
                pause = await self._guarded_round(periodic=periodic)
                if pause is None:
                    return
                await asyncio.sleep(max(MIN_PAUSE_SECONDS, time.process_time() - began))
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                    periodic = False
                except TimeoutError:
                    periodic = True
        finally:
            self._shared.reconciliations.forget(self.namespace, self.name)
            self._reader.close()
            await self._session.close()

    async def _guarded_round(self, *, periodic: bool) -> float | None:
        """Run one round. Returns the maximum seconds until the next one, or None if the cluster is deleted."""
        with self._shared.reconciliations.one("Cluster", self.namespace, periodic=periodic) as outcome:
            max_age = self._max_age_now()
            try:
                try:
                    pause = await self._round(outcome, max_age=max_age)
                except FreshReadNeededError:
                    pause = await self._round(outcome, max_age=0.0)
                if pause == self._shared.settings.idle_seconds and self._max_age > 0:
                    self._max_age = self._shared.settings.resync_seconds
                return pause
            except (KubernetesError, ZkError, LayoutError, OutdatedError) as error:
                # The API server or ZooKeeper failed: report it and try again. No decision was carried out partly.
                logger.warning("cluster %s/%s: %s", self.namespace, self.name, error)
                outcome.failed = True
            except Exception:
                # A bug that affects one cluster must not stop the loops of others.
                logger.exception("cluster %s/%s: the reconciliation failed", self.namespace, self.name)
                outcome.failed = True
        return ERROR_PAUSE_SECONDS

    def _max_age_now(self) -> float:
        """Return how old the lists may be with which a round begins, in seconds. Lists expire all together."""
        max_age, self._max_age = self._max_age, BUSY_CACHE_SECONDS
        return 0.0 if asyncio.get_running_loop().time() - self._fresh_at >= max_age else max_age

    def _check_write(self) -> None:
        """Called before each change. Raises `FreshReadNeededError` unless this round has a fresh view."""
        if not self._is_fresh:
            raise FreshReadNeededError

    async def _round(self, outcome: ReconciliationOutcome, *, max_age: float) -> float | None:
        """Run one round. Raises `FreshReadNeededError` if a change is needed and the view may come from the cache."""
        self._is_fresh = max_age <= 0
        if self._is_fresh:
            self._fresh_at = asyncio.get_running_loop().time()
        view = await self._reader.read(max_age=max_age)
        if view is None:
            await remove_unowned(self._client, (self.namespace, self.name))
            return None
        if view.leaving:
            await release_finalizers(self._client, [*view.topics.values(), *view.users.values()])
            return self._shared.settings.idle_seconds
        if is_paused(view.cluster):
            await release_protected(self._client, view.topics.values())
            await self._statuses.paused(view.cluster, view.state)
            why = f"Cluster {self.name} is paused: remove its annotation {names.PAUSED}."
            await self._statuses.held(view.topics, why)
            await write_why_kept(self._shared.client, view.users, why)
            return self._shared.settings.idle_seconds
        if former := view.former_sets:
            message = f"The former Cluster with this name is still being deleted: waiting for {', '.join(former)}."
            await self._statuses.waits(view.cluster, "FormerClusterGoing", message)
            return BUSY_SECONDS
        spec = specification(view)
        if spec.cluster is None:
            return await self._refuse(view, spec.problem, outcome)
        return await self._reconcile(spec.cluster, spec, view, outcome)

    async def _refuse(self, view: View, message: str, outcome: ReconciliationOutcome) -> float:
        await release_protected(self._client, view.topics.values())
        outcome.failed = True
        await self._statuses.invalid(view.cluster, message, view.topics)
        why = f"The specification of Cluster {self.name} is invalid: correct it."
        await self._statuses.held(view.topics, why)
        await write_why_kept(self._shared.client, view.users, why)
        await self._shared.events.write_once(view.cluster, INVALID_SPEC, message, EventType.WARNING)
        return BUSY_SECONDS if self._statuses.unsettled else self._shared.settings.idle_seconds

    async def _reconcile(
        self, cluster: Cluster, spec: Specification, view: View, outcome: ReconciliationOutcome
    ) -> float:
        ensemble = ensemble_of(cluster, view.state)
        lacking = await self._secrets.settle(ensemble.cluster, view, is_fresh=self._is_fresh)
        ensemble = replace(ensemble, cluster=self._with_certificates(ensemble.cluster, view))
        cluster = ensemble.cluster
        topics, invalid = read_topics(view.topics)
        settled, trouble, refused = await self._zookeeper(cluster, topics, view)
        snapshot = None if settled is None else settled.snapshot
        decision = await self._decide(cluster, topics, view, snapshot)
        decision = replace(decision, waiting=(*spec.waiting, *ensemble.waiting, *lacking, *refused, *decision.waiting))
        decision = replace(decision, waiting=(*decision.waiting, *change(cluster)))
        cluster_id = None if snapshot is None else snapshot.cluster_id
        record = next_record(
            ensemble,
            view.state,
            broker_count=decision.broker_count,
            per_pod=decision.per_pod,
            cluster_id=cluster_id,
            spec=spec.kept,
            links=await self._next_links(cluster, view, decision, can_change=not lacking and not trouble),
        )
        decision = await self._apply(ensemble, view, decision, record)
        self._count_pods(cluster, view)
        await self._carry_out(cluster, view, decision, snapshot)
        await self._report_waiting(view, decision)
        await self._report_crowded(view, decision)
        if settled is not None:
            await keep_finalizers(self._client, view.topics, topics, settled)
        await self._statuses.write(
            Findings(
                cluster=cluster,
                view=view,
                topics=topics,
                invalid=invalid,
                outcome=settled,
                trouble=trouble,
                decision=decision,
                report=await self._shared.reports.of(cluster),
                notices=(
                    *notices_of(cluster),
                    *self._secrets.notices,
                    *self._applier.warnings(),
                    *decision.notices,
                ),
                topic_warnings=spec.topic_warnings,
            )
        )
        settled_users = await self._settle_users(cluster, view, trouble)
        outcome.failed = bool(trouble or invalid or spec.problem)
        busy = bool(decision.steps or decision.waiting or decision.progress or trouble or self._statuses.unsettled)
        busy = busy or not settled_users
        return BUSY_SECONDS if busy else self._shared.settings.idle_seconds

    def _with_certificates(self, cluster: Cluster, view: View) -> Cluster:
        """Return the cluster with the digest of its members' certificates: the present one if it cannot be known."""
        present = view.state.sets.get(names.zookeeper(cluster.name))
        digest = self._secrets.ensemble_certificates or ("" if present is None else present.certificates)
        return replace(cluster, ensemble_certificates=digest)

    async def _next_links(self, cluster: Cluster, view: View, decision: ClusterDecision, *, can_change: bool) -> Links:
        """Return the links from the next round on. Before the last one, all znodes are given to the brokers."""
        links = next_links(
            cluster,
            view.state,
            broker_count=decision.broker_count,
            outdated=decision.outdated,
            ensemble_hash=hashes(cluster, self._shared.settings.images).ensemble,
            can_change=can_change,
        )
        if links.ensemble is EnsembleLink.OWNED and cluster.ensemble_link is not EnsembleLink.OWNED:
            self._check_write()
            count = await own_znodes(await self._zookeeper_client(cluster))
            logger.info("cluster %s/%s: %d znodes belong to the brokers", self.namespace, self.name, count)
        return links

    async def _zookeeper_client(self, cluster: Cluster) -> ZkClient:
        """Return a connected client of the cluster's ensemble. Raises `ZkError`."""
        return await self._session.client(session_settings(cluster, self._secrets.identity))

    async def _settle_users(self, cluster: Cluster, view: View, trouble: str) -> bool:
        """Make the users as their resources specify. Returns whether nothing is left to do."""
        zk = None if trouble else await self._zookeeper_client(cluster)
        return await self._users.settle(cluster, view.users, zk, trouble=trouble, authorities=self._secrets.authorities)

    def _count_pods(self, cluster: Cluster, view: View) -> None:
        wanted = {Component.KAFKA: cluster.brokers.ordinals()}
        if cluster.zookeeper.connect is None:
            wanted[Component.ZOOKEEPER] = range(cluster.zookeeper.replicas)
        pods = {Component.KAFKA: view.state.brokers, Component.ZOOKEEPER: view.state.ensemble}
        for component, ordinals in wanted.items():
            ready = sum(pod.ready and number in ordinals for number, pod in pods[component].items())
            self._shared.reconciliations.pods(self.namespace, self.name, component, wanted=len(ordinals), ready=ready)

    async def _zookeeper(
        self, cluster: Cluster, topics: dict[str, Topic], view: View
    ) -> tuple[Outcome | None, str, tuple[Waiting, ...]]:
        """Reconcile topics. Returns None and a message if ZooKeeper does not answer or has another cluster's
        metadata."""
        own = cluster.zookeeper.connect is None
        if own and not any(pod.ready for pod in view.state.ensemble.values()):
            return None, "No member of the ZooKeeper ensemble is ready yet.", ()
        leaving = {name for name, body in view.topics.items() if "deletionTimestamp" in body["metadata"]}
        wanted = Wanted(
            cluster=cluster,
            topics={name: topic for name, topic in topics.items() if name not in leaving and not topic.paused},
            removed={name: topic for name, topic in topics.items() if name in leaving} | self._removed(view),
        )
        done: list[CompletedAction] = []
        try:
            zk = await self._zookeeper_client(cluster)
            if (foreign := await self._foreign(cluster, view, zk)) is not None:
                return None, foreign.message, (foreign,)
            outcome = await reconcile(
                zk,
                wanted,
                lambda action: done.append(
                    CompletedAction(topic=action.topic, what=type(action).__name__, reason=action.reason)
                ),
                everything=True,
                plan_only=not self._is_fresh,
            )
        except ZkError as error:
            return None, f"ZooKeeper at {zookeeper_connect(cluster)} does not answer: {error}.", ()
        if not outcome.settled:
            self._check_write()
        for name in wanted.removed:
            decision = outcome.plan.decisions[name]
            if not decision.actions and not decision.refusals:
                self._deleted_topics.settle(name)
        await write_topic_events(self._shared.events, view.cluster, view.topics, done)
        if done:
            self.wake()
        return outcome, "", ()

    def _removed(self, view: View) -> dict[str, Topic]:
        """Return Topics that were deleted before they had the finalizer, in their last version."""
        return read_topics(self._deleted_topics.missing_in(view.topics))[0]

    async def _foreign(self, cluster: Cluster, view: View, zk: ZkClient) -> Waiting | None:
        """Return why the metadata in ZooKeeper is not this cluster's; None if it is, or if no cluster id is
        recorded."""
        if view.state.record.cluster_id is None:
            return None
        found = await zk.get_or_none(CLUSTER_ID)
        return other_cluster(
            cluster, view.state.record, None if found is None else ClusterId.decode(found[0]).cluster_id
        )

    async def _decide(
        self, cluster: Cluster, topics: dict[str, Topic], view: View, snapshot: Snapshot | None
    ) -> ClusterDecision:
        per_pod = per_pod_now(cluster, view.state, snapshot)
        wanted_hashes = hashes(with_slots(cluster, per_pod), self._shared.settings.images)
        return decide(
            cluster,
            view.state,
            snapshot,
            wanted_hashes={
                names.kafka(cluster.name): wanted_hashes.brokers,
                names.zookeeper(cluster.name): wanted_hashes.ensemble or "",
            },
            wanted_dynamic=split(cluster).dynamic,
            wanted_factors={} if snapshot is None else wanted_factors(Wanted(cluster=cluster, topics=topics), snapshot),
            quorum=await self._quorum(cluster, view, wanted_hashes.ensemble or ""),
            now=time.time(),
        )

    async def _quorum(self, cluster: Cluster, view: View, wanted_hash: str) -> Quorum:
        """Return the state of the ensemble's members; they are queried only if a decision depends on it."""
        members = view.state.ensemble
        decides = len(members) < cluster.zookeeper.replicas or any(
            pod.restart_hash != wanted_hash or is_homeless(view.state, pod) for pod in members.values()
        )
        if not decides or cluster.zookeeper.connect is not None:
            return Quorum()
        service = names.zookeeper_nodes_service(cluster.name)
        hosts = {member: names.host(pod.name, service, cluster.namespace) for member, pod in members.items()}
        try:
            settings = session_settings(cluster, self._secrets.identity)
        except ZkError:
            return Quorum()  # Without a certificate, no member answers. The status says why there is none.
        return await self._shared.ask_members(hosts, client_port(cluster), settings.tls)

    async def _apply(
        self, ensemble: Ensemble, view: View, decision: ClusterDecision, record: Record
    ) -> ClusterDecision:
        """Record the sizes and apply changed objects. Returns the decision, including objects that Kubernetes
        rejects."""
        client, cluster = self._client, ensemble.cluster
        try:
            recorded = await keep_record(client, cluster, view.record, record)
            decision, applied = await self._apply_objects(ensemble, view, decision, formed=bool(record.formed))
            smaller = settled(record, view.state, broker_count=decision.broker_count, per_pod=decision.per_pod)
            if names.kafka(cluster.name) in applied and record != smaller:
                # Only after the set is smaller: a recorded size that is too large is harmless, one that is too small is
                # not.
                await keep_record(client, cluster, recorded, smaller)
        except KubernetesError as error:
            if error.status not in _REFUSALS:
                raise
            # A quota, a policy or another rule rejects it: continue with everything that does not depend on it.
            return replace(decision, waiting=(*decision.waiting, _refused(error)))
        return decision

    async def _apply_objects(
        self, ensemble: Ensemble, view: View, decision: ClusterDecision, *, formed: bool
    ) -> tuple[ClusterDecision, frozenset[str]]:
        """Return the decision including what claims prevent, and the names of objects that are as desired."""
        client, cluster, now = self._client, ensemble.cluster, asyncio.get_running_loop().time()
        resync = now >= self._resync_at
        if resync:
            self._check_write()
            self._applier.forget()
            self._resync_at = now + self._shared.settings.resync_seconds
        wanted = wanted_objects(
            with_slots(cluster, decision.per_pod),
            settings=self._shared.settings.images,
            broker_count=decision.broker_count,
            operator_namespace=self._shared.settings.own_namespace,
            extras=_extras_of(cluster),
            spread=decision.spread,
            ensemble_formed=formed,
            reachable_slots=decision.reachable_slots,
        )
        growth = await grow_claims(client, cluster, view.claims, view.sets, broker_count=decision.broker_count)
        settled_size = decision.broker_count == cluster.brokers.replicas
        ready = await remake_sets(client, wanted, view.sets, kept=growth.kept, settled_size=settled_size)
        decision = replace(
            decision,
            waiting=(*decision.waiting, *growth.waiting),
            notices=(*decision.notices, *growth.notices),
        )
        held = [names.zookeeper(cluster.name)] if not ensemble.known else []
        held += [names.kafka(cluster.name)] if decision.broker_count == 0 else []
        ready = [item for item in ready if item.kind != Kind.STATEFUL_SET.word or item.name not in held]
        written = await self._applier.apply(ready)
        decision = replace(decision, waiting=(*decision.waiting, *self._applier.waiting))
        if written or resync:
            await self._applier.prune(
                wanted,
                [kind_named(*kind) for kind in PRUNED_KINDS],
                namespace=self.namespace,
                selector=prune_selector(cluster),
            )
        sets = [item for item in ready if item.kind == Kind.STATEFUL_SET.word]
        return decision, frozenset(item.name for item in sets if self._applier.is_applied(Reference.of(item.body)))

    async def _carry_out(
        self, cluster: Cluster, view: View, decision: ClusterDecision, snapshot: Snapshot | None
    ) -> None:
        for step in decision.steps:
            self._check_write()
            if isinstance(step, KubernetesStep):
                await self._kubernetes_step(step, view)
            else:
                assert snapshot is not None, "steps in ZooKeeper are decided from a snapshot"
                assert snapshot.controller_epoch_version is not None, "and only where there was a controller"
                zk = await self._zookeeper_client(cluster)
                await carry_out_step(zk, step, epoch_version=snapshot.controller_epoch_version)
            await self._shared.events.write(view.cluster, type(step).__name__, step.reason)
        if decision.steps:
            self.wake()

    async def _kubernetes_step(self, step: KubernetesStep, view: View) -> None:
        client = self._client
        pod = Reference(kind=Kind.POD, namespace=self.namespace, name=step.pod)
        match step:
            case RestartPod():
                await client.delete(pod, uid=step.uid, force=step.force)
            case ReleaseClaims():
                for name, uid in step.claims.items():
                    claim = Reference(kind=Kind.CLAIM, namespace=self.namespace, name=name)
                    version = view.claims[name]["metadata"]["resourceVersion"] if name in view.claims else None
                    if not await client.delete(claim, uid=uid, version=version):
                        return  # It has changed since it was read: the next round decides again.
                if step.pod_uid is not None:
                    await client.delete(pod, uid=step.pod_uid, force=step.force)

    async def _report_waiting(self, view: View, decision: ClusterDecision) -> None:
        for waiting in decision.waiting:
            event_type = EventType.WARNING if waiting.needs_person else EventType.NORMAL
            await self._shared.events.write_once(view.cluster, waiting.reason, waiting.message, event_type)

    async def _report_crowded(self, view: View, decision: ClusterDecision) -> None:
        """Write an Event about each of the first topics with more replicas than pods, in addition to its status."""
        for topic, message in islice(decision.crowded.items(), MAX_NOTICES):
            about = view.topics.get(topic, view.cluster)
            await self._shared.events.write_once(about, REPLICAS_SHARE_POD, message, EventType.WARNING)


def _refused(error: KubernetesError) -> Waiting:
    return Waiting(
        what="apply",
        reason="KubernetesRefuses",
        message=f"An object of the cluster cannot be applied: {str(error).rstrip('.')}.",
        needs_person=True,
    )


def _extras_of(cluster: Cluster) -> Extras:
    """Return the alert rules and dashboards that the resource requests."""
    monitoring = cluster.monitoring
    return Extras(
        rule_groups=tuple(rule_groups(only(cluster.namespace, cluster.name))) if monitoring.rules else (),
        dashboards=dashboard_texts() if monitoring.dashboards else {},
    )
