"""Settings as clients read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.base.config import BROKER_SETTINGS, TOPIC_SETTINGS
from odradek.base.errors import (
    NONE,
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.testing.server import MemoryServer
from odradek.zk import layout
from odradek.zk.port import ConnectionLost

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
PATH = layout.config_path("topics", "t")


async def describe(server: MemoryServer, version: int, name: str, kind: int = TOPIC, **options: object) -> Any:
    keys = options.pop("keys", None)
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    message = {"resources": [resource], "include_synonyms": False, "include_documentation": False, **options}
    return (await server.ask(ApiKey.DESCRIBE_CONFIGS, version, message)).results[0]


def change(name: str, *operations: tuple[str, int, str | None], kind: int = TOPIC) -> Message:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in operations]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


async def alter(server: MemoryServer, *resources: Message, dry: bool = False, version: int = 1) -> list[int]:
    message = {"resources": resources, "validate_only": dry}
    answer = await server.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, message)
    return [each.error_code for each in answer.responses]


def test_brokers_have_no_dynamic_defaults_and_each_tells_its_own_settings(play: Callable[..., None]) -> None:
    """The empty name stands for the defaults of all brokers (KIP-226)."""

    async def scenario(server: MemoryServer) -> None:
        names = ["", "1", "2"]
        resources = [
            {"resource_type": BROKER, "resource_name": name, "configuration_keys": ["broker.id"]} for name in names
        ]
        answer = await server.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources})

        assert [result.error_code for result in answer.results] == [NONE, NONE, InvalidRequestError.code]
        told = [[(entry.name, entry.value) for entry in result.configs] for result in answer.results]
        assert told == [[], [("broker.id", "1")], []]

    play(scenario)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_where_a_topics_values_come_from(play: Callable[..., None], version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await server.configs.change("t", lambda _: {"retention.ms": "5"})
        found = await describe(server, version, "t", include_synonyms=True, include_documentation=True)
        entries = {entry.name: entry for entry in found.configs}
        assert entries.keys() == TOPIC_SETTINGS.keys()
        told = {
            name: (
                entries[name].value,
                entries[name].config_source,
                [(each.name, each.value, each.source) for each in entries[name].synonyms],
            )
            for name in ("retention.ms", "segment.ms", "min.insync.replicas")
        }
        assert told == {
            "retention.ms": (
                "5",
                1,
                [
                    ("retention.ms", "5", 1),
                    ("log.retention.minutes", "10", 4),
                    ("log.retention.hours", "168", 5),
                ],
            ),
            "segment.ms": ("604800000", 5, [("log.roll.hours", "168", 5)]),
            "min.insync.replicas": ("2", 4, [("min.insync.replicas", "2", 4), ("min.insync.replicas", "1", 5)]),
        }
        assert not any(entry.read_only or entry.is_sensitive for entry in found.configs)
        if version >= 3:
            assert entries["retention.ms"].config_type == 5
            assert entries["retention.ms"].documentation
        silent = await describe(server, version, "t")
        assert not any(entry.synonyms for entry in silent.configs)

    play(scenario, settings={"log.retention.minutes": "10", "min.insync.replicas": "2"})


def test_a_brokers_own_settings(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        found = await describe(server, 4, "1", BROKER, include_synonyms=True)
        entries = {entry.name: entry for entry in found.configs}
        assert entries.keys() == BROKER_SETTINGS.keys()
        assert all(entry.read_only for entry in found.configs)
        assert (entries["broker.id"].value, entries["broker.id"].config_source) == ("1", 4)
        assert (entries["num.partitions"].value, entries["num.partitions"].config_source) == ("1", 5)

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", UnknownTopicOrPartitionError.code),
        (TOPIC, "bad name", InvalidTopicError.code),
        (TOPIC, "", InvalidTopicError.code),
        (BROKER, "one", InvalidRequestError.code),
        (BROKER_LOGGER, "1", InvalidRequestError.code),
        (0, "t", InvalidRequestError.code),
    ],
)
def test_what_has_no_settings(play: Callable[..., None], kind: int, name: str, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        found = await describe(server, 4, name, kind)
        assert (found.error_code, found.resource_type, found.resource_name) == (code, kind, name)
        assert found.error_message

    play(scenario)


def test_only_the_keys_that_are_asked_for(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        for keys, count in ((["retention.ms", "no.such"], 1), ([], len(TOPIC_SETTINGS)), (None, len(TOPIC_SETTINGS))):
            assert len((await describe(server, 4, "t", keys=keys)).configs) == count

    play(scenario)


THROTTLED = "follower.replication.throttled.replicas"
"""A setting that this broker does not know: another tool wrote it."""
BEFORE = {"cleanup.policy": "delete", "retention.ms": "5", THROTTLED: "*"}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("operations", "code", "after"),
    [
        ([("retention.ms", SET, "6")], NONE, {"retention.ms": "6"}),
        ([("retention.ms", DELETE, None)], NONE, {"retention.ms": None}),
        ([(THROTTLED, DELETE, None)], NONE, {THROTTLED: None}),
        ([("cleanup.policy", APPEND, "compact,delete")], NONE, {"cleanup.policy": "delete,compact"}),
        ([("cleanup.policy", SUBTRACT, "delete")], InvalidConfigError.code, {}),
        ([("retention.ms", APPEND, "6")], InvalidConfigError.code, {}),
        ([("retention.ms", SET, "soon")], InvalidConfigError.code, {}),
        ([("retention.ms", SET, None)], InvalidRequestError.code, {}),
        ([("retention.ms", 4, "6")], InvalidRequestError.code, {}),
        ([("retention.ms", SET, "6"), ("retention.ms", SET, "7")], InvalidRequestError.code, {}),
        ([("no.such.key", SET, "6")], InvalidConfigError.code, {}),
        ([("segment.bytes", SET, "4096"), ("retention.ms", SET, "soon")], InvalidConfigError.code, {}),
        (
            [("segment.bytes", SET, "4096"), ("retention.ms", DELETE, None)],
            NONE,
            {"segment.bytes": "4096", "retention.ms": None},
        ),
    ],
)
def test_changes_of_a_topic(
    play: Callable[..., None], version: int, operations: Any, code: int, after: dict[str, str | None]
) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await server.configs.change("t", lambda _: BEFORE)
        assert await alter(server, change("t", *operations), dry=True, version=version) == [code]
        assert server.configs.overrides("t") == BEFORE
        assert await alter(server, change("t", *operations), version=version) == [code]
        expected = {key: value for key, value in {**BEFORE, **after}.items() if value is not None}
        assert layout.decode_config(PATH, (await server.zk.get(PATH))[0]) == expected
        assert server.configs.overrides("t") == expected

    play(scenario)


def test_a_list_that_is_not_set_begins_with_what_is_in_force(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        assert await alter(server, change("t", ("cleanup.policy", APPEND, "delete"))) == [NONE]
        assert server.configs.overrides("t") == {"cleanup.policy": "compact,delete"}

    play(scenario, settings={"log.cleanup.policy": "compact"})


def test_resources_that_cannot_be_changed(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        operation = ("retention.ms", SET, "6")
        twice = change("t", operation)
        assert await alter(server, change("nowhere", operation), change("1", operation, kind=BROKER), twice, twice) == [
            UnknownTopicOrPartitionError.code,
            InvalidRequestError.code,
            InvalidRequestError.code,
            InvalidRequestError.code,
        ]
        server.zk.failures = [ConnectionLost("gone")]
        assert await alter(server, twice) == [RequestTimedOutError.code]
        assert server.configs.overrides("t") == {}

    play(scenario)
