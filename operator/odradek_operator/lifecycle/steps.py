"""The steps that the operator can take on a running cluster, as values with reasons. Pure.

`rolling`, `balance`, `resize`, `release` and `cluster_plan` decide on steps. `kube` carries out those in Kubernetes,
`zookeeper_writer` those in ZooKeeper. Each step contains the conditions of its writes, and a reason for Events and
logs. Steps are not stored: a step that was not carried out is derived again from the observed state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.base.types import TopicPartition
from odradek.zk.ownership import ManagedBrokers
from odradek_operator.objects.names import Component


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPod:
    """Delete a pod, so that its StatefulSet creates it again from the current template."""

    component: Component
    ordinal: int
    pod: str
    uid: str
    """Precondition of the deletion, so that it does not affect a newer pod with this name."""
    reason: str
    force: bool = False
    """Whether to delete without grace period: the pod's node cannot confirm that it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseClaims:
    """Release the disks of a broker or member whose node or disk is lost: delete the claims, then the pod."""

    component: Component
    ordinal: int
    pod: str
    pod_uid: str | None
    """UID of the pod; None if there is no pod."""
    claims: Mapping[str, str]
    """UIDs of the claims by name."""
    reason: str
    force: bool = False
    """Whether to delete the pod without grace period: its node does not answer, so it would stay `Terminating`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReplicas:
    """Start a throttled portion of a reassignment: set the throttle, then write `/admin/reassign_partitions`."""

    targets: Mapping[TopicPartition, tuple[int, ...]]
    """Target replicas of each partition, preferred leader first."""
    versions: Mapping[str, int]
    """Versions of `/brokers/topics/T` of the topics, from which the targets were decided."""
    throttle_bytes_per_second: int
    broker_defaults: Mapping[str, str]
    """Entries added to `/config/brokers/<default>`: both rates, and the mark that the operator set them."""
    topic_configs: Mapping[str, Mapping[str, str]]
    """Entries added to `/config/topics/T`: the throttled replicas."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftThrottle:
    """Remove the throttle that `MoveReplicas` set, when no reassignment is in progress."""

    broker_defaults: tuple[str, ...]
    """Keys removed from `/config/brokers/<default>`: rates and mark."""
    topics: Mapping[str, tuple[str, ...]]
    """Keys removed from `/config/topics/T`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBrokerDefaults:
    """Replace the dynamic properties of all brokers, `/config/brokers/<default>`, and notify every broker."""

    config: Mapping[str, str] = field(repr=False)
    """May contain secrets of others."""
    version: int | None
    """None: there are none yet."""
    record: ManagedBrokers
    """The record, written in the same transaction even if unchanged, because the decision depends on it."""
    record_version: int | None
    """None: there is no record yet."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBrokers:
    """Record the cluster's properties and broker ids if the properties themselves are correct."""

    record: ManagedBrokers
    record_version: int | None
    """None: there is no record yet."""
    config_version: int | None
    """Version of `/config/brokers/<default>` on which the decision is based; None if it does not exist."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBrokerListeners:
    """Replace the settings of one broker, `/config/brokers/ID`, in which its listeners change, and notify it."""

    broker: int
    config: Mapping[str, str] = field(repr=False)
    """May contain secrets of others."""
    version: int | None
    """None: there are none yet."""
    reason: str


KubernetesStep = RestartPod | ReleaseClaims
ZooKeeperStep = MoveReplicas | LiftThrottle | SetBrokerDefaults | RecordBrokers | SetBrokerListeners
Step = KubernetesStep | ZooKeeperStep


BROKER_IDS: Final = "broker-ids"
SPEC: Final = "spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A change that cannot be made yet, with the reason."""

    what: str
    """`roll`, `zookeeper-roll`, `rebalance`, `scale-in`, `replication-factor` or `release`; `sizes` if the resource
    contradicts the record; `broker-ids` if other brokers use the ids; `claims` and `apply` if Kubernetes rejects a
    change. These values are stable, because conditions use them."""
    reason: str
    """Reason of a condition, in CamelCase."""
    message: str
    """Message with a full stop. The same state always gives the same message, so that it is reported once."""
    needs_person: bool = False
    """Whether a user has to act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one decision: a step to take now, and what has to wait."""

    step: Step | None = None
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of moving replicas."""

    remaining: int
    """Number of partitions that still have to move."""
    total: int
    """Number of partitions in the cluster."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDecision:
    """The decision about one cluster in one round."""

    broker_count: int
    """Size of the brokers' StatefulSet, which is the number of pods: more than specified while brokers are being
    drained. 0: it must not be created yet."""
    per_pod: int = 1
    """Number of brokers in each pod of the StatefulSet's template: more than specified while brokers are being
    drained."""
    steps: tuple[Step, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    progress: Progress | None = None
    reachable_slots: int = 1
    """Number of brokers in each pod that Services and NetworkPolicies include: at least `per_pod`, and as many as the
    pod with the most has."""
    outdated: frozenset[int] = frozenset()
    """Ordinals of the brokers' pods that have another template than the current one."""
    spread: frozenset[Component] = frozenset()
    """Components whose pods must be spread over nodes."""
    notices: tuple[str, ...] = ()
    """Warnings that do not block anything."""
    crowded: Mapping[str, str] = field(default_factory=dict)
    """Messages about topics with more replicas than pods, by topic; `notices` has the first of them."""
