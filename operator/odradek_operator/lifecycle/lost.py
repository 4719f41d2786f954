"""Which disks are lost, and since when: what `release` decides from, of brokers and of the ensemble alike. Pure.

Enters: what Kubernetes shows. Leaves: claims and times. Called by `release`, and by whoever has to tell a pod that lost
its home from one that somebody restarted.

A disk counts as *lost* when its claim is `Lost`, or when its volume is tied to nodes none of which is there and ready,
and the pod that uses it is not somewhere else. A pod that is Pending for want of memory has lost nothing, however long
it waits: its disk is whole. Since when a node does not answer, the node says; a node that is gone cannot, so then it is
the time since which its pod fits nowhere. A volume that is reachable from other nodes is never lost with one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Pod

_AT_ONCE: Final = float("-inf")


def is_unreachable(state: KubernetesState, node: str) -> bool:
    """Whether Kubernetes does not know the node, or hears nothing good of it."""
    return node not in state.nodes or not state.nodes[node].ready


def is_homeless(state: KubernetesState, pod: Pod) -> bool:
    """Whether a pod is away because of its node or disk, and not because somebody restarted it."""
    if pod.node is not None:
        return is_unreachable(state, pod.node)
    return any(_is_lost(state, state.claims[name]) for name in pod.claims if name in state.claims)


def lost_claims(state: KubernetesState, pod: Pod | None, names: Iterable[str]) -> list[Claim]:
    """Of a pod's claims those whose disks are lost; only `Lost` ones while the pod is on a node that is well."""
    if pod is not None and pod.node is not None and not is_unreachable(state, pod.node):
        return [state.claims[name] for name in pod.claims if name in state.claims and state.claims[name].lost]
    claims = (state.claims[name] for name in names if name in state.claims)
    return [claim for claim in claims if _is_lost(state, claim)]


def _is_lost(state: KubernetesState, claim: Claim) -> bool:
    return claim.lost or (bool(claim.nodes) and all(is_unreachable(state, node) for node in claim.nodes))


def lost_since(state: KubernetesState, pod: Pod | None, lost: Iterable[Claim]) -> float | None:
    """Since when the first of these disks is lost, as far as anybody knows; None while nobody does."""
    times = []
    for claim in lost:
        known = [state.nodes[node].changed_at for node in claim.nodes if node in state.nodes]
        if claim.lost:
            times.append(_AT_ONCE)
        elif known:
            times.append(max(known))
        elif pod is not None and pod.unscheduled_since is not None:
            times.append(pod.unscheduled_since)
    return min(times, default=None)


def is_given_up(pod: Pod | None, lost: Iterable[Claim]) -> bool:
    """Whether only Kubernetes has still something to do: a pod that no node runs holds no claim back."""
    return all(claim.terminating for claim in lost) and (pod is None or pod.node is None)
