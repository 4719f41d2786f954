"""Combines all lifecycle decisions about one cluster: the steps to take now, what waits, and the sizes. Pure.

The loop of the cluster calls `decide` in each round with the Cluster and the state in Kubernetes and ZooKeeper, carries
out the steps of the `ClusterDecision`, and observes again.

1. A paused cluster does not change, and the StatefulSet keeps its size.
2. If ZooKeeper does not answer, the StatefulSet has the specified size, but never fewer brokers than now. Only members
of the ensemble that do not serve may be replaced. Brokers stay, because the state of replicas is unknown.
3. At most one step per round removes something. In this order: a lost disk is released (`release`), a broker that is
not ready gets its new template, the ensemble restarts, brokers restart. Ready brokers come after the ensemble,
because they may need its new template. The operator never restarts brokers and members at the same time.
4. Dynamic broker properties are written at any time.
5. Replicas start to move, and the StatefulSet shrinks, only in rounds without a step of rule 3.
6. In a shared ensemble, no broker starts for the first time with an id that others may use (`ids`). Until then the
cluster is treated as if no more brokers were specified than it has. The pod template loses brokers only when these have
no replicas on any pod (`resize`).
7. A pod that is unschedulable because of a spread constraint that no longer applies is replaced at any time.

An operator that stops between two steps loses nothing: the next round derives each step again from the observed state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from odradek_operator.crds import Cluster
from odradek_operator.lifecycle import defaults, ids, moves, release, resize, rolling, spreading
from odradek_operator.lifecycle import ensemble_rolling as ensemble
from odradek_operator.lifecycle.lost import is_homeless
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Quorum
from odradek_operator.lifecycle.steps import ClusterDecision, KubernetesStep, Step, Verdict
from odradek_operator.objects import names
from odradek_operator.topics.zookeeper_state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The desired state of pods, properties and replication factors, and what the members of the ensemble report."""

    brokers_hash: str
    ensemble_hash: str
    dynamic: Mapping[str, str]
    factors: Mapping[str, int]
    quorum: Quorum
    keep_others: bool


def decide(
    cluster: Cluster,
    state: KubernetesState,
    snapshot: Snapshot | None,
    *,
    wanted_hashes: Mapping[str, str],
    wanted_dynamic: Mapping[str, str],
    wanted_factors: Mapping[str, int],
    quorum: Quorum,
    now: float,
    keep_others: bool = False,
) -> ClusterDecision:
    """Decide what to do now. Raises `ValueError` if the snapshot does not contain all topics completely.

    `wanted_hashes`: restart hashes of the current templates, by StatefulSet; that of brokers with `per_pod_now`.
    `wanted_dynamic`: properties that need no restart. `wanted_factors`: replication factors by topic; other topics keep
    theirs. `quorum`: what the members of the ensemble report. `now`: seconds since the epoch. `keep_others`: whether
    dynamic properties that others set in the cluster's own ensemble stay.
    """
    wanted = _Wanted(
        brokers_hash=wanted_hashes.get(names.kafka(cluster.name), ""),
        ensemble_hash=wanted_hashes.get(names.zookeeper(cluster.name), ""),
        dynamic=wanted_dynamic,
        factors=wanted_factors,
        quorum=quorum,
        keep_others=keep_others,
    )
    decision = _decide(cluster, state, snapshot, wanted, now=now)
    count = decision.broker_count
    stuck = spreading.obsolete(cluster, state, broker_count=count)
    if stuck is not None and not cluster.paused and not any(isinstance(one, KubernetesStep) for one in decision.steps):
        decision = replace(decision, steps=(*decision.steps, stuck))
    per_pod = per_pod_now(cluster, state, snapshot)
    crowded = {} if snapshot is None else spreading.crowded_topics(cluster, snapshot)
    return replace(
        decision,
        per_pod=per_pod,
        reachable_slots=max(per_pod, resize.known_per_pod(cluster, state)),
        spread=spreading.demanded(cluster, state, broker_count=count),
        notices=(*spreading.notices(cluster, state, broker_count=count), *spreading.crowded_notices(crowded)),
        crowded=crowded,
    )


def per_pod_now(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None) -> int:
    """Return the number of brokers that the pod template has now."""
    if cluster.paused:
        found = state.sets.get(names.kafka(cluster.name))
        present = resize.known_per_pod(cluster, state) if found is None else found.slots
        return present if resize.known_size(cluster, state) else cluster.brokers.per_pod
    if ids.refused(cluster, state, snapshot) is not None:
        cluster = _as_it_is(cluster, state)
    return resize.per_pod(cluster, state, snapshot)


def _as_it_is(cluster: Cluster, state: KubernetesState) -> Cluster:
    """Return the cluster without pods and brokers that it does not have yet."""
    brokers = cluster.brokers
    pods = min(brokers.replicas, resize.known_size(cluster, state))
    per_pod = min(brokers.per_pod, resize.known_per_pod(cluster, state))
    return replace(cluster, brokers=replace(brokers, replicas=pods, per_pod=per_pod))


def _decide(
    cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None, wanted: _Wanted, *, now: float
) -> ClusterDecision:
    """Apply rules 1 to 6."""
    present = resize.present_size(cluster, state, snapshot)
    old = frozenset(rolling.outdated(rolling.members(cluster, state, present), wanted.brokers_hash))
    if cluster.paused:
        return ClusterDecision(broker_count=present, outdated=old)
    refusal = ids.refused(cluster, state, snapshot)
    if refusal is None:
        return _sized(cluster, state, snapshot, wanted, now=now)
    if not resize.known_size(cluster, state):
        return ClusterDecision(broker_count=0, waiting=(refusal,))
    decision = _sized(_as_it_is(cluster, state), state, snapshot, wanted, now=now)
    return replace(decision, waiting=(refusal, *decision.waiting))


def _sized(
    cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None, wanted: _Wanted, *, now: float
) -> ClusterDecision:
    """Apply rules 2 to 5 to a cluster whose brokers may all start."""
    present = resize.present_size(cluster, state, snapshot)
    old = frozenset(rolling.outdated(rolling.members(cluster, state, present), wanted.brokers_hash))
    if snapshot is None:
        verdict = _blind(cluster, state, wanted)
        return ClusterDecision(
            broker_count=resize.size(cluster, state, None),
            steps=() if verdict.step is None else (verdict.step,),
            waiting=verdict.waiting,
            outdated=old,
        )
    verdict = _disruption(cluster, state, snapshot, wanted, now=now)
    steps: list[Step] = []
    if snapshot.controller_epoch_version is not None:
        changed = defaults.decide(
            cluster,
            snapshot,
            wanted.dynamic,
            ids=ids.recorded(cluster, state, snapshot),
            keep_others=wanted.keep_others,
        )
        steps += [] if changed is None else [changed]
    slots = resize.present_per_pod(cluster, state, snapshot)
    moved = moves.decide(cluster, snapshot, present=present, per_pod=slots, factors=wanted.factors)
    if verdict.step is not None:
        steps.append(verdict.step)
    elif moved.step is not None and not steps:
        # Both write the brokers' defaults, so one round never does both.
        steps.append(moved.step)
    count = max(present, cluster.brokers.replicas)
    if verdict.step is None and moved.step is None:
        count = resize.size(cluster, state, snapshot)
    return ClusterDecision(
        broker_count=count,
        steps=tuple(steps),
        waiting=verdict.waiting + moved.waiting,
        progress=moved.progress,
        outdated=old,
    )


def _blind(cluster: Cluster, state: KubernetesState, wanted: _Wanted) -> Verdict:
    """Apply rule 2. An ensemble of one that does not answer does not serve, even if its pod is ready."""
    busy = "" if cluster.zookeeper.replicas == 1 else "ZooKeeper does not answer."
    return ensemble.decide(
        cluster, state, wanted_hash=wanted.ensemble_hash, modes=wanted.quorum.modes, brokers_busy=busy
    )


def _disruption(
    cluster: Cluster, state: KubernetesState, snapshot: Snapshot, wanted: _Wanted, *, now: float
) -> Verdict:
    """Apply rule 3."""
    count = resize.present_size(cluster, state, snapshot)
    released = release.brokers(cluster, state, snapshot, count=count, now=now)
    if released.step is not None:
        return released
    given_up = release.members(cluster, state, wanted.quorum, now=now)
    released = Verdict(step=given_up.step, waiting=released.waiting + given_up.waiting)
    if released.step is not None:
        return released
    # Pods that this round adds count already: none restarts before they serve.
    count = max(count, cluster.brokers.replicas)
    rolled = rolling.decide(
        cluster,
        state,
        snapshot,
        wanted_hash=wanted.brokers_hash,
        count=count,
        ensemble=rolling.EnsembleState(
            away=ensemble.away(cluster, state), due=ensemble.due(cluster, state, wanted_hash=wanted.ensemble_hash)
        ),
    )
    if rolled.step is not None:
        return Verdict(step=rolled.step, waiting=released.waiting)
    homeless = {ordinal for ordinal, pod in state.brokers.items() if is_homeless(state, pod)}
    members = ensemble.decide(
        cluster,
        state,
        wanted_hash=wanted.ensemble_hash,
        modes=wanted.quorum.modes,
        brokers_busy=rolling.restarting(
            cluster,
            rolling.members(cluster, state, count),
            sorted(set(cluster.brokers.ordinals(count)) - homeless),
            wanted_hash=None,
            registered=snapshot.brokers,
        ),
    )
    return Verdict(step=members.step, waiting=released.waiting + members.waiting + rolled.waiting)
