"""Reads documents and objects into resources and collects every problem. Pure.

pydantic reads the document with the types of the model. This module adds what needs the document: file and line of each
problem, unknown fields, and messages that say what is allowed and what was found. `odradek up` reads all documents at
once, the operator reads one object after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from odradek_operator.crds.documents import Document, LocatedMapping
from odradek_operator.crds.metadata import Metadata
from odradek_operator.crds.model import ALLOWED, COMPLAINT, Location, Reading, Schema
from odradek_operator.crds.notices import notices_of
from odradek_operator.crds.openapi import adapter_of, schema_of
from odradek_operator.crds.problems import Problem, ResourceError, either, nearest, shown
from odradek_operator.crds.types import (
    API_GROUP,
    API_VERSION,
    Cluster,
    Mirror,
    Pipeline,
    Resource,
    Resources,
    Topic,
    User,
)

_KINDS: Final[Mapping[str, Any]] = {
    "Cluster": Cluster,
    "Topic": Topic,
    "User": User,
    "Pipeline": Pipeline,
    "Mirror": Mirror,
}
_UNCHECKED: Final[Schema] = {"apiVersion": {}, "kind": {}, "spec": {}, "status": {}}
"""Fields of every object that are not in the model."""
_NOT_WRITTEN: Final = ("unknownFields", "brokerLink", "ensembleLink", "ensembleCertificates")
"""Fields of the model that no document has."""
_STORED: Final = Reading(embedded=False)


def read_resources(documents: Iterable[Document]) -> Resources:
    """Return the resources of all documents. Raise `ResourceError` with every problem that was found."""
    manifests = _Manifests()
    for document in documents:
        manifests.read(document)
    manifests.check_references()
    if manifests.problems:
        raise ResourceError(sorted(manifests.problems, key=lambda problem: (problem.source, problem.line)))
    return Resources(
        clusters={found.name: found for found in manifests.found if isinstance(found, Cluster)},
        topics={found.name: found for found in manifests.found if isinstance(found, Topic)},
        users={found.name: found for found in manifests.found if isinstance(found, User)},
        pipelines={found.name: found for found in manifests.found if isinstance(found, Pipeline)},
        mirrors={found.name: found for found in manifests.found if isinstance(found, Mirror)},
        notices=tuple(manifests.notices),
    )


def read_object(content: Mapping[str, Any]) -> Resource:
    """Return an object of the API server as a resource. Raise `ResourceError` with a line `field: message` per problem.

    A field that is not known is not a problem: the API server accepted it, so the resource definitions are newer than
    this version. The field has no effect, and `unknown_fields` of the resource lists it. Rules that need other objects,
    such as the cluster of a topic, are not checked here. `notices_of` reports parts that have no effect.
    """
    reading = _Read(content, "object", _STORED)
    if reading.resource is None:
        raise ResourceError(reading.problems)
    return reading.resource


def read_metadata(content: Mapping[str, Any]) -> Metadata:
    """Return the metadata of an object; fields with problems have their defaults.

    The status of an object that cannot be read needs them.
    """
    metadata = content.get("metadata")
    fields = dict(metadata) if isinstance(metadata, Mapping) else {}
    while True:
        try:
            found: Metadata = adapter_of(Metadata).validate_python({"metadata": fields}, context=_STORED)
        except ValidationError as error:
            for each in error.errors():
                del fields[str(each["loc"][0]).removeprefix("metadata.")]
        else:
            return found


def cluster_named(content: Mapping[str, Any]) -> str | None:
    """Return the cluster that a Topic, User or Pipeline names, whatever else is wrong with it; None without one."""
    name = _specification(content).get("cluster")
    return name if isinstance(name, str) and name else None


def _specification(content: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = content.get("spec")
    return spec if isinstance(spec, Mapping) else {}


class _Place(NamedTuple):
    """A field of a document."""

    path: str
    line: int
    schema: Schema


class _Read:
    """One document: its resource, or its problems."""

    def __init__(self, content: Mapping[str, Any], title: str, reading: Reading, source: str = "") -> None:
        """Read the document. `title` names it in messages as long as its kind and name are not known."""
        self.content: Final = content
        self.problems: Final[list[Problem]] = []
        self.resource: Resource | None = None
        self.source: Final = source
        self._title = title
        self._schema: Schema = {}
        self._reading = reading
        kind = content.get("kind")
        if content.get("apiVersion") != API_VERSION:
            self._expect("apiVersion", API_VERSION)
        if not isinstance(kind, str) or kind not in _KINDS:
            self._expect("kind", either(list(_KINDS)))
            self._read(Metadata)
        else:
            if self.name:
                self._title = f"{kind} {self.name}"
            self._read(_KINDS[kind])

    @property
    def name(self) -> str:
        """The name in the document, whatever else is wrong with it; empty if there is none."""
        metadata = self.content.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        return name if isinstance(name, str) else ""

    def complain(self, location: Location, message: str) -> None:
        """Add a problem."""
        place = self._place(location)
        self.problems.append(Problem(self.source, place.line, self._title, place.path, message))

    def has_problem_at(self, path: str) -> bool:
        """Return whether a field, or a mapping around it, has a problem."""
        return any(path == problem.path or path.startswith(f"{problem.path}.") for problem in self.problems)

    def _read(self, model: Any) -> None:
        schema = schema_of(model)
        written = {name: field for name, field in schema["properties"].items() if name not in _NOT_WRITTEN}
        self._schema = schema | {"properties": _UNCHECKED | written}
        unknown = list(_unknown_fields(self._schema, self.content))
        if self._reading.embedded:
            for location, known in unknown:
                name = str(location[-1])
                message = f"is not a field here{nearest(name, known)}; known: {', '.join(known) or 'nothing'}."
                self.complain(location, message)
        paths = tuple(self._place(location).path for location, _ in unknown)
        fields = {name: value for name, value in self.content.items() if name not in _NOT_WRITTEN}
        fields["unknownFields"] = paths
        try:
            self.resource = adapter_of(model).validate_python(fields, context=self._reading)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                schema = self._place(each["loc"]).schema
                # pydantic counts only valid entries: a list with an invalid entry need not be too short.
                if each["type"] != "too_short" or len(each["input"]) < schema["minItems"]:
                    self.complain(each["loc"], _message(each, schema))
        if self.problems:
            self.resource = None

    def _expect(self, name: str, allowed: str) -> None:
        found = f", found {shown(self.content[name])}." if name in self.content else ", and it is missing."
        self.complain((name,), f"must be {allowed}{found}")

    def _place(self, location: Location) -> _Place:
        """Return the path, the line and the schema of a field. An alias in the model may be a path with dots.

        A missing field has the line of its mapping. An object of the API server has line 0 everywhere.
        """
        path, node, value = "", self._schema, self.content
        line = value.line if isinstance(value, LocatedMapping) else 0
        for part in location:
            is_name = isinstance(part, str) and "additionalProperties" not in node
            is_alias = is_name and part not in node.get("properties", {})
            for step in str(part).split(".") if is_alias else [part]:
                path += f".{step}" if is_name else f"[{step}]"
                node = _inner_schema(node, step)
                line = value.lines.get(str(step), line) if isinstance(value, LocatedMapping) else line
                value = _inner_value(value, step)
                line = value.line if isinstance(value, LocatedMapping) and isinstance(step, int) else line
        return _Place(path.removeprefix("."), line, node)


def _inner_schema(node: Schema, step: str | int) -> Schema:
    inner = node.get("items") if isinstance(step, int) else node.get("properties", {}).get(step)
    found: Schema = inner or node.get("additionalProperties") or {}
    return found


def _inner_value(value: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else None
    return value.get(step) if isinstance(value, Mapping) else None


def _unknown_fields(schema: Schema, value: Any, location: Location = ()) -> Iterator[tuple[Location, list[str]]]:
    """Yield each field that is not in the schema, with the names that the schema has at that place."""
    if isinstance(value, Mapping) and "properties" in schema:
        known = schema["properties"]
        for name, item in value.items():
            if name in known:
                yield from _unknown_fields(known[name], item, (*location, name))
            elif "x-kubernetes-preserve-unknown-fields" not in schema:
                yield (*location, name), list(known)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _unknown_fields(schema["items"], item, (*location, index))


def _message(error: ErrorDetails, schema: Schema) -> str:
    """Return a message with the allowed and the actual value."""
    match error["type"]:
        case str(kind) if kind == COMPLAINT:
            return error["msg"]
        case "missing":
            return f"must be {_allowed(schema)}, and it is missing."
        case "string_too_long" | "too_long" if "maxLength" in schema:
            allowed = f"at most {schema['maxLength']} characters long"
        case "too_long":
            return f"must have at most {schema['maxItems']} entries, found {len(error['input'])}."
        case "too_short":
            return f"must have at least {schema['minItems']} entries, found {len(error['input'])}."
        case _:
            allowed = _allowed(schema)
    return f"must be {allowed}, found {shown(error['input'])}."


def _allowed(schema: Schema) -> str:
    """Return a description of the values that a field allows."""
    if ALLOWED in schema:
        return str(schema[ALLOWED])
    if "enum" in schema:
        return either(schema["enum"])
    if schema.get("type") == "integer":
        return f"a whole number from {schema['minimum']} to {schema['maximum']}"
    return {"boolean": "true or false", "array": "a list", "object": "a mapping"}.get(
        schema.get("type", ""), "text that is not empty"
    )


class _Manifests:
    """The documents of a set of manifests."""

    def __init__(self) -> None:
        self.found: list[Resource] = []
        self.notices: list[str] = []
        self._other_problems: list[Problem] = []
        self._reads: dict[tuple[str, str], _Read] = {}

    @property
    def problems(self) -> list[Problem]:
        return [*self._other_problems, *(problem for read in self._reads.values() for problem in read.problems)]

    def read(self, document: Document) -> None:
        content = document.content
        version = content.get("apiVersion")
        if isinstance(version, str) and not version.startswith(API_GROUP):
            place = f"{document.source}:{content.line}"
            self.notices.append(f"{place}: ignored, because {version} is not an API version of Odradek.")
            return
        # An embedded cluster ignores secured listeners, and reports that itself.
        read = _Read(content, f"document {document.number}", Reading(embedded=True), document.source)
        key = str(content.get("kind")), read.name
        earlier = self._reads.get(key)
        if read.name and earlier is not None:
            read.complain(("metadata", "name"), f"this {key[0]} occurs twice, also in {earlier.source}.")
        elif read.name:
            self._reads[key] = read
        if self._reads.get(key) is not read:
            self._other_problems += read.problems
        elif read.resource is not None:
            self.found.append(read.resource)
            if isinstance(read.resource, Cluster):
                self.notices += notices_of(read.resource)
            if isinstance(read.resource, Pipeline):
                self.notices.append(
                    f"Pipeline {read.name}: it runs on Kubernetes only. On your machine, run "
                    "python -m pyspark_odradek.pipelines.pipeline_job."
                )
            if isinstance(read.resource, Mirror):
                self.notices.append(
                    f"Mirror {read.name}: it runs on Kubernetes only. On your machine, run odradek mirror."
                )

    def check_references(self) -> None:
        """Check the cluster of each topic, user and pipeline: that it exists, and has enough brokers for the topic."""
        clusters = {name: read for (kind, name), read in self._reads.items() if kind == "Cluster"}
        for (kind, _), read in self._reads.items():
            name = cluster_named(read.content)
            if kind not in ("Topic", "User", "Pipeline") or name is None or read.has_problem_at("spec.cluster"):
                continue
            if name not in clusters:
                read.complain(("spec", "cluster"), f"there is no Cluster {name}{nearest(name, clusters)}.")
            elif kind == "Topic":
                _check_replicas(read, clusters[name].resource)


def _check_replicas(topic: _Read, cluster: Resource | None) -> None:
    replicas = _specification(topic.content).get("replicas")
    if isinstance(cluster, Cluster) and isinstance(replicas, int) and not topic.has_problem_at("spec.replicas"):
        brokers = len(cluster.brokers.ids())
        if replicas > brokers:
            allowed = f"at most {brokers}, the number of brokers of Cluster {cluster.name}"
            topic.complain(("spec", "replicas"), f"must be {allowed}, found {replicas}.")
