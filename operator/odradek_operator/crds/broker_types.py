"""The brokers of a Cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from odradek.base.config import BROKER_SETTINGS, broker_setting
from odradek.base.errors import ConfigError
from odradek.base.settings_catalogue import IDLE_BROKER_SETTINGS, check_allowed
from odradek_operator.crds.fields import (
    Amounts,
    Flag,
    Image,
    Name,
    PropertyEntries,
    Text,
    Whole,
    Written,
    without_keys,
)
from odradek_operator.crds.model import Check, Complaint, Group, Model, Reading, Rule, must, published, repeated
from odradek_operator.crds.pod_types import (
    ComputeResources,
    PodTemplate,
    ReleaseSeconds,
    SecretName,
    Spread,
    VolumeSize,
    volume_rules,
)
from odradek_operator.crds.problems import nearest
from odradek_operator.crds.topic_types import DEFAULT_REPLICAS, MAX_BROKERS
from odradek_operator.objects.slots import ID_STRIDE, MAX_PER_POD

MAX_BROKER_ID: Final = 999_999_999
"""Ids have at most nine digits, so that the names of Services have at most 63 characters."""
MAX_FIRST_BROKER_ID: Final = MAX_BROKER_ID - ID_STRIDE
MAX_VOLUME_ID: Final = 999
MAX_VOLUMES: Final = 16
MAX_RACKS: Final = 64
MAX_SECRETS: Final = 16
MAX_REBALANCED_PARTITIONS: Final = 1_000
"""Partitions of one portion. A portion is one transaction of ZooKeeper, which is limited to 1 MB."""

OPERATED_KEYS: Final = frozenset(
    {
        "broker.id",
        "broker.machine",
        "broker.rack",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "log.dir",
        "log.dirs",
        "zookeeper.connect",
        "metrics.host",
        "metrics.port",
    }
)
"""Broker properties that follow from the rest of the resource and differ between brokers."""
_KNOWN_SETTINGS: Final = {**IDLE_BROKER_SETTINGS, **BROKER_SETTINGS}
SENSITIVE_KEYS: Final = frozenset(key for key, setting in _KNOWN_SETTINGS.items() if setting.sensitive)
"""Broker properties that belong into a Secret: the properties of the resource are written to a ConfigMap."""
_SENSITIVE_OF_LISTENERS: Final = sorted(key for key in SENSITIVE_KEYS if _KNOWN_SETTINGS[key].of_listener)


def is_sensitive(key: str) -> bool:
    """Whether a broker property belongs into a Secret, also with the prefix of a listener and a mechanism."""
    setting = broker_setting(key)
    return setting is not None and setting.sensitive


def _without_secrets_of_listeners() -> str:
    """Return the CEL expression that a mapping has no secret of one listener, such as
    listener.name.clients.ssl.keystore.password."""
    ends = " || ".join(f"key.endsWith('.{key}')" for key in _SENSITIVE_OF_LISTENERS)
    return f"self.all(key, !key.startsWith('listener.name.') || !({ends}))"


def unknown_setting(key: str) -> str:
    """Return the message about a broker property that does not exist."""
    return f"is not a setting of this broker or of Apache Kafka 3.9{nearest(key, _KNOWN_SETTINGS)}."


def _config_problem(key: str, value: str, reading: Reading) -> str | None:
    """Return what is wrong. Secrets are refused by the schema only: `notices_of` reports stored ones."""
    if key in OPERATED_KEYS:
        return "is set by the operator for each broker: remove it."
    setting = broker_setting(key)
    if setting is None:
        # On Kubernetes an unknown property of a stored resource must not stop everything else: see `notices_of`.
        return unknown_setting(key) if reading.embedded else None
    try:
        setting.parse(value)
        check_allowed(key, value)
    except ConfigError as error:
        return f"{error}."
    return None


_CONFIG_RULES: Final = (
    Rule(
        without_keys(OPERATED_KEYS),
        "The operator sets one of these properties for each broker: remove it. The operator sets: "
        f"{', '.join(sorted(OPERATED_KEYS))}.",
    ),
    Rule(
        f"{without_keys(SENSITIVE_KEYS)} && {_without_secrets_of_listeners()}",
        "A property here is a password, and many can read this resource: put it into a Secret and name the Secret in "
        f"configFrom. Passwords are: {', '.join(sorted(SENSITIVE_KEYS))}; also with listener.name.NAME. before them.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume(Model):
    """A disk of each broker."""

    cel_rules: ClassVar[tuple[Rule, ...]] = volume_rules("a volume")

    id: Annotated[Whole, Field(ge=0, le=MAX_VOLUME_ID)]
    """Number of the volume, part of the names of its claims."""
    size: VolumeSize
    """Size of the claim, such as 100Gi. It can grow if its class allows that. It cannot shrink."""
    storage_class: Name | None = None
    """StorageClass of the claim. If not set, the default class of the Kubernetes cluster. Local SSDs are best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance(Model):
    """How replicas move when the number of brokers, or the replication factor of a topic, changes."""

    partitions: Annotated[Whole, Field(ge=1, le=MAX_REBALANCED_PARTITIONS)] = 10
    """Maximum number of partitions of the cluster that move at the same time."""
    throttle_bytes_per_second: Annotated[
        int, Amounts(at_least="1"), Field(alias="throttle"), published(default="50M")
    ] = 50_000_000
    """Maximum bytes per second that moving replicas use, for each broker and direction. 50M is 50 megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SecretSource(Model):
    """A source of properties."""

    secret_ref: SecretName
    """A Secret."""


def _shared_ensemble_only(brokers: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """Only the reader knows where the resource comes from."""
    if reading.embedded and (first := brokers.get("firstBrokerId", 0)) != 0:
        allowed = "0 in an embedded cluster, which shares its ensemble with no other brokers"
        yield must(("firstBrokerId",), allowed, first)


def _ids_are_short(brokers: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rule of `Brokers` is the same."""
    first, per_pod = brokers.get("firstBrokerId", 0), brokers.get("perPod", 1)
    if isinstance(first, int) and isinstance(per_pod, int) and first <= MAX_FIRST_BROKER_ID and per_pod <= MAX_PER_POD:
        most = MAX_BROKER_ID - ID_STRIDE * per_pod
        if first > most:
            yield must(("firstBrokerId",), f"at most {most} with perPod {per_pod}", first)


def _rack_is_named(brokers: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rule of the group `rack` is the same."""
    if "rack" in brokers and not {"rack.topologyKey", "rack.names"} & brokers.keys():
        yield Complaint(("rack.topologyKey",), "must be text that is not empty, and it is missing.")


def _volumes_differ(brokers: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The schema has this rule as `list_key`."""
    return repeated(brokers, "storage.volumes", "id", "the other volumes' ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers(Model):
    """The brokers of a cluster. The id of a broker is the ordinal of its pod plus 1000 times its slot in the pod."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # The published default of the whole mapping is empty, so fields may be missing.
            "(has(self.firstBrokerId) ? self.firstBrokerId : 0) + "
            f"{ID_STRIDE} * (has(self.perPod) ? self.perPod : 1) <= {MAX_BROKER_ID}",
            f"firstBrokerId and {ID_STRIDE} * perPod must be at most {MAX_BROKER_ID} together: ids have at most nine "
            "digits.",
        ),
    )
    field_groups: ClassVar[Mapping[str, Group]] = {
        "storage": Group(description="Storage of the records.", default={}),
        "rack": Group(
            description="Racks, or zones: the replicas of a partition are spread over them.",
            rules=(Rule("has(self.topologyKey) || has(self.names)", "rack needs topologyKey: the label of the rack."),),
        ),
    }
    checks: ClassVar[tuple[Check, ...]] = (
        _shared_ensemble_only,
        _ids_are_short,
        _rack_is_named,
        _volumes_differ,
    )

    replicas: Annotated[Whole, Field(ge=1, le=MAX_BROKERS)] = DEFAULT_REPLICAS
    """Number of broker pods, each with perPod brokers. When it grows, replicas move to the new brokers. When it
    shrinks, the brokers of the pods with the highest ordinals are drained first. spec.brokers.rebalance limits both."""
    per_pod: Annotated[Whole, Field(ge=1, le=MAX_PER_POD)] = 1
    """Number of brokers in each pod. A broker uses about one core, so set it to the number of cores of a machine that
    the cluster may use. Two replicas of a partition are in one pod only if it has a replica in every pod. A change
    restarts the pods one after the other. When it shrinks, the brokers of the highest slots are drained first. The
    broker of slot k listens on each port + 1000 * k."""
    first_id: Annotated[Whole, Field(alias="firstBrokerId", ge=0, le=MAX_FIRST_BROKER_ID)] = 0
    """The lowest broker id. The first brokers of the pods have the ids from it on without a gap, the brokers of slot k
    the same ids + 1000 * k. Set it for a cluster that joins an ensemble (zookeeper.connect) in which other brokers have
    the ids from 0. It can change only while the cluster has no broker."""
    volumes: Annotated[
        tuple[Volume, ...],
        Field(alias="storage.volumes", max_length=MAX_VOLUMES),
        published(
            Rule(
                "size(self) == size(oldSelf) && self.all(one, oldSelf.exists(old, old.id == one.id))",
                "Volumes cannot be added or removed later, because their claims belong to the pods: set the list back, "
                "or create another cluster.",
            ),
            list_key="id",
            default=[],
        ),
    ] = ()
    """The disks of each broker. Each is a log directory. Without volumes, records are kept in the pod and are lost with
    it: use that only for tests."""
    delete_claims: Annotated[Flag, Field(alias="storage.deleteClaims")] = False
    """Whether the claims of the brokers, with all records, are deleted when the Cluster is deleted. If false, they are
    kept, and a new Cluster with the same name finds its records again."""
    release_lost_after_seconds: Annotated[ReleaseSeconds, Field(alias="storage.releaseLostAfterSeconds")] = 300
    """Seconds that the node or disk of a broker may be gone before its claim is deleted. The broker then starts on
    another node with an empty disk and fetches its replicas again. The claim is deleted only if each partition of the
    broker has an in-sync replica elsewhere. 0 never deletes it."""
    rack_topology_key: Annotated[Text | None, Field(alias="rack.topologyKey", max_length=317)] = None
    """The label of nodes that contains their rack, such as topology.kubernetes.io/zone."""
    rack_names: Annotated[
        tuple[Annotated[Name, Field(description="Name of a rack.")], ...],
        Field(alias="rack.names", max_length=MAX_RACKS),
    ] = ()
    """Racks of the brokers of an embedded cluster, which has no nodes. The brokers get them in turn. On Kubernetes the
    label of the node is used."""
    spread: Spread = Spread.REQUIRED
    """Required: a node gets a second broker only when every node that the brokers may run on has one, unless their
    volumes leave no other choice. Preferred: the scheduler prefers nodes without a broker. A change applies to pods
    that start after it. An affinity.podAntiAffinity in the template replaces it."""
    image: Image | None = None
    """Image of the brokers, with its tag or digest. If not set, it follows from the image prefix of the operator and
    spec.version. It must contain the same program: pods with another image do not start."""
    resources: ComputeResources = ComputeResources()
    """Requests and limits of each broker, as in any container of Kubernetes. A pod needs perPod times as much. An idle
    broker needs about 150Mi of memory; the rest serves as the page cache of its logs."""
    template: PodTemplate = PodTemplate()
    """Additions to the pods of the brokers. Names and meanings are those of Kubernetes pods. Every change restarts the
    pods, one after the other."""
    rebalance: Annotated[Rebalance, published(default={})] = Rebalance()
    """How replicas move when the number of brokers, or the replication factor of a topic, changes."""
    config: Annotated[Mapping[str, str], PropertyEntries(check=_config_problem), published(*_CONFIG_RULES)] = field(
        default_factory=dict
    )
    """Kafka's broker properties, by Kafka's names. Properties that a running broker can change are changed without a
    restart. The operator sets ids, listeners, racks, directories and ZooKeeper. The status reports wrong values.
    Unknown names have no effect; the status warns of them, with the nearest known name. Values are text or whole
    numbers: put true, false and fractions in quotes."""
    config_secrets: Annotated[
        tuple[Annotated[str, Written(_SecretSource, lambda source: source.secret_ref.name)], ...],
        Field(alias="configFrom", max_length=MAX_SECRETS),
    ] = ()
    """Secrets of this namespace whose entries are broker properties too: each key is the name of a property, such as
    zookeeper.ssl.keystore.password. They take precedence over config. The brokers read them when they start: restart
    the brokers after a change."""

    def ordinals(self, pods: int | None = None) -> range:
        """Return the ordinals of the first `pods` pods; without `pods`, of all that are specified."""
        return range(self.first_id, self.first_id + (self.replicas if pods is None else pods))

    def ids(self, pods: int | None = None, per_pod: int | None = None) -> frozenset[int]:
        """Return the ids of the brokers in the first `pods` pods with `per_pod` brokers each.

        Without `pods` or `per_pod`, the number in the specification counts.
        """
        return frozenset(
            broker for ordinal in self.ordinals(pods) for broker in self.ids_of_pod(ordinal, per_pod=per_pod)
        )

    def ids_of_pod(self, ordinal: int, per_pod: int | None = None) -> tuple[int, ...]:
        """Return the ids of the brokers of a pod, in the order of their slots."""
        count = self.per_pod if per_pod is None else per_pod
        return tuple(ordinal + ID_STRIDE * slot for slot in range(count))

    def pod_of(self, broker: int) -> int:
        """Return the ordinal of the pod of a broker. The broker must belong to this cluster."""
        return self.first_id + (broker - self.first_id) % ID_STRIDE

    def slot_of(self, broker: int) -> int:
        """Return the slot of a broker in its pod. The broker must belong to this cluster."""
        return (broker - self.first_id) // ID_STRIDE
