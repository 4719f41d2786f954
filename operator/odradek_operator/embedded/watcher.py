"""The reconciliation loop of the embedded cluster, over manifest files instead of Kubernetes resources.

It checks the files twice a second and ZooKeeper every few seconds, so that it also notices changes that others made.
Invalid manifests change nothing: the problems are reported once, and the last valid ones stay in force. Topics are
reconciled by `topics/reconcile`, brokers by `cluster_reconciler`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Final, TypeVar

from odradek.base.errors import OdradekError
from odradek.zk.layout import BROKER_IDS, LayoutError
from odradek.zk.port import ZkClient, ZkError
from odradek_operator.crds import Cluster, Resources, Topic, User, same_spec
from odradek_operator.embedded.catching_up import CatchingUp, limit_seconds, outside
from odradek_operator.embedded.cluster_changes import accept, check_listeners
from odradek_operator.embedded.cluster_reconciler import ClusterReconciler
from odradek_operator.embedded.embedded_users import EmbeddedUsers
from odradek_operator.embedded.ledger import Ledger
from odradek_operator.embedded.manifests import Manifests, only_cluster
from odradek_operator.embedded.progress import Event, ProgressKind, Report
from odradek_operator.errors import EmbeddedError
from odradek_operator.kube.operator_metrics import Reconciliations
from odradek_operator.lifecycle.steps import ClusterDecision, RecordBrokers, SetBrokerDefaults
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
from odradek_operator.topics.topic_plan import Wanted
from odradek_operator.topics.topic_status import Condition, Truth, cluster_status, topic_status
from odradek_operator.topics.zookeeper_state import Snapshot
from odradek_operator.topics.zookeeper_writer import OutdatedError

logger = logging.getLogger(__name__)

_FILES_SECONDS: Final = 0.5
_DRIFT_SECONDS: Final = 3.0
_UNREADY_SECONDS: Final = 1.0
"""Seconds between two rounds if everything is ready, and if not."""

_MAX_SHARE: Final = 20
"""A round that took long is followed by a pause this many times as long, so that a large cluster is not read all the
time."""

_START_SECONDS: Final = 0.2
"""Seconds between two rounds before the cluster is ready for the first time."""

_ZOOKEEPER: Final = "zookeeper"
_DATA: Final = "data folder"
_USER: Final = "user "
"""Beginning of the subject of a user's condition."""
_FAILURES: Final = (_ZOOKEEPER, _DATA)
"""Subjects of conditions if a round failed."""

_Resource = TypeVar("_Resource", Cluster, Topic)

_VERBS: Final[Mapping[type[Action], str]] = {
    CreateTopic: "created",
    AddPartitions: "given more partitions",
    SetConfig: "configured",
    RecordOwnership: "adopted",
    DeleteTopic: "marked for deletion",
    ForgetOwnership: "released",
}


class Watcher:
    """Reconciles one cluster and its topics with the manifests."""

    def __init__(
        self,
        zk: ZkClient,
        manifests: Manifests,
        resources: Resources,
        *,
        ledger: Ledger,
        reconciler: ClusterReconciler,
        users: EmbeddedUsers,
        report: Report,
    ) -> None:
        """`resources`: those in `manifests` at the start, with exactly one Cluster."""
        self._zk = zk
        self._manifests = manifests
        self._cluster = only_cluster(resources)
        self._topics: dict[str, Topic] = {}
        self._users: dict[str, User] = {}
        self._settling = users
        self._ledger = ledger
        self._reconciler = reconciler
        self._report = report
        self._conditions: dict[str, Condition] = {}
        self._catching_up = CatchingUp()
        self._rolled = False
        """Whether a rolling restart was in progress when the current round began."""
        self._notices: tuple[str, ...] = ()
        self._invalid = False
        """Whether the manifests are invalid."""
        self._stirred = False
        self._busy = False
        """Whether something is in progress that causes no event, such as a growing ISR."""
        self._counted: Reconciliations | None = None
        self._registered = 0
        """Groups whose brokers were all registered in the last successful round."""
        self._take(resources, self._cluster)

    def count_in(self, reconciliations: Reconciliations) -> None:
        """Count rounds and resources in the operator's metrics from now on."""
        self._counted = reconciliations

    async def wait_until_ready(self, timeout_seconds: float) -> None:
        """Reconcile until every topic exists and is in sync. What needs a person is reported and not awaited.

        Raises `EmbeddedError` with what is missing if it takes too long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while unready := await self._counted_round():
            if loop.time() > deadline:
                raise EmbeddedError(f"After {timeout_seconds:g} s the cluster is not ready: {unready}")
            await asyncio.sleep(_START_SECONDS)

    async def run(self) -> None:
        """Run until cancelled."""
        loop, next_round = asyncio.get_running_loop(), 0.0
        watch = self._zk.watch_children(BROKER_IDS, self._stir)
        try:
            while True:
                periodic = not self._files_changed() and not self._stirred
                if not periodic or loop.time() >= next_round:
                    self._stirred = False
                    began = time.process_time()
                    unready = await self._counted_round(periodic=periodic)
                    used = time.process_time() - began
                    pause = _UNREADY_SECONDS if self._busy or unready is not None else _DRIFT_SECONDS
                    next_round = loop.time() + max(pause, _MAX_SHARE * used)
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
            accepted = accept(self._cluster, only_cluster(resources))
            served = self._reconciler.listeners(self._cluster)
            check_listeners(served, self._reconciler.listeners(accepted.cluster))
        except OdradekError as error:
            self._invalid = True
            self._notice("manifests", f"not applied; the last valid ones stay in force:\n{error}")
            return False
        if self._invalid:
            self._invalid = False
            self._report(Event(ProgressKind.NOTICE, "manifests", "valid again, and in force"))
        for notice in accepted.notices:
            self._notice(f"cluster {self._cluster.name}", notice)
        self._take(resources, accepted.cluster)
        return True

    def _take(self, resources: Resources, cluster: Cluster) -> None:
        """Use these resources from now on. One whose specification changed gets the next generation."""
        for notice in resources.notices:
            if notice not in self._notices:
                self._notice("manifests", notice)
        self._notices = resources.notices
        self._cluster = _next_generation(self._cluster, cluster)
        before, wanted = self._topics, resources.topics_of(self._cluster.name)
        self._topics = {
            name: topic if name not in before else _next_generation(before[name], topic)
            for name, topic in wanted.items()
        }
        self._users = {name: user for name, user in resources.users.items() if user.cluster == self._cluster.name}
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
            outcome.failed = any(subject in self._conditions for subject in _FAILURES)
        wanted = self._cluster.brokers.replicas
        self._counted.pods(namespace, name, Component.KAFKA, wanted=wanted, ready=self._registered)
        return unready

    async def _round(self) -> str | None:
        """Reconcile once and report changes. Returns what is not ready."""
        wanted = Wanted(cluster=self._cluster, topics=self._topics, removed=self._ledger.removed(self._topics))
        try:
            outcome = await reconcile(self._zk, wanted, self._done, everything=True)
            # The snapshot may be of the last moment of a roll whose end this round reports.
            self._rolled = self._reconciler.rolling
            decision = await self._reconciler.round(self._zk, wanted, outcome.snapshot)
            reached = self._reconciler.addresses(self._cluster)
            users = await self._settling.settle(self._zk, self._cluster, self._users, reached)
        except OutdatedError as error:
            logger.info("the state in ZooKeeper has changed; deciding again: %s", error)
            return str(error)
        except (ZkError, LayoutError, EmbeddedError) as error:
            subject, reason = (_DATA, "DataFolder") if isinstance(error, EmbeddedError) else (_ZOOKEEPER, "ZooKeeper")
            self._condition(subject, Condition(type="Ready", status=Truth.FALSE, reason=reason, message=str(error)))
            return str(error)
        for subject in _FAILURES:
            self._conditions.pop(subject, None)
        brokers = self._cluster.brokers
        self._registered = sum(
            outcome.snapshot.brokers.keys() >= set(brokers.ids_of_pod(ordinal)) for ordinal in brokers.ordinals()
        )
        self._busy = bool(decision.steps or decision.waiting or decision.progress or self._reconciler.starting)
        self._settle_removed(wanted, outcome)
        self._tell_users(users)
        return self._tell_conditions(outcome, decision)

    def _tell_users(self, users: Mapping[str, Condition]) -> None:
        gone = [subject for subject in self._conditions if subject.startswith(_USER)]
        for subject in gone:
            if subject.removeprefix(_USER) not in users:
                del self._conditions[subject]
                self._report(Event(ProgressKind.ACTION, subject, "removed, with its rights", {"action": "RemoveUser"}))
        for name, condition in users.items():
            self._condition(f"{_USER}{name}", condition)

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
                self._notice(f"topic {refusal.topic}", refusal.message)
        for name in wanted.removed:
            self._conditions.pop(f"topic {name}", None)
            self._catching_up.forget(name)
        self._ledger.forget(name for name in settled if name not in waiting)

    def _tell_conditions(self, outcome: Outcome, taken: ClusterDecision) -> str | None:
        unready: list[str] = []
        subject = f"cluster {self._cluster.name}"
        cluster = cluster_status(self._cluster, outcome.snapshot).ready
        if not self._is_planned(cluster, outcome.snapshot):
            self._condition(subject, cluster)
            if cluster.status is not Truth.TRUE:
                unready.append(f"{subject}: {cluster.message}")
        if any(isinstance(step, SetBrokerDefaults | RecordBrokers) for step in taken.steps):
            unready.append(f"{subject}: its dynamic properties have just been written.")
        for name, topic in self._topics.items():
            decision = outcome.plan.decisions[name]
            ready = topic_status(topic, outcome.snapshot, decision).ready
            if ready.reason == "UnderReplicated" and self._is_catching_up(name, outcome.snapshot):
                continue
            if ready.reason != "UnderReplicated":
                self._catching_up.forget(name)
            self._condition(f"topic {name}", ready)
            # A topic can be used while its replicas move, which may take hours.
            if ready.reason == "Reassigning":
                continue
            if ready.status is not Truth.TRUE and all(refusal.obstacle.passes for refusal in decision.refusals):
                unready.append(f"topic {name}: {ready.message}")
        return unready[0] if unready else None

    def _is_catching_up(self, topic: str, snapshot: Snapshot) -> bool:
        """Whether a topic is out of sync because of restarts, which other events report."""
        return self._catching_up.excuses(
            topic,
            outside(snapshot.topics[topic]),
            rolling=self._rolled or self._reconciler.rolling,
            now=asyncio.get_running_loop().time(),
            limit=limit_seconds(self._cluster),
        )

    def _is_planned(self, condition: Condition, snapshot: Snapshot) -> bool:
        """Whether the only missing brokers are being started or restarted on purpose, which other events report."""
        missing = set(self._cluster.brokers.ids()) - snapshot.brokers.keys()
        return condition.reason == "BrokersMissing" and bool(missing) and missing <= self._reconciler.starting

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


def _next_generation(before: _Resource, after: _Resource) -> _Resource:
    if same_spec(before, after):
        return before
    return dataclasses.replace(after, generation=before.generation + 1)
