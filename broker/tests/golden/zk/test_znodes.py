"""Znodes that Apache Kafka 3.9.1 wrote are decoded, and encoded to the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.base.types import TopicPartition
from odradek.zk import layout

ZNODES: dict[str, str] = json.loads((Path(__file__).parent / "kafka-3.9.1.json").read_text(encoding="utf-8"))["znodes"]

ROUND_TRIPS: list[tuple[str, Callable[[str, bytes], bytes]]] = [
    (r"/brokers/ids/(\d+)", lambda path, data: layout.BrokerRegistration.decode(_last_number(path), data).encode()),
    (r"/brokers/topics/[^/]+", lambda path, data: layout.TopicAssignment.decode(path.split("/")[3], data).encode()),
    (
        r"/brokers/topics/[^/]+/partitions/\d+/state",
        lambda path, data: layout.PartitionState.decode(TopicPartition("departures", 0), data).encode(),
    ),
    (r"/cluster/id", lambda path, data: layout.ClusterId.decode(data).encode()),
    (r"/config/(topics|brokers|clients|users)/.+", lambda path, data: _config(path, data)),
    (r"/config/changes/.+", lambda path, data: layout.ConfigChangeNotification.decode(path, data).encode()),
    (r"/controller", lambda path, data: layout.ControllerRegistration.decode(data).encode()),
    (
        r"/controller_epoch",
        lambda path, data: layout.encode_controller_epoch(layout.decode_controller_epoch(data)),
    ),
    (r"/feature", lambda path, data: layout.Feature.decode(data).encode()),
    (r"/latest_producer_id_block", lambda path, data: layout.ProducerIdBlock.decode(data).encode()),
]


def _last_number(path: str) -> int:
    return int(path.rpartition("/")[2])


def _config(path: str, data: bytes) -> bytes:
    return layout.encode_config(layout.decode_config(path, data))


@pytest.mark.parametrize("path", sorted(ZNODES))
def test_a_znode_of_kafka_survives_the_round_trip(path: str) -> None:
    data = ZNODES[path].encode()
    matching = [again for pattern, again in ROUND_TRIPS if re.fullmatch(pattern, path)]
    assert len(matching) == 1
    assert matching[0](path, data) == data


def test_the_capture_has_every_kind() -> None:
    assert all(any(re.fullmatch(pattern, path) for path in ZNODES) for pattern, _ in ROUND_TRIPS)
    state = layout.PartitionState.decode(
        TopicPartition("departures", 0), ZNODES["/brokers/topics/departures/partitions/0/state"].encode()
    )
    assert state == layout.PartitionState(leader=2, leader_epoch=0, isr=(2, 1), controller_epoch=1)
    broker = layout.BrokerRegistration.decode(1, ZNODES["/brokers/ids/1"].encode())
    assert (broker.rack, broker.endpoints[0].listener) == ("a", "PLAINTEXT")
