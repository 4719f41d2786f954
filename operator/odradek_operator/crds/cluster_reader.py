"""The specification of a Cluster, field by field. Pure.

Enters: the `spec` section of a document, and its metadata. Leaves: a `Cluster`; what is wrong is noted in the
section, and nothing of the value may be used then. Called by `reader`. The rules are those of the CRD (`schema`), so
that a manifest is refused alike by `kubectl apply` and by `odradek up`; a rule that only one of them can know says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from odradek.base.config import BROKER_SETTINGS, Effect, broker_effect, broker_setting
from odradek.base.errors import ConfigError
from odradek.base.settings_catalogue import IDLE_BROKER_SETTINGS, check_allowed
from odradek_operator.crds.fields import OBJECT_NAME, QUANTITY, Rule, Section, nearest, quantity_value
from odradek_operator.crds.pod_reader import optional_text, read_resources_of, read_template
from odradek_operator.crds.types import (
    DEFAULT_REPLICAS,
    DEFAULT_VERSION,
    MAX_BROKERS,
    Brokers,
    Cluster,
    Listener,
    ListenerType,
    Monitoring,
    NetworkAccess,
    Rebalance,
    Spread,
    Volume,
    ZooKeeper,
)
from odradek_operator.objects.names import METRICS_PORT, REPLICATION_LISTENER, REPLICATION_PORT

OPERATED_KEYS: Final = frozenset(
    {
        "broker.id",
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
"""Broker properties that follow from the rest of the resource and differ from broker to broker."""

KNOWN_BROKER_SETTINGS: Final = (*BROKER_SETTINGS, *IDLE_BROKER_SETTINGS)
"""Names among which the nearest to a misspelled one is looked for."""

SENSITIVE_KEYS: Final = frozenset(key for key, setting in BROKER_SETTINGS.items() if setting.sensitive)
"""Broker properties that belong into a Secret: whatever stands in the resource ends up in a ConfigMap."""

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

MAX_CLUSTER_NAME_LENGTH: Final = 40
"""A pod's label with the revision of its StatefulSet is the name and up to 23 characters more, of 63."""
MAX_EXTERNAL_NAMES_LENGTH: Final = 46
"""Names of cluster and external listener together: their Service's has 17 more characters, of 63."""
MAX_LISTENER_NAME_LENGTH: Final = 25
MAX_FIRST_BROKER_ID: Final = 999_999_999 - MAX_BROKERS
"""Ids have at most nine digits, so that the names of Services stay within 63 characters."""
MAX_VOLUME_ID: Final = 999
MIN_VOLUME_SIZE: Final = "1Mi"
"""Less is a number whose unit was forgotten."""
MAX_ZOOKEEPERS: Final = 99
MAX_RELEASE_SECONDS: Final = 604_800
MAX_REBALANCED_PARTITIONS: Final = 1_000
"""Of one portion: it is one transaction of ZooKeeper, which bounds them at 1 MB."""
RESERVED_PORTS: Final = (REPLICATION_PORT, METRICS_PORT)
"""Of broker pods, for the brokers among themselves and for Prometheus."""
AUTHENTICATIONS: Final = ("tls", "scram-sha-256", "scram-sha-512")

CLUSTER_NAME_PATTERN: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_CLUSTER_NAME: Final = re.compile(CLUSTER_NAME_PATTERN)
CLUSTER_NAME: Final = Rule(
    lambda text: len(text) <= MAX_CLUSTER_NAME_LENGTH and _CLUSTER_NAME.fullmatch(text),
    f"lower-case letters, digits and '-', at most {MAX_CLUSTER_NAME_LENGTH}, beginning with a letter and ending with a "
    "letter or digit",
)
IMAGE_TAG_PATTERN: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
IMAGE_TAG: Final = Rule(
    re.compile(IMAGE_TAG_PATTERN).fullmatch, "the tag of an image in quotes: letters, digits, '_', '.' and '-'"
)
_LISTENER_NAME: Final = Rule(
    lambda text: len(text) <= MAX_LISTENER_NAME_LENGTH and text.isascii() and text.isalnum() and text == text.lower(),
    f"up to {MAX_LISTENER_NAME_LENGTH} lower-case letters and digits",
)


def read_cluster(name: str, spec: Section, *, secured: bool) -> Cluster:
    """The specification, with the defaults of what it leaves out; the metadata is the caller's.

    `secured` is said of the manifests of an embedded cluster: listeners may have TLS and authentication, which are
    refused otherwise, and unknown broker properties are refused. On Kubernetes these are left out, see `notices_of`.
    """
    cluster = Cluster(
        name=name,
        version=spec.text("version", DEFAULT_VERSION, rule=IMAGE_TAG),
        brokers=_brokers(spec.section("brokers"), embedded=secured),
        listeners=_listeners(spec, name, secured=secured) or Cluster(name=name).listeners,
        zookeeper=_zookeeper(spec.section("zookeeper")),
        monitoring=_monitoring(spec.section("monitoring")),
        network_policies=spec.boolean("networkPolicies", True),
        network_access=_network_access(spec.section("networkAccess")),
    )
    spec.close()
    return cluster


def notices_of(cluster: Cluster) -> tuple[str, ...]:
    """A sentence for each part of the resource that has no effect, or that exposes the cluster.

    An unknown broker property of a stored resource is no error, which would keep everything else from being done.
    """
    return (*_exposures(cluster), *_without_effect(cluster))


def _exposures(cluster: Cluster) -> Iterator[str]:
    """What the API server refuses in a new resource, but an older one may still have."""
    for listener in cluster.listeners:
        if listener.is_exposed and not listener.insecure:
            yield (
                f"Cluster {cluster.name}: everybody who reaches listener {listener.name} ({listener.type.value}) can "
                "read, write and delete everything. Remove the listener, or set insecure: true to accept that."
            )
    for key in sorted(SENSITIVE_KEYS & cluster.brokers.config.keys()):
        yield (
            f"Cluster {cluster.name}: {key} is a password in spec.brokers.config, which ends up in a ConfigMap. Move "
            "it to a Secret and name that in spec.brokers.configFrom."
        )
    if cluster.network_policies and cluster.replication_is_open:
        yield (
            f"Cluster {cluster.name}: everybody reaches port {REPLICATION_PORT}, as brokers outside of this cluster "
            "may replicate from it. Name them in spec.networkAccess.replication, or set it to [] if there are none."
        )


def unknown_field(kind: str, name: str, path: str) -> str:
    """The notice about a field that a newer resource definition allows."""
    return (
        f"{kind} {name}: this version of the operator does not know {path}, which has no effect. Upgrade the operator."
    )


def _without_effect(cluster: Cluster) -> Iterator[str]:
    for path in cluster.unknown_fields:
        yield unknown_field("Cluster", cluster.name, path)
    for key in cluster.brokers.config:
        match broker_effect(key):
            case Effect.UNKNOWN:
                yield f"Cluster {cluster.name}: {key} {_unknown(key)} It is left out."
            case Effect.IDLE:
                yield f"Cluster {cluster.name}: {key} is a setting of Apache Kafka that has no effect here."


def _unknown(key: str) -> str:
    return f"is not a setting of this broker or of Apache Kafka 3.9{nearest(key, KNOWN_BROKER_SETTINGS)}."


def _brokers(section: Section | None, *, embedded: bool) -> Brokers:
    if section is None:
        return Brokers()
    storage, rack = section.section("storage"), section.section("rack")
    brokers = Brokers(
        replicas=section.integer("replicas", DEFAULT_REPLICAS, low=1, high=MAX_BROKERS),
        first_id=_first_id(section, embedded=embedded),
        volumes=() if storage is None else _volumes(storage),
        delete_claims=False if storage is None else storage.boolean("deleteClaims", False),
        release_lost_after_seconds=_release_lost_after(storage, Brokers().release_lost_after_seconds),
        rack_topology_key=None if rack is None else _topology_key(rack),
        rack_names=() if rack is None else rack.texts("names"),
        spread=_spread(section),
        image=optional_text(section, "image"),
        resources=read_resources_of(section.section("resources")),
        template=read_template(section.section("template")),
        rebalance=_rebalance(section.section("rebalance")),
        config=_broker_config(section, embedded=embedded),
        config_secrets=_config_secrets(section),
    )
    for inner in (storage, rack):
        if inner is not None:
            inner.close()
    section.close()
    return brokers


def _first_id(section: Section, *, embedded: bool) -> int:
    first = section.integer("firstBrokerId", 0, low=0, high=MAX_FIRST_BROKER_ID)
    if first and embedded:
        section.refuse("firstBrokerId", "0 in an embedded cluster, which shares its ensemble with no other brokers")
    return first


def _release_lost_after(storage: Section | None, default: int) -> int:
    if storage is None:
        return default
    return storage.integer("releaseLostAfterSeconds", default, low=0, high=MAX_RELEASE_SECONDS)


def _topology_key(rack: Section) -> str | None:
    """Required, except where racks are given by their names, which only an embedded cluster uses."""
    return rack.text("topologyKey") if rack.has("topologyKey") or not rack.has("names") else None


def _volumes(storage: Section) -> tuple[Volume, ...]:
    volumes = []
    seen: set[int] = set()
    for entry in storage.sections("volumes"):
        volume = Volume(
            id=entry.integer("id", low=0, high=MAX_VOLUME_ID),
            size=_volume_size(entry),
            storage_class=optional_text(entry, "storageClass"),
        )
        if volume.id in seen:
            entry.refuse("id", "different from the other volumes' ids")
        seen.add(volume.id)
        entry.close()
        volumes.append(volume)
    return tuple(volumes)


def _spread(section: Section) -> Spread:
    return Spread(section.choice("spread", [one.value for one in Spread], Spread.REQUIRED.value))


def _volume_size(section: Section) -> str:
    size = section.text("size", rule=QUANTITY)
    if size and quantity_value(size) < quantity_value(MIN_VOLUME_SIZE):
        section.refuse("size", f"at least {MIN_VOLUME_SIZE}, with its unit, such as 100Gi")
    return size


def _rebalance(section: Section | None) -> Rebalance:
    default = Rebalance()
    if section is None:
        return default
    rebalance = Rebalance(
        partitions=section.integer("partitions", default.partitions, low=1, high=MAX_REBALANCED_PARTITIONS),
        throttle_bytes_per_second=section.amount("throttle", default.throttle_bytes_per_second, low=1),
    )
    section.close()
    return rebalance


def _broker_config(section: Section, *, embedded: bool) -> dict[str, str]:
    config = section.properties("config")
    for key, value in config.items():
        setting = broker_setting(key)
        if key in OPERATED_KEYS:
            section.complain_of_property("config", key, "is set by the operator for each broker: remove it.")
        elif setting is None:
            if embedded:
                section.complain_of_property("config", key, _unknown(key))
        else:
            try:
                setting.parse(value)
                check_allowed(key, value)
            except ConfigError as error:
                section.complain_of_property("config", key, f"{error}.")
    return config


def _config_secrets(section: Section) -> tuple[str, ...]:
    found = []
    for entry in section.sections("configFrom"):
        secret = entry.section("secretRef")
        if secret is None:
            entry.complain("secretRef", "is missing: it names a Secret with broker properties.")
        else:
            found.append(secret.text("name", rule=OBJECT_NAME))
            secret.close()
        entry.close()
    return tuple(found)


def _network_access(section: Section | None) -> NetworkAccess:
    if section is None:
        return NetworkAccess()
    access = NetworkAccess(
        replication=section.verbatim_list("replication") if section.has("replication") else None,
        metrics=section.verbatim_list("metrics") if section.has("metrics") else None,
        zookeeper=section.verbatim_list("zookeeper"),
    )
    section.close()
    return access


def _listeners(spec: Section, cluster: str, *, secured: bool) -> tuple[Listener, ...]:
    listeners: list[Listener] = []
    for entry in spec.sections("listeners"):
        authentication = entry.section("authentication")
        listener = Listener(
            name=entry.text("name", rule=_LISTENER_NAME),
            port=entry.integer("port", low=1, high=65_535),
            type=ListenerType(entry.choice("type", [kind.value for kind in ListenerType], "internal")),
            tls=entry.boolean("tls", False),
            authentication=authentication.choice("type", AUTHENTICATIONS) if authentication is not None else None,
            insecure=entry.boolean("insecure", False),
        )
        if authentication is not None:
            authentication.close()
        _check_listener(entry, listener, cluster)
        _check_security(entry, listener, secured=secured)
        for field_name in ("name", "port"):
            if getattr(listener, field_name) in [getattr(other, field_name) for other in listeners]:
                entry.refuse(field_name, "different from the other listeners'")
        entry.close()
        listeners.append(listener)
    return tuple(listeners)


def _check_listener(entry: Section, listener: Listener, cluster: str) -> None:
    """What is kept for the pods' own use, and how long names may be."""
    if listener.name == REPLICATION_LISTENER:
        entry.refuse("name", f"another than {REPLICATION_LISTENER}, by which the brokers listen to each other")
    if listener.port in RESERVED_PORTS:
        kept = " and ".join(map(str, RESERVED_PORTS))
        entry.refuse("port", f"another than {kept}, which broker pods use themselves")
    external = listener.type is not ListenerType.INTERNAL
    if external and len(cluster) + len(listener.name) > MAX_EXTERNAL_NAMES_LENGTH:
        room = max(1, MAX_EXTERNAL_NAMES_LENGTH - len(cluster))
        entry.refuse("name", f"at most {room} characters long, since its Services are named {cluster}-kafka-<name>-...")


def _check_security(entry: Section, listener: Listener, *, secured: bool) -> None:
    if secured:
        if listener.authentication == "tls" and not listener.tls:
            entry.complain("authentication", "type tls needs certificates: set tls: true for this listener.")
        if listener.is_exposed and not listener.insecure:
            # On Kubernetes the API server refuses it. A stored resource may be older than the rule: see `notices_of`.
            entry.complain("insecure", f"must be true for a listener of type {listener.type.value} without tls.")
        return
    for name, given in (("tls", listener.tls), ("authentication", listener.authentication is not None)):
        if given:
            entry.complain(name, "comes with a later version on Kubernetes: remove it, or remove this listener.")


def _zookeeper(section: Section | None) -> ZooKeeper:
    if section is None:
        return ZooKeeper()
    connect = optional_text(section, "connect")
    own = [name for name in OWN_ENSEMBLE if section.has(name)]
    if connect is not None and own:
        section.complain("connect", f"names an ensemble that is there already: leave out {', '.join(own)}.")
    storage = section.section("storage")
    replicas = section.integer("replicas", ZooKeeper().replicas, low=1, high=MAX_ZOOKEEPERS)
    if replicas % 2 == 0:
        section.refuse("replicas", "odd: an even ensemble survives no more failures than the next smaller one")
    zookeeper = ZooKeeper(
        replicas=replicas,
        size=None if storage is None else _volume_size(storage),
        storage_class=None if storage is None else optional_text(storage, "storageClass"),
        delete_claims=False if storage is None else storage.boolean("deleteClaims", False),
        release_lost_after_seconds=_release_lost_after(storage, ZooKeeper().release_lost_after_seconds),
        spread=_spread(section),
        image=optional_text(section, "image"),
        resources=read_resources_of(section.section("resources")),
        template=read_template(section.section("template")),
        config=_zookeeper_config(section),
        connect=connect,
    )
    if storage is not None:
        storage.close()
    section.close()
    return zookeeper


OWN_ENSEMBLE: Final = ("replicas", "storage", "spread", "image", "resources", "template", "config")
"""What means nothing for an ensemble that is there already."""


def _zookeeper_config(section: Section) -> dict[str, str]:
    config = section.properties("config")
    for key in config:
        if key in OPERATED_ZOOKEEPER_KEYS or key.startswith("server."):
            section.complain_of_property("config", key, "is set by the operator: remove it.")
    return config


def _monitoring(section: Section | None) -> Monitoring:
    if section is None:
        return Monitoring()
    default, exporter = Monitoring(), section.section("exporter")
    monitoring = Monitoring(
        pod_monitors=section.boolean("podMonitors", default.pod_monitors),
        rules=section.boolean("rules", default.rules),
        dashboards=section.boolean("dashboards", default.dashboards),
        exporter=default.exporter if exporter is None else exporter.boolean("enabled", default.exporter),
        exporter_resources=read_resources_of(None if exporter is None else exporter.section("resources")),
    )
    if exporter is not None:
        exporter.close()
    section.close()
    return monitoring
