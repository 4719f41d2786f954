"""What a mirror has to do so that the topics of a source are in the target. Pure; `topic_follower` carries it out.

It takes the topics of both clusters, and what the mirror has created before. The result has the topics to create, the
partitions to add, the properties to change and the partitions to copy, and a problem for each topic that cannot be
followed. Which properties are followed is that of MirrorMaker 2 in Kafka 3.9 (`config.properties.exclude` and
`use.defaults.from=target`).

Invariants:

1. A topic in the target that the mirror did not create is not changed. Records are copied into it.
2. Only one source is copied into a topic that a mirror has created.
3. A topic whose records come from the target is not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from odradek.base.types import ZERO_UUID
from odradek.client.admin_kinds import ConfigOperation, ConfigSource
from odradek.client.models import ConfigChange, ConfigEntry
from odradek.mirror.following.mirrored_topics import MirroredTopic
from odradek.mirror.mirror_config import SourceConfig

EXCLUDED_CONFIGS: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Properties that are not followed: the default of MirrorMaker 2's `config.properties.exclude`."""
_NOT_OF_TOPIC: Final = (ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG)
"""Where a value comes from that the target does not get: there, its own defaults apply."""


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """A partition that is to be copied."""

    source: str
    """Name of the source in the configuration."""
    topic: str
    """The topic in the source."""
    partition: int
    """Number of the partition, the same in both clusters."""
    topic_id: UUID
    """Id of the topic in the source; zero if its brokers are too old for ids."""
    target_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopic:
    """A topic of one of the clusters, as its brokers describe it."""

    name: str
    topic_id: UUID = ZERO_UUID
    partitions: int = 0
    """Number of partitions; 0 if it is unknown at the moment."""
    internal: bool = False
    configs: Mapping[str, ConfigEntry] | None = None
    """All properties by name; None if they were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A topic to create in the target."""

    record: MirroredTopic
    partitions: int
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    """What to do for one source."""

    creations: tuple[Creation, ...] = ()
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """New numbers of partitions by topic of the target."""
    config_changes: Mapping[str, tuple[ConfigChange, ...]] = field(default_factory=dict)
    """Properties to change by topic of the target."""
    followed: Mapping[str, str] = field(default_factory=dict)
    """Topics of the source, and their names in the target."""
    owned: Mapping[str, MirroredTopic] = field(default_factory=dict)
    """The followed topics that the mirror has created, by name in the target."""
    completed: tuple[MirroredTopic, ...] = ()
    """Records to write, because the topic has been created but its record has no id yet."""
    copied: frozenset[CopiedPartition] = frozenset()
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a topic of the source is not followed, or not completely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """What was read from both clusters."""

    source_id: str
    """Id of the source cluster; empty if unknown."""
    target_id: str
    source: Mapping[str, SeenTopic]
    target: Mapping[str, SeenTopic]
    source_records: Mapping[str, MirroredTopic] = field(default_factory=dict)
    """What mirrors have created in the source."""
    target_records: Mapping[str, MirroredTopic] = field(default_factory=dict)
    """What mirrors have created in the target."""


def make_plan(source: SourceConfig, clusters: Clusters) -> MirrorPlan:
    """Return what to do now."""
    draft = _Draft(source, clusters)
    for name in sorted(clusters.source):
        topic = clusters.source[name]
        if not topic.internal and topic.partitions and source.copies(name):
            draft.add(topic)
    return draft.plan()


class _Draft:
    """A plan in the making."""

    def __init__(self, source: SourceConfig, clusters: Clusters) -> None:
        self._config = source
        self._clusters = clusters
        self._creations: list[Creation] = []
        self._counts: dict[str, int] = {}
        self._changes: dict[str, tuple[ConfigChange, ...]] = {}
        self._followed: dict[str, str] = {}
        self._owned: dict[str, MirroredTopic] = {}
        self._completed: list[MirroredTopic] = []
        self._copied: set[CopiedPartition] = set()
        self._problems: dict[str, str] = {}

    def plan(self) -> MirrorPlan:
        return MirrorPlan(
            creations=tuple(self._creations),
            partition_counts=self._counts,
            config_changes=self._changes,
            followed=self._followed,
            owned=self._owned,
            completed=tuple(self._completed),
            copied=frozenset(self._copied),
            problems=self._problems,
        )

    def add(self, topic: SeenTopic) -> None:
        origins = self._origins(topic)
        if self._clusters.target_id in origins:
            # The records come from the target: a copy would go round in a circle. This is normal with two directions.
            return
        name = self._config.target_topic(topic.name)
        record = self._clusters.target_records.get(name)
        present = self._clusters.target.get(name)
        if record is not None and present is not None and not record.is_copy(present.topic_id):
            # Somebody has deleted the mirror's topic and created another one.
            record = None
        if record is not None and (record.source, record.source_topic) != (self._config.name, topic.name):
            self._problems[topic.name] = (
                f"topic {name} of the target has the records of topic {record.source_topic} of source {record.source}: "
                f"set another prefix for source {self._config.name}"
            )
            return
        if present is None:
            self._add_missing(topic, name, record, origins)
            return
        self._followed[topic.name] = name
        if record is not None:
            self._add_owned(topic, present, record)
        self._copy(topic, name, present.partitions)

    def _origins(self, topic: SeenTopic) -> tuple[str, ...]:
        own = (self._clusters.source_id,) if self._clusters.source_id else ()
        record = self._clusters.source_records.get(topic.name)
        if record is None or record.target_id is None or not record.is_copy(topic.topic_id):
            return own
        return own + record.origins

    def _add_missing(self, topic: SeenTopic, name: str, record: MirroredTopic | None, origins: tuple[str, ...]) -> None:
        if record is not None and record.target_id is not None:
            # Its positions say that records were copied. A new topic would lack them without an error.
            self._followed[topic.name] = name
            self._problems[topic.name] = (
                f"topic {name}, which the mirror has created, is missing in the target: create it again from a backup, "
                f"or reset topic {topic.name} of source {self._config.name} in the mirror to copy it from the start"
            )
            self._copy(topic, name, topic.partitions)
            return
        new = MirroredTopic(
            name=name,
            source=self._config.name,
            source_topic=topic.name,
            source_id=topic.topic_id,
            origins=origins,
        )
        configs = followed_configs(topic.configs or {}) if self._config.configurations else {}
        self._creations.append(
            Creation(record=new, partitions=topic.partitions, configs=tuple(sorted(configs.items())))
        )

    def _add_owned(self, topic: SeenTopic, present: SeenTopic, record: MirroredTopic) -> None:
        if record.target_id is None:
            record = replace(record, target_id=present.topic_id)
            self._completed.append(record)
        self._owned[present.name] = record
        if _other(record.source_id, topic.topic_id):
            self._problems[topic.name] = (
                f"topic {topic.name} was deleted and created again in source {self._config.name}: a continued copy "
                f"would mix two topics. Reset the topic in the mirror to copy it from the start"
            )
            return
        if self._config.partitions and 0 < present.partitions < topic.partitions:
            self._counts[present.name] = topic.partitions
        if self._config.configurations and topic.configs is not None and present.configs is not None:
            changes = config_changes(topic.configs, present.configs)
            if changes:
                self._changes[present.name] = changes

    def _copy(self, topic: SeenTopic, name: str, partitions: int) -> None:
        if 0 < partitions < topic.partitions and name not in self._counts:
            self._problems.setdefault(
                topic.name,
                f"topic {name} of the target has {partitions} partitions and topic {topic.name} of source "
                f"{self._config.name} has {topic.partitions}: partitions from {partitions} on are not copied. "
                f"Add partitions to topic {name}",
            )
        self._copied |= {
            CopiedPartition(self._config.name, topic.name, number, topic.topic_id, name)
            for number in range(min(topic.partitions, partitions))
        }


def _other(known: UUID, now: UUID) -> bool:
    """Whether two ids are of different topics. Zero means unknown."""
    return ZERO_UUID not in (known, now) and known != now


def followed_configs(configs: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return the properties of a source topic that the target gets.

    Defaults of Kafka and the static properties of the source's brokers are left out: there, the target's own apply.
    """
    return {
        name: entry.value
        for name, entry in configs.items()
        if _may_follow(entry) and entry.source not in (*_NOT_OF_TOPIC, ConfigSource.UNKNOWN) and entry.value is not None
    }


def config_changes(source: Mapping[str, ConfigEntry], target: Mapping[str, ConfigEntry]) -> tuple[ConfigChange, ...]:
    """Return what to change in a topic of the target. Properties that the source does not know stay."""
    wanted = followed_configs(source)
    changes = []
    for name, value in sorted(wanted.items()):
        entry = target.get(name)
        if entry is None or entry.value != value:
            changes.append(ConfigChange(name=name, value=value))
    for name, entry in sorted(target.items()):
        known = source.get(name)
        is_unset = known is not None and _may_follow(known) and known.source in _NOT_OF_TOPIC
        if is_unset and entry.source is ConfigSource.TOPIC_CONFIG:
            changes.append(ConfigChange(name=name, value=None, operation=ConfigOperation.DELETE))
    return tuple(changes)


def _may_follow(entry: ConfigEntry) -> bool:
    return not entry.read_only and not entry.sensitive and entry.name not in EXCLUDED_CONFIGS
