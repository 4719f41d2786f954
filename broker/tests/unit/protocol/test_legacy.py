"""The versions that kio lacks are there, in kio's form, and no more than those."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from importlib.util import find_spec

import pytest
from kio.serial import entity_reader, entity_writer

from odradek.protocol import legacy
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.interbroker import entity_type as interbroker_type

INTERBROKER = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
VERSIONS = [
    (key, version)
    for key, row in API_TABLE.items()
    if key not in INTERBROKER
    for version in range(row.min_version, row.max_version + 1)
]


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=[f"{key.name}-{version}" for key, version in VERSIONS])
def test_what_kio_has_is_kios(key: ApiKey, version: int) -> None:
    is_kios = find_spec(f"kio.schema.{key.name.lower()}.v{version}") is not None
    for entity_type in (API_TABLE[key].request_type(version), API_TABLE[key].response_type(version)):
        assert entity_type.__module__.startswith("kio.") is is_kios
        assert callable(entity_writer(entity_type))
        assert callable(entity_reader(entity_type))


def test_entities_are_frozen_values_with_the_defaults_of_the_schema() -> None:
    request_type = legacy.entity_type(ApiKey.CREATE_TOPICS, 1, "request")
    request = request_type(topics=())
    assert (request.timeout, request.validate_only) == (timedelta(seconds=60), False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.validate_only = True


@pytest.mark.parametrize(
    ("version", "names"),
    [
        (0, ["replica_id", "max_wait", "min_bytes", "topics"]),
        (3, ["replica_id", "max_wait", "min_bytes", "max_bytes", "topics"]),
    ],
)
def test_fields_follow_the_version(version: int, names: list[str]) -> None:
    assert [field.name for field in dataclasses.fields(legacy.entity_type(ApiKey.FETCH, version, "request"))] == names


def test_a_message_without_a_table_is_a_bug() -> None:
    for make in (legacy.entity_type, interbroker_type):
        with pytest.raises(KeyError):
            make(ApiKey.METADATA, 0, "request")
