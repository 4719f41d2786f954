"""Documents to typed Cluster and Topic resources: what is allowed, and every problem of what is not. Pure.

Enters: YAML documents (`documents`), or the objects that Kubernetes hands to a handler. Leaves: `Resources`, or one
`ResourceError` with every problem of every document: file, line, resource, field, what is allowed. The embedded cluster
and the operator read the same resources through this module, so a manifest that works here works there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.base.config import BROKER_SETTINGS, TOPIC_SETTINGS
from odradek.base.errors import ConfigError
from odradek.base.topics import MAX_NAME_LENGTH as MAX_TOPIC_NAME_LENGTH
from odradek_operator.crds.types import (
    API_GROUP,
    API_VERSION,
    DEFAULT_REPLICAS,
    DEFAULT_VERSION,
    MAX_BROKERS,
    MAX_PARTITIONS,
    Brokers,
    Cluster,
    Deletion,
    Listener,
    ListenerType,
    Resources,
    Topic,
    Volume,
    ZooKeeper,
)
from odradek_operator.documents import Document
from odradek_operator.errors import ResourceError
from odradek_operator.fields import OBJECT_NAME, QUANTITY, Problem, Problems, Rule, Section, nearest

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


def read_resources(documents: Iterable[Document]) -> Resources:
    """Typed resources of all documents together. Raises `ResourceError` with every problem that was found."""
    reader = _Reader()
    for document in documents:
        reader.read(document)
    reader.check_references()
    if reader.problems:
        raise ResourceError(sorted(reader.problems, key=lambda problem: (problem.source, problem.line)))
    return Resources(clusters=reader.clusters, topics=reader.topics, notices=tuple(reader.notices))


class _Reader:
    """Collects resources and problems over many documents."""

    def __init__(self) -> None:
        self.clusters: dict[str, Cluster] = {}
        self.topics: dict[str, Topic] = {}
        self.problems: list[Problem] = []
        self.notices: list[str] = []
        self._places: dict[tuple[str, str], tuple[Problems, Section]] = {}

    def read(self, document: Document) -> None:
        content = document.content
        problems = Problems(document.source, f"document {document.number}")
        top = Section(problems, content, "")
        version = content.get("apiVersion")
        if isinstance(version, str) and not version.startswith(API_GROUP):
            self.notices.append(f"{document.source}:{content.line}: a resource of {version} is none of ours, left out.")
            return
        top.choice("apiVersion", [API_VERSION])
        if content.get("kind") == "User":
            top.complain("kind", "User resources come with a later version: remove this document for now.")
            self.problems += problems.found
            return
        kind = top.choice("kind", ["Cluster", "Topic"])
        name, generation = self._metadata(top, kind)
        if kind and name:
            problems.resource = f"{kind} {name}"
        spec = top.section("spec")
        top.ignore("status")
        top.close()
        if spec is None:
            top.refuse("spec", "a mapping")
        elif kind == "Cluster":
            cluster = _cluster(name, generation, spec, self.notices)
            if self._note(kind, name, problems, spec):
                self.clusters[name] = cluster
        elif kind == "Topic":
            topic = _topic(name, generation, spec)
            if self._note(kind, name, problems, spec):
                self.topics[name] = topic
        self.problems += problems.found

    def _metadata(self, top: Section, kind: str) -> tuple[str, int]:
        metadata = top.section("metadata")
        if metadata is None:
            top.refuse("metadata", "a mapping with a name")
            return "", 1
        name = metadata.text("name", rule=OBJECT_NAME)
        if kind == "Topic" and len(name) > MAX_TOPIC_NAME_LENGTH:
            metadata.refuse("name", f"at most {MAX_TOPIC_NAME_LENGTH} characters long for a topic")
        # Everything else in the metadata is between the user and Kubernetes.
        return name, metadata.integer("generation", 1, low=0, high=2**63 - 1)

    def _note(self, kind: str, name: str, problems: Problems, spec: Section) -> bool:
        """Whether this is the first resource of its kind and name, and it has a name."""
        earlier = self._places.setdefault((kind, name), (problems, spec))[0]
        if name and earlier is not problems:
            problems.add(spec.line(""), "metadata.name", f"this {kind} is described twice, also in {earlier.source}.")
        return bool(name) and earlier is problems

    def check_references(self) -> None:
        """What one resource says of another: the cluster of a topic, and that it has brokers enough."""
        for topic in self.topics.values():
            problems, spec = self._places["Topic", topic.name]
            before = len(problems.found)
            cluster = self.clusters.get(topic.cluster)
            if cluster is None:
                if topic.cluster:
                    spec.complain(
                        "cluster", f"there is no Cluster {topic.cluster}{nearest(topic.cluster, self.clusters)}."
                    )
            elif topic.replicas is not None and topic.replicas > cluster.brokers.replicas:
                spec.refuse(
                    "replicas", f"at most {cluster.brokers.replicas}, the number of brokers of Cluster {cluster.name}"
                )
            self.problems += problems.found[before:]


def _cluster(name: str, generation: int, spec: Section, notices: list[str]) -> Cluster:
    cluster = Cluster(
        name=name,
        version=spec.text("version", DEFAULT_VERSION),
        brokers=_brokers(spec.section("brokers"), name, notices),
        listeners=_listeners(spec) or Cluster(name=name).listeners,
        zookeeper=_zookeeper(spec.section("zookeeper")),
        generation=generation,
    )
    spec.close()
    return cluster


def _brokers(section: Section | None, cluster: str, notices: list[str]) -> Brokers:
    if section is None:
        return Brokers()
    storage, rack = section.section("storage"), section.section("rack")
    brokers = Brokers(
        replicas=section.integer("replicas", DEFAULT_REPLICAS, low=1, high=MAX_BROKERS),
        volumes=_volumes(storage) if storage is not None else (),
        rack_topology_key=_topology_key(rack) if rack is not None else None,
        rack_names=rack.texts("names") if rack is not None else (),
        config=_broker_config(section, cluster, notices),
    )
    if rack is not None:
        rack.close()
    _resources(section.section("resources"))
    section.close()
    return brokers


def _topology_key(rack: Section) -> str | None:
    """Required, except where racks are given by their names, which only an embedded cluster uses."""
    return rack.text("topologyKey") if rack.has("topologyKey") or not rack.has("names") else None


def _resources(section: Section | None) -> None:
    if section is None:
        return
    for name in ("limits", "requests"):
        quantities = section.section(name)
        if quantities is not None:
            for resource in ("cpu", "memory"):
                if quantities.has(resource):
                    quantities.text(resource, rule=QUANTITY)
            quantities.close()
    section.close()


def _volumes(storage: Section) -> tuple[Volume, ...]:
    volumes = []
    seen: set[int] = set()
    for entry in storage.sections("volumes"):
        volume = Volume(
            id=entry.integer("id", low=0, high=999),
            size=entry.text("size", rule=QUANTITY),
            storage_class=entry.text("storageClass") if entry.has("storageClass") else None,
        )
        if volume.id in seen:
            entry.refuse("id", "different from the other volumes' ids")
        seen.add(volume.id)
        entry.close()
        volumes.append(volume)
    storage.close()
    return tuple(volumes)


def _broker_config(section: Section, cluster: str, notices: list[str]) -> dict[str, str]:
    config = section.properties("config")
    for key, value in config.items():
        setting = BROKER_SETTINGS.get(key)
        if key in OPERATED_KEYS:
            section.complain_of_property("config", key, "is set by the operator for each broker: remove it.")
        elif setting is None:
            # As in a properties file: configurations carry keys of other versions.
            notices.append(
                f"Cluster {cluster}: {key} is not a setting of this version's brokers"
                f"{nearest(key, BROKER_SETTINGS)}; it has no effect."
            )
        else:
            try:
                setting.parse(value)
            except ConfigError as error:
                section.complain_of_property("config", key, f"{error}.")
    return config


_LISTENER_NAME: Final = Rule(
    lambda text: len(text) <= 25 and text.isascii() and text.isalnum() and text == text.lower(),
    "up to 25 lower-case letters and digits",
)
AUTHENTICATIONS: Final = ("tls", "scram-sha-256", "scram-sha-512")


def _listeners(spec: Section) -> tuple[Listener, ...]:
    listeners: list[Listener] = []
    for entry in spec.sections("listeners"):
        authentication = entry.section("authentication")
        listener = Listener(
            name=entry.text("name", rule=_LISTENER_NAME),
            port=entry.integer("port", low=1, high=65_535),
            type=ListenerType(entry.choice("type", [kind.value for kind in ListenerType], "internal")),
            tls=entry.boolean("tls", False),
            authentication=authentication.choice("type", AUTHENTICATIONS) if authentication is not None else None,
        )
        if authentication is not None:
            authentication.close()
        if listener.authentication == "tls" and not listener.tls:
            entry.complain("authentication", "type tls needs certificates: set tls: true for this listener.")
        for field_name in ("name", "port"):
            if getattr(listener, field_name) in [getattr(other, field_name) for other in listeners]:
                entry.refuse(field_name, "different from the other listeners'")
        entry.close()
        listeners.append(listener)
    return tuple(listeners)


def _zookeeper(section: Section | None) -> ZooKeeper:
    if section is None:
        return ZooKeeper()
    storage = section.section("storage")
    connect = section.text("connect") if section.has("connect") else None
    if connect is not None and (section.has("replicas") or storage is not None):
        section.complain("connect", "names an ensemble that is there already: leave out replicas and storage.")
    size = None
    if storage is not None:
        size = storage.text("size", rule=QUANTITY)
        storage.ignore("storageClass")
        storage.close()
    replicas = section.integer("replicas", 3, low=1, high=99)
    if replicas % 2 == 0:
        section.refuse("replicas", "odd: an even ensemble survives no more failures than the next smaller one")
    section.close()
    return ZooKeeper(replicas=replicas, size=size, connect=connect)


def _topic(name: str, generation: int, spec: Section) -> Topic:
    topic = Topic(
        name=name,
        cluster=spec.text("cluster", rule=OBJECT_NAME),
        partitions=spec.integer("partitions", 1, low=1, high=MAX_PARTITIONS),
        replicas=spec.integer("replicas", low=1, high=MAX_BROKERS) if spec.has("replicas") else None,
        config=spec.properties("config"),
        deletion=Deletion(spec.choice("deletion", [choice.value for choice in Deletion], Deletion.PROTECT.value)),
        generation=generation,
    )
    for key, value in topic.config.items():
        setting = TOPIC_SETTINGS.get(key)
        if setting is None:
            spec.complain_of_property("config", key, f"is not a setting of a topic{nearest(key, TOPIC_SETTINGS)}.")
            continue
        try:
            setting.parse(value)
        except ConfigError as error:
            spec.complain_of_property("config", key, f"{error}.")
    spec.close()
    return topic
