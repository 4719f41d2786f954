"""Decides which broker's pod restarts next, or why none may restart. Pure.

`cluster_plan` passes a cluster, its state in Kubernetes and ZooKeeper and the hash of the current template, and gets a
`Verdict`. Invariant: a restart never takes a partition below its minimum ISR, and never a second broker down, unless no
order of restarts could avoid it.

The first rule that applies decides:

1. If no pod is outdated, or the StatefulSet does not have the current template yet, nothing happens. A pod that was
deleted now would return with the old template.
2. An outdated pod that is not ready and whose broker is not registered restarts, whatever else is going on. It serves
no one, and it may never become ready with its old template: two brokers with a wrong template would wait for each
other forever.
3. While a pod is missing, terminating, or has the new template and does not serve yet, the others wait: only one broker
is down at a time, and a wrong template must not take a second one down. The same holds for a missing member of the
ZooKeeper ensemble. A pod that has lost its node or disk does not restart; the others wait for it.
4. An outdated pod that is not ready although its broker is registered restarts if rule 6 allows it. It goes before
ready pods, which may have to wait for it.
5. While a broker is not registered, or there is no controller, the others wait: leaders could not move away from the
restarting broker. While a member of the ensemble still has to restart, ready brokers wait, because they may need
its new template.
6. Of the outdated pods, by id with the controller last, the first restarts without which every partition keeps enough
live in-sync replicas. Enough is the minimum ISR; a partition with too few replicas for that needs all its other
replicas, and is mentioned in the reason. The controller is last, so that it is elected only once.
7. Rule 6 waits while another broker is in sync with less than half of its replicas: it has a new disk or has just
started. Its own pod may restart.

A reassignment in progress is no reason to wait. It may take days, and a restart that the ISRs allow does not harm it:
its state is in ZooKeeper, its copies are on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from odradek_operator.crds import Cluster
from odradek_operator.lifecycle.lost import is_homeless
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Pod
from odradek_operator.lifecycle.replicas import absences, listed, named, refilling, unreadable
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
    """Return the pods of brokers that stay, without those that the StatefulSet is removing."""
    ids = cluster.brokers.ids(count)
    return {broker: pod for broker, pod in sorted(state.brokers.items()) if broker in ids}


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
    """Apply all rules. `count`: the size of the StatefulSet."""
    pods, ids = members(cluster, state, count), cluster.brokers.ids(count)
    old = outdated(pods, wanted_hash)
    if not old or not has_template(state, names.kafka(cluster.name), wanted_hash):
        return NOTHING
    reachable = {broker: pod for broker, pod in old.items() if not is_homeless(state, pod)}
    for broker, pod in reachable.items():
        if not pod.ready and broker not in snapshot.brokers:
            return Verdict(step=_restart(broker, pod, "does not serve"))
    away = restarting(pods, ids, wanted_hash=wanted_hash, registered=snapshot.brokers)
    if away or ensemble.away:
        return _wait("BrokerRestarting", away) if away else _wait("EnsembleRestarting", ensemble.away)
    lost = [pod.name for broker, pod in old.items() if broker not in reachable]
    if lost:
        return _wait("NodeLost", f"The node or disk of {lost[0]} is lost: it could not be restarted there.")
    unready = sorted((broker == snapshot.controller_id, broker) for broker, pod in old.items() if not pod.ready)
    if unready:
        return _first_allowed([broker for _, broker in unready], cluster, old, snapshot, why="is not ready")
    absent = [broker for broker in ids if broker not in snapshot.brokers]
    if absent:
        return _wait("BrokerNotRegistered", f"{listed(absent).capitalize()}: not registered in ZooKeeper.")
    if snapshot.controller_id is None:
        return _wait("NoController", "The cluster has no controller that could move leaders.")
    if ensemble.due:
        return _wait("EnsembleRestarting", ensemble.due)
    return _ready_ones(cluster, old, snapshot)


def _ready_ones(cluster: Cluster, old: Mapping[int, Pod], snapshot: Snapshot) -> Verdict:
    """Apply rules 6 and 7."""
    candidates = [broker for broker in old if broker != snapshot.controller_id] or list(old)
    behind = refilling(snapshot)
    if behind:
        itself = [broker for broker in candidates if behind == [broker]]
        if not itself:
            return _wait("BrokerRefilling", f"{listed(behind).capitalize()}: most replicas are not in sync yet.")
        candidates = itself
    return _first_allowed(candidates, cluster, old, snapshot, why="")


def restarting(
    pods: Mapping[int, Pod], brokers: Iterable[int], *, wanted_hash: str | None, registered: Collection[int]
) -> str:
    """Describe the first of `brokers` that is missing or starting with the current template; empty if there is none.

    With `wanted_hash` None, also one that does not serve with an old template.
    """
    for broker in brokers:
        pod = pods.get(broker)
        if pod is None:
            return f"Broker {broker} has no pod yet."
        if pod.terminating:
            return f"Broker {broker} is ending."
        if wanted_hash in (None, pod.restart_hash) and not (pod.ready and broker in registered):
            said = pod.trouble or ("It is not registered yet." if pod.ready else "It is starting.")
            return f"Broker {broker} does not serve yet: {said}"
    return ""


def _first_allowed(
    candidates: Iterable[int], cluster: Cluster, old: Mapping[int, Pod], snapshot: Snapshot, *, why: str
) -> Verdict:
    if unknown := unreadable(snapshot):
        return _wait("ZnodeUnreadable", unknown, needs_person=True)
    messages = []
    for broker, absence in absences(candidates, cluster, snapshot):
        if not absence.forbids:
            cost = ""
            if absence.costs:
                cost = f"; {named(absence.costs)} will lack in-sync replicas meanwhile"
            return Verdict(step=_restart(broker, old[broker], why, cost))
        messages.append(
            f"Without broker {broker}, {named(absence.forbids)} would have fewer in-sync replicas than needed."
        )
    return _wait("InSyncReplicas", messages[0])


def _restart(broker: int, pod: Pod, why: str, cost: str = "") -> RestartPod:
    trouble = f" ({pod.trouble.rstrip('.')})" if pod.trouble and why else ""
    also = f" and {why}{trouble}" if why else ""
    return RestartPod(
        component=Component.KAFKA,
        ordinal=broker,
        pod=pod.name,
        uid=pod.uid,
        reason=f"{pod.name} was made from an older template{also}{cost}",
    )


def _wait(reason: str, message: str, *, needs_person: bool = False) -> Verdict:
    return Verdict(waiting=(Waiting(what="roll", reason=reason, message=message, needs_person=needs_person),))
