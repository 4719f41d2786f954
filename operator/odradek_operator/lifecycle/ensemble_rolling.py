"""Decides which member of the ZooKeeper ensemble restarts next, or why none may restart. Pure.

`cluster_plan` passes a cluster, its state in Kubernetes and the mode of each member, and gets a `Verdict`; also while
ZooKeeper does not answer anything else. Invariant: a restart leaves a majority of members serving if there was one
before, except in an ensemble of one.

A member *serves* if it reported a mode. It is *silent* if it did not answer and its pod is not ready. The rules apply
in this order:

1. If no member is outdated, or the StatefulSet does not have the current template yet, nothing happens.
2. In an ensemble of one, the member restarts, except while a broker restarts.
3. An outdated member that is silent restarts: the majority, if there is one, does not include it. If no member serves,
the members with the new template may need this one for a majority. Once they are a majority themselves, they must
serve before more members get a template that may be wrong.
4. While a member is missing, terminating, or has the new template and does not serve, the others wait.
5. An outdated member that serves but is not ready restarts if a majority serves without it.
6. Otherwise all members must serve and one must lead. Followers restart in order, the leader last, so that there is
only one election.

Rules 2, 5 and 6 wait while a broker restarts: the operator never restarts brokers and members at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_operator.crds import Cluster
from odradek_operator.lifecycle.lost import is_homeless
from odradek_operator.lifecycle.observed_cluster import LEADER, KubernetesState, Pod
from odradek_operator.lifecycle.rolling import NOTHING, has_template, outdated
from odradek_operator.lifecycle.steps import RestartPod, Verdict, Waiting
from odradek_operator.objects import names
from odradek_operator.objects.names import Component


def members(cluster: Cluster, state: KubernetesState) -> dict[int, Pod]:
    """Return the pods of the ensemble; none if the cluster uses another ensemble."""
    if cluster.zookeeper.connect is not None:
        return {}
    return {number: pod for number, pod in sorted(state.ensemble.items()) if number < cluster.zookeeper.replicas}


def decide(
    cluster: Cluster, state: KubernetesState, *, wanted_hash: str, modes: Mapping[int, str], brokers_busy: str
) -> Verdict:
    """Apply all rules. `brokers_busy` describes a broker that is restarting; empty if there is none."""
    pods = members(cluster, state)
    old = outdated(pods, wanted_hash)
    if not old or not has_template(state, names.zookeeper(cluster.name), wanted_hash):
        return NOTHING
    size = cluster.zookeeper.replicas
    for number, pod in old.items():
        if not pod.ready and number not in modes:
            return _replace_silent(pods, pod, size, wanted_hash=wanted_hash, modes=modes)
    if size == 1:
        return _wait("BrokerRestarting", brokers_busy) if brokers_busy else _restart(old[0], "")
    busy = restarting(pods, size, wanted_hash=wanted_hash, modes=modes) or brokers_busy
    if busy:
        return _wait("MemberRestarting", busy)
    return _serving_ones(pods, old, size, modes=modes)


def _serving_ones(pods: Mapping[int, Pod], old: Mapping[int, Pod], size: int, *, modes: Mapping[int, str]) -> Verdict:
    """Apply rules 5 and 6."""
    for number, pod in old.items():
        if not pod.ready:
            if len(set(modes) - {number}) > size // 2:
                return _restart(pod, "is not ready")
            return _wait("NoMajority", f"Without {pod.name}, the ensemble would have no quorum.")
    silent = [pod.name for number, pod in pods.items() if number not in modes]
    if silent:
        return _wait("MemberSilent", f"{', '.join(silent)}: no answer.")
    leaders = [number for number in pods if modes[number] == LEADER]
    if len(leaders) != 1:
        return _wait("NoLeader", "The ensemble has no known leader.")
    number = min(old, key=lambda member: (member == leaders[0], member))
    return _restart(old[number], "")


def _replace_silent(
    pods: Mapping[int, Pod], pod: Pod, size: int, *, wanted_hash: str, modes: Mapping[int, str]
) -> Verdict:
    """Apply rule 3."""
    new = [other for other in pods.values() if other.restart_hash == wanted_hash]
    if not modes and len(new) > size // 2:
        return _wait(
            "NoMajority", "No member of the ensemble serves, although a majority has the new template: check its pods."
        )
    return _restart(pod, "does not serve")


def away(cluster: Cluster, state: KubernetesState) -> str:
    """Describe the first member that is missing or not ready; empty if there is none.

    A member that has lost its node or disk is ignored, because it may never return.
    """
    if cluster.zookeeper.connect is not None:
        return ""
    pods = members(cluster, state)
    for number in range(cluster.zookeeper.replicas):
        pod = pods.get(number)
        if pod is None:
            return f"Member {number} of the ZooKeeper ensemble has no pod yet."
        if (pod.terminating or not pod.ready) and not is_homeless(state, pod):
            return f"Pod {pod.name} of the ZooKeeper ensemble is not ready."
    return ""


def due(cluster: Cluster, state: KubernetesState, *, wanted_hash: str) -> str:
    """Describe the first member that still has to restart; empty if there is none."""
    old = outdated(members(cluster, state), wanted_hash).values()
    return next((f"Pod {pod.name} of the ZooKeeper ensemble restarts first." for pod in old), "")


def restarting(pods: Mapping[int, Pod], size: int, *, wanted_hash: str, modes: Mapping[int, str]) -> str:
    """Describe the first member that is missing or starting with the current template; empty if there is none."""
    for number in range(size):
        pod = pods.get(number)
        if pod is None:
            return f"Member {number} of the ZooKeeper ensemble has no pod yet."
        if pod.terminating:
            return f"Pod {pod.name} is ending."
        serves = pod.ready and number in modes
        if pod.restart_hash == wanted_hash and not serves:
            return f"Pod {pod.name} does not serve yet: {pod.trouble or 'It is starting.'}"
    return ""


def _restart(pod: Pod, why: str) -> Verdict:
    trouble = f" ({pod.trouble.rstrip('.')})" if pod.trouble and why else ""
    also = f" and {why}{trouble}" if why else ""
    return Verdict(
        step=RestartPod(
            component=Component.ZOOKEEPER,
            ordinal=pod.ordinal,
            pod=pod.name,
            uid=pod.uid,
            reason=f"{pod.name} was made from an older template{also}",
        )
    )


def _wait(reason: str, message: str) -> Verdict:
    return Verdict(waiting=(Waiting(what="zookeeper-roll", reason=reason, message=message),))
