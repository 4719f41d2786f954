"""The reconciliation loop of the embedded cluster, over manifest files instead of Kubernetes resources.

It checks the files twice a second and ZooKeeper every few seconds, so that it also notices changes that others made.
Invalid manifests change nothing: the problems are reported once, and the last valid ones stay in force. Replication
factors change with the decisions of `lifecycle`, one portion per round, as on Kubernetes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Final

from odradek.base.errors import OdradekError
from odradek.zk.layout import BROKER_IDS, LayoutError
from odradek.zk.port import ZkClient, ZkError
from odradek_operator.crds import Resources, Topic, same_spec
from odradek_operator.embedded.ledger import Ledger
from odradek_operator.embedded.manifests import Manifests, only_cluster
from odradek_operator.embedded.progress import Event, ProgressKind, Report
from odradek_operator.errors import EmbeddedError
from odradek_operator.kube.operator_metrics import Reconciliations
from odradek_operator.lifecycle import moves
from odradek_operator.lifecycle.throttle import mark_of
from odradek_operator.objects.names import Component
from odradek_operator.topics.reconcile import Outcome, reconcile
from odradek_operator.topics.topic_actions import (
    Action,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    ForgetOwnership,
    RecordOwnership,
    SetConfig,
)
from odradek_operator.topics.topic_decisions import wanted_factors
from odradek_operator.topics.topic_plan import Wanted
from odradek_operator.topics.topic_status import Condition, Truth, cluster_status, topic_status
from odradek_operator.topics.zookeeper_reader import read_snapshot
from odradek_operator.topics.zookeeper_state import Snapshot
from odradek_operator.topics.zookeeper_writer import OutdatedError, carry_out_step

logger = logging.getLogger(__name__)

_FILES_SECONDS: Final = 0.5
_DRIFT_SECONDS: Final = 3.0
_UNREADY_SECONDS: Final = 1.0
"""Seconds between two rounds if everything is ready, and if not."""

_START_SECONDS: Final = 0.2
"""Seconds between two rounds before the cluster is ready for the first time."""

_VERBS: Final[Mapping[type[Action], str]] = {
    CreateTopic: "created",
    AddPartitions: "given more partitions",
    SetConfig: "configured",
    RecordOwnership: "adopted",
    DeleteTopic: "marked for deletion",
    ForgetOwnership: "left alone",
}


class Watcher:
    """Reconciles the topics of one cluster with the manifests."""

    def __init__(
        self, zk: ZkClient, manifests: Manifests, resources: Resources, ledger: Ledger, report: Report
    ) -> None:
        """`resources`: those in `manifests` at the start, with exactly one Cluster."""
        self._zk = zk
        self._manifests = manifests
        self._cluster = only_cluster(resources)
        self._topics: dict[str, Topic] = {}
        self._ledger = ledger
        self._report = report
        self._conditions: dict[str, Condition] = {}
        self._stirred = False
        self._moving = False
        """Whether replicas are moving or have to move."""
        self._counted: Reconciliations | None = None
        self._registered = 0
        """Registered brokers in the last successful round."""
        self._take(resources)

    def count_in(self, reconciliations: Reconciliations) -> None:
        """Count rounds and resources in the operator's metrics from now on."""
        self._counted = reconciliations

    async def wait_until_ready(self, timeout_seconds: float) -> None:
        """Reconcile until every topic exists and is in sync. What needs a person is reported and not awaited.

        Raises `EmbeddedError` with what is missing if it takes too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while unready := await self._counted_round():
            if time.monotonic() > deadline:
                raise EmbeddedError(f"After {timeout_seconds:g} s the cluster is not ready: {unready}")
            await asyncio.sleep(_START_SECONDS)

    async def run(self) -> None:
        """Run until cancelled."""
        next_look = 0.0
        watch = self._zk.watch_children(BROKER_IDS, self._stir)
        try:
            while True:
                periodic = not self._files_changed() and not self._stirred
                if not periodic or time.monotonic() >= next_look:
                    self._stirred = False
                    unready = await self._counted_round(periodic=periodic)
                    restless = self._moving or unready is not None
                    next_look = time.monotonic() + (_UNREADY_SECONDS if restless else _DRIFT_SECONDS)
                await asyncio.sleep(_FILES_SECONDS)
        finally:
            watch.cancel()

    def _stir(self) -> None:
        """Run a round at once, because a broker started or stopped."""
        self._stirred = True

    def _files_changed(self) -> bool:
        try:
            resources = self._manifests.reload()
            if resources is None:
                return False
            cluster = only_cluster(resources)
        except OdradekError as error:
            self._notice("manifests", f"not taken over, the last good ones stay in force:\n{error}")
            return False
        if cluster.name != self._cluster.name:
            self._notice(
                "manifests", f"Cluster {self._cluster.name} runs, {cluster.name} is described: start another for it."
            )
            return False
        if not same_spec(cluster, self._cluster):
            self._notice(f"cluster {cluster.name}", "its changes take effect at the next start.")
        self._take(resources)
        return True

    def _take(self, resources: Resources) -> None:
        """Use these resources from now on. A topic whose specification changed gets the next generation."""
        for notice in resources.notices:
            self._notice("manifests", notice)
        before, wanted = self._topics, resources.topics_of(self._cluster.name)
        self._topics = {
            name: topic if name not in before else _next_generation(before[name], topic)
            for name, topic in wanted.items()
        }
        self._ledger.note(self._topics)

    async def _counted_round(self, *, periodic: bool = False) -> str | None:
        """Run one round, counted in the operator's metrics."""
        if self._counted is None:
            return await self._round()
        namespace, name = self._cluster.namespace, self._cluster.name
        topics = self._topics.values()
        self._counted.counted("Cluster", {namespace: (1, int(self._cluster.paused))})
        self._counted.counted("Topic", {namespace: (len(topics), sum(topic.paused for topic in topics))})
        with self._counted.one("Cluster", namespace, periodic=periodic) as outcome:
            unready = await self._round()
            outcome.failed = "zookeeper" in self._conditions
        wanted = self._cluster.brokers.replicas
        self._counted.pods(namespace, name, Component.KAFKA, wanted=wanted, ready=self._registered)
        return unready

    async def _round(self) -> str | None:
        """Reconcile once and report changes. Returns what is not ready."""
        wanted = Wanted(cluster=self._cluster, topics=self._topics, removed=self._ledger.removed(self._topics))
        try:
            outcome = await reconcile(self._zk, wanted, self._done)
            await self._move(wanted, outcome.snapshot)
        except (ZkError, LayoutError) as error:
            self._condition(
                "zookeeper", Condition(type="Ready", status=Truth.FALSE, reason="ZooKeeper", message=str(error))
            )
            return str(error)
        self._conditions.pop("zookeeper", None)
        self._registered = len(outcome.snapshot.brokers)
        self._settle_removed(wanted, outcome)
        return self._tell_conditions(outcome)

    async def _move(self, wanted: Wanted, snapshot: Snapshot) -> None:
        """Start a portion of replica moves, or remove the throttle of the last one."""
        self._moving = bool(wanted_factors(wanted, snapshot)) or mark_of(snapshot) is not None
        if not self._moving:
            return
        # The targets depend on all replicas of the brokers.
        whole = await read_snapshot(self._zk, None)
        factors = wanted_factors(wanted, whole)
        decided = moves.decide(self._cluster, whole, present=self._cluster.brokers.replicas, factors=factors)
        for waiting in decided.waiting:
            self._condition(
                waiting.what,
                Condition(type="Moved", status=Truth.FALSE, reason=waiting.reason, message=waiting.sentence),
            )
        if decided.step is None or whole.controller_epoch_version is None:
            return
        try:
            await carry_out_step(self._zk, decided.step, epoch_version=whole.controller_epoch_version)
        except OutdatedError as error:
            logger.info("deciding again: %s", error)
            return
        details = {"action": type(decided.step).__name__}
        self._report(
            Event(ProgressKind.ACTION, f"cluster {self._cluster.name}", f"replicas: {decided.step.reason}", details)
        )

    def _settle_removed(self, wanted: Wanted, outcome: Outcome) -> None:
        """Report and forget removed resources for which nothing is left to do."""
        settled = [name for name in wanted.removed if not outcome.plan.decisions[name].actions]
        waiting = set()
        for refusal in outcome.plan.refusals:
            if refusal.topic not in wanted.removed:
                continue
            if refusal.obstacle.passes:
                waiting.add(refusal.topic)
            else:
                self._notice(f"topic {refusal.topic}", refusal.sentence)
        for name in wanted.removed:
            self._conditions.pop(f"topic {name}", None)
        self._ledger.forget(name for name in settled if name not in waiting)

    def _tell_conditions(self, outcome: Outcome) -> str | None:
        unready: list[str] = []
        cluster = cluster_status(self._cluster, outcome.snapshot).ready
        self._condition(f"cluster {self._cluster.name}", cluster)
        if cluster.status is not Truth.TRUE:
            unready.append(f"cluster {self._cluster.name}: {cluster.message}")
        for name, topic in self._topics.items():
            decision = outcome.plan.decisions[name]
            ready = topic_status(topic, outcome.snapshot, decision).ready
            self._condition(f"topic {name}", ready)
            # A topic can be used while its replicas move, which may take hours.
            if ready.reason == "Reassigning":
                continue
            if ready.status is not Truth.TRUE and all(refusal.obstacle.passes for refusal in decision.refusals):
                unready.append(f"topic {name}: {ready.message}")
        return unready[0] if unready else None

    def _condition(self, subject: str, condition: Condition) -> None:
        if self._conditions.get(subject) == condition:
            return
        self._conditions[subject] = condition
        good = condition.status is Truth.TRUE
        details = {"status": condition.status.value, "reason": condition.reason}
        self._report(Event(ProgressKind.STATUS, subject, condition.message, details, good))

    def _done(self, action: Action) -> None:
        message = f"{_VERBS[type(action)]}: {action.reason}"
        self._report(Event(ProgressKind.ACTION, f"topic {action.topic}", message, {"action": type(action).__name__}))

    def _notice(self, subject: str, message: str) -> None:
        self._report(Event(ProgressKind.NOTICE, subject, message, good=False))


def _next_generation(before: Topic, topic: Topic) -> Topic:
    if same_spec(before, topic):
        return before
    return dataclasses.replace(topic, generation=before.generation + 1)
