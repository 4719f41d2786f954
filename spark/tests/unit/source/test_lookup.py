"""Look-ups: the partitions to read, and the offsets for the values of options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from odradek.base.errors import ConfigError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.client.models import OffsetAndTimestamp
from pyspark_odradek.options.source_options import parse
from pyspark_odradek.source.lookup import OffsetLookup

A0, A1, B0 = TopicPartition("my-log-1", 0), TopicPartition("my-log-1", 1), TopicPartition("other", 0)


class Cluster:
    """Two topics; A1 has no record as new as time 100."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    def topics(self) -> list[str]:
        if self.failures:
            self.failures -= 1
            raise LeaderNotAvailableError("an election")
        return ["__consumer_offsets", "my-log-1", "other"]

    def partitions(self, topic: str) -> list[int]:
        try:
            return {"my-log-1": [0, 1], "other": [0]}[topic]
        except KeyError:
            raise UnknownTopicOrPartitionError(f"no topic {topic}") from None

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: {A0: 3, A1: 0, B0: 0}[partition] for partition in partitions}

    def latest_offsets(
        self, partitions: Iterable[TopicPartition], *, isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        top = 8 if isolation == "read_committed" else 10
        return dict.fromkeys(partitions, top)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {
            partition: None if partition == A1 and at >= 100 else OffsetAndTimestamp(5, at)
            for partition, at in timestamps.items()
        }


def lookup(cluster: Cluster | None = None, pauses: list[float] | None = None, **options: str) -> OffsetLookup:
    pauses = [] if pauses is None else pauses
    options = {"subscribe": "my-log-1", **options} if "kind" not in options else options
    parsed = parse({"kafka.bootstrap.servers": "h:1", **options})
    return OffsetLookup(parsed, connect=lambda _: cluster or Cluster(), sleep=pauses.append)


def assigned(**option: str) -> tuple[TopicPartition, ...]:
    return OffsetLookup(parse({"kafka.bootstrap.servers": "h:1", **option}), connect=lambda _: Cluster()).assigned()


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
    return look.resolve(parsed.start, (A0, A1), latest_when_no_match=latest_when_no_match)


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


@pytest.mark.parametrize("name", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_other_partitions_than_are_read(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
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
    with pytest.raises(LeaderNotAvailableError):
        OffsetLookup(parsed, connect=lambda _: Cluster(3), sleep=[].append).assigned()
