"""Decides which disks of brokers and ensemble members are lost, and since when. Pure; used by `release` and others.

A disk is *lost* if its claim is `Lost`, or if its volume is bound to nodes of which none exists and is ready, and the
pod that uses it does not run elsewhere. A pod that is Pending for lack of memory has not lost its disk. The time is
when the node stopped being ready; if the node no longer exists, it is when its pod became unschedulable. A volume that
other nodes can reach is never lost with a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Pod

_AT_ONCE: Final = float("-inf")


def is_unreachable(state: KubernetesState, node: str) -> bool:
    """Whether the node does not exist or is not ready."""
    return node not in state.nodes or not state.nodes[node].ready


def is_homeless(state: KubernetesState, pod: Pod) -> bool:
    """Whether a pod is missing because of its node or disk, and not because it was restarted."""
    if pod.node is not None:
        return is_unreachable(state, pod.node)
    return any(_is_lost(state, state.claims[name]) for name in pod.claims if name in state.claims)


def lost_claims(state: KubernetesState, pod: Pod | None, names: Iterable[str]) -> list[Claim]:
    """Return the claims of a pod whose disks are lost; only `Lost` ones while the pod is on a ready node."""
    if pod is not None and pod.node is not None and not is_unreachable(state, pod.node):
        return [state.claims[name] for name in pod.claims if name in state.claims and state.claims[name].lost]
    claims = (state.claims[name] for name in names if name in state.claims)
    return [claim for claim in claims if _is_lost(state, claim)]


def _is_lost(state: KubernetesState, claim: Claim) -> bool:
    return claim.lost or (bool(claim.nodes) and all(is_unreachable(state, node) for node in claim.nodes))


def lost_since(state: KubernetesState, pod: Pod | None, lost: Iterable[Claim]) -> float | None:
    """Return since when the first of these disks is lost; None if that is unknown."""
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
    """Whether nothing but Kubernetes has to act: a pod that runs on no node does not block its claims."""
    return all(claim.terminating for claim in lost) and (pod is None or pod.node is None)
