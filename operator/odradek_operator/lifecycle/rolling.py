"""Which broker's pod may restart now, or the sentence why none may. Pure.

Enters: a cluster, what Kubernetes and ZooKeeper show of it, the hash of the wanted template. Leaves: a `Verdict`.
Called by `cluster_plan`. Invariant: a step never takes a partition below its minimum of in-sync replicas, nor a second
broker away, save where no order of restarts could avoid it.

The rules, in their order; the first that applies decides:

1. *No pod is outdated, or the StatefulSet does not have the wanted template yet*: nothing. A pod that was deleted now
   would come back as it was.
2. *An outdated pod is not ready and its broker is not registered*: it restarts, whatever else is going on. It serves
   nobody, so nothing is lost; it may be that it cannot become ready with its old template, and waiting for the others
   could then be waiting for ever: two brokers with a bad template would wait for each other.
3. *A pod is missing or terminating, or has the new template and does not serve yet*: wait. It is the one that is away
   (one at a time), and a template with which it does not come back must not take a second one. A member of the
   ZooKeeper ensemble that is not there counts as well.
   *Nor does one restart that has lost its node or disk.* It would end when the node is back, at a time that nobody
   chose; the others wait for it as for any broker that is not there.
4. *An outdated pod is not ready, though its broker is registered*: it restarts if its absence forbids nothing (6). It
   goes before those that are well, which may have to wait for it.
5. *A broker is not registered, or there is no controller*: wait. Leaders could not be moved away from the restarting
   one, and in-sync sets say little while brokers join. *A member of the ensemble has yet to restart*: wait, since
   brokers that are well may need its new template.
6. *The outdated pods, those first whose broker is not the controller, by id*: the first whose absence forbids nothing
   restarts. A partition forbids it when fewer live in-sync replicas would be left than its minimum, or than all its
   others where it has too few replicas for that: such a partition cannot be kept by any order, so its others are
   waited for, and then it is told of in the reason. The controller goes last, lest it be elected twice.
7. *While another broker is in sync with less than half of its replicas*, 6 waits: it has a new disk or is just back,
   and what it holds is no safety yet. Its own pod may restart: that takes nothing away.

A reassignment under way is no reason to wait. It may take days, and a restart that the in-sync sets allow harms it no
more than any other replication: its state is in ZooKeeper, its copies on disk.
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
    """What brokers wait for of ZooKeeper's pods."""

    away: str = ""
    """A sentence about a member that is not there; empty without one."""
    due: str = ""
    """A sentence about a member that has yet to restart; empty without one."""


def members(cluster: Cluster, state: KubernetesState, count: int) -> dict[int, Pod]:
    """The brokers' pods that shall stay; one that the set is just removing is none of ours."""
    ids = cluster.brokers.ids(count)
    return {broker: pod for broker, pod in sorted(state.brokers.items()) if broker in ids}


def outdated(pods: Mapping[int, Pod], wanted_hash: str) -> dict[int, Pod]:
    """Pods of another template that nobody has deleted yet."""
    return {number: pod for number, pod in pods.items() if pod.restart_hash != wanted_hash and not pod.terminating}


def has_template(state: KubernetesState, set_name: str, wanted_hash: str) -> bool:
    """Whether a pod that is deleted now comes back with the wanted template."""
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
    """All rules. `count` is how many brokers the set has."""
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
        return _wait("NodeLost", f"The node or disk of {lost[0]} is lost: nobody there could restart it.")
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
    """Rules 6 and 7."""
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
    """A sentence about the first of `brokers` that is away, or comes back with the wanted template; empty without one.

    With `wanted_hash` None also about one that does not serve with an old template.
    """
    for broker in brokers:
        pod = pods.get(broker)
        if pod is None:
            return f"Broker {broker} has no pod yet."
        if pod.terminating:
            return f"Pod {pod.name} is ending."
        if wanted_hash in (None, pod.restart_hash) and not (pod.ready and broker in registered):
            said = pod.trouble or ("Its broker is not registered yet." if pod.ready else "It is starting.")
            return f"Pod {pod.name} does not serve yet: {said}"
    return ""


def _first_allowed(
    candidates: Iterable[int], cluster: Cluster, old: Mapping[int, Pod], snapshot: Snapshot, *, why: str
) -> Verdict:
    if unknown := unreadable(snapshot):
        return _wait("ZnodeUnreadable", unknown, needs_person=True)
    sentences = []
    for broker, absence in absences(candidates, cluster, snapshot):
        if not absence.forbids:
            cost = ""
            if absence.costs:
                cost = f"; {named(absence.costs)} will lack in-sync replicas meanwhile, having too few to spare one"
            return Verdict(step=_restart(broker, old[broker], why, cost))
        sentences.append(
            f"Without broker {broker}, {named(absence.forbids)} would have fewer in-sync replicas than needed."
        )
    return _wait("InSyncReplicas", sentences[0])


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


def _wait(reason: str, sentence: str, *, needs_person: bool = False) -> Verdict:
    return Verdict(waiting=(Waiting(what="roll", reason=reason, sentence=sentence, needs_person=needs_person),))
