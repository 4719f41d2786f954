"""How the brokers of a cluster connect to each other, and when they take the next step to TLS. Pure.

A new cluster with a secured listener begins with TLS. A running one changes in three rolls (`BrokerLink`), and each
ends before the next begins: brokers accept what the others use, at any time. A cluster never goes back, because its
clients may have been closed out of the open listeners.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from odradek_operator.crds.types import Cluster
from odradek_operator.lifecycle.observed_cluster import KubernetesState
from odradek_operator.lifecycle.steps import Waiting
from odradek_operator.objects import names
from odradek_operator.objects.names import BrokerLink

SECURITY: Final = "security"
"""`Waiting.what` of certificates and of the change to TLS."""
_ORDER: Final = tuple(BrokerLink)


def present_link(cluster: Cluster, state: KubernetesState) -> BrokerLink:
    """Return the link that the pod template of the brokers has now. Without a record, the StatefulSet tells."""
    if state.record.link is not None:
        return state.record.link
    found = state.sets.get(names.kafka(cluster.name))
    if found is not None:
        return found.link
    is_new = not state.record.brokers and not state.brokers
    return BrokerLink.TLS if is_new and cluster.is_secured else BrokerLink.PLAINTEXT


def next_link(
    cluster: Cluster, state: KubernetesState, *, broker_count: int, outdated: Collection[int], has_certificates: bool
) -> BrokerLink:
    """Return the link from the next round on: the following one when all pods have the present one and are ready.

    `outdated`: ordinals of pods with another template. `has_certificates`: whether the Secrets are complete.
    """
    link = cluster.broker_link
    if link is BrokerLink.TLS or not cluster.is_secured or not has_certificates:
        return link
    pods = {ordinal: pod for ordinal, pod in state.brokers.items() if not pod.terminating}
    settled = not outdated and all(
        ordinal in pods and pods[ordinal].ready for ordinal in cluster.brokers.ordinals(broker_count)
    )
    return _ORDER[_ORDER.index(link) + 1] if settled else link


def change(cluster: Cluster) -> tuple[Waiting, ...]:
    """Return what a cluster waits for while its brokers change to TLS."""
    if not cluster.is_secured or cluster.broker_link is BrokerLink.TLS:
        return ()
    step = _ORDER.index(cluster.broker_link) + 1
    secured = ", ".join(listener.name for listener in cluster.listeners if not listener.plain)
    message = (
        f"The brokers change to TLS among themselves, step {step} of {len(_ORDER) - 1}, with a roll for each. "
        f"Afterwards they serve {secured}."
    )
    return (Waiting(what=SECURITY, reason="ChangingToTls", message=message),)
