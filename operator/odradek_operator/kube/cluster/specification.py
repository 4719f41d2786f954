"""Chooses the specification of a cluster that is in force: the newest, or the last valid one. Pure.

A mistake in a resource must not stop restarts, releases, Services and Topics. Therefore every valid specification is
kept in the record (`lifecycle/cluster_record`), which outlives the operator process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek_operator.crds import Cluster, Deletion, Topic, read_object
from odradek_operator.crds.problems import ResourceError
from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.cluster_view import View, cluster_of
from odradek_operator.kube.cluster.status_documents import INVALID_SPEC
from odradek_operator.kube.cluster.topic_finalizers import asks_for_finalizer
from odradek_operator.lifecycle.observed_cluster import KeptSpec
from odradek_operator.lifecycle.steps import SPEC, Waiting

MAX_KEPT_BYTES: Final = 512 * 1024
"""A larger specification is not kept, because a ConfigMap is limited to 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """The specification in force."""

    cluster: Cluster | None
    """The Cluster; None if no valid specification is known."""
    kept: KeptSpec | None = None
    """What to store in the record."""
    problem: str = ""
    """Why the newest specification is invalid; empty if it is in force."""

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """Return the problem, which a person has to correct."""
        if not self.problem:
            return ()
        return (Waiting(what=SPEC, reason=INVALID_SPEC, message=self.problem, needs_person=True),)

    @property
    def topic_warnings(self) -> tuple[str, ...]:
        """Return the message for Topics while the specification is invalid."""
        if self.cluster is None or not self.problem:
            return ()
        return (
            f"The specification of Cluster {self.cluster.name} is invalid. This Topic is reconciled with the last "
            f"valid one, of generation {self.cluster.generation}.",
        )


def specification(view: View) -> Specification:
    """Return the newest specification if it is valid, else the last valid one of the same Cluster resource."""
    try:
        return _valid(view.cluster)
    except ResourceError as error:
        kept, problem = view.state.record.spec, str(error)
    former = None if kept is None else _former(view.cluster, kept)
    if kept is None or former is None:
        return Specification(cluster=None, problem=problem)
    message = f"{problem} The last valid specification, of generation {kept.generation}, stays in force."
    return Specification(cluster=former, kept=kept, problem=message)


def _valid(body: Object) -> Specification:
    cluster = read_object(body)
    assert isinstance(cluster, Cluster), "it was asked for by this kind"
    text = json.dumps(body["spec"], separators=(",", ":"), sort_keys=True)
    kept = KeptSpec(generation=cluster.generation, text=text) if len(text.encode()) <= MAX_KEPT_BYTES else None
    return Specification(cluster=cluster, kept=kept)


def _former(body: Object, kept: KeptSpec) -> Cluster | None:
    """Return the Cluster with its former specification; None if this version of the operator cannot read it."""
    try:
        spec = json.loads(kept.text)
        cluster = read_object({**body, "metadata": {**body["metadata"], "generation": kept.generation}, "spec": spec})
    except (ValueError, ResourceError):
        return None
    return cluster if isinstance(cluster, Cluster) else None


def read_topics(bodies: Mapping[str, Object]) -> tuple[dict[str, Topic], dict[str, str]]:
    """Return Topics by name, and a message about each invalid one.

    An invalid Topic that is being deleted counts as valid: only its `deletion` policy matters.
    """
    topics: dict[str, Topic] = {}
    invalid: dict[str, str] = {}
    for name, body in bodies.items():
        try:
            topic = read_object(body)
        except ResourceError as error:
            if "deletionTimestamp" in body["metadata"]:
                topics[name] = _leaving(body)
            else:
                invalid[name] = str(error)
        else:
            assert isinstance(topic, Topic), "the list was of Topics"
            topics[name] = topic
    return topics, invalid


def _leaving(body: Object) -> Topic:
    metadata = body["metadata"]
    return Topic(
        name=metadata["name"],
        cluster=cluster_of(body),
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        deletion=Deletion.DELETE if asks_for_finalizer(body) else Deletion.PROTECT,
    )
