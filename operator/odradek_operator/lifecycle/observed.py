"""What Kubernetes shows of one cluster, as frozen values. Pure.

Enters: objects of the API server, as the watches or lists gave them (`parse_*`). Leaves: `KubernetesState`, from which
`rolling`, `release` and `plan` decide. What is not there is missing, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of a StatefulSet."""

    name: str
    uid: str
    ordinal: int
    node: str | None
    """None while it is not scheduled."""
    ready: bool
    terminating: bool
    restart_hash: str
    """Of the template from which it was made; empty where a stranger made it."""
    phase: str
    """`Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`."""
    trouble: str
    """Why it is not ready, in a sentence from its conditions and container states; empty while nothing is known."""
    unscheduled_since: float | None
    """Seconds since the epoch at which the scheduler last changed its mind that it fits nowhere; None otherwise."""
    claims: tuple[str, ...] = ()
    """Names of its volume claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A volume claim of a broker or of a member of the ensemble."""

    name: str
    uid: str
    volume: str | None
    """Name of the persistent volume; None while it is not bound."""
    nodes: tuple[str, ...]
    """The nodes to which the volume is tied by its affinity; empty where it can be reached from all."""
    lost: bool
    """Whether Kubernetes says that the volume is gone (phase `Lost`)."""
    terminating: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of Kubernetes."""

    name: str
    ready: bool
    changed_at: float
    """Seconds since the epoch at which `ready` last changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """A StatefulSet."""

    name: str
    replicas: int
    """As specified."""
    restart_hash: str
    """Of its template: pods with another one are outdated."""
    generation_observed: bool
    """Whether its controller has seen the last specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesState:
    """Everything of one cluster."""

    brokers: Mapping[int, Pod] = field(default_factory=dict)
    """By broker id."""
    ensemble: Mapping[int, Pod] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    """By name, of brokers and ensemble."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """Every node, by name."""
    sets: Mapping[str, Set] = field(default_factory=dict)
    """StatefulSets by name."""
