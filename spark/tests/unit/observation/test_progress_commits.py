"""Commits of the progress of queries, with a fake admin client."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

import pytest
from pyspark import cloudpickle

from odradek.base.errors import (
    ConfigError,
    NetworkError,
    OdradekError,
    ProtocolError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.client.models import OffsetAndMetadata
from odradek.client.settings import ClientSettings
from pyspark_odradek.observation import ProgressCommits

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = ClientSettings.of("h:1")


class Groups:
    """A fake admin client that keeps commits. Errors are raised first, each once."""

    def __init__(self, *errors: OdradekError) -> None:
        self.commits: list[tuple[str, dict[TopicPartition, int], dict[str, object]]] = []
        self.errors = list(errors)
        self.partition_error: ProtocolError | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = threading.Event()

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], /
    ) -> Mapping[TopicPartition, ProtocolError | None]:
        self.asked.set()
        assert self.may_answer.wait(60)
        if self.errors:
            raise self.errors.pop(0)
        found = {partition: item for partition, item in offsets.items() if isinstance(item, OffsetAndMetadata)}
        texts = {item.metadata for item in found.values()}
        assert len(texts) == 1
        offset_of = {partition: item.offset for partition, item in found.items()}
        self.commits.append((group_id, offset_of, json.loads(texts.pop())))
        return dict.fromkeys(found, self.partition_error)


def commits(groups: Groups, group: str | None = None) -> ProgressCommits:
    return ProgressCommits(SETTINGS, group=group, connect=lambda settings: groups)


def test_the_group_is_named_after_the_query_and_the_metadata_say_what_is_known() -> None:
    groups = Groups()
    made = commits(groups)
    made.finished({T0: 5}, query="orders", query_id="1-2", batch_id=4)
    made.close()
    assert groups.commits == [("orders", {T0: 5}, {"query": "orders", "id": "1-2", "batch": 4})]


def test_a_group_of_ones_own() -> None:
    groups = Groups()
    made = commits(groups, group="g")
    made.finished({T0: 5}, wait_seconds=60)
    assert groups.commits == [("g", {T0: 5}, {"query": "g"})]
    made.close()


def test_equal_offsets_are_committed_once() -> None:
    groups = Groups()
    made = commits(groups, group="g")
    for offset in (5, 5, 6, 6):
        made.finished({T0: offset}, wait_seconds=60)
    made.close()
    assert [offsets for _, offsets, _ in groups.commits] == [{T0: 5}, {T0: 6}]


def test_the_newest_progress_replaces_one_that_waits_and_nobody_waits_for_a_slow_coordinator() -> None:
    groups = Groups()
    groups.may_answer.clear()
    made = commits(groups, group="g")
    made.finished({T0: 1})
    assert groups.asked.wait(60)
    # These calls return although the coordinator does not answer.
    for offset in (2, 3):
        made.finished({T0: offset}, wait_seconds=60)
    groups.may_answer.set()
    made.close()
    assert [offsets for _, offsets, _ in groups.commits] == [{T0: 1}, {T0: 3}]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NetworkError("nobody answers"), "nobody answers"),
        (UnknownMemberIdError("member of group g"), "the group has active members"),
    ],
)
def test_a_failure_is_logged_and_the_next_progress_tries_again(
    error: OdradekError, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    groups = Groups(error, error)
    made = commits(groups, group="g")
    for _ in range(3):
        made.finished({T0: 5}, wait_seconds=60)
    made.close()
    assert groups.commits == [("g", {T0: 5}, {"query": "g"})]
    assert [record.getMessage() for record in caplog.records if text in record.getMessage()] == [
        f"the progress of the query could not be committed to consumer group g: {caplog.records[0].args[1]}"  # type: ignore[index]
    ], "once"


def test_partitions_that_are_refused_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    groups = Groups()
    groups.partition_error = UnknownTopicOrPartitionError("there is no such partition")
    made = commits(groups, group="g")
    made.finished({T1: 1, T0: 5})
    made.close()
    assert "t-0: there is no such partition; t-1: there is no such partition" in caplog.text


def test_nothing_is_committed_without_offsets_or_after_the_end() -> None:
    groups = Groups()
    made = commits(groups, group="g")
    made.finished({})
    made.close()
    made.finished({T0: 1})
    assert groups.commits == []


def test_it_travels_without_its_thread() -> None:
    made = commits(Groups(), group="g")
    made.finished({T0: 1}, wait_seconds=60)
    travelled = cloudpickle.loads(cloudpickle.dumps(ProgressCommits(SETTINGS, group="g")))
    assert travelled._group == "g"
    assert travelled._thread is None
    made.close()


def test_options_are_those_of_the_source() -> None:
    base = {"kafka.bootstrap.servers": "h:1"}
    assert ProgressCommits.of(base)._group is None
    assert ProgressCommits.of({**base, "progressGroup": "true"})._group is None
    assert ProgressCommits.of({**base, "progressgroup": "orders"})._group == "orders"
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is needed"):
        ProgressCommits.of({})
