from __future__ import annotations

from uuid import UUID

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.checkpoints import MalformedCheckpointError, MetaProperties

OURS = MetaProperties(cluster_id="5ZT0HXTvQUmXCYpMDCWYqw", broker_id=2)


def test_an_offset_checkpoint_is_kafkas() -> None:
    offsets = {TopicPartition("b", 1): 5, TopicPartition("a", 10): 0, TopicPartition("a", 2): 7}
    content = checkpoints.encode_offsets(offsets)
    assert content == b"0\n3\na 2 7\na 10 0\nb 1 5\n"
    assert checkpoints.decode_offsets(content, "x") == offsets


def test_an_epoch_checkpoint_is_kafkas() -> None:
    content = checkpoints.encode_epochs([(0, 0), (3, 17)])
    assert content == b"0\n2\n0 0\n3 17\n"
    assert checkpoints.decode_epochs(content, "x") == [(0, 0), (3, 17)]


@pytest.mark.parametrize(
    "content",
    [
        b"0\n",
        b"1\n0\n",
        b"\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\na 1 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na x 1\n",
        b"\xff\n0\n",
    ],
)
def test_a_malformed_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedCheckpointError, match="/d/checkpoint"):
        checkpoints.decode_offsets(content, "/d/checkpoint")


def test_an_empty_file_of_kafka_has_no_entries() -> None:
    assert checkpoints.decode_offsets(b"", "x") == {}
    assert checkpoints.decode_epochs(b"", "x") == []


def test_a_malformed_epoch_line_is_refused() -> None:
    with pytest.raises(MalformedCheckpointError, match="1 2 3"):
        checkpoints.decode_epochs(b"0\n1\n1 2 3\n", "x")


def test_meta_properties_of_this_broker_are_accepted() -> None:
    MetaProperties.check(OURS.encode(), "meta", OURS)
    MetaProperties.check(
        b"#\n#Fri Nov 21 12:00:00 UTC 2026\ncluster.id=5ZT0HXTvQUmXCYpMDCWYqw\nversion=0\nbroker.id=2\n"
        b"directory.id=JsaBTVlx8Rq7m3BkAh8gZw\n",
        "meta",
        OURS,
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version=0\nbroker.id=2\ncluster.id=other\n", "belongs to cluster 'other'"),
        (b"version=0\nbroker.id=3\ncluster.id=5ZT0HXTvQUmXCYpMDCWYqw\n", "belongs to broker 3, but broker.id is 2"),
        (b"version=1\nnode.id=2\ncluster.id=5ZT0HXTvQUmXCYpMDCWYqw\n", "version 1"),
    ],
)
def test_meta_properties_of_another_broker_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MetaProperties.check(content, "/data/meta.properties", OURS)


def test_partition_metadata_is_kafkas() -> None:
    topic_id = UUID("73c82431-04d8-4c69-aa9d-9c1b24dbe3ae")
    content = checkpoints.encode_partition_metadata(topic_id)
    assert content == b"version: 0\ntopic_id: c8gkMQTYTGmqnZwbJNvjrg"
    assert checkpoints.decode_partition_metadata(content, "x") == topic_id


@pytest.mark.parametrize(
    "content", [b"", b"version: 1\ntopic_id: c8gkMQTYTGmqnZwbJNvjrg\n", b"version: 0\ntopic_id: c8\n"]
)
def test_malformed_partition_metadata_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedCheckpointError):
        checkpoints.decode_partition_metadata(content, "x")
