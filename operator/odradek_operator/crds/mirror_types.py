"""The Mirror resource: copies of topics of other clusters. Pure.

Fields of `sources` that the file of `odradek mirror` (docs/design/0032) has as well have the same names and meanings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from odradek_operator.crds.cluster_types import CLUSTER_NAME_ALLOWED, CLUSTER_NAME_PATTERN
from odradek_operator.crds.fields import (
    MAX_PROPERTIES,
    MAX_PROPERTY,
    Entries,
    Flag,
    Image,
    Json,
    ObjectName,
    Text,
    Verbatim,
    Whole,
    Written,
    matching,
    password_problem,
    without_keys,
)
from odradek_operator.crds.metadata import MAX_CLUSTER_NAME_LENGTH, METADATA, SPECIFICATION, Metadata
from odradek_operator.crds.model import Check, Complaint, Group, Model, Reading, Rule, published, repeated
from odradek_operator.crds.pod_types import (
    MAX_GRACE_SECONDS,
    MAX_PULL_SECRETS,
    ComputeResources,
    PodAdditions,
    SecretName,
    additional_labels,
    operated_rule,
)
from odradek_operator.mirrors.mirror_names import MIRROR_LABELS

MAX_MIRROR_NAME_LENGTH: Final = 40
"""Name and hash of the pods of a Deployment must fit into a label."""
MAX_SOURCES: Final = 32
MAX_SOURCE_NAME: Final = 64
MAX_EXPRESSIONS: Final = 256
MAX_EXPRESSION: Final = 1_024
MAX_PREFIX: Final = 128
MAX_ADDRESSES: Final = 4_096
MAX_COPIED_BYTES: Final = 10**15
"""Bytes per second. The bound catches typing errors."""
MAX_INTERVAL_SECONDS: Final = 86_400
MAX_REPLICATION: Final = 32_767
MAX_MIRROR_PODS: Final = 100
MAX_MIRROR_NAME: Final = 128
ADDRESS_KEYS: Final = frozenset({"bootstrap.servers"})
"""Client properties that follow from the rest of the resource."""

_SOURCE_NAME: Final = "[A-Za-z0-9_-]+"
_PREFIX: Final = "[A-Za-z0-9._-]*"
_NAME_IN_TARGET: Final = "[a-z0-9-]+"


def _pattern(text: str, allowed: str) -> Any:
    """Return the rule of the schema that the whole text matches. The reader needs `matching` as well."""
    return published(pattern=f"^{text}$", allowed=allowed)


_SOURCE_NAME_ALLOWED: Final = "letters, digits, '_' and '-'"
_PREFIX_ALLOWED: Final = "letters, digits, '.', '_' and '-'"
_NAME_IN_TARGET_ALLOWED: Final = "lower-case letters, digits and '-'"


def _expression_problems(names: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """Complain of what is no regular expression. Only the reader has this rule."""
    for key in ("include", "exclude"):
        entries = names.get(key)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, str) and 0 < len(entry) <= MAX_EXPRESSION:
                try:
                    re.compile(entry)
                except re.error as error:
                    yield Complaint((key, index), f"is not a regular expression of Python: {error}.")


_Expression = Annotated[
    Text,
    Field(max_length=MAX_EXPRESSION, description="A regular expression of Python for the whole name."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorGroups(Model):
    """Consumer groups."""

    checks: ClassVar[tuple[Check, ...]] = (_expression_problems,)

    include: Annotated[tuple[_Expression, ...], Field(max_length=MAX_EXPRESSIONS)] = ()
    """Groups whose offsets are translated. If empty, none are."""
    exclude: Annotated[tuple[_Expression, ...], Field(max_length=MAX_EXPRESSIONS)] = ()
    """Groups whose offsets are not translated, although include matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTopics(Model):
    """Topics."""

    checks: ClassVar[tuple[Check, ...]] = (_expression_problems,)

    include: Annotated[tuple[_Expression, ...], Field(min_length=1, max_length=MAX_EXPRESSIONS)]
    """Topics that are copied. Internal topics and those of mirrors never are."""
    exclude: Annotated[tuple[_Expression, ...], Field(max_length=MAX_EXPRESSIONS)] = ()
    """Topics that are not copied, although include matches."""


def _connects_one_way(side: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The CEL rules are the same."""
    if ("cluster" in side) == ("bootstrapServers" in side):
        yield Complaint(("cluster",), "set exactly one of cluster and bootstrapServers.")
        return
    if "user" in side and "cluster" not in side:
        yield Complaint(("user",), "is a User of a Cluster: set secret for brokers given by bootstrapServers.")
    if "secret" in side and "bootstrapServers" not in side:
        yield Complaint(("secret",), "is for brokers given by bootstrapServers: set user for a Cluster.")


_SIDE_RULES: Final = (
    Rule("has(self.cluster) != has(self.bootstrapServers)", "Set exactly one of cluster and bootstrapServers."),
    Rule(
        "!has(self.user) || has(self.cluster)",
        "user is a User of a Cluster: set secret for brokers given by bootstrapServers.",
    ),
    Rule(
        "!has(self.secret) || has(self.bootstrapServers)",
        "secret is for brokers given by bootstrapServers: set user for a Cluster.",
    ),
)


def _client_property(key: str, value: str, reading: Reading) -> str | None:
    if key in ADDRESS_KEYS:
        return "follows from the other fields of the resource: remove it."
    return password_problem(key, "put it into the Secret of secret or user")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSide(Model):
    """How the mirror connects to a cluster.

    pydantic does not find the docstrings of inherited fields, so the descriptions are arguments.
    """

    cel_rules: ClassVar[tuple[Rule, ...]] = _SIDE_RULES
    checks: ClassVar[tuple[Check, ...]] = (_connects_one_way,)

    cluster: Annotated[
        ObjectName | None,
        Field(max_length=MAX_CLUSTER_NAME_LENGTH, description="Name of a Cluster in the same namespace."),
    ] = None
    user: Annotated[
        ObjectName | None,
        Field(
            description="Name of the User of the Cluster as which the mirror logs in, in the same namespace. If not "
            "set, it logs in with its ServiceAccount NAME-odradek-mirror if a listener of the Cluster has "
            "authentication of type serviceaccount, and else without authentication."
        ),
    ] = None
    bootstrap_servers: Annotated[
        Text | None,
        Field(max_length=MAX_ADDRESSES, description="Addresses of brokers of another cluster: host:port, with commas."),
    ] = None
    secret: Annotated[
        ObjectName | None,
        Field(
            description="Name of a Secret in the same namespace whose key client.properties has Kafka's client "
            "properties, such as the login. Its other keys are files beside it, in /etc/odradek-logins/target or "
            "/etc/odradek-logins/source-NAME."
        ),
    ] = None
    properties: Annotated[
        Mapping[str, str],
        Entries(check=_client_property, max_entries=MAX_PROPERTIES, max_length=MAX_PROPERTY),
        published(
            Rule(
                without_keys(ADDRESS_KEYS),
                "bootstrap.servers follows from the other fields of the resource: remove it.",
            )
        ),
        Field(
            description="Kafka's client properties that are no passwords. They override those of the Secret. Values "
            "are text."
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSource(MirrorSide):
    """A cluster whose topics are copied."""

    name: Annotated[
        Text,
        Field(max_length=MAX_SOURCE_NAME),
        matching(re.compile(_SOURCE_NAME)),
        _pattern(_SOURCE_NAME, _SOURCE_NAME_ALLOWED),
    ]
    """Name of the source in names of topics, metrics and checkpoints, as the alias of a cluster in MirrorMaker 2. With
    another name, the mirror copies everything again."""
    topics: MirrorTopics
    """Topics that are copied."""
    prefix: Annotated[
        str | None,
        Field(max_length=MAX_PREFIX),
        matching(re.compile(_PREFIX)),
        _pattern(_PREFIX, _PREFIX_ALLOWED),
    ] = None
    """What names of topics in the target begin with. If not set, the name of the source and a dot. Empty: topics keep
    their names."""
    groups: Annotated[MirrorGroups, published(default={})] = MirrorGroups()
    """Consumer groups whose offsets are translated and committed in the target."""
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """Where the mirror starts to copy a partition that it has not copied before."""
    max_bytes_per_second: Annotated[Whole | None, Field(ge=1, le=MAX_COPIED_BYTES)] = None
    """Most bytes per second that each pod fetches from this source. If not set, there is no limit."""
    on_data_loss: Literal["fail", "skip"] = "fail"
    """What happens if records were deleted before they were copied. fail: the partition stops with an error. skip: it
    continues with the next records that exist."""
    configurations: Flag = True
    """Whether the configurations of topics follow those of the source."""
    acls: Flag = False
    """Whether access rules of topics follow those of the source. They give the right to read only."""
    partitions: Flag = True
    """Whether topics get new partitions when those of the source do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTemplate(PodAdditions):
    """Additions to the pods of a Mirror."""

    labels: Annotated[
        Mapping[str, str],
        additional_labels(MIRROR_LABELS),
        published(operated_rule(MIRROR_LABELS)),
    ] = field(default_factory=dict)
    """Labels in addition to those that the operator sets."""
    affinity: (
        Annotated[
            Json,
            Verbatim("Kubernetes affinity rules. If not set, pods avoid nodes with another pod of the same Mirror."),
        ]
        | None
    ) = None
    termination_grace_period_seconds: Annotated[Whole, Field(ge=1, le=MAX_GRACE_SECONDS)] = 60
    """Seconds between SIGTERM and SIGKILL. A pod ends its transactions and leaves its consumer group in this time."""


def _different_names(resource: Mapping[str, Any], reading: Reading) -> Iterator[Complaint]:
    """The schema has this rule as `list_key`."""
    yield from repeated(resource, "spec.sources", "name", "the names of other sources")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror(Metadata):
    """Copies topics of other clusters into a cluster, each record once and in order."""

    __pydantic_config__: ClassVar[ConfigDict] = SPECIFICATION
    field_groups: ClassVar[Mapping[str, Group]] = {
        "metadata": METADATA,
        "spec": Group(description="The desired state of the mirror.", required=True),
    }
    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('^{CLUSTER_NAME_PATTERN}$')",
            f"The name of a Mirror must be {CLUSTER_NAME_ALLOWED}, because its objects are named after it.",
        ),
    )
    checks: ClassVar[tuple[Check, ...]] = (_different_names,)

    name: Annotated[
        Text,
        Field(alias="metadata.name", max_length=MAX_MIRROR_NAME_LENGTH),
        matching(re.compile(CLUSTER_NAME_PATTERN)),
        published(allowed=CLUSTER_NAME_ALLOWED),
    ]
    target: MirrorSide
    """The cluster that the topics are copied into."""
    sources: Annotated[
        tuple[MirrorSource, ...], Field(min_length=1, max_length=MAX_SOURCES), published(list_key="name")
    ]
    """The clusters that topics are copied from. They may run Apache Kafka."""
    mirror_name: Annotated[
        Text | None,
        Field(max_length=MAX_MIRROR_NAME),
        matching(re.compile(_NAME_IN_TARGET)),
        _pattern(_NAME_IN_TARGET, _NAME_IN_TARGET_ALLOWED),
    ] = None
    """Name of the mirror in the target: its consumer group is odradek-mirror-NAME. If not set, NAMESPACE-NAME of the
    resource. With the same name, another Mirror or `odradek mirror` continues where this one has stopped."""
    replicas: Annotated[Whole, Field(ge=1, le=MAX_MIRROR_PODS)] = 1
    """Number of pods. They share the partitions, and if one fails, the others take over its partitions."""
    refresh_seconds: Annotated[Whole, Field(ge=1, le=MAX_INTERVAL_SECONDS)] = 30
    """Seconds between two looks for new topics and partitions, and for changed configurations and access rules."""
    groups_seconds: Annotated[Whole, Field(ge=1, le=MAX_INTERVAL_SECONDS)] = 10
    """Seconds between two translations of the offsets of consumer groups."""
    replication_factor: Annotated[Whole | None, Field(ge=1, le=MAX_REPLICATION)] = None
    """Replicas of topics that the mirror creates. If not set, the default of the target's brokers."""
    internal_replication_factor: Annotated[Whole, Field(ge=1, le=MAX_REPLICATION)] = 3
    """Replicas of the mirror's own topics in the target, at most the number of brokers."""
    resources: ComputeResources = ComputeResources()
    """Requests and limits of each pod, as in any container of Kubernetes."""
    image: Image | None = None
    """Image of the pods. If not set, the broker image of the version of the operator, so that an upgrade of the
    operator restarts the mirror."""
    image_pull_secrets: Annotated[
        tuple[Annotated[str, Written(SecretName, lambda secret: secret.name)], ...],
        Field(max_length=MAX_PULL_SECRETS),
    ] = ()
    """Secrets of the namespace with the credentials to pull the image."""
    template: Annotated[MirrorTemplate, published(default={})] = MirrorTemplate()
    """Additions to the pods."""
    suspend: Flag = False
    """Whether the mirror is stopped. It continues at the same records later, if they still exist."""
    pod_monitor: Flag = False
    """Whether the operator creates a PodMonitor for the metrics of the pods. It needs the Prometheus operator."""
    network_policies: Flag = True
    """Whether the operator creates a NetworkPolicy for the pods."""

    @property
    def name_in_target(self) -> str:
        """Name of the mirror in the target."""
        return self.mirror_name or f"{self.namespace}-{self.name}"
