"""The parts of a Cluster that brokers and the ensemble have in common: pods, their resources, their claims. Pure.

The fields of pods have Kubernetes' names and meanings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Final

from pydantic import Field

from odradek_operator.crds.fields import (
    MAX_LABEL,
    MAX_LABELS,
    Entries,
    Json,
    Labels,
    Name,
    ObjectName,
    Quantities,
    Quantity,
    Verbatim,
    Whole,
    Written,
    without_keys,
)
from odradek_operator.crds.model import Model, Reading, Rule, published
from odradek_operator.objects.names import Component, pod_labels

MAX_GRACE_SECONDS: Final = 3_600
MAX_PULL_SECRETS: Final = 16
MAX_RELEASE_SECONDS: Final = 604_800
MIN_VOLUME_SIZE: Final = "1Mi"
"""A smaller size is a number without its unit."""
OPERATED_LABELS: Final = frozenset(pod_labels("", Component.KAFKA))
"""Labels of pods by which Services, StatefulSets and dashboards find them."""

ReleaseSeconds = Annotated[Whole, Field(ge=0, le=MAX_RELEASE_SECONDS)]
VolumeSize = Annotated[str, Quantities(at_least=MIN_VOLUME_SIZE, hint=", with its unit, such as 100Gi")]


def volume_rules(component: str) -> tuple[Rule, Rule]:
    """Return the CEL rules of an object with the fields `size` and `storageClass`."""
    old, new = (f"(has({one}.storageClass) ? {one}.storageClass : '')" for one in ("oldSelf", "self"))
    return (
        Rule(
            f"quantity(string(self.size)).compareTo(quantity('{MIN_VOLUME_SIZE}')) >= 0",
            f"The size is less than {MIN_VOLUME_SIZE}: give it with its unit, such as 100Gi.",
        ),
        Rule(f"{new} == {old}", f"The storageClass of {component} cannot change: set it back."),
    )


class Spread(Enum):
    """How strictly the pods of a component are spread over nodes."""

    REQUIRED = "Required"
    """A node gets a second pod only if every other allowed node already has one."""
    PREFERRED = "Preferred"
    """The scheduler prefers nodes without a pod of the component."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantities(Model):
    """Quantities by resource name."""

    cpu: Quantity | None = None
    """Processors: 2, or 500m for one half."""
    memory: Quantity | None = None
    """Bytes, such as 2Gi."""
    ephemeral_storage: Annotated[Quantity | None, Field(alias="ephemeral-storage")] = None
    """Bytes on the disk of the node, for the logs of the process and /tmp."""

    def by_name(self) -> dict[str, str]:
        """Return the quantities that are set."""
        found = {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": self.ephemeral_storage}
        return {name: quantity for name, quantity in found.items() if quantity is not None}


_ByName = Annotated[Mapping[str, str], Written(_Quantities, _Quantities.by_name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeResources(Model):
    """Requests and limits of a container."""

    requests: _ByName = field(default_factory=dict)
    """The resources that the scheduler reserves on the node."""
    limits: _ByName = field(default_factory=dict)
    """The maximum. A container that needs more CPU is throttled; one that uses more memory is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretName(Model):
    """A Secret of the namespace."""

    name: ObjectName
    """Name of the Secret."""


def additional_labels(operated: frozenset[str]) -> Entries:
    """Return the check of labels that users add to `operated`, which the operator sets."""

    def check(key: str, value: str, reading: Reading) -> str | None:
        return "is set by the operator itself: remove it." if key in operated else None

    return Entries(check=check, max_entries=MAX_LABELS, max_length=MAX_LABEL)


def operated_rule(operated: frozenset[str]) -> Rule:
    """Return the CEL rule that is the same."""
    return Rule(without_keys(operated), "The operator sets one of these labels itself: remove it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAdditions(Model):
    """What users can add to the pods of a Pipeline or a Mirror.

    pydantic does not find the docstrings of inherited fields, so the descriptions are arguments.
    """

    annotations: Annotated[
        Mapping[str, str],
        Entries(),
        Field(description="Annotations in addition to those that the operator sets."),
    ] = field(default_factory=dict)
    node_selector: Annotated[Labels, Field(description="Labels that a node must have to run a pod.")] = field(
        default_factory=dict
    )
    tolerations: Annotated[
        tuple[Annotated[Json, Verbatim("A toleration: key, operator, value, effect, tolerationSeconds.")], ...],
        Field(description="Taints of nodes that the pods tolerate, in Kubernetes' form."),
    ] = ()
    priority_class_name: Annotated[Name | None, Field(description="PriorityClass of the pods.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate(Model):
    """Additions to the pods of a component."""

    labels: Annotated[
        Mapping[str, str],
        additional_labels(OPERATED_LABELS),
        published(operated_rule(OPERATED_LABELS)),
    ] = field(default_factory=dict)
    """Labels in addition to those that the operator sets."""
    annotations: Annotated[Mapping[str, str], Entries()] = field(default_factory=dict)
    """Annotations in addition to those that the operator sets."""
    node_selector: Labels = field(default_factory=dict)
    """Labels that a node must have to run a pod."""
    affinity: (
        Annotated[
            Json,
            Verbatim("Kubernetes affinity rules. If not set, pods avoid nodes with another pod of the same component."),
        ]
        | None
    ) = None
    tolerations: tuple[
        Annotated[Json, Verbatim("A toleration: key, operator, value, effect, tolerationSeconds.")], ...
    ] = ()
    """Taints of nodes that the pods tolerate, in Kubernetes' form."""
    priority_class_name: Name | None = None
    """PriorityClass of the pods."""
    image_pull_secrets: Annotated[
        tuple[Annotated[str, Written(SecretName, lambda secret: secret.name)], ...],
        Field(max_length=MAX_PULL_SECRETS),
    ] = ()
    """Secrets of the namespace with the credentials to pull images."""
    termination_grace_period_seconds: Annotated[Whole | None, Field(ge=1, le=MAX_GRACE_SECONDS)] = None
    """Seconds between SIGTERM and SIGKILL. A broker transfers its leaderships in this time."""
