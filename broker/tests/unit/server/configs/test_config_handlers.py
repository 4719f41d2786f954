"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

import logging
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
from odradek.base.setting_definitions import SettingType, Update
from odradek.base.settings_catalogue import IDLE_BROKER_SETTINGS, IDLE_TOPIC_SETTINGS, INTERNAL_SETTINGS
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.zk import layout
from odradek.zk.port import ConnectionLost
from odradek_testkit.server import MemoryServer

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


@pytest.mark.parametrize("dry", [False, True])
def test_a_broker_without_a_replica_reads_the_overrides_of_a_topic(play: Callable[..., None], dry: bool) -> None:
    """There is no notification for the overrides of a new topic, so they are read once, when they are requested."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [2]})
        await server.zk.create(PATH, layout.encode_config({"cleanup.policy": "compact"}))
        if dry:
            assert await alter(server, change("t", ("cleanup.policy", APPEND, "delete")), dry=True) == [NONE]
        found = await describe(server, 4, "t", keys=["cleanup.policy"])
        assert [(entry.name, entry.value) for entry in found.configs] == [("cleanup.policy", "compact")]
        server.zk.failures = [ConnectionLost("gone")]
        assert (await describe(server, 4, "t", keys=["cleanup.policy"])).configs[0].value == "compact"

    play(scenario)


def test_each_broker_describes_its_settings(play: Callable[..., None]) -> None:
    """The empty name means the defaults for all brokers (KIP-226)."""

    async def scenario(server: MemoryServer) -> None:
        names = ["", "1", "2"]
        resources = [
            {"resource_type": BROKER, "resource_name": name, "configuration_keys": ["broker.id"]} for name in names
        ]
        answer = await server.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources})

        assert [result.error_code for result in answer.results] == [NONE, NONE, InvalidRequestError.code]
        found_configs = [[(entry.name, entry.value) for entry in result.configs] for result in answer.results]
        assert found_configs == [[], [("broker.id", "1")], []]

    play(scenario)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_sources_of_topic_settings(play: Callable[..., None], version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await server.configs.change("t", lambda _: {"retention.ms": "5"})
        found = await describe(server, version, "t", include_synonyms=True, include_documentation=True)
        entries = {entry.name: entry for entry in found.configs}
        assert entries.keys() == TOPIC_SETTINGS.keys() | IDLE_TOPIC_SETTINGS.keys()
        found_configs = {
            name: (
                entries[name].value,
                entries[name].config_source,
                [(each.name, each.value, each.source) for each in entries[name].synonyms],
            )
            for name in ("retention.ms", "segment.ms", "min.insync.replicas")
        }
        assert found_configs == {
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
        described = BROKER_SETTINGS | {
            name: setting for name, setting in IDLE_BROKER_SETTINGS.items() if name not in INTERNAL_SETTINGS
        }
        assert entries.keys() == described.keys()
        assert {name for name, entry in entries.items() if not entry.read_only} == {
            name for name, setting in described.items() if setting.dynamic is not Update.READ_ONLY
        }
        assert {name for name, entry in entries.items() if entry.is_sensitive} == {
            name for name, setting in described.items() if setting.kind is SettingType.PASSWORD
        }
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
        (BROKER_LOGGER, "", InvalidRequestError.code),
        (BROKER_LOGGER, "2", InvalidRequestError.code),
        (0, "t", InvalidRequestError.code),
    ],
)
def test_resource_types_without_settings(play: Callable[..., None], kind: int, name: str, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        found = await describe(server, 4, name, kind)
        assert (found.error_code, found.resource_type, found.resource_name) == (code, kind, name)
        assert found.error_message

    play(scenario)


def test_the_oldest_version_marks_defaults(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await server.configs.change("t", lambda _: {"retention.ms": "5"})
        found = await describe(server, 0, "t", keys=["retention.ms", "segment.ms", "min.insync.replicas"])
        found_configs = {entry.name: (entry.value, entry.is_default, entry.read_only) for entry in found.configs}
        assert found_configs == {
            "retention.ms": ("5", False, False),
            "segment.ms": ("604800000", True, False),
            "min.insync.replicas": ("2", False, False),
        }

    play(scenario, settings={"min.insync.replicas": "2"})


def test_only_the_requested_keys(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        every = len(TOPIC_SETTINGS) + len(IDLE_TOPIC_SETTINGS)
        for keys, count in ((["retention.ms", "no.such"], 1), ([], every), (None, every)):
            assert len((await describe(server, 4, "t", keys=keys)).configs) == count

    play(scenario)


FOREIGN = "confluent.placement.constraints"
"""A setting that this broker does not know, because another tool wrote it."""
BEFORE = {"cleanup.policy": "delete", "retention.ms": "5", FOREIGN: "*"}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("operations", "code", "after"),
    [
        ([("retention.ms", SET, "6")], NONE, {"retention.ms": "6"}),
        ([("retention.ms", DELETE, None)], NONE, {"retention.ms": None}),
        ([(FOREIGN, DELETE, None)], NONE, {FOREIGN: None}),
        ([("cleanup.policy", APPEND, "compact,delete")], NONE, {"cleanup.policy": "delete,compact"}),
        ([("cleanup.policy", SUBTRACT, "delete")], NONE, {"cleanup.policy": ""}),
        ([("cleanup.policy", APPEND, "shrink")], InvalidConfigError.code, {}),
        ([("retention.ms", APPEND, "6")], InvalidConfigError.code, {}),
        ([("retention.ms", SET, "soon")], InvalidConfigError.code, {}),
        ([("retention.ms", SET, None)], InvalidRequestError.code, {}),
        ([("retention.ms", 4, "6")], InvalidRequestError.code, {}),
        ([("retention.ms", SET, "6"), ("retention.ms", SET, "7")], InvalidRequestError.code, {}),
        ([("no.such.key", SET, "6")], InvalidConfigError.code, {}),
        ([("local.retention.ms", SET, "6")], NONE, {"local.retention.ms": "6"}),
        ([("local.retention.ms", SET, "soon")], InvalidConfigError.code, {}),
        ([("remote.storage.enable", SET, "false")], NONE, {"remote.storage.enable": "false"}),
        ([("remote.storage.enable", SET, "true")], InvalidConfigError.code, {}),
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


def test_append_to_a_list_that_is_not_set_starts_with_the_effective_value(play: Callable[..., None]) -> None:
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
        resources = [change("nowhere", operation), change("", operation), change("2", operation, kind=BROKER)]
        assert await alter(server, *resources, change("1", operation, kind=16), twice, twice) == [
            UnknownTopicOrPartitionError.code,
            *[InvalidRequestError.code] * 5,
        ]
        server.zk.failures = [ConnectionLost("gone")]
        assert await alter(server, twice) == [RequestTimedOutError.code]
        assert server.configs.overrides("t") == {}

    play(scenario)


async def replace(server: MemoryServer, name: str, values: Message, *, kind: int = TOPIC, dry: bool = False) -> int:
    """AlterConfigs in its newest version."""
    configs = [{"name": key, "value": value} for key, value in values.items()]
    message = {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
        "validate_only": dry,
    }
    answers = [await server.ask(ApiKey.ALTER_CONFIGS, version, message) for version in range(3)]
    (code,) = {answer.responses[0].error_code for answer in answers}
    return int(code)


@pytest.mark.parametrize(
    ("values", "code", "after"),
    [
        ({"segment.bytes": "4096"}, NONE, {"segment.bytes": "4096"}),
        ({}, NONE, {}),
        ({"segment.bytes": "few"}, InvalidConfigError.code, BEFORE),
        ({FOREIGN: "*"}, InvalidConfigError.code, BEFORE),
        ({"segment.bytes": None}, InvalidRequestError.code, BEFORE),
    ],
)
def test_all_settings_of_a_topic_are_replaced(
    play: Callable[..., None], values: Message, code: int, after: dict[str, str]
) -> None:
    """AlterConfigs (KIP-133) removes all settings that the request does not contain."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await server.configs.change("t", lambda _: BEFORE)
        assert await replace(server, "t", values, dry=True) == code
        assert server.configs.overrides("t") == BEFORE
        assert await replace(server, "t", values) == code
        assert server.configs.overrides("t") == after

    play(scenario)


def test_all_settings_of_brokers_are_replaced(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.settings.change(layout.DEFAULT_ENTITY, lambda _: {"log.retention.ms": "5"})
        assert await replace(server, "", {"message.max.bytes": "5000"}, kind=BROKER) == NONE
        assert await replace(server, "1", {"min.insync.replicas": "2"}, kind=BROKER) == NONE
        assert await replace(server, "1", {"broker.id": "2"}, kind=BROKER) == InvalidRequestError.code
        assert await replace(server, "1", {"odradek": "INFO"}, kind=BROKER_LOGGER) == InvalidRequestError.code
        assert (server.settings.defaults, server.settings.own) == (
            {"message.max.bytes": "5000"},
            {"min.insync.replicas": "2"},
        )

    play(scenario)


BEFORE_DEFAULTS = {"log.retention.ms": "7", "a.plugins.key": "x"}


@pytest.mark.parametrize(
    ("operations", "code", "after"),
    [
        ([("log.retention.ms", SET, "8")], NONE, {"log.retention.ms": "8"}),
        ([("log.retention.ms", DELETE, None)], NONE, {"log.retention.ms": None}),
        ([("num.partitions", DELETE, None)], NONE, {}),
        ([("another.key", SET, "x")], NONE, {"another.key": "x"}),
        ([("log.cleanup.policy", APPEND, "compact")], NONE, {"log.cleanup.policy": "delete,compact"}),
        ([("log.retention.ms", APPEND, "8")], InvalidConfigError.code, {}),
        ([("log.retention.ms", SET, "soon")], InvalidRequestError.code, {}),
        ([("log.retention.ms", SET, None)], InvalidRequestError.code, {}),
        ([("compression.gzip.level", SET, "0")], InvalidRequestError.code, {}),
        ([("num.partitions", SET, "3")], InvalidRequestError.code, {}),
        ([("log.retention.hours", SET, "3")], InvalidRequestError.code, {}),
        ([("log.cleaner.threads", SET, "3")], InvalidRequestError.code, {}),
        ([("log.cleaner.threads", SET, "2")], NONE, {"log.cleaner.threads": "2"}),
        ([("num.replica.fetchers", SET, "3")], InvalidRequestError.code, {}),
        ([("num.replica.fetchers", SET, "2")], NONE, {"num.replica.fetchers": "2"}),
        ([("ssl.key.password", SET, "secret")], InvalidRequestError.code, {}),
        ([("listener.name.inner.ssl.keystore.location", SET, "x")], InvalidRequestError.code, {}),
        ([("num.io.threads", SET, "16")], NONE, {"num.io.threads": "16"}),
        ([("num.io.threads", SET, "many")], InvalidRequestError.code, {}),
        ([("queued.max.requests", SET, "16")], InvalidRequestError.code, {}),
        ([("metric.reporters", SET, "com.example.Reporter")], InvalidRequestError.code, {}),
        ([("metric.reporters", APPEND, "com.example.Reporter")], InvalidRequestError.code, {}),
        (
            [("metric.reporters", APPEND, "org.apache.kafka.common.metrics.JmxReporter")],
            NONE,
            {"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter"},
        ),
    ],
)
@pytest.mark.parametrize("name", ["", "1"])
def test_changes_of_brokers(
    play: Callable[..., None], name: str, operations: Any, code: int, after: dict[str, str | None]
) -> None:
    path = layout.config_path("brokers", name or layout.DEFAULT_ENTITY)

    async def scenario(server: MemoryServer) -> None:
        await server.settings.change(name or layout.DEFAULT_ENTITY, lambda _: BEFORE_DEFAULTS)
        in_force = server.settings.config
        assert await alter(server, change(name, *operations, kind=BROKER), dry=True) == [code]
        assert layout.decode_config(path, (await server.zk.get(path))[0]) == BEFORE_DEFAULTS
        assert server.settings.config is in_force
        assert await alter(server, change(name, *operations, kind=BROKER)) == [code]
        expected = {key: value for key, value in {**BEFORE_DEFAULTS, **after}.items() if value is not None}
        assert layout.decode_config(path, (await server.zk.get(path))[0]) == expected
        assert (server.settings.own if name else server.settings.defaults) == expected

    play(scenario)


def test_sources_of_broker_settings(play: Callable[..., None]) -> None:
    names = [
        "log.retention.ms",
        "log.retention.hours",
        "log.roll.ms",
        "min.insync.replicas",
        "a.plugins.key",
        "log.dirs",
    ]

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await server.settings.change(layout.DEFAULT_ENTITY, lambda _: {**BEFORE_DEFAULTS, "min.insync.replicas": "2"})
        await server.settings.change("1", lambda _: {"log.retention.ms": "8"})
        found = await describe(server, 4, "1", BROKER, include_synonyms=True, keys=names)
        found_configs = {
            entry.name: (
                entry.value,
                entry.config_source,
                [(each.name, each.value, each.source) for each in entry.synonyms],
            )
            for entry in found.configs
        }
        retention = [
            ("log.retention.ms", "8", 2),
            ("log.retention.ms", "7", 3),
            ("log.retention.hours", "9", 4),
            ("log.retention.hours", "168", 5),
        ]
        minimum = [("min.insync.replicas", "2", 3), ("min.insync.replicas", "1", 5)]
        directory = server.config.log_dirs[0]
        assert found_configs == {
            "log.retention.ms": ("8", 2, retention),
            "log.retention.hours": ("9", 4, retention[2:]),
            "log.roll.ms": (None, 5, []),
            "min.insync.replicas": ("2", 3, minimum),
            "a.plugins.key": (None, 3, [("a.plugins.key", None, 3)]),
            "log.dirs": (directory, 4, [("log.dirs", directory, 4), ("log.dirs", "/tmp/kafka-logs", 5)]),
        }
        defaults = await describe(server, 4, "", BROKER, include_synonyms=True)
        assert {entry.name: (entry.value, entry.config_source) for entry in defaults.configs} == {
            "log.retention.ms": ("7", 3),
            "a.plugins.key": (None, 3),
            "min.insync.replicas": ("2", 3),
        }
        of_topic = await describe(server, 4, "t", include_synonyms=True, keys=["retention.ms", "min.insync.replicas"])
        assert {
            entry.name: [(each.name, each.value, each.source) for each in entry.synonyms] for entry in of_topic.configs
        } == {"retention.ms": retention, "min.insync.replicas": minimum}

    play(scenario, settings={"log.retention.hours": "9"})


def test_settings_of_kafka_without_an_effect_here_are_described_with_their_values(play: Callable[..., None]) -> None:
    """`kafka-configs` refuses to change an entity if the response omits one of its values."""
    names = [
        "num.io.threads",
        "num.network.threads",
        "queued.max.requests",
        "background.threads",
        "unstable.api.versions.enable",
        "server.max.startup.time.ms",
        "listener.name.inner.ssl.keystore.type",
        "ssl.key.password",
    ]

    async def scenario(server: MemoryServer) -> None:
        await server.settings.change(layout.DEFAULT_ENTITY, lambda _: {"num.io.threads": "9", "a.plugins.key": "x"})
        await server.settings.change("1", lambda _: {"num.io.threads": "10", "num.network.threads": "4"})
        found = await describe(server, 4, "1", BROKER, include_synonyms=True, keys=names)
        found_configs = {
            entry.name: (entry.value, entry.config_source, entry.config_type, entry.read_only)
            for entry in found.configs
        }
        assert found_configs == {
            "num.io.threads": ("10", 2, 3, False),
            "num.network.threads": ("4", 2, 3, False),
            "queued.max.requests": ("7", 4, 3, True),
            "background.threads": ("10", 5, 3, False),
            "unstable.api.versions.enable": ("true", 4, 1, True),
            "listener.name.inner.ssl.keystore.type": ("PKCS12", 4, 2, False),
            "ssl.key.password": (None, 4, 9, False),
        }
        assert [entry.name for entry in found.configs if entry.is_sensitive] == ["ssl.key.password"]
        (threads,) = [entry for entry in found.configs if entry.name == "num.io.threads"]
        assert [(each.value, each.source) for each in threads.synonyms] == [("10", 2), ("9", 3), ("8", 5)]
        defaults = await describe(server, 4, "", BROKER)
        assert {entry.name: (entry.value, entry.is_sensitive) for entry in defaults.configs} == {
            "num.io.threads": ("9", False),
            "a.plugins.key": (None, True),
        }

    play(
        scenario,
        settings={
            "queued.max.requests": "7",
            "unstable.api.versions.enable": "true",
            "listener.name.inner.ssl.keystore.type": "PKCS12",
            "ssl.key.password": "swordfish",
        },
    )


def test_a_topics_setting_without_an_effect_here_is_described(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await server.configs.change("t", lambda _: {"local.retention.ms": "6"})
        keys = ["local.retention.ms", "local.retention.bytes", "remote.storage.enable"]
        found = await describe(server, 4, "t", keys=keys)
        assert {entry.name: (entry.value, entry.config_source) for entry in found.configs} == {
            "local.retention.ms": ("6", 1),
            "local.retention.bytes": ("77", 4),
            "remote.storage.enable": ("false", 5),
        }

    play(scenario, settings={"log.local.retention.bytes": "77"})


SECRET = "zookeeper.sasl.jaas.config"


def test_secrets_are_never_returned(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        found = await describe(server, 4, "1", BROKER, include_synonyms=True)
        (entry,) = [entry for entry in found.configs if entry.name == SECRET]
        assert (entry.value, entry.is_sensitive, entry.config_source) == (None, True, 4)
        assert [(each.value, each.source) for each in entry.synonyms] == [(None, 4)]
        assert await alter(server, change("1", (SECRET, SET, "x"), kind=BROKER)) == [InvalidRequestError.code]

    play(scenario, settings={SECRET: "Client { user };"})


def test_levels_of_loggers(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        logger = logging.getLogger("odradek.server.dispatch")
        before = logger.level
        try:
            entry = (logger.name, SET, "TRACE")
            assert await alter(server, change("1", entry, kind=BROKER_LOGGER), dry=True) == [NONE]
            assert logger.level == before
            assert await alter(server, change("1", entry, kind=BROKER_LOGGER)) == [NONE]
            found = await describe(server, 4, "1", BROKER_LOGGER, keys=[logger.name, "root"])
            found_configs = {each.name: (each.value, each.config_source, each.read_only) for each in found.configs}
            assert found_configs.keys() == {logger.name, "root"}
            assert found_configs[logger.name] == ("TRACE", 6, False)
            assert await alter(server, change("2", entry, kind=BROKER_LOGGER)) == [InvalidRequestError.code]
            assert await alter(server, change("", entry, kind=BROKER_LOGGER)) == [InvalidRequestError.code]
        finally:
            logger.setLevel(before)

    play(scenario)
