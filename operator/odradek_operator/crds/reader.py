"""Documents to typed Cluster and Topic resources: what is allowed, and every problem of what is not. Pure.

Enters: YAML documents (`documents`), or one object as Kubernetes gives it. Leaves: typed resources, or one
`ResourceError` with every problem of every document: file, line, resource, field, what is allowed. The embedded cluster
and the operator read the same resources through this module, so a manifest that works here works there. Called by
`embedded/manifests` with all documents at once, by the operator's shell with one object after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.base.topics import MAX_NAME_LENGTH as MAX_TOPIC_NAME_LENGTH
from odradek_operator.crds.cluster_reader import CLUSTER_NAME, notices_of, read_cluster
from odradek_operator.crds.documents import Document
from odradek_operator.crds.fields import OBJECT_NAME, Problem, Problems, ResourceError, Section, located, nearest
from odradek_operator.crds.topic_reader import read_topic
from odradek_operator.crds.types import API_GROUP, API_VERSION, Cluster, Resources, Topic
from odradek_operator.objects.names import PAUSED

_MAX_GENERATION: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What counts of an object's metadata; everything else there is between the user and Kubernetes."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    paused: bool = False


def read_resources(documents: Iterable[Document]) -> Resources:
    """Typed resources of all documents together. Raises `ResourceError` with every problem that was found."""
    reader = _Reader()
    for document in documents:
        reader.read(document)
    reader.check_references()
    if reader.problems:
        raise ResourceError(sorted(reader.problems, key=lambda problem: (problem.source, problem.line)))
    return Resources(clusters=reader.clusters, topics=reader.topics, notices=tuple(reader.notices))


def read_object(content: Mapping[str, Any]) -> Cluster | Topic:
    """One object of the API server. Raises `ResourceError`; its text has a line `field: sentence` for each problem.

    A field that is not known is no problem: the API server has accepted it, so the resource definitions are newer than
    this version. It has no effect, and `unknown_fields` of the resource names it. What needs other objects, such as a
    topic's cluster, is not checked here. Sentences about what has no effect: `notices_of`.
    """
    problems = Problems("", "object", tolerant=True)
    top = Section(problems, located(content), "")
    resource = _read_document(top, problems, secured=False)
    if problems.found or resource is None:
        raise ResourceError(problems.found)
    return dataclasses.replace(resource, unknown_fields=tuple(problems.unknown))


def read_metadata(content: Mapping[str, Any]) -> Metadata:
    """As much of an object's metadata as can be read, for a status that says what is wrong with the rest."""
    problems = Problems("", "object")
    return _metadata(Section(problems, located(content), ""), "")


def cluster_of_topic(content: Mapping[str, Any]) -> str | None:
    """The cluster that a Topic names, whatever else is wrong with it; None when that cannot be told."""
    spec = content.get("spec")
    name = spec.get("cluster") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) and name else None


def _read_document(top: Section, problems: Problems, *, secured: bool) -> Cluster | Topic | None:
    """One resource, with its metadata; None where not even its kind can be told. Problems are noted."""
    top.choice("apiVersion", [API_VERSION])
    if top.value("kind") == "User":
        top.complain("kind", "User resources come with a later version: remove this document for now.")
        return None
    kind = top.choice("kind", ["Cluster", "Topic"])
    metadata = _metadata(top, kind)
    if kind and metadata.name:
        problems.resource = f"{kind} {metadata.name}"
    spec = top.section("spec")
    top.ignore("status")
    top.close()
    if spec is None:
        if not top.has("spec"):
            top.refuse("spec", "a mapping")
        return None
    values = {
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "generation": metadata.generation,
        "paused": metadata.paused,
    }
    if kind == "Cluster":
        return dataclasses.replace(read_cluster(metadata.name, spec, secured=secured), **values)  # type: ignore[arg-type]
    if kind == "Topic":
        return dataclasses.replace(read_topic(metadata.name, spec), **values)  # type: ignore[arg-type]
    return None


def _metadata(top: Section, kind: str) -> Metadata:
    section = top.section("metadata")
    if section is None:
        top.refuse("metadata", "a mapping with a name")
        return Metadata()
    name = section.text("name", rule=CLUSTER_NAME if kind == "Cluster" else OBJECT_NAME)
    if kind == "Topic" and len(name) > MAX_TOPIC_NAME_LENGTH:
        section.refuse("name", f"at most {MAX_TOPIC_NAME_LENGTH} characters long for a topic")
    default = Metadata()
    annotations = section.value("annotations")
    return Metadata(
        name=name,
        namespace=section.text("namespace", default.namespace, rule=OBJECT_NAME),
        uid=section.text("uid", default.uid),
        generation=section.integer("generation", default.generation, low=0, high=_MAX_GENERATION),
        paused=isinstance(annotations, dict) and annotations.get(PAUSED) == "true",
    )


class _Reader:
    """Collects resources and problems over many documents."""

    def __init__(self) -> None:
        self.clusters: dict[str, Cluster] = {}
        self.topics: dict[str, Topic] = {}
        self.problems: list[Problem] = []
        self.notices: list[str] = []
        self._places: dict[tuple[type[Cluster | Topic], str], tuple[Problems, Section]] = {}

    def read(self, document: Document) -> None:
        content = document.content
        problems = Problems(document.source, f"document {document.number}")
        top = Section(problems, content, "")
        version = content.get("apiVersion")
        if isinstance(version, str) and not version.startswith(API_GROUP):
            self.notices.append(f"{document.source}:{content.line}: a resource of {version} is none of ours, left out.")
            return
        # An embedded cluster leaves secured listeners out, with a notice of its own.
        resource = _read_document(top, problems, secured=True)
        spec = None if resource is None else top.section("spec")
        if resource is not None and spec is not None and self._is_first(resource, problems, spec):
            if isinstance(resource, Cluster):
                self.clusters[resource.name] = resource
                self.notices += notices_of(resource)
            else:
                self.topics[resource.name] = resource
        self.problems += problems.found

    def _is_first(self, resource: Cluster | Topic, problems: Problems, spec: Section) -> bool:
        """Whether this is the first resource of its kind and name, and it has a name."""
        kind, name = type(resource), resource.name
        earlier = self._places.setdefault((kind, name), (problems, spec))[0]
        if name and earlier is not problems:
            problems.add(
                spec.line(""),
                "metadata.name",
                f"this {kind.__name__} is described twice, also in {earlier.source}.",
            )
        return bool(name) and earlier is problems

    def check_references(self) -> None:
        """What one resource says of another: the cluster of a topic, and that it has brokers enough."""
        for topic in self.topics.values():
            problems, spec = self._places[Topic, topic.name]
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
