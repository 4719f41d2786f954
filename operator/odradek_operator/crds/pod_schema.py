"""OpenAPI of what brokers and the ensemble have in common: pods and their resources. Pure; the twin of `pod_reader`."""

from __future__ import annotations

from odradek_operator.crds.fields import MAX_NAME_LENGTH
from odradek_operator.crds.openapi import (
    Schema,
    labels,
    listed,
    not_among,
    quantity,
    record,
    rule,
    ruled,
    text,
    verbatim,
    whole,
)
from odradek_operator.crds.pod_reader import MAX_GRACE_SECONDS, OPERATED_LABELS


def image(of: str) -> Schema:
    """The field `image`."""
    return text(
        f"Image of {of}, with its tag or digest. Left out, it follows from the operator's image prefix and "
        "spec.version. It needs to be an image of the same program: whatever else stands here, the pods do not start."
    )


def compute_resources(of: str) -> Schema:
    """The field `resources`."""
    return record(
        f"What {of} asks of its node and may use at most, as in any container of Kubernetes.",
        {
            "requests": _quantities("What the scheduler sets aside on the node."),
            "limits": _quantities("What may be used at most: more CPU is throttled, more memory ends the process."),
        },
    )


def _quantities(description: str) -> Schema:
    return record(
        description,
        {
            "cpu": quantity("Processors: 2, or 500m for a half."),
            "memory": quantity(
                "Bytes: 2Gi. Brokers need about 150Mi when idle; what is left serves as the page cache of their logs."
            ),
            "ephemeral-storage": quantity("Bytes of the node's own disk, for logs of the process and /tmp."),
        },
    )


def template(of: str) -> Schema:
    """The field `template`."""
    return record(
        f"What is added to the pods of {of}: where they run and what they carry. The names and meanings are those of "
        "Kubernetes' pods. Every change restarts the pods, one after the other.",
        {
            "labels": ruled(
                labels("Labels beside those that the operator sets."),
                rule(not_among(OPERATED_LABELS), "A label here is one that the operator sets itself: remove it."),
            ),
            "annotations": {
                "description": "Annotations beside those that the operator sets.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
            "nodeSelector": labels("Labels that a node must have for a pod to run there."),
            "affinity": verbatim(
                "Kubernetes' affinity rules. Left out, pods keep away from nodes with another pod of the same kind."
            ),
            "tolerations": listed(
                "Taints of nodes that the pods bear, in Kubernetes' form.",
                verbatim("One toleration: key, operator, value, effect, tolerationSeconds."),
            ),
            "priorityClassName": text("PriorityClass of the pods.", max_length=MAX_NAME_LENGTH),
            "imagePullSecrets": listed(
                "Secrets of the namespace with which images are pulled.",
                record("One Secret.", {"name": text("Its name.", max_length=MAX_NAME_LENGTH)}, required=["name"]),
                max_items=16,
            ),
            "terminationGracePeriodSeconds": whole(
                "Seconds from the first signal to the kill. A broker hands its partitions over in that time.",
                low=1,
                high=MAX_GRACE_SECONDS,
            ),
        },
    )
