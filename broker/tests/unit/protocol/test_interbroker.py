"""Entities of the requests that kio lacks have kio's form: its own reader and writer take them."""

from __future__ import annotations

import dataclasses

import pytest
from kio.serial import entity_reader, entity_writer

from odradek.protocol.apis import API_TABLE, ApiKey

KEYS = [ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN]


@pytest.mark.parametrize("key", KEYS)
def test_kio_accepts_the_types(key: ApiKey) -> None:
    row = API_TABLE[key]
    for version in range(row.min_version, row.max_version + 1):
        for entity_type in (row.request_type(version), row.response_type(version)):
            assert callable(entity_writer(entity_type))
            assert callable(entity_reader(entity_type))


def test_entities_are_frozen_values() -> None:
    request_type = API_TABLE[ApiKey.CONTROLLED_SHUTDOWN].request_type(2)
    request = request_type(broker_id=1)

    assert request == request_type(broker_id=1, broker_epoch=-1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.broker_id = 2


def test_fields_follow_the_version() -> None:
    row = API_TABLE[ApiKey.LEADER_AND_ISR]
    names = [[field.name for field in dataclasses.fields(row.request_type(version))] for version in (1, 2, 7)]

    assert names == [
        ["controller_id", "controller_epoch", "ungrouped_partition_states", "live_leaders"],
        ["controller_id", "controller_epoch", "broker_epoch", "topic_states", "live_leaders"],
        [
            "controller_id",
            "is_kraft_controller",
            "controller_epoch",
            "broker_epoch",
            "type",
            "topic_states",
            "live_leaders",
        ],
    ]
