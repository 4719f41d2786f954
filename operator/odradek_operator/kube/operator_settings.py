"""The settings of the operator, from the environment and the command line, with their bounds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_operator.objects.podspec import ImageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """The settings of one operator process."""

    images: ImageSettings
    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty for all."""
    identity: str = "odradek-operator"
    """Name of this process in Leases and Events: the pod's name."""
    own_namespace: str = "default"
    """Namespace of the operator's pod."""
    leader_election: bool = True
    lease_seconds: int = 15
    """Seconds after the last renewal until another operator may take over; at least 5."""
    idle_seconds: float = 30.0
    """Maximum seconds between two rounds of a cluster without events."""
    resync_seconds: float = 300.0
    """Seconds between two rounds that apply all objects, whether they seem changed or not."""
    writes_per_second: float = 15.0
    """Maximum writes per second to the API server, for the whole operator."""
    metrics_port: int = 8080
