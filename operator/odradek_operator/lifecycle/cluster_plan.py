"""All decisions over time about one cluster in one: what is done now, what waits, how many brokers there are. Pure.

Enters: a Cluster, what Kubernetes and ZooKeeper show, what is wanted of pods, properties and factors, the time. Leaves:
a `ClusterDecision`. Called by the loop of a cluster in each round; it carries the steps out and looks again.

1. *Paused*: nothing, and the set keeps its size.
2. *ZooKeeper cannot be asked*: the set has as many brokers as specified, never fewer than it has; only members of the
   ensemble that do not serve may be replaced. What happens to records is not known, so brokers stay.
3. At most one step a round takes something away, looked for in this order: a lost disk is given up (`release`), a
   broker that is not ready gets its new template, the ensemble rolls, brokers roll. Brokers that are well come after
   the ensemble, since they may need its new template. While a pod of one is away for our sake, none of the other goes.
4. Brokers' dynamic defaults are written at any time: they take nothing away.
5. Replicas begin to move, and the set shrinks, only in rounds without a step of 3: both are decided from who is there.
6. In an ensemble that others use, no broker starts for the first time under an id that may be somebody else's (`ids`):
   until then the cluster is decided about as if no more brokers were wanted than it has.
7. A pod that fits nowhere under a rule of spreading that is gone is replaced at any time: it runs nowhere.

An operator that dies between any two steps has lost nothing: each step follows again from what the next one observes.
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
    """What the resource wants of pods, properties and factors, and what members of the ensemble say of themselves."""

    brokers_hash: str
    ensemble_hash: str
    dynamic: Mapping[str, str]
    factors: Mapping[str, int]
    quorum: Quorum


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
) -> ClusterDecision:
    """What to do now. Raises `ValueError` for a snapshot whose topics were not all read in depth.

    `wanted_hashes`: by name of StatefulSet, the restart hash of its wanted template. `wanted_dynamic`: properties that
    need no restart. `wanted_factors`: by topic; those that are not named keep theirs. `quorum`: what members
    of the ensemble answered. `now`: seconds since the epoch.
    """
    wanted = _Wanted(
        brokers_hash=wanted_hashes.get(names.kafka(cluster.name), ""),
        ensemble_hash=wanted_hashes.get(names.zookeeper(cluster.name), ""),
        dynamic=wanted_dynamic,
        factors=wanted_factors,
        quorum=quorum,
    )
    decision = _decide(cluster, state, snapshot, wanted, now=now)
    count = decision.broker_count
    stuck = spreading.obsolete(cluster, state, broker_count=count)
    if stuck is not None and not cluster.paused and not any(isinstance(one, KubernetesStep) for one in decision.steps):
        decision = replace(decision, steps=(*decision.steps, stuck))
    return replace(
        decision,
        spread=spreading.demanded(cluster, state, broker_count=count),
        notices=spreading.notices(cluster, state, broker_count=count),
    )


def _decide(
    cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None, wanted: _Wanted, *, now: float
) -> ClusterDecision:
    """The rules 1 to 6."""
    present = resize.present_size(cluster, state, snapshot)
    old = frozenset(rolling.outdated(rolling.members(cluster, state, present), wanted.brokers_hash))
    if cluster.paused:
        return ClusterDecision(broker_count=present, outdated=old)
    refusal = ids.refused(cluster, state, snapshot)
    if refusal is None:
        return _sized(cluster, state, snapshot, wanted, now=now)
    held = resize.known_size(cluster, state)
    if not held:
        return ClusterDecision(broker_count=0, waiting=(refusal,))
    cluster = replace(cluster, brokers=replace(cluster.brokers, replicas=held))
    decision = _sized(cluster, state, snapshot, wanted, now=now)
    return replace(decision, waiting=(refusal, *decision.waiting))


def _sized(
    cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None, wanted: _Wanted, *, now: float
) -> ClusterDecision:
    """The rules 2 to 5, for a cluster all of whose wanted brokers may start."""
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
        changed = defaults.decide(cluster, snapshot, wanted.dynamic, ids=ids.recorded(cluster, state, snapshot))
        steps += [] if changed is None else [changed]
    moved = moves.decide(cluster, snapshot, present=present, factors=wanted.factors)
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
    """Rule 2. An ensemble of one that cannot be asked serves nobody, whatever Kubernetes thinks of it."""
    busy = "" if cluster.zookeeper.replicas == 1 else "ZooKeeper cannot be asked."
    return ensemble.decide(
        cluster, state, wanted_hash=wanted.ensemble_hash, modes=wanted.quorum.modes, brokers_busy=busy
    )


def _disruption(
    cluster: Cluster, state: KubernetesState, snapshot: Snapshot, wanted: _Wanted, *, now: float
) -> Verdict:
    """Rule 3."""
    count = resize.present_size(cluster, state, snapshot)
    released = release.brokers(cluster, state, snapshot, count=count, now=now)
    if released.step is not None:
        return released
    given_up = release.members(cluster, state, wanted.quorum, now=now)
    released = Verdict(step=given_up.step, waiting=released.waiting + given_up.waiting)
    if released.step is not None:
        return released
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
    homeless = {broker for broker, pod in state.brokers.items() if is_homeless(state, pod)}
    members = ensemble.decide(
        cluster,
        state,
        wanted_hash=wanted.ensemble_hash,
        modes=wanted.quorum.modes,
        brokers_busy=rolling.restarting(
            rolling.members(cluster, state, count),
            sorted(set(cluster.brokers.ids(count)) - homeless),
            wanted_hash=None,
            registered=snapshot.brokers,
        ),
    )
    return Verdict(step=members.step, waiting=released.waiting + members.waiting + rolled.waiting)
