"""Decides which pod of brokers restarts next, or why none may restart. Pure.

`cluster_plan` passes a cluster, its state in Kubernetes and ZooKeeper and the hash of the current template, and gets a
`Verdict`. All brokers of a pod restart together. Invariant: a restart never takes a partition below its minimum ISR,
and never a second pod down, unless no order of restarts could avoid it.

The first rule that applies decides:

1. If no pod is outdated, or the StatefulSet does not have the current template yet, nothing happens. A pod that was
deleted now would return with the old template.
2. An outdated pod that is not ready and of which no broker is registered restarts, whatever else is going on. It serves
no one, and it may never become ready with its old template: two pods with a wrong template would wait for each other
forever.
3. While a pod is missing, terminating, or has the new template and does not serve yet, the others wait: only one pod is
down at a time, and a wrong template must not take a second one down. The same holds for a missing member of the
ZooKeeper ensemble. A pod that has lost its node or disk does not restart; the others wait for it.
4. An outdated pod that is not ready although one of its brokers is registered restarts if rule 6 allows it. It goes
before ready pods, which may have to wait for it.
5. While a broker of an existing pod is not registered, or there is no controller, the others wait: leaders could not
move away from the restarting broker. While a member of the ensemble still has to restart, ready brokers wait, because
they may need its new template.
6. Of the outdated pods, by ordinal with that of the controller last, the first restarts without which every partition
keeps enough live in-sync replicas. Enough is the minimum ISR; a partition with too few replicas for that needs all its
other replicas, and is mentioned in the reason. A partition with several replicas in the pod, although other pods could
have them, makes the pod wait. The controller is last, so that it is elected only once.
7. Rule 6 waits while a broker of another pod is in sync with less than half of its replicas: it has a new disk or has
just started. Its own pod may restart.

A reassignment in progress is no reason to wait. It may take days, and a restart that the ISRs allow does not harm it:
its state is in ZooKeeper, its copies are on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek_operator.crds import Cluster
from odradek_operator.lifecycle.lost import is_homeless
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Pod
from odradek_operator.lifecycle.replicas import Absence, absences, listed, named, refilling, unreadable
from odradek_operator.lifecycle.steps import RestartPod, Verdict, Waiting
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.topics.zookeeper_state import Snapshot

NOTHING = Verdict()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleState:
    """What brokers wait for in the ensemble."""

    away: str = ""
    """Describes a member that is missing; empty if there is none."""
    due: str = ""
    """Describes a member that still has to restart; empty if there is none."""


def members(cluster: Cluster, state: KubernetesState, count: int) -> dict[int, Pod]:
    """Return the pods that stay, by ordinal, without those that the StatefulSet is removing."""
    ordinals = cluster.brokers.ordinals(count)
    return {ordinal: pod for ordinal, pod in sorted(state.brokers.items()) if ordinal in ordinals}


def brokers_in(cluster: Cluster, pod: Pod) -> frozenset[int]:
    """Return the ids of the brokers that a pod has, with the template from which it was created."""
    return frozenset(cluster.brokers.ids_of_pod(pod.ordinal, pod.slots))


def outdated(pods: Mapping[int, Pod], wanted_hash: str) -> dict[int, Pod]:
    """Return the pods with another template that are not being deleted."""
    return {number: pod for number, pod in pods.items() if pod.restart_hash != wanted_hash and not pod.terminating}


def has_template(state: KubernetesState, set_name: str, wanted_hash: str) -> bool:
    """Whether a pod that is deleted now returns with the current template."""
    found = state.sets.get(set_name)
    return found is not None and found.generation_observed and found.restart_hash == wanted_hash


def decide(
    cluster: Cluster,
    state: KubernetesState,
    snapshot: Snapshot,
    *,
    wanted_hash: str,
    count: int,
    ensemble: EnsembleState,
) -> Verdict:
    """Apply all rules. `count`: the size of the StatefulSet, with pods that this round adds."""
    pods, ordinals = members(cluster, state, count), cluster.brokers.ordinals(count)
    old = outdated(pods, wanted_hash)
    if not old or not has_template(state, names.kafka(cluster.name), wanted_hash):
        return NOTHING
    reachable = {ordinal: pod for ordinal, pod in old.items() if not is_homeless(state, pod)}
    for pod in reachable.values():
        if not pod.ready and brokers_in(cluster, pod).isdisjoint(snapshot.brokers):
            return Verdict(step=_restart(pod, "does not serve"))
    away = restarting(cluster, pods, ordinals, wanted_hash=wanted_hash, registered=snapshot.brokers)
    if away or ensemble.away:
        return _wait("BrokerRestarting", away) if away else _wait("EnsembleRestarting", ensemble.away)
    lost = [pod.name for ordinal, pod in old.items() if ordinal not in reachable]
    if lost:
        return _wait("NodeLost", f"The node or disk of {lost[0]} is lost: it could not be restarted there.")
    roll = _Roll(cluster=cluster, pods=pods, snapshot=snapshot)
    unready = sorted((roll.has_controller(pod), ordinal) for ordinal, pod in old.items() if not pod.ready)
    if unready:
        return roll.first_allowed([old[ordinal] for _, ordinal in unready], why="is not ready")
    absent = [broker for pod in pods.values() for broker in brokers_in(cluster, pod) if broker not in snapshot.brokers]
    if absent:
        return _wait("BrokerNotRegistered", f"{listed(absent).capitalize()}: not registered in ZooKeeper.")
    if snapshot.controller_id is None:
        return _wait("NoController", "The cluster has no controller that could move leaders.")
    if ensemble.due:
        return _wait("EnsembleRestarting", ensemble.due)
    return roll.ready_ones(list(old.values()))


def restarting(
    cluster: Cluster,
    pods: Mapping[int, Pod],
    ordinals: Iterable[int],
    *,
    wanted_hash: str | None,
    registered: Collection[int],
) -> str:
    """Describe the first of these pods that is missing or starting with the current template; empty if there is none.

    With `wanted_hash` None, also one that does not serve with an old template.
    """
    for ordinal in ordinals:
        pod = pods.get(ordinal)
        several = cluster.brokers.per_pod > 1 or (pod is not None and pod.slots > 1)
        name = names.broker_pod(cluster.name, ordinal)
        who = f"Pod {name}" if several else f"Broker {ordinal}"
        if pod is None:
            return f"{who} does not exist yet." if several else f"{who} has no pod yet."
        if pod.terminating:
            return f"{who} is ending."
        absent = brokers_in(cluster, pod).difference(registered)
        if wanted_hash in (None, pod.restart_hash) and (absent or not pod.ready):
            return f"{who} does not serve yet: {pod.trouble or _unready(pod, absent, several=several)}"
    return ""


def _unready(pod: Pod, absent: Collection[int], *, several: bool) -> str:
    """Return why a pod without trouble does not serve yet."""
    if not pod.ready:
        return "It is starting."
    return f"{listed(absent).capitalize()}: not registered yet." if several else "It is not registered yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roll:
    """Chooses the pod to restart when all others serve."""

    cluster: Cluster
    pods: Mapping[int, Pod]
    """All pods that stay, by ordinal."""
    snapshot: Snapshot

    def has_controller(self, pod: Pod) -> bool:
        """Whether one of its brokers is the controller."""
        return self.snapshot.controller_id in brokers_in(self.cluster, pod)

    def ready_ones(self, old: Sequence[Pod]) -> Verdict:
        """Apply rules 6 and 7."""
        candidates = [pod for pod in old if not self.has_controller(pod)] or list(old)
        behind = refilling(self.snapshot)
        if behind:
            candidates = [pod for pod in candidates if brokers_in(self.cluster, pod).issuperset(behind)]
            if not candidates:
                return _wait("BrokerRefilling", f"{listed(behind).capitalize()}: most replicas are not in sync yet.")
        return self.first_allowed(candidates, why="")

    def first_allowed(self, candidates: Sequence[Pod], *, why: str) -> Verdict:
        """Return the restart of the first pod that the ISRs allow, else the reason for the first one."""
        if unknown := unreadable(self.snapshot):
            return _wait("ZnodeUnreadable", unknown, needs_person=True)
        messages = []
        groups = [brokers_in(self.cluster, pod) for pod in candidates]
        ours = self.cluster.brokers.ids().union(*(brokers_in(self.cluster, pod) for pod in self.pods.values()))
        found = list(absences(groups, self.cluster, self.snapshot, ours=ours))
        for pod, (group, absence) in zip(candidates, found, strict=True):
            if not absence.forbids:
                cost = ""
                if absence.costs:
                    cost = f"; {named(absence.costs)} will lack in-sync replicas meanwhile"
                return Verdict(step=_restart(pod, why, cost))
            messages.append(_forbidden(pod, group, absence))
        # Replicas that share a pod stay there until someone moves them; those that are behind catch up by themselves.
        return _wait("InSyncReplicas", messages[0], needs_person=all(absence.crowded for _, absence in found))


def _forbidden(pod: Pod, group: Iterable[int], absence: Absence) -> str:
    message = f"Without {listed(group)}, {named(absence.forbids)} would have fewer in-sync replicas than needed."
    if not absence.crowded:
        return message
    several = "has several replicas" if len(absence.crowded) == 1 else "have several replicas each"
    return f"{message} {named(absence.crowded)} {several} in {pod.name}: move them to brokers of other pods."


def _restart(pod: Pod, why: str, cost: str = "") -> RestartPod:
    trouble = f" ({pod.trouble.rstrip('.')})" if pod.trouble and why else ""
    also = f" and {why}{trouble}" if why else ""
    return RestartPod(
        component=Component.KAFKA,
        ordinal=pod.ordinal,
        pod=pod.name,
        uid=pod.uid,
        reason=f"{pod.name} was made from an older template{also}{cost}",
    )


def _wait(reason: str, message: str, *, needs_person: bool = False) -> Verdict:
    return Verdict(waiting=(Waiting(what="roll", reason=reason, message=message, needs_person=needs_person),))
