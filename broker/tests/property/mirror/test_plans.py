"""A plan that was carried out leaves nothing to do, and what the mirror did not create stays as it is."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.client.admin_kinds import ConfigOperation, ConfigSource
from odradek.client.models import ConfigChange, ConfigEntry, OffsetAndMetadata
from odradek.mirror.following.acl_rules import acl_changes
from odradek.mirror.following.group_checkpoints import new_checkpoints, offsets_to_commit
from odradek.mirror.mirror_config import ClusterAddress, NameFilter, SourceConfig
from odradek.mirror.mirror_plan import Clusters, MirrorPlan, SeenTopic, make_plan
from odradek.mirror.mm2_records import Checkpoint
from odradek.security.acls.model import AclOperation, AclPermission, AclRule
from odradek.security.principals import Principal

EAST = SourceConfig(name="east", address=ClusterAddress("e:9092"), topics=NameFilter((".*",)), prefix="east.")
PROPERTIES = ("retention.ms", "cleanup.policy", "min.insync.replicas")
SOURCES = st.sampled_from((ConfigSource.TOPIC_CONFIG, ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG))
CONFIGS = st.fixed_dictionaries({name: st.tuples(st.sampled_from("12"), SOURCES) for name in PROPERTIES}).map(
    lambda values: {name: ConfigEntry(name=name, value=value, source=at) for name, (value, at) in values.items()}
)
TOPICS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(1, 4), CONFIGS), max_size=3)


def carried_out(clusters: Clusters, plan: MirrorPlan) -> Clusters:
    """Return both clusters after the plan."""
    target, records = dict(clusters.target), dict(clusters.target_records)
    for number, creation in enumerate(plan.creations):
        name = creation.record.name
        entries = {
            each: ConfigEntry(name=each, value=value, source=ConfigSource.TOPIC_CONFIG)
            for each, value in creation.configs
        }
        topic_id = UUID(int=100 + len(records) + number)
        target[name] = SeenTopic(name=name, topic_id=topic_id, partitions=creation.partitions, configs=entries)
        records[name] = creation.record
    for record in plan.completed:
        records[record.name] = record
    for name, count in plan.partition_counts.items():
        target[name] = replace(target[name], partitions=count)
    for name, changes in plan.config_changes.items():
        target[name] = replace(target[name], configs=changed(dict(target[name].configs or {}), changes))
    return replace(clusters, target=target, target_records=records)


def changed(entries: dict[str, ConfigEntry], changes: tuple[ConfigChange, ...]) -> dict[str, ConfigEntry]:
    for change in changes:
        if change.operation == ConfigOperation.DELETE:
            del entries[change.name]
        else:
            entries[change.name] = ConfigEntry(name=change.name, value=change.value, source=ConfigSource.TOPIC_CONFIG)
    return entries


@given(first=TOPICS, second=TOPICS, foreign=TOPICS)
def test_a_plan_leaves_nothing_to_do(
    first: dict[str, tuple[int, dict[str, ConfigEntry]]],
    second: dict[str, tuple[int, dict[str, ConfigEntry]]],
    foreign: dict[str, tuple[int, dict[str, ConfigEntry]]],
) -> None:
    others = {
        f"east.{name}": SeenTopic(name=f"east.{name}", topic_id=UUID(int=7), partitions=count, configs=configs)
        for name, (count, configs) in foreign.items()
    }
    clusters = Clusters(source_id="e", target_id="t", source={}, target=others)
    for topics in (first, second):
        seen = {
            name: SeenTopic(name=name, topic_id=UUID(int=ord(name)), partitions=count, configs=configs)
            for name, (count, configs) in topics.items()
        }
        clusters = replace(clusters, source=seen)
        # The second plan writes the ids of what the first one has created.
        for _ in range(2):
            clusters = carried_out(clusters, make_plan(EAST, clusters))
        plan = make_plan(EAST, clusters)
        assert not plan.creations and not plan.partition_counts and not plan.config_changes and not plan.completed
        assert {name: topic for name, topic in clusters.target.items() if name in others} == others
        for each in plan.copied:
            assert each.partition < min(seen[each.topic].partitions, clusters.target[each.target_topic].partitions)
        assert set(plan.followed) == set(seen)


RULES = st.frozensets(
    st.builds(
        AclRule,
        st.sampled_from((Principal("User", "a"), Principal("User", "b"))),
        st.sampled_from((AclPermission.ALLOW, AclPermission.DENY)),
        st.sampled_from((AclOperation.READ, AclOperation.DESCRIBE)),
    )
)


@given(wanted=st.lists(RULES, min_size=1, max_size=4), foreign=RULES)
def test_access_rules_of_others_stay(wanted: list[frozenset[AclRule]], foreign: frozenset[AclRule]) -> None:
    present, owned = foreign, frozenset[AclRule]()
    for rules in wanted:
        changes = acl_changes(rules, present, owned)
        present, owned = (present - changes.deleted) | changes.created, changes.owned
        assert present == foreign | rules
        assert not owned & foreign
        assert acl_changes(rules, present, owned) == (frozenset(), frozenset(), owned)


@given(offsets=st.lists(st.integers(0, 50), max_size=20), floor=st.integers(1, 5))
def test_a_group_goes_back_in_the_target_only_if_it_goes_back_in_the_source(offsets: list[int], floor: int) -> None:
    place, copy = TopicPartition("a", 0), TopicPartition("east.a", 0)
    last: dict[TopicPartition, Checkpoint] = {}
    in_target: dict[TopicPartition, OffsetAndMetadata] = {}
    for round_number, offset in enumerate(offsets):
        known = last.get(copy)
        found = new_checkpoints(
            "g",
            {place: OffsetAndMetadata(offset)},
            target_of=EAST.target_topic,
            # Translations of old offsets get less exact.
            translate=lambda _, at, spread=round_number: max(0, at - spread) // floor,
            last=last,
        )
        last.update({each.partition: each for each in found})
        if known is not None and last[copy].target_offset < known.target_offset:
            assert offset < known.source_offset
        before = in_target.get(copy)
        in_target |= offsets_to_commit(last.values(), in_target)
        assert before is None or in_target[copy].offset >= before.offset
