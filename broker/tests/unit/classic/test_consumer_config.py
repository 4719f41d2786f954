"""The settings of the high-level consumer: names of two generations, defaults of Kafka 0.8.2, refusals."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.classic.consumer_config import ConsumerConfig

NEEDED = {"group.id": "g", "zookeeper.connect": "h:2181"}


def test_the_defaults_are_those_of_kafka() -> None:
    config = ConsumerConfig.parse(NEEDED)
    assert (config.auto_commit_enable, config.auto_commit_interval_ms) == (True, 60_000)
    assert (config.rebalance_max_retries, config.rebalance_backoff_ms) == (4, 2_000)
    assert (config.auto_offset_reset, config.consumer_timeout_ms) == ("largest", -1)
    assert (config.offsets_storage, config.partition_assignment_strategy) == ("zookeeper", "range")
    assert config.zookeeper_session_timeout_ms == 6_000


def test_names_of_kafka_0_7_are_understood() -> None:
    old = {"groupid": "g", "zk.connect": "h:2181/chroot", "autooffset.reset": "smallest", "autocommit.enable": "false"}
    config = ConsumerConfig.parse(old)
    assert (config.group_id, config.zookeeper_connect) == ("g", "h:2181/chroot")
    assert (config.auto_offset_reset, config.auto_commit_enable) == ("smallest", False)


@pytest.mark.parametrize(
    ("properties", "in_zookeeper", "in_kafka"),
    [
        ({}, True, False),
        ({"dual.commit.enabled": "false"}, True, False),
        ({"offsets.storage": "kafka"}, True, True),
        ({"offsets.storage": "kafka", "dual.commit.enabled": "false"}, False, True),
    ],
)
def test_where_offsets_are_stored(properties: dict[str, str], in_zookeeper: bool, in_kafka: bool) -> None:
    config = ConsumerConfig.parse({**NEEDED, **properties})
    assert (config.is_in_zookeeper, config.is_in_kafka) == (in_zookeeper, in_kafka)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"group.id": "g"}, r"zookeeper\.connect is missing"),
        ({"zookeeper.connect": "h:1"}, r"group\.id is missing"),
        ({**NEEDED, "auto.offset.reset": "latest"}, r"auto\.offset\.reset='latest' is not allowed"),
        ({**NEEDED, "rebalance.max.retries": "0"}, r"rebalance\.max\.retries"),
        ({**NEEDED, "auto.commit.enabled": "true"}, r"did you mean auto\.commit\.enable\?"),
    ],
)
def test_mistakes_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConsumerConfig.parse(properties)
