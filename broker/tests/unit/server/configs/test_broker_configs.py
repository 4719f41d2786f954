"""Dynamic settings of brokers: precedence, values that other tools wrote, and notification of subscribers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError, InvalidRequestError
from odradek.protocol.apis import ApiKey
from odradek.server.configs.broker_configs import BrokerSettings
from odradek.server.configs.config_store import persist
from odradek.zk import layout
from odradek.zk.port import ConnectionLost, SessionExpired
from odradek_testkit.server import MemoryServer

ALL = layout.DEFAULT_ENTITY


def test_a_broker_value_overrides_the_default_and_that_overrides_the_file(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        seen: list[int] = []
        settings = server.settings
        settings.subscribe(lambda config: seen.append(config.message_max_bytes))
        for entity, value in ((ALL, "2000"), ("1", "3000"), (ALL, "4000")):
            await settings.change(entity, lambda now, value=value: {"message.max.bytes": value})  # type: ignore[misc]
        assert (seen, settings.config.message_max_bytes) == ([2000, 3000], 3000)
        await settings.change("1", lambda _: {})
        await settings.change(ALL, lambda _: {})
        assert (seen, settings.config) == ([2000, 3000, 4000, 1000], server.config)

    play(scenario, settings={"message.max.bytes": "1000"})


def test_topics_get_new_defaults_and_keep_their_own(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        called: list[None] = []
        server.configs.on_new_defaults = lambda: called.append(None)
        await server.configs.change("a", lambda _: {"retention.ms": "1"})
        await server.settings.change(ALL, lambda _: {"log.retention.ms": "2", "message.max.bytes": "3000"})
        found = {name: server.configs.topic_config(name) for name in ("a", "b")}
        assert {name: (config.retention_ms, config.max_message_bytes) for name, config in found.items()} == {
            "a": (1, 3000),
            "b": (2, 3000),
        }
        assert len(called) == 1

    play(scenario)


def test_settings_in_zookeeper_at_the_start_are_effective(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        content = {
            "log.retention.ms": "5",
            "broker.id": "9",
            "num.network.threads": "9",
            "message.max.bytes": "many",
            "min.insync.replicas": "2",
        }
        await server.zk.create(layout.config_path("brokers", "1"), layout.encode_config(content), make_parents=True)
        await server.zk.create(layout.config_path("brokers", ALL), b"{", make_parents=True)
        await server.zk.create(
            layout.config_path("brokers", "2"), layout.encode_config({"log.retention.ms": "6"}), make_parents=True
        )
        settings = BrokerSettings(server.zk, server.config, {})
        await settings.load()
        expected = server.config.with_dynamic({"log.retention.ms": "5", "min.insync.replicas": "2"})
        assert (settings.config, settings.own, settings.defaults) == (expected, content, {})
        assert [origin.source for origin in settings.origins(["message.max.bytes"])] == [5]

    play(scenario)


def test_only_the_settings_of_this_broker_are_read_again(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        for name in ("1", ALL):
            path = layout.config_path("brokers", name)
            await server.zk.create(path, layout.encode_config({"log.retention.ms": "5"}), make_parents=True)
        await server.settings.reload("2")
        assert server.settings.config.log_retention_ms is None
        await server.settings.reload(ALL)
        assert server.settings.config.log_retention_ms == 5

    play(scenario)


def test_a_changed_setting_is_read_when_zookeeper_is_back(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        path = layout.config_path("brokers", "1")
        await server.zk.create(path, layout.encode_config({"log.retention.ms": "5"}), make_parents=True)
        server.zk.failures = [ConnectionLost("gone"), SessionExpired("gone")]
        await persist(server.settings.load, server.clock)
        assert server.settings.config.log_retention_ms == 5
        assert server.clock.monotonic_ms() >= 2000

    play(scenario)


def test_secrets_are_not_logged(play: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: MemoryServer) -> None:
        with caplog.at_level("INFO"):
            await server.settings.change("1", lambda _: {"a.password": "swordfish", "log.retention.ms": "5"})
        assert caplog.records
        assert "swordfish" not in caplog.text

    play(scenario)


def test_created_topics_have_the_sources_of_their_values(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        await server.settings.change(ALL, lambda _: {"log.retention.ms": "7"})
        await server.settings.change("1", lambda _: {"message.max.bytes": "5000"})
        topic = {
            "name": "t",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": (),
            "configs": [{"name": "segment.bytes", "value": "4096"}],
        }
        message = {"topics": [topic], "timeout_ms": 1000, "validate_only": True}
        (made,) = (await server.ask(ApiKey.CREATE_TOPICS, 7, message)).topics
        described = {
            entry.name: (entry.value, entry.config_source) for entry in made.configs if entry.config_source != 5
        }
        assert described == {
            "segment.bytes": ("4096", 1),
            "max.message.bytes": ("5000", 2),
            "retention.ms": ("7", 3),
            "min.insync.replicas": ("2", 4),
        }

    play(scenario, settings={"min.insync.replicas": "2"})


def test_settings_without_an_effect_are_logged_once(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        resource = {"resource_type": 4, "resource_name": "1"}
        unknown = {"name": "of.a.plugin", "value": "x", "config_operation": 0}
        request = {"resources": [{**resource, "configs": [unknown]}], "validate_only": False}
        answer = await server.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert answer.responses[0].error_code == 0
        foreign = {"of.a.plugin": "x", "message.max.bytes": "many"}
        await server.configs.change("t", lambda _: {"nothing": "1"})
        for number in range(5):
            await server.settings.change(ALL, lambda _, number=number: {**foreign, "log.retention.ms": str(number + 1)})  # type: ignore[misc]

    play(scenario)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [warning.split(": ")[0] for warning in warnings] == [
        "of.a.plugin is not a setting of this broker or of Kafka",
        "topic t",
        "a setting of brokers in ZooKeeper has no effect",
    ]


def test_settings_of_listeners_are_applied_together_or_not_at_all(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        settings, static = server.settings, server.config.listeners
        added = {
            "listeners": ",".join([*static, "OUTER://:0"]),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
            "message.max.bytes": "5000",
        }
        await settings.change("1", lambda _: added)
        assert settings.config.listeners == (*static, "OUTER://:0")
        await settings.change("1", lambda _: {**added, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"})
        assert (settings.config.listeners, settings.config.message_max_bytes) == (static, 5000)
        await settings.change("1", lambda _: {})
        await settings.change(ALL, lambda _: added)
        assert (settings.config.listeners, settings.config.message_max_bytes) == (static, 5000)

    play(scenario)


def test_settings_that_the_broker_cannot_apply_are_refused_before_they_are_written(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        async def refuse(config: BrokerConfig) -> None:
            raise ConfigError(f"no room for {config.listeners[-1]}")

        server.settings.dry_run = refuse
        values = {
            "listeners": ",".join([*server.config.listeners, "OUTER://:0"]),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
        }
        operations = [{"name": name, "value": value, "config_operation": 0} for name, value in values.items()]
        resource = {"resource_type": 4, "resource_name": "1", "configs": operations}
        for dry in (True, False):
            request = {"resources": [resource], "validate_only": dry}
            (answer,) = (await server.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
            assert (answer.error_code, answer.error_message) == (InvalidRequestError.code, "no room for OUTER://:0")
        assert server.settings.own == {}
        other = [{"name": "message.max.bytes", "value": "5000", "config_operation": 0}]
        request = {"resources": [{**resource, "configs": other}], "validate_only": False}
        (answer,) = (await server.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
        assert answer.error_code == 0, "the listeners do not change"

    play(scenario)
