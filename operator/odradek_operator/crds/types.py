"""Cluster and Topic of `odradek.dev/v1` as frozen values, with their defaults. Pure.

Enters: nothing; `reader` makes these of documents, `schema` derives the CRDs from the same fields. Leaves: what every
decision of the operator starts from. A field that stands here has an entry in the CRD and the other way round: a test
holds both together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

API_VERSION: Final = "odradek.dev/v1"
API_GROUP: Final = "odradek.dev/"
DEFAULT_VERSION: Final = "0.1.0"
DEFAULT_REPLICAS: Final = 3
MAX_BROKERS: Final = 1_000
MAX_PARTITIONS: Final = 100_000
"""Of one topic. What a cluster bears is less; this only catches slips of the finger."""

Json = Mapping[str, Any]
"""A part of a Kubernetes object that is handed on as it is: Kubernetes itself says what is allowed in it."""


class Deletion(Enum):
    """What happens to a topic when its resource is removed."""

    PROTECT = "Protect"
    """It stays, with all its records."""
    DELETE = "Delete"


class Drift(Enum):
    """What happens when other tools change a topic's partitions or configuration behind its resource."""

    REVERT = "Revert"
    """The resource is the whole truth: configuration goes back to it; partitions that others added are told of."""
    ADOPT = "Adopt"
    """Changes by others to keys that the resource does not list, and added partitions, stay and stand in the status."""


class ListenerType(Enum):
    """From where a listener is reached."""

    INTERNAL = "internal"
    NODE_PORT = "nodeport"
    LOAD_BALANCER = "loadbalancer"


class Spread(Enum):
    """How firmly pods of one component are spread over nodes."""

    REQUIRED = "Required"
    """Evenly over the nodes that they may run on: none gets a second pod while another one has none."""
    PREFERRED = "Preferred"
    """The scheduler tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A disk of each broker."""

    id: int
    size: str
    storage_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A port that clients connect to."""

    name: str
    port: int
    type: ListenerType = ListenerType.INTERNAL
    tls: bool = False
    authentication: str | None = None
    """`tls`, `scram-sha-256` or `scram-sha-512`; None lets everybody in."""
    insecure: bool = False
    """Whether it may be reached from outside although it lets everybody in."""

    @property
    def plain(self) -> bool:
        """Whether it needs neither certificates nor passwords."""
        return not self.tls and self.authentication is None

    @property
    def is_exposed(self) -> bool:
        """Whether everybody outside of Kubernetes who reaches its port is let in."""
        return self.plain and self.type is not ListenerType.INTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """What the user adds to pods: where they run and what they carry. Kubernetes' own field names and meanings."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Json | None = None
    tolerations: tuple[Json, ...] = ()
    priority_class_name: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    termination_grace_period_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeResources:
    """Requests and limits of a container: quantities by resource name."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """How replicas move when the number of brokers, or a topic's replication factor, changes."""

    partitions: int = 10
    """At most so many partitions of the cluster are on the move at once."""
    throttle_bytes_per_second: int = 50_000_000
    """For each broker, in and out; `leader.replication.throttled.rate` and its follower twin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers of a cluster. A broker's id is the ordinal of its pod."""

    replicas: int = DEFAULT_REPLICAS
    first_id: int = 0
    """The lowest id; the others follow without a gap."""
    volumes: tuple[Volume, ...] = ()
    delete_claims: bool = False
    """Whether the brokers' volume claims, with all records, go when the Cluster resource goes."""
    release_lost_after_seconds: int = 300
    """How long a broker's node or disk may be gone before its claim is given up; 0 never gives up."""
    rack_topology_key: str | None = None
    """The label of Kubernetes nodes that says in which rack they are."""
    rack_names: tuple[str, ...] = ()
    """Racks of the brokers of an embedded cluster, which has no nodes."""
    spread: Spread = Spread.REQUIRED
    image: str | None = None
    """Instead of the one that the operator's image prefix and `version` give."""
    resources: ComputeResources = ComputeResources()
    template: PodTemplate = PodTemplate()
    rebalance: Rebalance = Rebalance()
    config: Mapping[str, str] = field(default_factory=dict)
    config_secrets: tuple[str, ...] = ()
    """Names of Secrets whose entries are broker properties too: `spec.brokers.configFrom`."""

    def ids(self, count: int | None = None) -> range:
        """The ids of the first `count` brokers, of all that are specified when it is left out."""
        return range(self.first_id, self.first_id + (self.replicas if count is None else count))


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeper:
    """An ensemble of its own, or with `connect` one that is there already."""

    replicas: int = 3
    size: str | None = None
    storage_class: str | None = None
    delete_claims: bool = False
    release_lost_after_seconds: int = 300
    """How long a member's node or disk may be gone before its claim is given up; 0 never gives up."""
    spread: Spread = Spread.REQUIRED
    image: str | None = None
    resources: ComputeResources = ComputeResources()
    template: PodTemplate = PodTemplate()
    config: Mapping[str, str] = field(default_factory=dict)
    connect: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """What is made for Prometheus and Grafana."""

    pod_monitors: bool = False
    """PodMonitor objects; the Prometheus operator's CRDs must be there."""
    rules: bool = False
    """A PrometheusRule object with the alert rules."""
    dashboards: bool = False
    """ConfigMaps with the dashboards, labelled for Grafana's side-car."""
    exporter: bool = True
    """The process that serves topics' and groups' lag; without it, statuses have no sizes and no lag."""
    exporter_resources: ComputeResources = ComputeResources()


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAccess:
    """Who reaches ports that no client needs, beside the cluster's own pods: peers as in a NetworkPolicy."""

    replication: tuple[Json, ...] | None = None
    """Port 9091. None: nobody, or everybody where `connect` names an existing ensemble."""
    metrics: tuple[Json, ...] | None = None
    """Port 9404. None: pods with the label `app.kubernetes.io/name: prometheus`."""
    zookeeper: tuple[Json, ...] = ()
    """Port 2181."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Cluster resource."""

    name: str
    namespace: str = "default"
    uid: str = ""
    """Of the Kubernetes object; empty in an embedded cluster."""
    version: str = DEFAULT_VERSION
    brokers: Brokers = Brokers()
    listeners: tuple[Listener, ...] = (Listener(name="plain", port=9092),)
    zookeeper: ZooKeeper = ZooKeeper()
    monitoring: Monitoring = Monitoring()
    network_policies: bool = True
    network_access: NetworkAccess = NetworkAccess()
    paused: bool = False
    """The annotation `odradek.dev/paused: "true"`: nothing is changed, only the status says so."""
    generation: int = 1
    unknown_fields: tuple[str, ...] = ()
    """Paths of fields that this version does not know. They have no effect."""

    @property
    def replication_is_open(self) -> bool:
        """Whether NetworkPolicies leave the port between brokers open to everybody.

        An existing ensemble may have brokers outside of this cluster that replicate from ours. Until the resource
        names them, closing the port would stop their replication.
        """
        return self.zookeeper.connect is not None and self.network_access.replication is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A Topic resource; its name is the topic's name."""

    name: str
    cluster: str
    namespace: str = "default"
    uid: str = ""
    partitions: int = 1
    replicas: int | None = None
    """None: `DEFAULT_REPLICAS`, or as many as the cluster has brokers when these are fewer."""
    config: Mapping[str, str] = field(default_factory=dict)
    deletion: Deletion = Deletion.PROTECT
    drift: Drift = Drift.REVERT
    paused: bool = False
    generation: int = 1
    unknown_fields: tuple[str, ...] = ()
    """Paths of fields that this version does not know. They have no effect."""

    def replicas_on(self, brokers: int) -> int:
        """The replication factor in a cluster of so many brokers."""
        return min(DEFAULT_REPLICAS, brokers) if self.replicas is None else self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a set of manifests says."""

    clusters: Mapping[str, Cluster]
    topics: Mapping[str, Topic]
    notices: tuple[str, ...] = ()
    """Sentences about what has no effect."""

    def topics_of(self, cluster: str) -> dict[str, Topic]:
        """The topics of a cluster by name."""
        return {name: topic for name, topic in self.topics.items() if topic.cluster == cluster}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the resources of one cluster say."""

    cluster: Cluster
    topics: Mapping[str, Topic] = field(default_factory=dict)
    removed: Mapping[str, Topic] = field(default_factory=dict)
    """Topics whose resource is gone and that are not yet dealt with, as their resource was last."""


def same_spec(left: Topic | Cluster, right: Topic | Cluster) -> bool:
    """Whether two resources want the same, whatever their generations."""
    return dataclasses.replace(left, generation=0) == dataclasses.replace(right, generation=0)
