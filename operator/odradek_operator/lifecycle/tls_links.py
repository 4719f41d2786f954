"""How brokers and members of a cluster are connected to, and when they take the next step to TLS. Pure.

A new cluster with a secured listener begins with TLS. A running one changes in steps (`BrokerLink`, `EnsembleLink`),
each with one roll of the ensemble and of the brokers at most, and each ends before the next begins: servers accept what
their clients use, at any time. A cluster never goes back, because its clients may have been closed out of the open
listeners.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeVar

from odradek_operator.crds.types import Cluster
from odradek_operator.lifecycle.ensemble_rolling import members
from odradek_operator.lifecycle.observed_cluster import KubernetesState
from odradek_operator.lifecycle.steps import Waiting
from odradek_operator.objects import names
from odradek_operator.objects.names import BrokerLink, EnsembleLink

SECURITY: Final = "security"
"""`Waiting.what` of certificates and of the change to TLS."""
_Link = TypeVar("_Link", BrokerLink, EnsembleLink)


@dataclass(frozen=True, slots=True)
class Links:
    """The links of a cluster."""

    brokers: BrokerLink = BrokerLink.PLAINTEXT
    ensemble: EnsembleLink = EnsembleLink.PLAINTEXT


def present_links(cluster: Cluster, state: KubernetesState) -> Links:
    """Return the links that the pod templates have now. Without a record, the StatefulSets tell."""
    brokers, record = state.sets.get(names.kafka(cluster.name)), state.record
    link = record.link if record.link is not None or brokers is None else brokers.link
    if link is None:
        is_new = not record.brokers and not state.brokers
        link = BrokerLink.TLS if is_new and cluster.is_secured else BrokerLink.PLAINTEXT
    if cluster.zookeeper.connect is not None:
        return Links(link)
    ensemble = state.sets.get(names.zookeeper(cluster.name))
    found = record.ensemble_link if record.ensemble_link is not None or ensemble is None else ensemble.ensemble_link
    if found is None:
        is_new = record.members is None and not state.ensemble
        found = EnsembleLink.TLS if is_new and cluster.is_secured else EnsembleLink.PLAINTEXT
    return Links(link, found)


def next_links(
    cluster: Cluster,
    state: KubernetesState,
    *,
    broker_count: int,
    outdated: Collection[int],
    ensemble_hash: str | None,
    can_change: bool,
) -> Links:
    """Return the links from the next round on: the following ones when all pods have the present ones and are ready.

    `outdated`: ordinals of pods of brokers with another template. `ensemble_hash`: the hash of the template of members.
    `can_change`: whether the Secrets are complete and ZooKeeper answers. The last link of the ensemble means that all
    znodes belong to the brokers, which the caller has to ensure.
    """
    present = Links(cluster.broker_link, cluster.ensemble_link)
    if not cluster.is_secured or not can_change:
        return present
    pods = {ordinal: pod for ordinal, pod in state.brokers.items() if not pod.terminating}
    ready = [pods[ordinal].ready for ordinal in cluster.brokers.ordinals(broker_count) if ordinal in pods]
    if outdated or not all(ready) or len(ready) < len(cluster.brokers.ordinals(broker_count)):
        return present
    own = cluster.zookeeper.connect is None
    if own and not _is_ensemble_settled(cluster, state, ensemble_hash):
        return present
    return Links(_following(present.brokers), _following(present.ensemble) if own else present.ensemble)


def _is_ensemble_settled(cluster: Cluster, state: KubernetesState, wanted_hash: str | None) -> bool:
    pods = members(cluster, state).values()
    settled = [pod for pod in pods if pod.ready and not pod.terminating and pod.restart_hash == wanted_hash]
    return len(settled) == cluster.zookeeper.replicas


def _following(link: _Link) -> _Link:
    """Return the link after this one; the last one stays."""
    order = list(type(link))
    return order[min(order.index(link) + 1, len(order) - 1)]


def change(cluster: Cluster) -> tuple[Waiting, ...]:
    """Return what a cluster waits for while it changes to TLS."""
    if not cluster.is_secured:
        return ()
    found = []
    if cluster.broker_link is not BrokerLink.TLS:
        secured = ", ".join(listener.name for listener in cluster.listeners if not listener.plain)
        found.append(
            f"The brokers change to TLS among themselves, step {_step(cluster.broker_link)}, with a roll for each. "
            f"Afterwards they serve {secured}."
        )
    if cluster.zookeeper.connect is None and cluster.ensemble_link is not EnsembleLink.OWNED:
        found.append(f"ZooKeeper changes to TLS, step {_step(cluster.ensemble_link)}.")
    return tuple(Waiting(what=SECURITY, reason="ChangingToTls", message=message) for message in found)


def _step(link: BrokerLink | EnsembleLink) -> str:
    order = list(type(link))
    return f"{order.index(link) + 1} of {len(order) - 1}"
