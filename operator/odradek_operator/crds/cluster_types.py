"""The Cluster resource: listeners, ensemble, monitoring, network access. The brokers are in `broker_types`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Field

from odradek_operator.crds.broker_types import Brokers
from odradek_operator.crds.fields import (
    Flag,
    Image,
    Json,
    Name,
    PropertyEntries,
    Text,
    Verbatim,
    Whole,
    matching,
    without_keys,
)
from odradek_operator.crds.listener_types import (
    DEFAULT_AUTHORITIES,
    MAX_WINDOWS,
    RESERVED_PORTS,
    CertificateAuthorities,
    Listener,
    ListenerType,
    MaintenanceWindow,
)
from odradek_operator.crds.metadata import MAX_CLUSTER_NAME_LENGTH, METADATA, SPECIFICATION, Metadata
from odradek_operator.crds.model import Check, Complaint, Group, Model, Reading, Rule, must, published, repeated
from odradek_operator.crds.pod_types import (
    ComputeResources,
    PodTemplate,
    ReleaseSeconds,
    Spread,
    VolumeSize,
    volume_rules,
)
from odradek_operator.objects.names import (
    SECURE_REPLICATION_LISTENER,
    SECURE_REPLICATION_PORT,
    BrokerLink,
    EnsembleLink,
)
from odradek_operator.objects.slots import MAX_PER_POD, MAX_PORT, PORT_STRIDE, collide

DEFAULT_VERSION: Final = "0.1.0"
DEFAULT_ZOOKEEPERS: Final = 3
DEFAULT_ZOOKEEPER_SIZE: Final = "10Gi"
"""Default size of a member's claim."""
MAX_EXTERNAL_NAMES_LENGTH: Final = 46
"""The names of the cluster and of an external listener together: their Service has 17 more characters, of 63."""
MAX_LISTENERS: Final = 16
MAX_PEERS: Final = 16
MAX_ZOOKEEPERS: Final = 99
OPERATED_ZOOKEEPER_KEYS: Final = frozenset(
    {
        "dataDir",
        "dataLogDir",
        "clientPort",
        "clientPortAddress",
        "admin.enableServer",
        "admin.serverPort",
        "4lw.commands.whitelist",
        "dynamicConfigFile",
    }
)
"""ZooKeeper properties that follow from the rest of the resource; so do those that begin with `server.`."""
OWN_ENSEMBLE: Final = ("replicas", "storage", "spread", "image", "resources", "template", "config")
"""Fields that have no meaning for an existing ensemble."""

CLUSTER_NAME_PATTERN: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
CLUSTER_NAME_ALLOWED: Final = (
    f"lower-case letters, digits and '-', at most {MAX_CLUSTER_NAME_LENGTH}, beginning with a letter and ending with a "
    "letter or digit"
)


def _zookeeper_config_problem(key: str, value: str, reading: Reading) -> str | None:
    """Return what is wrong. Passwords are refused by the schema only."""
    is_operated = key in OPERATED_ZOOKEEPER_KEYS or key.startswith("server.")
    return "is set by the operator: remove it." if is_operated else None


def _ensemble(zookeeper: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules are the same."""
    replicas = zookeeper.get("replicas")
    if isinstance(replicas, int) and replicas % 2 == 0:
        allowed = "odd: an even ensemble survives no more failures than the next smaller one"
        yield must(("replicas",), allowed, replicas)
    own = [name for name in OWN_ENSEMBLE if name in zookeeper]
    if "connect" in zookeeper and own:
        yield Complaint(("connect",), f"names an existing ensemble: remove {', '.join(own)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeper(Model):
    """The ensemble of the cluster, or with `connect` an existing one.

    `replicas` and `spread` have no default in the schema, because they must be missing for an existing ensemble.
    """

    field_groups: ClassVar[Mapping[str, Group]] = {
        "storage": Group(
            description=f"The disk of each member. If not set, {DEFAULT_ZOOKEEPER_SIZE} of the default StorageClass of "
            "the Kubernetes cluster.",
            needs=("size",),
            rules=volume_rules("ZooKeeper"),
        )
    }
    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.connect) || !({' || '.join(f'has(self.{name})' for name in OWN_ENSEMBLE)})",
            f"connect names an existing ensemble: remove {', '.join(OWN_ENSEMBLE)}.",
        ),
        Rule(
            "has(self.connect) == has(oldSelf.connect)",
            "A cluster cannot change between its own ensemble and an existing one: create another cluster.",
        ),
        Rule(
            "has(self.storage) == has(oldSelf.storage)",
            "zookeeper.storage can be neither added nor removed later: set it back.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_ensemble,)

    replicas: Annotated[
        Whole,
        Field(
            ge=1,
            le=MAX_ZOOKEEPERS,
            description=f"Number of members, {DEFAULT_ZOOKEEPERS} if not set. It must be odd. The ensemble works while "
            "more than half of the members run. It cannot change later: the operator keeps the present number.",
        ),
        published(
            Rule("self % 2 == 1", "replicas must be odd: an even ensemble survives no more failures."), default=None
        ),
    ] = DEFAULT_ZOOKEEPERS
    size: Annotated[VolumeSize | None, Field(alias="storage.size")] = None
    """Size of the claim, such as 10Gi. It can grow if its class allows that. It cannot shrink."""
    storage_class: Annotated[Name | None, Field(alias="storage.storageClass")] = None
    """StorageClass of the claim. If not set, the default class of the Kubernetes cluster."""
    delete_claims: Annotated[Flag, Field(alias="storage.deleteClaims")] = False
    """Whether the claims of the ensemble are deleted when the Cluster is deleted. Without them the data on the disks of
    the brokers cannot be used: keep them if you keep the claims of the brokers."""
    release_lost_after_seconds: Annotated[ReleaseSeconds, Field(alias="storage.releaseLostAfterSeconds")] = 300
    """Seconds that the node or disk of a member may be gone before its claim is deleted. The member then starts on
    another node and copies the data from the leader. The claim is deleted only while all other members serve. 0 never
    deletes it."""
    spread: Annotated[Spread, published(default=None)] = Spread.REQUIRED
    """Required, which is the default: a node gets a second member only when every node that the members may run on has
    one, unless their volumes leave no other choice. Preferred: the scheduler prefers nodes without a member. A change
    applies to pods that start after it. An affinity.podAntiAffinity in the template replaces it."""
    image: Image | None = None
    """Image of the ensemble, with its tag or digest. If not set, it follows from the image prefix of the operator and
    spec.version. It must contain the same program: pods with another image do not start."""
    resources: ComputeResources = ComputeResources()
    """Requests and limits of each member, as in any container of Kubernetes."""
    template: PodTemplate = PodTemplate()
    """Additions to the pods of the ensemble. Names and meanings are those of Kubernetes pods. Every change restarts the
    pods, one after the other."""
    config: Annotated[
        Mapping[str, str],
        PropertyEntries(check=_zookeeper_config_problem),
        published(
            Rule(
                f"{without_keys(OPERATED_ZOOKEEPER_KEYS)} && self.all(key, !key.startsWith('server.'))",
                "The operator sets one of these properties: remove it. The operator sets: server.*, "
                f"{', '.join(sorted(OPERATED_ZOOKEEPER_KEYS))}.",
            ),
            Rule(
                "self.all(key, !key.endsWith('assword'))",
                "A property here is a password, and many can read this resource: remove it.",
            ),
        ),
    ] = field(default_factory=dict)
    """ZooKeeper's properties, such as tickTime. Each change restarts the members one after the other. Values are text
    or whole numbers: put true, false and fractions in quotes."""
    connect: Annotated[Text | None, Field(max_length=2_048)] = None
    """An existing ensemble, as host:port,host:port/chroot. The operator starts no ensemble then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring(Model):
    """Objects for Prometheus and Grafana."""

    field_groups: ClassVar[Mapping[str, Group]] = {
        "exporter": Group(description="The process that serves sizes of topics and lag of consumer groups.", default={})
    }

    pod_monitors: Flag = False
    """Whether the operator creates PodMonitor objects. They need the Prometheus operator."""
    rules: Flag = False
    """Whether the operator creates a PrometheusRule with the alert rules. It needs the Prometheus operator."""
    dashboards: Flag = False
    """Whether the operator creates ConfigMaps with the dashboards, with the label that Grafana's sidecar selects."""
    exporter: Annotated[Flag, Field(alias="exporter.enabled")] = True
    """Whether the exporter runs. Without it, the statuses of Topics have neither sizes nor lag, and the brokers provide
    the metrics of consumer lag."""
    exporter_resources: Annotated[ComputeResources, Field(alias="exporter.resources")] = ComputeResources()
    """Requests and limits of the exporter, as in any container of Kubernetes."""


_Peer = Annotated[Json, Verbatim("A peer as in a NetworkPolicy: podSelector, namespaceSelector or ipBlock.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAccess(Model):
    """Peers that reach ports which no client needs."""

    replication: Annotated[tuple[_Peer, ...] | None, Field(max_length=MAX_PEERS)] = None
    """Peers that reach port 9091, such as brokers outside of this cluster. If not set, nobody; with zookeeper.connect
    everybody, because such brokers may replicate from these."""
    metrics: Annotated[tuple[_Peer, ...] | None, Field(max_length=MAX_PEERS)] = None
    """Peers that read metrics on port 9404. If not set, pods with the label app.kubernetes.io/name: prometheus."""
    zookeeper: Annotated[tuple[_Peer, ...], Field(max_length=MAX_PEERS)] = ()
    """Peers that reach ZooKeeper on port 2181, such as tools."""


def _listeners(cluster: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The schema has these rules as `list_key` and as CEL rules of the list and of the Cluster."""
    for field_name in ("name", "port"):
        yield from repeated(cluster, "spec.listeners", field_name, "the other listeners'")
    name, listeners = cluster.get("metadata.name"), cluster.get("spec.listeners")
    if not isinstance(name, str) or not isinstance(listeners, list):
        return
    for index, listener in enumerate(listeners):
        if isinstance(listener, Mapping) and listener.get("type", "internal") != ListenerType.INTERNAL.value:
            listener_name, longest = listener.get("name"), max(1, MAX_EXTERNAL_NAMES_LENGTH - len(name))
            if isinstance(listener_name, str) and len(listener_name) > longest:
                reason = f"since its Services are named {name}-kafka-<name>-..."
                allowed = f"at most {longest} characters long, {reason}"
                yield must(("spec.listeners", index, "name"), allowed, listener_name)


def _ports_of_slots(cluster: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules of `spec` are the same. An embedded cluster checks the ports that it really uses."""
    brokers, listeners = cluster.get("spec.brokers"), cluster.get("spec.listeners")
    per_pod = brokers.get("perPod", 1) if isinstance(brokers, Mapping) else 1
    if (
        reading.embedded
        or type(per_pod) is not int
        or not 1 < per_pod <= MAX_PER_POD
        or not isinstance(listeners, list)
    ):
        return
    used = list(RESERVED_PORTS)
    for index, listener in enumerate(listeners):
        number = listener.get("port") if isinstance(listener, Mapping) else None
        if type(number) is not int or number in used:
            continue
        if number > MAX_PORT - PORT_STRIDE * (per_pod - 1):
            allowed = f"at most {MAX_PORT - PORT_STRIDE * (per_pod - 1)} with perPod {per_pod}"
            yield must(("spec.listeners", index, "port"), allowed, number)
        elif other := next((one for one in used if collide(one, number, per_pod)), None):
            allowed = f"another port with perPod {per_pod}: slots of it and of {other} have the same port"
            yield must(("spec.listeners", index, "port"), allowed, number)
        used.append(number)


def _secure_port(cluster: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The last CEL rules of `spec` are the same. Brokers of an embedded cluster have no such listener."""
    brokers, listeners = cluster.get("spec.brokers"), cluster.get("spec.listeners")
    per_pod = brokers.get("perPod", 1) if isinstance(brokers, Mapping) else 1
    found = [one for one in listeners if isinstance(one, Mapping)] if isinstance(listeners, list) else []
    is_secured = any(one.get("tls") is True or "authentication" in one for one in found)
    if reading.embedded or not is_secured or type(per_pod) is not int:
        return
    for index, listener in enumerate(found):
        number = listener.get("port")
        if type(number) is int and (
            number == SECURE_REPLICATION_PORT or collide(number, SECURE_REPLICATION_PORT, per_pod)
        ):
            allowed = f"a port that the brokers do not need: they use {SECURE_REPLICATION_PORT} among themselves"
            yield must(("spec.listeners", index, "port"), allowed, number)
        if listener.get("name") == SECURE_REPLICATION_LISTENER:
            allowed = f"another than {SECURE_REPLICATION_LISTENER}, by which the brokers listen to each other"
            yield must(("spec.listeners", index, "name"), allowed, SECURE_REPLICATION_LISTENER)


_LISTENED: Final = "has(self.listeners) && has(self.brokers) && has(self.brokers.perPod)"
_SLOT_RULES: Final = (
    Rule(
        f"!({_LISTENED}) || self.listeners.all(one, one.port + {PORT_STRIDE} * (self.brokers.perPod - 1) "
        f"<= {MAX_PORT})",
        f"The port of a listener is too high for perPod: slot k listens on the port + {PORT_STRIDE} * k, at most "
        f"{MAX_PORT}.",
    ),
    Rule(
        f"!({_LISTENED}) || self.listeners.all(one, {list(RESERVED_PORTS)}.all(kept, (one.port - kept) % {PORT_STRIDE} "
        f"!= 0 || one.port - kept >= {PORT_STRIDE} * self.brokers.perPod || kept - one.port >= {PORT_STRIDE} * "
        "self.brokers.perPod))",
        f"The port of a listener and {' or '.join(map(str, RESERVED_PORTS))}, which the broker pods use, differ by a "
        f"multiple of {PORT_STRIDE} that perPod also needs: choose another port.",
    ),
    Rule(
        f"!({_LISTENED}) || self.listeners.all(one, self.listeners.all(other, one.port == other.port || "
        f"(one.port - other.port) % {PORT_STRIDE} != 0 || one.port - other.port >= {PORT_STRIDE} * "
        f"self.brokers.perPod || other.port - one.port >= {PORT_STRIDE} * self.brokers.perPod))",
        f"The ports of two listeners differ by a multiple of {PORT_STRIDE} that perPod also needs: choose other ports.",
    ),
)
"""Ports of the brokers of a pod. `_ports_of_slots` is the same in the reader."""
_SECURED: Final = "has(self.listeners) && self.listeners.exists(one, one.tls || has(one.authentication))"
_SECURE_RULES: Final = (
    Rule(
        f"!({_SECURED}) || self.listeners.all(one, one.name != '{SECURE_REPLICATION_LISTENER}')",
        f"The brokers use the name {SECURE_REPLICATION_LISTENER} themselves: choose another.",
    ),
    Rule(
        f"!({_SECURED}) || self.listeners.all(one, (one.port - {SECURE_REPLICATION_PORT}) % {PORT_STRIDE} != 0 || "
        f"one.port - {SECURE_REPLICATION_PORT} >= {PORT_STRIDE} * self.brokers.perPod || {SECURE_REPLICATION_PORT} - "
        f"one.port >= {PORT_STRIDE} * self.brokers.perPod)",
        f"With tls or authentication, the brokers use port {SECURE_REPLICATION_PORT} among themselves, plus "
        f"{PORT_STRIDE} for each slot: choose another port for the listener.",
    ),
)
"""`_secure_port` is the same in the reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Metadata):
    """A cluster of Kafka-compatible brokers with its ZooKeeper ensemble."""

    __pydantic_config__: ClassVar[ConfigDict] = SPECIFICATION
    field_groups: ClassVar[Mapping[str, Group]] = {
        "metadata": METADATA,
        "spec": Group(
            description="The desired state of the cluster. The operator reconciles the cluster with it; the status "
            "reports the progress.",
            required=True,
            rules=(*_SLOT_RULES, *_SECURE_RULES),
        ),
    }
    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('^{CLUSTER_NAME_PATTERN}$')",
            f"The name of a Cluster must be {CLUSTER_NAME_ALLOWED}, because its Services are named after it.",
        ),
        Rule(
            "!has(self.spec.listeners) || self.spec.listeners.all(one, one.type == 'internal' || "
            f"size(self.metadata.name) + size(one.name) <= {MAX_EXTERNAL_NAMES_LENGTH})",
            "The names of the Cluster and of each external listener must have at most "
            f"{MAX_EXTERNAL_NAMES_LENGTH} characters together, because Services are named after both.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_listeners, _ports_of_slots, _secure_port)

    name: Annotated[
        Text,
        Field(alias="metadata.name", max_length=MAX_CLUSTER_NAME_LENGTH),
        matching(re.compile(CLUSTER_NAME_PATTERN)),
        published(allowed=CLUSTER_NAME_ALLOWED),
    ]
    version: Annotated[
        Text,
        Field(max_length=128, pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"),
        published(allowed="the tag of an image in quotes: letters, digits, '_', '.' and '-'", default=None),
    ] = DEFAULT_VERSION
    """Version of the brokers: the tag of their image. If not set, it is the version of the operator, so that an upgrade
    of the operator restarts the brokers with its version, one after the other."""
    brokers: Annotated[Brokers, published(default={})] = Brokers()
    """The brokers. All have the same specification. Their ids are 0, 1, 2 and so on, or start at firstBrokerId. With
    perPod, the ids of slot k are these + 1000 * k."""
    listeners: Annotated[
        tuple[Listener, ...],
        Field(min_length=1, max_length=MAX_LISTENERS),
        published(
            Rule(
                "self.all(one, self.exists_one(other, other.port == one.port))",
                "Two listeners have the same port: give each its own.",
            ),
            list_key="name",
            default=[{"name": "plain", "port": 9092, "type": "internal", "tls": False, "insecure": False}],
        ),
    ] = (Listener(name="plain", port=9092),)
    """Ports for clients. Each listener has its own port."""
    certificate_authorities: Annotated[CertificateAuthorities, published(default={})] = DEFAULT_AUTHORITIES
    """The authorities of a cluster with a listener that has tls or authentication."""
    maintenance_windows: Annotated[tuple[MaintenanceWindow, ...], Field(max_length=MAX_WINDOWS)] = ()
    """When members of the ensemble may restart because their certificates were renewed. If empty, at any time."""
    zookeeper: Annotated[ZooKeeper, published(default={})] = ZooKeeper()
    """The ensemble with the metadata of the cluster: its own, or with connect an existing one."""
    monitoring: Annotated[Monitoring, published(default={})] = Monitoring()
    """Objects for Prometheus and Grafana. Every pod serves its metrics on port 9404 in any case."""
    network_policies: Flag = True
    """Whether the operator creates NetworkPolicies. They let only brokers reach the brokers' own port, only brokers,
    operator and exporter reach ZooKeeper, Prometheus and operator reach the metrics, and clients reach the
    listeners."""
    network_access: NetworkAccess = NetworkAccess()
    """Peers that reach ports which no client needs, in addition to the pods of the cluster and the operator."""
    broker_link: Annotated[BrokerLink, Field(alias="brokerLink")] = BrokerLink.PLAINTEXT
    """How the brokers connect to each other now. Not in the resource: the loop of the cluster sets it."""
    ensemble_link: Annotated[EnsembleLink, Field(alias="ensembleLink")] = EnsembleLink.PLAINTEXT
    """How members are connected to now, as for `broker_link`."""
    ensemble_certificates: Annotated[str, Field(alias="ensembleCertificates")] = ""
    """Digest of the certificates of the members, empty without. Not in the resource either."""

    @property
    def is_secured(self) -> bool:
        """Whether a listener has TLS or authentication."""
        return any(not listener.plain for listener in self.listeners)

    @property
    def replication_is_open(self) -> bool:
        """Whether NetworkPolicies leave the port between brokers open to everybody.

        An existing ensemble may have brokers outside of this cluster that replicate from ours. Until the resource names
        them, a closed port would stop their replication.
        """
        return self.zookeeper.connect is not None and self.network_access.replication is None
