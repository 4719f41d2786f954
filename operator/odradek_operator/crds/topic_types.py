"""The Topic resource. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, ClassVar, Final

from pydantic import ConfigDict, Field

from odradek.base.config import TOPIC_SETTINGS
from odradek.base.errors import ConfigError
from odradek.base.topic_rules import MAX_NAME_LENGTH as MAX_TOPIC_NAME_LENGTH
from odradek_operator.crds.fields import ObjectName, PropertyEntries, Whole
from odradek_operator.crds.metadata import MAX_CLUSTER_NAME_LENGTH, METADATA, SPECIFICATION, Metadata
from odradek_operator.crds.model import Group, Reading, Rule, published
from odradek_operator.crds.problems import nearest

DEFAULT_REPLICAS: Final = 3
MAX_BROKERS: Final = 1_000
MAX_PARTITIONS: Final = 100_000
"""Most partitions of one topic. A cluster supports fewer; the bound catches typing errors."""

_MIN_ISR: Final = "string(self.config['min.insync.replicas'])"
_POLICY: Final = "^ *(compact|delete)( *, *(compact|delete))? *$"
_KNOWN: Final = sorted(TOPIC_SETTINGS)


class Deletion(Enum):
    """What happens to a topic when its resource is deleted."""

    PROTECT = "Protect"
    """The topic and its records are kept."""
    DELETE = "Delete"
    """The topic is deleted."""


class Drift(Enum):
    """What happens when other tools change the partitions or the configuration of a topic that has a resource."""

    REVERT = "Revert"
    """The configuration is set back. Partitions that others added are reported."""
    ADOPT = "Adopt"
    """Keys that the resource does not list, and partitions that others added, are kept and reported in the status."""


def _config_problem(key: str, value: str, reading: Reading) -> str | None:
    setting = TOPIC_SETTINGS.get(key)
    if setting is None:
        return f"is not a setting of a topic{nearest(key, TOPIC_SETTINGS)}."
    try:
        setting.parse(value)
    except ConfigError as error:
        return f"{error}."
    return None


_CONFIG_RULES: Final = (
    Rule(
        f"self.all(key, key in [{', '.join(map(repr, _KNOWN))}])",
        "This is not a topic property: kubectl explain topic.spec.config lists all of them.",
    ),
    Rule(
        f"!('cleanup.policy' in self) || string(self['cleanup.policy']).matches('{_POLICY}')",
        "cleanup.policy must be delete, compact, or both with a comma.",
    ),
    *(
        Rule(
            f"!('{key}' in self) || string(self['{key}']).matches('^(-1|[0-9]+)$')",
            f"{key} must be a whole number that is not negative, or -1 for no bound.",
        )
        for key in ("retention.ms", "retention.bytes")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic(Metadata):
    """A topic of a Cluster. The name of the resource is the name of the topic."""

    __pydantic_config__: ClassVar[ConfigDict] = SPECIFICATION
    field_groups: ClassVar[Mapping[str, Group]] = {
        "metadata": METADATA,
        "spec": Group(
            description="The desired state of the topic.",
            required=True,
            # Reader: `reader` compares with the number of brokers; the setting itself is checked in `config`.
            rules=(
                Rule(
                    "!has(self.replicas) || !has(self.config) || !('min.insync.replicas' in self.config) || "
                    f"!{_MIN_ISR}.matches('^[0-9]{{1,9}}$') || int({_MIN_ISR}) <= self.replicas",
                    "min.insync.replicas is more than spec.replicas: no producer could write with acks=all.",
                ),
            ),
        ),
    }

    name: Annotated[
        ObjectName,
        Field(alias="metadata.name", max_length=MAX_TOPIC_NAME_LENGTH),
    ]
    cluster: Annotated[
        ObjectName,
        Field(max_length=MAX_CLUSTER_NAME_LENGTH),
        published(Rule("self == oldSelf", "A topic cannot move to another cluster: set spec.cluster back.")),
    ]
    """Name of the Cluster that the topic belongs to, in the same namespace. It cannot change."""
    partitions: Annotated[
        Whole,
        Field(ge=1, le=MAX_PARTITIONS),
        published(
            Rule(
                "self >= oldSelf",
                "Partitions cannot be removed, because their records would be lost: set spec.partitions back.",
            )
        ),
    ] = 1
    """Number of partitions. It can grow, but not shrink. After it grows, records with a key may be written to another
    partition than before."""
    replicas: Annotated[
        Whole | None,
        Field(
            ge=1,
            le=MAX_BROKERS,
            description=f"Number of copies of each record, each on another broker. If not set, {DEFAULT_REPLICAS}, or "
            "the number of broker pods if there are fewer. A change moves replicas in portions, which "
            "spec.brokers.rebalance of the Cluster limits.",
        ),
    ] = None
    config: Annotated[
        Mapping[str, str],
        PropertyEntries(check=_config_problem, max_entries=len(TOPIC_SETTINGS)),
        published(*_CONFIG_RULES),
        Field(
            description="Kafka's topic properties, by Kafka's names. A property that is not listed has the default of "
            f"the brokers. Allowed are: {', '.join(_KNOWN)}. Values are text or whole numbers: put true, false and "
            "fractions in quotes."
        ),
    ] = field(default_factory=dict)
    deletion: Deletion = Deletion.PROTECT
    """What happens when this resource is deleted. Protect: the topic and its records are kept. Delete: they are
    deleted."""
    drift: Drift = Drift.REVERT
    """What happens to changes by other tools. Revert: the configuration is set back to this specification. Adopt: keys
    that are not listed here and partitions that were added are kept, and the status lists them. Keys that a topic had
    before this resource adopted it are kept in both cases."""

    def replicas_on(self, pods: int) -> int:
        """Return the replication factor in a cluster with this number of broker pods."""
        return min(DEFAULT_REPLICAS, pods) if self.replicas is None else self.replicas
