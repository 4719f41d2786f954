"""Follows the topics of one source: creates copies in the target, adds partitions, follows properties and access rules.

Every `refresh_seconds`, it reads both clusters, makes a plan (`mirror_plan`) and carries it out. All processes of a
mirror run it, because all need the partitions to copy, but only one of them may change the target (`leads`).

An error of one topic does not affect the others. It is a problem of that topic, logged once and shown in `problems`
until it has passed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from odradek.base.errors import (
    ConfigError,
    OdradekError,
    ProtocolError,
    SecurityDisabledError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
)
from odradek.base.ports import Clock
from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.metadata import ClusterView
from odradek.client.models import ConfigEntry, ConfigResource, ConsumerRecord, NewTopic
from odradek.client.producer.producer import Producer
from odradek.mirror.following.acl_rules import TOPIC_RULES, acl_changes, exact_filter, followed_rules, topic_binding
from odradek.mirror.following.mirrored_topics import MIRRORED_TOPICS, MirroredTopic
from odradek.mirror.following.state_topics import StateTopic, create_state_topics
from odradek.mirror.mirror_config import MirrorConfig, SourceConfig
from odradek.mirror.mirror_plan import Clusters, CopiedPartition, Creation, MirrorPlan, SeenTopic, make_plan
from odradek.security.acls.model import AclBinding, AclRule

_TOPICS_AT_ONCE: Final = 200
"""Topics in one request for properties."""

logger: Final = logging.getLogger(__name__)


def _always() -> bool:
    return True


class TopicRecords:
    """The records of `odradek-mirror-topics` in one cluster."""

    def __init__(self, topic: StateTopic) -> None:
        """`topic` is closed by the caller."""
        self._topic: Final = topic
        self.known: dict[str, MirroredTopic] = {}
        """The records by name of the topic."""

    async def read(self) -> None:
        """Read the new records."""
        async for records in self._topic.read():
            for record in records:
                self._take(record)

    def _take(self, record: ConsumerRecord) -> None:
        if record.value is None:
            self.known.pop(record.key.decode(), None)
            return
        try:
            topic = MirroredTopic.decode(record.key, record.value)
        except ConfigError as error:
            logger.warning("the record at offset %d is ignored: %s", record.offset, error)
            return
        self.known[topic.name] = topic


class TopicFollower:
    """Follows the topics of one source. Call `run`, or `refresh` and `close`."""

    def __init__(
        self,
        config: MirrorConfig,
        source: SourceConfig,
        source_client: Cluster,
        target_client: Cluster,
        on_change: Callable[[frozenset[CopiedPartition]], None],
        *,
        leads: Callable[[], bool] = _always,
        clock: Clock | None = None,
    ) -> None:
        """Both clients are started and closed by the caller.

        `on_change` gets the partitions to copy, at first and whenever they have changed. `leads` says whether this
        process may change the target; it must be true in one process only. `clock` is for tests.
        """
        self._config: Final = config
        self._source: Final = source
        self._source_client: Final = source_client
        self._target_client: Final = target_client
        self._in_source: Final = Admin(cluster=source_client)
        self._in_target: Final = Admin(cluster=target_client)
        self._on_change: Final = on_change
        self._leads: Final = leads
        self._clock: Final = clock or target_client.clock
        self._source_topic: Final = StateTopic(source_client, source.address.settings(), MIRRORED_TOPICS)
        self._target_topic: Final = StateTopic(target_client, config.target.settings(), MIRRORED_TOPICS)
        self._source_records: Final = TopicRecords(self._source_topic)
        self._target_records: Final = TopicRecords(self._target_topic)
        self._producer: Producer | None = None
        self._copied: frozenset[CopiedPartition] | None = None
        self._failures: dict[str, str] = {}
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> Mapping[str, str]:
        """Why a topic of the source is not followed, or not completely, by its name."""
        return self._problems

    async def run(self) -> None:
        """Follow the topics until cancelled. If brokers cannot be asked, the partitions to copy stay as they are."""
        try:
            while True:
                try:
                    await self.refresh()
                except OdradekError as error:
                    logger.warning("the topics of source %s could not be followed: %s", self._source.name, error)
                await self._clock.sleep_ms(self._config.refresh_seconds * 1000)
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        producer, self._producer = self._producer, None
        await self._source_topic.close()
        await self._target_topic.close()
        if producer is not None:
            await producer.close()

    async def refresh(self) -> None:
        """Read both clusters, and change the target where this is necessary. Raises the errors of the brokers."""
        self._failures = {}
        leads = self._leads()
        if leads:
            await create_state_topics(self._config, self._target_client, MIRRORED_TOPICS)
        plan = await self._make_plan(with_configs=leads)
        if leads:
            await self._change(plan)
            if plan.creations or plan.partition_counts:
                # The new topics and partitions are copied from now on.
                plan = await self._make_plan(with_configs=False)
                await self._complete(plan)
        self._show({**plan.problems, **self._failures})
        if plan.copied != self._copied:
            self._copied = plan.copied
            self._on_change(plan.copied)

    def _show(self, problems: dict[str, str]) -> None:
        for topic, problem in problems.items():
            if self._problems.get(topic) != problem:
                logger.warning("topic %s of source %s: %s", topic, self._source.name, problem)
        self._problems = problems

    @asynccontextmanager
    async def _noting(self, topic: str, what: str) -> AsyncIterator[None]:
        """Note an error of the block as a problem of a source topic."""
        try:
            yield
        except OdradekError as error:
            self._failures[topic] = f"{what}: {error}"

    # ------------------------------------------------------------------------------------------------ reading

    async def _make_plan(self, *, with_configs: bool) -> MirrorPlan:
        source = await self._source_client.fresh_view(None)
        target = await self._target_client.fresh_view(None)
        if MIRRORED_TOPICS in source.topics:
            await self._source_records.read()
        if MIRRORED_TOPICS in target.topics:
            await self._target_records.read()
            if self._lacks_copies(target):
                # The process that leads may have created them after the topics of the target were read.
                target = await self._target_client.fresh_view(None)
        clusters = Clusters(
            source_id=source.cluster_id or "",
            target_id=target.cluster_id or "",
            source=_seen(source),
            target=_seen(target),
            source_records=dict(self._source_records.known),
            target_records=dict(self._target_records.known),
        )
        if with_configs and self._source.configurations:
            clusters = await self._with_configs(clusters)
        return make_plan(self._source, clusters)

    def _lacks_copies(self, target: ClusterView) -> bool:
        """Whether the target lacks a topic that the mirror has created from this source."""
        return any(
            record.source == self._source.name and record.target_id is not None and name not in target.topics
            for name, record in self._target_records.known.items()
        )

    async def _with_configs(self, clusters: Clusters) -> Clusters:
        names = sorted(name for name in clusters.source if self._source.copies(name))
        copies = {self._source.target_topic(name) for name in names} & set(clusters.target)
        try:
            in_source = await _describe(self._in_source, names)
            in_target = await _describe(self._in_target, sorted(copies & set(clusters.target_records)))
        except UnsupportedVersionError as error:
            # Kafka 0.10 has no request for properties.
            logger.info("the properties of the topics of source %s are not followed: %s", self._source.name, error)
            return clusters
        return replace(
            clusters,
            source=_configured(clusters.source, in_source),
            target=_configured(clusters.target, in_target),
        )

    # ------------------------------------------------------------------------------------------------ changing

    async def _change(self, plan: MirrorPlan) -> None:
        await self._complete(plan)
        for creation in plan.creations:
            name = creation.record.name
            async with self._noting(creation.record.source_topic, f"topic {name} was not created in the target"):
                await self._create_one(creation)
        for name, count in plan.partition_counts.items():
            async with self._noting(plan.owned[name].source_topic, f"topic {name} of the target got no partitions"):
                await self._in_target.create_partitions({name: count})
        for name, changes in plan.config_changes.items():
            async with self._noting(plan.owned[name].source_topic, f"the properties of topic {name} were not changed"):
                await self._in_target.incremental_alter_configs({ConfigResource.topic(name): changes})
        if self._source.acls:
            await self._follow_rules(plan)

    async def _complete(self, plan: MirrorPlan) -> None:
        for record in plan.completed:
            await self._write(record)

    async def _create_one(self, creation: Creation) -> None:
        record = creation.record
        known = self._target_records.known.get(record.name)
        await self._write(record)
        factor = self._config.replication_factor
        new = NewTopic(
            name=record.name,
            partitions=creation.partitions,
            replication_factor=-1 if factor is None else factor,
            configs=creation.configs,
        )
        try:
            await self._in_target.create_topics([new])
        except TopicAlreadyExistsError:
            if known is None:
                # Somebody else has created it at the same time, so it is not the mirror's.
                await self._forget(record.name)
                return
        except ProtocolError as error:
            if known is None and not error.retriable:
                # It was refused. After other errors, such as a timeout, the topic may exist later.
                await self._forget(record.name)
            raise
        await self._target_client.topic(record.name)

    async def _follow_rules(self, plan: MirrorPlan) -> None:
        try:
            in_source = await self._in_source.describe_acls(TOPIC_RULES)
            in_target = await self._in_target.describe_acls(TOPIC_RULES)
        except (SecurityDisabledError, UnsupportedVersionError, ConfigError) as error:
            # They are switched off, or one of them is newer than this version.
            logger.info("the access rules of source %s are not followed: %s", self._source.name, error)
            return
        wanted = followed_rules(in_source, plan.followed.get)
        present = _by_topic(in_target)
        for name, record in plan.owned.items():
            async with self._noting(record.source_topic, f"the access rules of topic {name} were not changed"):
                await self._change_rules(record, wanted.get(name, frozenset()), present.get(name, frozenset()))

    async def _change_rules(
        self, record: MirroredTopic, wanted: frozenset[AclRule], present: frozenset[AclRule]
    ) -> None:
        changes = acl_changes(wanted, present, record.rules)
        if changes.created:
            # The record comes first: after a crash in between, the mirror must know which rules are its own.
            await self._write(replace(record, rules=record.rules | changes.created))
            await self._in_target.create_acls(topic_binding(record.name, rule) for rule in sorted(changes.created))
        if changes.deleted:
            await self._in_target.delete_acls(exact_filter(record.name, rule) for rule in sorted(changes.deleted))
        if changes.owned != record.rules | changes.created:
            await self._write(replace(record, rules=changes.owned))

    async def _write(self, record: MirroredTopic) -> None:
        await (await self._sender()).send_and_wait(MIRRORED_TOPICS, record.value(), key=record.key(), partition=0)
        self._target_records.known[record.name] = record

    async def _forget(self, name: str) -> None:
        await (await self._sender()).send_and_wait(MIRRORED_TOPICS, None, key=name.encode(), partition=0)
        self._target_records.known.pop(name, None)

    async def _sender(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._config.target.settings())
            await producer.start()
            self._producer = producer
        return self._producer


def _seen(view: ClusterView) -> dict[str, SeenTopic]:
    return {
        topic.name: SeenTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=len(topic.partitions), internal=topic.internal
        )
        for topic in view.topics.values()
    }


async def _describe(admin: Admin, names: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
    """Return the properties of topics by name."""
    found = {}
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        resources = [ConfigResource.topic(name) for name in names[start : start + _TOPICS_AT_ONCE]]
        found.update({each.name: entries for each, entries in (await admin.describe_configs(resources)).items()})
    return found


def _configured(
    topics: Mapping[str, SeenTopic], configs: Mapping[str, Mapping[str, ConfigEntry]]
) -> dict[str, SeenTopic]:
    return {name: replace(topic, configs=configs.get(name)) for name, topic in topics.items()}


def _by_topic(bindings: Iterable[AclBinding]) -> dict[str, frozenset[AclRule]]:
    found: dict[str, set[AclRule]] = {}
    for resource, rule in bindings:
        found.setdefault(resource.name, set()).add(rule)
    return {name: frozenset(rules) for name, rules in found.items()}
