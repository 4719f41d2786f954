"""The operator's own settings, from the environment and the command line, with their bounds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_operator.objects.podspec import ImageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """What an operator is told at its start."""

    images: ImageSettings
    namespaces: tuple[str, ...] = ()
    """That are watched; empty: all of them."""
    identity: str = "odradek-operator"
    """Of this process, in leases and Events: the pod's name."""
    own_namespace: str = "default"
    """Of the operator's pod."""
    leader_election: bool = True
    lease_seconds: int = 15
    """For so long after its last sign of life an operator's namespaces are left to it; 5 or more."""
    idle_seconds: float = 30.0
    """Between two rounds of a cluster of which nothing is heard."""
    resync_seconds: float = 300.0
    """Between two rounds in which every object is applied anew, whatever is known of it."""
    writes_per_second: float = 15.0
    """Of the whole operator, to the API server."""
    metrics_port: int = 8080
