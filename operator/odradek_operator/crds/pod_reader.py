"""The parts of a specification that brokers and the ensemble have in common: pods, their resources, their disks. Pure.

Enters: sections of a document. Leaves: typed values; what is wrong is noted in the sections. Called by
`cluster_reader`. Kubernetes' own fields are taken by Kubernetes' own names; those that are only handed on are not
looked into.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.crds.fields import OBJECT_NAME, QUANTITY, Section
from odradek_operator.crds.types import ComputeResources, PodTemplate
from odradek_operator.objects.names import Component, pod_labels

RESOURCE_NAMES: Final = ("cpu", "memory", "ephemeral-storage")
MAX_GRACE_SECONDS: Final = 3_600
OPERATED_LABELS: Final = frozenset(pod_labels("", Component.KAFKA))
"""Of pods: Services, sets and dashboards find them by these."""


def read_resources_of(section: Section | None) -> ComputeResources:
    """`resources`: quantities by resource name."""
    if section is None:
        return ComputeResources()
    resources = ComputeResources(
        requests=_quantities(section.section("requests")), limits=_quantities(section.section("limits"))
    )
    section.close()
    return resources


def _quantities(section: Section | None) -> dict[str, str]:
    if section is None:
        return {}
    found = {name: section.text(name, rule=QUANTITY) for name in RESOURCE_NAMES if section.has(name)}
    section.close()
    return found


def read_template(section: Section | None) -> PodTemplate:
    """`template`: what the user adds to pods."""
    if section is None:
        return PodTemplate()
    template = PodTemplate(
        labels=_labels(section),
        annotations=section.texts_by_name("annotations"),
        node_selector=section.texts_by_name("nodeSelector"),
        affinity=section.verbatim("affinity"),
        tolerations=section.verbatim_list("tolerations"),
        priority_class_name=optional_text(section, "priorityClassName"),
        image_pull_secrets=_names(section, "imagePullSecrets"),
        termination_grace_period_seconds=(
            section.integer("terminationGracePeriodSeconds", low=1, high=MAX_GRACE_SECONDS)
            if section.has("terminationGracePeriodSeconds")
            else None
        ),
    )
    section.close()
    return template


def _labels(section: Section) -> dict[str, str]:
    labels = section.texts_by_name("labels")
    for name in labels:
        if name in OPERATED_LABELS:
            section.complain_of_property("labels", name, "is set by the operator itself: remove it.")
    return labels


def _names(section: Section, name: str) -> tuple[str, ...]:
    """A list of `{name: ...}`, as Kubernetes refers to objects beside."""
    names = []
    for entry in section.sections(name):
        names.append(entry.text("name", rule=OBJECT_NAME))
        entry.close()
    return tuple(names)


def optional_text(section: Section, name: str) -> str | None:
    """Text that is not empty, or None where the field is missing."""
    return section.text(name) if section.has(name) else None
