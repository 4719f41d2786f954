"""OpenAPI of a Topic's specification, with the rules that the API server checks. Pure; the twin of `topic_reader`."""

from __future__ import annotations

from typing import Final

from odradek.base.config import TOPIC_SETTINGS
from odradek_operator.crds.cluster_reader import MAX_CLUSTER_NAME_LENGTH
from odradek_operator.crds.openapi import Schema, properties, record, rule, ruled, text, whole
from odradek_operator.crds.types import DEFAULT_REPLICAS, MAX_BROKERS, MAX_PARTITIONS, Deletion, Drift

_MIN_ISR: Final = "string(self.config['min.insync.replicas'])"
_POLICY: Final = "^ *(compact|delete)( *, *(compact|delete))? *$"


def topic_spec() -> Schema:
    """The field `spec` of a Topic."""
    return ruled(
        record(
            "What the topic shall be; its name is the resource's.",
            {
                "cluster": ruled(
                    text(
                        "Name of the Cluster that the topic belongs to, in the same namespace. Never changes.",
                        max_length=MAX_CLUSTER_NAME_LENGTH,
                    ),
                    rule("self == oldSelf", "A topic cannot go to another cluster: set spec.cluster back."),
                ),
                "partitions": ruled(
                    whole(
                        "How many partitions it has. May grow, never shrink; records with a key go to other partitions "
                        "after growing.",
                        low=1,
                        high=MAX_PARTITIONS,
                        default=1,
                    ),
                    rule(
                        "self >= oldSelf",
                        "Partitions cannot be taken away, as their records would be lost: set spec.partitions back.",
                    ),
                ),
                "replicas": whole(
                    f"Copies of each record, on as many brokers. Left out, {DEFAULT_REPLICAS}, or the number of "
                    "brokers where these are fewer. A change moves replicas in portions, bounded by the Cluster's "
                    "spec.brokers.rebalance.",
                    low=1,
                    high=MAX_BROKERS,
                ),
                "config": _config(),
                "deletion": text(
                    "What happens when this resource is deleted. Protect: the topic and its records stay. Delete: "
                    "they go.",
                    values=[choice.value for choice in Deletion],
                    default=Deletion.PROTECT.value,
                ),
                "drift": text(
                    "What happens to changes by other tools. Revert: the configuration goes back to what stands "
                    "here. Adopt: keys that are not listed here stay as they were set, as do partitions that were "
                    "added; the status lists them. Keys that a topic had before this resource adopted it stay in "
                    "both cases.",
                    values=[choice.value for choice in Drift],
                    default=Drift.REVERT.value,
                ),
            },
            required=["cluster"],
        ),
        rule(
            "!has(self.replicas) || !has(self.config) || !('min.insync.replicas' in self.config) || "
            f"!{_MIN_ISR}.matches('^[0-9]{{1,9}}$') || int({_MIN_ISR}) <= self.replicas",
            "min.insync.replicas is more than spec.replicas: nobody could write with acks=all.",
        ),
    )


def _config() -> Schema:
    known = ", ".join(map(repr, sorted(TOPIC_SETTINGS)))
    return ruled(
        properties(
            "Kafka's topic properties, by Kafka's names. What is not listed has the brokers' default. Known are: "
            f"{', '.join(sorted(TOPIC_SETTINGS))}."
        )
        | {"maxProperties": len(TOPIC_SETTINGS)},
        rule(
            f"self.all(key, key in [{known}])",
            "This is not a topic property: kubectl explain topic.spec.config lists all of them.",
        ),
        rule(
            f"!('cleanup.policy' in self) || string(self['cleanup.policy']).matches('{_POLICY}')",
            "cleanup.policy must be delete, compact, or both with a comma.",
        ),
        *(
            rule(
                f"!('{key}' in self) || string(self['{key}']).matches('^(-1|[0-9]+)$')",
                f"{key} must be a whole number that is not negative, or -1 for no bound.",
            )
            for key in ("retention.ms", "retention.bytes")
        ),
    )
