"""Classification of settings by name: with an effect, without an effect, rejected, or unknown."""

from __future__ import annotations

import pytest

from odradek.base.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    Effect,
    TopicConfig,
    broker_effect,
    broker_setting,
    topic_effect,
)
from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import Setting, SettingType, Update
from odradek.base.settings_catalogue import IDLE_BROKER_SETTINGS, IDLE_TOPIC_SETTINGS

NEEDED = {"broker.id": "1", "zookeeper.connect": "zk:2181"}
JAVA_CLASS = "com.example.Plugin"


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("log.retention.ms", Effect.ACTIVE),
        ("metrics.port", Effect.ACTIVE),
        ("log.dir", Effect.ACTIVE),
        ("num.io.threads", Effect.IDLE),
        ("process.roles", Effect.IDLE),
        ("listener.name.inner.ssl.keystore.location", Effect.ACTIVE),
        ("listener.name.inner.scram-sha-256.sasl.jaas.config", Effect.ACTIVE),
        ("listener.name.inner.max.connections", Effect.ACTIVE),
        ("listener.name.inner.num.network.threads", Effect.IDLE),
        ("listener.name.inner.no.such", Effect.UNKNOWN),
        ("log.retention", Effect.UNKNOWN),
        ("retention.ms", Effect.UNKNOWN),
    ],
)
def test_effect_of_a_brokers_setting(name: str, effect: Effect) -> None:
    assert broker_effect(name) is effect


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("retention.ms", Effect.ACTIVE),
        ("local.retention.ms", Effect.IDLE),
        ("log.retention.ms", Effect.UNKNOWN),
    ],
)
def test_effect_of_a_topics_setting(name: str, effect: Effect) -> None:
    assert topic_effect(name) is effect


def test_a_setting_of_one_listener_has_the_type_of_the_setting() -> None:
    name = "listener.name.inner.plain.sasl.jaas.config"
    setting = broker_setting(name)
    assert setting is not None
    assert (setting.name, setting.kind, setting.sensitive, setting.dynamic) == (
        name,
        SettingType.PASSWORD,
        True,
        Update.PER_BROKER,
    )


def test_no_setting_is_both_with_and_without_an_effect() -> None:
    assert IDLE_BROKER_SETTINGS.keys() & BROKER_SETTINGS.keys() == set()
    assert IDLE_TOPIC_SETTINGS.keys() & TOPIC_SETTINGS.keys() == set()


@pytest.mark.parametrize(
    "setting", [*IDLE_BROKER_SETTINGS.values(), *IDLE_TOPIC_SETTINGS.values()], ids=lambda setting: setting.name
)
def test_every_default_reads_back(setting: Setting) -> None:
    rendered = setting.render(setting.default)
    assert rendered is None or setting.parse(rendered) == setting.default


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("alter.config.policy.class.name", JAVA_CLASS, "remove it"),
        ("client.quota.callback.class", JAVA_CLASS, "quota"),
        ("create.topic.policy.class.name", JAVA_CLASS, "policy"),
        ("kafka.metrics.reporters", JAVA_CLASS, "metrics.port"),
        ("metric.reporters", f"org.apache.kafka.common.metrics.JmxReporter, {JAVA_CLASS}", "metrics.port"),
        ("principal.builder.class", JAVA_CLASS, "Java class"),
        ("listener.name.inner.principal.builder.class", JAVA_CLASS, "Java class"),
        ("listener.name.inner.plain.sasl.server.callback.handler.class", JAVA_CLASS, "Java class"),
        ("process.roles", "broker,controller", "ZooKeeper"),
        ("remote.log.storage.system.enable", "true", "tiered storage"),
        ("security.providers", JAVA_CLASS, "Java class"),
        ("ssl.engine.factory.class", JAVA_CLASS, "Java class"),
        ("zookeeper.metadata.migration.enable", "true", "ZooKeeper"),
    ],
)
def test_settings_that_must_not_be_ignored_prevent_the_start(key: str, value: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({**NEEDED, key: value})
    assert f"{key}={value} is not supported: " in str(caught.value)
    assert hint in str(caught.value)
    assert "remove it" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
        ("metric.reporters", ""),
        ("principal.builder.class", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
        ("remote.log.storage.system.enable", "FALSE"),
        ("zookeeper.metadata.migration.enable", "false"),
    ],
)
def test_defaults_of_rejected_settings_are_accepted(key: str, value: str) -> None:
    _, warnings = BrokerConfig.parse({**NEEDED, key: value})
    assert [warning.partition(" ")[0] for warning in warnings] == [key]


@pytest.mark.parametrize("key", ["remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"])
def test_a_topic_cannot_have_tiered_storage(key: str) -> None:
    broker, _ = BrokerConfig.parse(NEEDED)
    assert TopicConfig.of(broker, {key: "false"}) == TopicConfig.of(broker, {})
    with pytest.raises(ConfigError, match=f"{key}=true is not supported: .*tiered storage"):
        TopicConfig.of(broker, {key: "true"})
