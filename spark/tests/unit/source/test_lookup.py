"""Look-ups: the partitions to read, and the offsets for the values of options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest

from odradek.base.errors import ConfigError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic, OffsetAndTimestamp, PartitionDescription, TopicDescription
from odradek.testing.in_process import InProcessBroker
from pyspark_odradek.options.source_options import parse
from pyspark_odradek.source.lookup import OffsetLookup

A0, A1, B0 = TopicPartition("my-log-1", 0), TopicPartition("my-log-1", 1), TopicPartition("other", 0)


A_ID, B_ID = UUID(int=1), UUID(int=2)


def described(name: str, topic_id: UUID, partitions: int) -> TopicDescription:
    numbers = range(partitions)
    parts = tuple(PartitionDescription(partition=n, leader=0, leader_epoch=0, replicas=(0,), isr=(0,)) for n in numbers)
    return TopicDescription(name=name, topic_id=topic_id, partitions=parts)


TOPICS = {
    "__consumer_offsets": described("__consumer_offsets", ZERO_UUID, 1),
    "my-log-1": described("my-log-1", A_ID, 2),
    "other": described("other", B_ID, 1),
}


class Cluster:
    """Two topics; A1 has no record as new as time 100. The offsets that are behind come first."""

    def __init__(self, failures: int = 0, behind: int = 0) -> None:
        self.failures = failures
        self.behind = behind
        self.requests = 0

    def describe_topics(self, topics: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        self.requests += 1
        if self.failures:
            self.failures -= 1
            raise LeaderNotAvailableError("an election")
        if topics is None:
            return TOPICS
        if unknown := set(topics) - TOPICS.keys():
            raise UnknownTopicOrPartitionError(f"no topic {unknown}")
        return {name: TOPICS[name] for name in topics}

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: {A0: 3, A1: 0, B0: 0}[partition] for partition in partitions}

    def latest_offsets(
        self, partitions: Iterable[TopicPartition], *, isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        top = 8 if isolation == "read_committed" else 10
        if self.behind:
            self.behind -= 1
            top = 6
        return dict.fromkeys(partitions, top)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {
            partition: None if partition == A1 and at >= 100 else OffsetAndTimestamp(5, at)
            for partition, at in timestamps.items()
        }


def assigned(**option: str) -> tuple[TopicPartition, ...]:
    cluster = Cluster()
    lookup = OffsetLookup(parse({"kafka.bootstrap.servers": "h:1", **option}), connect=lambda _: cluster)
    found = lookup.assignment()
    assert cluster.requests == 1, "one request for the metadata of all topics"
    assert found.topic_ids.items() <= {"my-log-1": A_ID, "other": B_ID}.items()
    assert lookup.assigned() == found.partitions
    return found.partitions


def test_partitions_of_each_kind_of_subscription() -> None:
    assert assigned(subscribe="other,my-log-1") == (A0, A1, B0)
    assert assigned(subscribePattern="log") == (A0, A1)
    assert assigned(subscribePattern="s") == ()
    assert assigned(assign='{"my-log-1":[1,7],"other":[0]}') == (A1, B0)


def test_an_internal_topic_never_matches_a_pattern() -> None:
    assert assigned(subscribePattern="o") == (A0, A1, B0)


def test_a_topic_that_is_not_there() -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        assigned(subscribe="nothing")


def resolved(latest_when_no_match: bool = False, **options: str) -> dict[TopicPartition, int]:
    parsed = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "my-log-1", **options})
    assert parsed.start is not None
    look = OffsetLookup(parsed, connect=lambda _: Cluster())
    return look.positions(look.bounds(parsed.start, (A0, A1), latest_when_no_match=latest_when_no_match))


def test_positions() -> None:
    assert resolved(startingOffsets="earliest") == {A0: 3, A1: 0}
    assert resolved(startingOffsets="latest") == {A0: 10, A1: 10}
    assert resolved(startingOffsets='{"my-log-1":{"0":-2,"1":-1}}') == {A0: 3, A1: 10}
    assert resolved(startingOffsets='{"my-log-1":{"0":7,"1":4}}') == {A0: 7, A1: 4}
    assert resolved(startingOffsets="latest", **{"kafka.isolation.level": "read_committed"}) == {A0: 8, A1: 8}


def test_timestamps() -> None:
    assert resolved(startingTimestamp="99") == {A0: 5, A1: 5}
    assert resolved(startingOffsetsByTimestamp='{"my-log-1":{"0":100,"1":99}}') == {A0: 5, A1: 5}
    assert resolved(startingTimestamp="100", latest_when_no_match=True) == {A0: 5, A1: 10}
    with pytest.raises(ConfigError, match="startingTimestamp: no offset matched the timestamp 100 in my-log-1-1"):
        resolved(startingTimestamp="100")


@pytest.mark.parametrize(
    ("name", "error_class"),
    [
        ("startingOffsets", "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        ("startingOffsetsByTimestamp", "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
    ],
)
def test_other_partitions_than_are_read(name: str, error_class: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[{error_class}\] {name}"):
        resolved(**{name: '{"my-log-1":{"0":5}}'})


def test_what_may_pass_is_tried_again() -> None:
    parsed = parse(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribePattern": "other",
            "fetchOffset.numRetries": "3",
            "fetchOffset.retryIntervalMs": "250",
        }
    )
    for failures, pauses in ((2, [0.25, 0.25]), (0, [])):
        paused: list[float] = []
        cluster = Cluster(failures)
        assert OffsetLookup(parsed, connect=lambda _, it=cluster: it, sleep=paused.append).assigned() == (B0,)
        assert paused == pauses
    paused = []
    cluster = Cluster(behind=2)
    behind = OffsetLookup(parsed, connect=lambda _: cluster, sleep=paused.append)
    assert behind.latest([A0], {A0: 9, A1: 100}) == {A0: 10}
    assert paused == [0.25, 0.25]
    cluster.behind = 9
    assert behind.latest([A0], {A0: 9}) == {A0: 6}, "it stays behind, so the offset has changed"
    with pytest.raises(LeaderNotAvailableError):
        OffsetLookup(parsed, connect=lambda _: Cluster(3), sleep=[].append).assigned()


def test_a_trigger_of_many_topics_needs_two_requests(odradek_broker: InProcessBroker) -> None:
    names = [f"trigger-{number}" for number in range(20)]
    with BlockingClient(odradek_broker.bootstrap) as client:
        client.admin.create_topics([NewTopic(name=name, partitions=2) for name in names])
        for option in ({"subscribe": ",".join(names)}, {"subscribePattern": "^trigger-"}):
            parsed = parse({"kafka.bootstrap.servers": odradek_broker.bootstrap, **option})
            look = OffsetLookup(parsed, connect=lambda _: client)
            look.latest(look.assignment().partitions)
            before = client.admin.metrics()["request-total"]
            found = look.latest(look.assignment().partitions)
            assert found == dict.fromkeys((TopicPartition(name, n) for name in names for n in (0, 1)), 0)
            assert client.admin.metrics()["request-total"] - before == 2, "Metadata, and ListOffsets to the only broker"
