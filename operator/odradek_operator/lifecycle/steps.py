"""What may be done to a running cluster over time, as values, each with its reason. Pure.

`rolling`, `balance`, `resize`, `release` and `cluster_plan` decide on steps; `kube` carries out those that concern
Kubernetes, `zookeeper_writer` those that concern ZooKeeper. Each step holds what its write is conditional upon, and a
reason that people read in Events and logs. Nothing here is a state: a step that was not carried out follows again from
what is observed.
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
    """Delete a pod, so that its StatefulSet makes it anew from the present template."""

    component: Component
    ordinal: int
    pod: str
    uid: str
    """The deletion demands it, lest a newer pod of the name be hit."""
    reason: str
    force: bool = False
    """Without grace: nobody is left on the pod's node who could confirm that it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseClaims:
    """Give up the disks of a broker or member whose node or disk is lost: delete the claims, then the pod."""

    component: Component
    ordinal: int
    pod: str
    pod_uid: str | None
    """None where there is no pod."""
    claims: Mapping[str, str]
    """Uids by name."""
    reason: str
    force: bool = False
    """Whether the pod goes without grace: its node does not answer, so it would stay `Terminating` for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReplicas:
    """Begin a portion of a reassignment, throttled: first the throttle, then `/admin/reassign_partitions`."""

    targets: Mapping[TopicPartition, tuple[int, ...]]
    """Replicas that each partition shall have, preferred leader first."""
    versions: Mapping[str, int]
    """Of `/brokers/topics/T` of each topic concerned, from which the targets were decided."""
    throttle_bytes_per_second: int
    broker_defaults: Mapping[str, str]
    """What is set in `/config/brokers/<default>`, beside what is there: both rates, and the mark that they are ours."""
    topic_configs: Mapping[str, Mapping[str, str]]
    """What is set in `/config/topics/T`, beside what is there: the replicas that the rates hold for."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftThrottle:
    """Remove the throttle that `MoveReplicas` set, when nothing moves any more."""

    broker_defaults: tuple[str, ...]
    """Keys that go from `/config/brokers/<default>`: rates and mark."""
    topics: Mapping[str, tuple[str, ...]]
    """Keys that go from `/config/topics/T`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBrokerDefaults:
    """Replace the dynamic properties of all brokers, `/config/brokers/<default>`, and tell every broker."""

    config: Mapping[str, str] = field(repr=False)
    """May contain secrets of others."""
    version: int | None
    """None: there are none yet."""
    record: ManagedBrokers
    """Written in the same transaction, also where it does not change: it is what the decision was made from."""
    record_version: int | None
    """None: there is no record yet."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBrokers:
    """Note which defaults and which ids are the cluster's, where the defaults themselves are as they should be."""

    record: ManagedBrokers
    record_version: int | None
    """None: there is no record yet."""
    config_version: int | None
    """Of `/config/brokers/<default>`, from which this was decided; None: there is none."""
    reason: str


KubernetesStep = RestartPod | ReleaseClaims
ZooKeeperStep = MoveReplicas | LiftThrottle | SetBrokerDefaults | RecordBrokers
Step = KubernetesStep | ZooKeeperStep


BROKER_IDS: Final = "broker-ids"
SPEC: Final = "spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Something that shall be done and is not yet, and what it waits for."""

    what: str
    """`roll`, `zookeeper-roll`, `rebalance`, `scale-in`, `replication-factor`, `release`; `sizes` where the resource
    contradicts what is recorded; `broker-ids` where ids are somebody else's; `claims` and `apply` where Kubernetes
    refuses something. Stable, for conditions."""
    reason: str
    """One CamelCase word for a condition."""
    sentence: str
    """Ends with a full stop; the same state always gives the same sentence, so that each is told once."""
    needs_person: bool = False
    """Whether waiting alone will not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one of the deciders says: a step to be taken now, and what has to wait."""

    step: Step | None = None
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far replicas have moved."""

    remaining: int
    """Partitions that are not yet where they shall be."""
    total: int
    """Partitions of the cluster."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDecision:
    """About one cluster, at one time."""

    broker_count: int
    """Pods that the brokers' StatefulSet shall have now: more than specified while brokers are being drained.
    0: the set must not be made yet."""
    steps: tuple[Step, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    progress: Progress | None = None
    outdated: frozenset[int] = frozenset()
    """Brokers whose pods were made from another template than the present one."""
    spread: frozenset[Component] = frozenset()
    """Components whose pods must spread over nodes."""
    notices: tuple[str, ...] = ()
    """Sentences about what is not as it should be and holds nothing up."""
