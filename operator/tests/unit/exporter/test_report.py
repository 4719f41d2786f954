"""The report: sums, limits, and conversion to and from JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.exporter.report import GroupLag, Report, ReportError, TopicReport, decode, encode, report_of
from odradek_operator.exporter.snapshot import ExporterSnapshot, GroupReading, PartitionReading, Position, TopicReading

TOPIC = TopicReading(
    name="t",
    partitions=(
        PartitionReading(0, 1, (1, 2), 2, 0, 10, 100),
        PartitionReading(1, 2, (2, 1), 1, 0, 20, 50),
        PartitionReading(2, -1, (3, 1), 1, None, None, None),
    ),
)


def group(name: str, *lags: int) -> GroupReading:
    return GroupReading(
        name=name,
        members=1,
        positions=tuple(Position("t", number, 5, lag, lag / 10) for number, lag in enumerate(lags)),
    )


def test_sizes_and_lags_are_summed_over_partitions() -> None:
    none = GroupReading(name="none", members=1, positions=(Position("t", 0, -1),))
    unknown = GroupReading(name="unknown", members=1, positions=(Position("t", 0, 3, 4, None),))
    snapshot = ExporterSnapshot(topics=(TOPIC,), groups=(group("a", 1, 2), group("b", 7, 0), none, unknown))
    assert report_of(snapshot, groups_per_topic=9).topics["t"] == TopicReport(
        partitions=3,
        size_bytes=150,
        groups=(
            GroupLag(group="b", lag_records=7, lag_seconds=0.7),
            GroupLag(group="unknown", lag_records=4, lag_seconds=None),
            GroupLag(group="a", lag_records=3, lag_seconds=0.2),
        ),
    )


def test_the_groups_with_most_lag_stay() -> None:
    snapshot = ExporterSnapshot(topics=(TOPIC,), groups=tuple(group(f"g{lag}", lag) for lag in range(9)))
    (topic,) = report_of(snapshot, groups_per_topic=2).topics.values()
    assert [lag.group for lag in topic.groups] == ["g8", "g7"]
    (topic,) = report_of(snapshot, groups_per_topic=0).topics.values()
    assert topic.groups == ()


def test_a_topic_without_any_size_has_none() -> None:
    bare = TopicReading(name="t", partitions=(PartitionReading(0, -1, (1,), 1),))
    assert report_of(ExporterSnapshot(topics=(bare,)), groups_per_topic=1).topics["t"].size_bytes is None


def test_the_json_is_as_documented() -> None:
    report = Report(
        topics={
            "orders": TopicReport(
                partitions=6, size_bytes=1048576, groups=(GroupLag(group="billing", lag_records=12, lag_seconds=3.46),)
            )
        }
    )
    assert encode(report) == {
        "topics": {
            "orders": {
                "partitions": 6,
                "sizeBytes": 1048576,
                "groups": [{"group": "billing", "lagRecords": 12, "lagSeconds": 3.5}],
            }
        }
    }


counts = st.integers(0, 2**63 - 1)
tenths = st.one_of(st.none(), st.integers(0, 10**8).map(lambda value: value / 10))
lags = st.builds(GroupLag, group=st.text(), lag_records=counts, lag_seconds=tenths)
topics = st.builds(
    TopicReport,
    partitions=st.integers(0, 10**5),
    size_bytes=st.one_of(st.none(), counts),
    groups=st.lists(lags, max_size=3).map(tuple),
)


@given(st.builds(Report, topics=st.dictionaries(st.text(), topics, max_size=3)))
def test_what_was_encoded_is_decoded(report: Report) -> None:
    assert decode(json.dumps(encode(report))) == report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "the top level .* is not an object"),
        ("{}", "the top level .* has no key topics of type object"),
        ('{"topics": {"t": 3}}', "topic t .* is not an object"),
        (
            '{"topics": {"t": {"partitions": true, "sizeBytes": 1, "groups": []}}}',
            "topic t .* no key partitions of type integer",
        ),
        ('{"topics": {"t": {"partitions": 1, "sizeBytes": "1", "groups": []}}}', "topic t .* no key sizeBytes"),
        ('{"topics": {"t": {"partitions": 1, "groups": []}}}', "topic t .* no key sizeBytes"),
        ('{"topics": {"t": {"partitions": 1, "sizeBytes": null, "groups": [{"group": "g"}]}}}', "no key lagRecords"),
    ],
)
def test_what_is_no_report_is_refused(text: str, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        decode(text)


def test_keys_that_are_unknown_are_passed_over() -> None:
    text = '{"topics": {"t": {"partitions": 1, "sizeBytes": 2, "groups": [], "new": {}}}, "more": 1}'
    assert decode(text) == Report(topics={"t": TopicReport(partitions=1, size_bytes=2)})
