"""Settings: names, defaults, bounds, fallbacks, and error messages with the allowed values."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig
from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import Setting, SettingType
from odradek.base.types import Endpoint

MINIMAL = {"broker.id": "1", "zookeeper.connect": "zk:2181"}


def parse(**changes: str) -> BrokerConfig:
    config, _ = BrokerConfig.parse({**MINIMAL, **{key.replace("_", "."): value for key, value in changes.items()}})
    return config


@pytest.mark.parametrize(
    ("properties", "attribute", "value"),
    [
        ({}, "log_segment_bytes", 1 << 30),
        ({"log.dir": "/a"}, "log_dirs", ("/a",)),
        ({"log.dir": "/a", "log.dirs": "/b, /c"}, "log_dirs", ("/b", "/c")),
        ({"auto.create.topics.enable": "FALSE"}, "auto_create_topics_enable", False),
        ({"log.cleaner.min.cleanable.ratio": "0.25"}, "log_cleaner_min_cleanable_ratio", 0.25),
        ({}, "retention_ms", 168 * 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, "retention_ms", 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, "retention_ms", 3),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.retention.minutes": "-1"}, "retention_ms", -1),
        ({"log.roll.hours": "2"}, "roll_ms", 7_200_000),
        ({"log.roll.ms": "5"}, "roll_ms", 5),
        ({"log.flush.interval.ms": "9"}, "flush_interval_ms", 9),
        ({"log.flush.scheduler.interval.ms": "8"}, "flush_interval_ms", 8),
    ],
)
def test_value(properties: dict[str, str], attribute: str, value: object) -> None:
    config, warnings = BrokerConfig.parse({**MINIMAL, **properties})
    assert getattr(config, attribute) == value
    assert warnings == []


def test_a_key_without_an_effect_is_a_warning() -> None:
    _, warnings = BrokerConfig.parse({**MINIMAL, "num.io.threads": "8", "num.oi.threads": "8"})
    assert warnings == [
        "num.io.threads is a setting of Apache Kafka that has no effect on this broker",
        "num.oi.threads is not a setting of this broker or of Apache Kafka 3.9; it has no effect",
    ]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("log.segment.bytes", "13", "whole number from 14"),
        ("log.segment.bytes", "1.5", "whole number"),
        ("delete.topic.enable", "yes", "true or false"),
        ("log.cleanup.policy", "shrink", "compact, delete"),
        ("log.cleaner.min.cleanable.ratio", "1.1", "number from 0.0 to 1.0"),
        ("log.message.timestamp.type", "Never", "CreateTime, LogAppendTime"),
        ("broker.id", "-1", "unique"),
        ("zookeeper.connect", "", "missing"),
        ("log.dirs", " , ", "empty"),
        ("listeners", "PLAINTEXT:9092", "NAME://host:port"),
        ("listeners", "PLAINTEXT://h:x", "NAME://host:port"),
        ("listeners", "PLAINTEXT://h:70000", "NAME://host:port"),
        ("listeners", "TLS://h:1", "must have TLS:PROTOCOL"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "reach"),
        ("inter.broker.listener.name", "OTHER", "not among"),
        ("control.plane.listener.name", "C", "not supported"),
        ("num.io.threads", "many", "whole number"),
        ("listener.name.inner.ssl.allow.dn.changes", "perhaps", "true or false"),
    ],
)
def test_bad_value_names_key_value_and_what_is_allowed(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({**MINIMAL, key: value})
    assert key in str(caught.value)
    assert message in str(caught.value)


def test_listeners() -> None:
    config = parse(
        listeners="PLAINTEXT://:9092,inner://[::1]:9093",
        advertised_listeners="PLAINTEXT://a.example:1,INNER://b.example:2",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        inter_broker_listener_name="INNER",
    )
    assert config.listener_endpoints() == (Endpoint("PLAINTEXT", "", 9092), Endpoint("INNER", "::1", 9093))
    assert config.advertised_endpoints()[1] == Endpoint("INNER", "b.example", 2)
    assert config.inter_broker_listener == "INNER"


def test_topic_takes_the_brokers_values_unless_it_has_its_own() -> None:
    broker = parse(log_segment_bytes="1000", log_retention_hours="1", min_insync_replicas="2")
    topic = TopicConfig.of(broker, {"segment.bytes": "500", "cleanup.policy": "compact,delete"})
    assert (topic.segment_bytes, topic.retention_ms, topic.min_insync_replicas) == (500, 3_600_000, 2)
    assert topic.compacted


def test_a_topic_may_have_neither_cleanup_policy() -> None:
    topic = TopicConfig.of(parse(), {"cleanup.policy": ""})
    assert (topic.cleanup_policy, topic.compacted) == ((), False)


@pytest.mark.parametrize("value", ["", "*", "0:1", "0:1,1:2", " 0:1 , 12:34"])
def test_replicas_to_throttle(value: str) -> None:
    topic = TopicConfig.of(parse(), {"leader.replication.throttled.replicas": value})
    assert topic.leader_replication_throttled_replicas == tuple(part.strip() for part in value.split(",") if value)


@pytest.mark.parametrize("value", ["0", "0:1,", "*,0:1", "0:1:2", "none", "-1:2"])
def test_replicas_to_throttle_are_partitions_with_brokers(value: str) -> None:
    with pytest.raises(ConfigError, match="list of partition:broker"):
        TopicConfig.of(parse(), {"follower.replication.throttled.replicas": value})


def test_dynamic_settings_override_those_of_the_file() -> None:
    static = parse(log_retention_hours="2", message_max_bytes="1000")
    changed = static.with_dynamic({"log.retention.ms": "5", "min.insync.replicas": "2"})
    assert (changed.retention_ms, changed.min_insync_replicas, changed.message_max_bytes) == (5, 2, 1000)
    assert (static.retention_ms, static.min_insync_replicas) == (7_200_000, 1)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("broker.id", "2", "while the broker runs"),
        ("log.retention.hours", "2", "while the broker runs"),
        ("no.such.key", "2", "not a setting"),
        ("num.io.threads", "2", "no effect"),
        ("metric.reporters", "com.example.Reporter", "not supported"),
        ("log.retention.ms", "soon", "whole number"),
        ("compression.gzip.level", "0", "-1 or from 1 to 9"),
    ],
)
def test_what_cannot_be_changed_while_the_broker_runs(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse().with_dynamic({key: value})
    assert key in str(caught.value)
    assert message in str(caught.value)


def test_listeners_change_while_the_broker_runs() -> None:
    static = parse(listeners="PLAINTEXT://h:9092")
    changed = static.with_dynamic(
        {
            "listeners": "PLAINTEXT://h:9092,OUTER://h:9093",
            "advertised.listeners": "PLAINTEXT://a.example:1,OUTER://b.example:2",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
        }
    )
    assert changed.listener_endpoints()[1] == Endpoint("OUTER", "h", 9093)
    assert changed.advertised_endpoints()[1] == Endpoint("OUTER", "b.example", 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"listeners": "OUTER://h:9093"}, "must keep PLAINTEXT"),
        ({"listeners": "OUTER://h:9093,PLAINTEXT://h:9092"}, "keep it first"),
        ({"listeners": "PLAINTEXT://h:9092,INNER://h:9093"}, "must have INNER:PROTOCOL"),
        ({"listeners": "PLAINTEXT://h:9092,OUTER://h:9092"}, "unique"),
        ({"listeners": "PLAINTEXT://h:9092,PLAINTEXT://h:9093"}, "unique"),
        ({"advertised.listeners": "OUTER://h:9093"}, "which is missing in listeners"),
        (
            {"listeners": "PLAINTEXT://h:9092,OUTER://h:9093", "advertised.listeners": "OUTER://h:9093"},
            "must name PLAINTEXT",
        ),
    ],
)
def test_listeners_that_do_not_fit_together(values: dict[str, str], message: str) -> None:
    static = parse(listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT")
    with pytest.raises(ConfigError, match=message):
        static.with_dynamic(values)


@pytest.mark.parametrize(("key", "value"), [("segment.bytes", "1"), ("no.such.key", "1"), ("cleanup.policy", "x")])
def test_bad_topic_setting(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        TopicConfig.of(parse(), {key: value})


@pytest.mark.parametrize(
    ("protocol", "kept", "magic"),
    [
        ("3.9", "0.9.0", 2),
        ("3.0-IV1", "0.10.1", 2),
        ("2.8", "0.9.0", 0),
        ("2.8", "0.10.1-IV2", 1),
        ("2.7", "0.11.0", 2),
        ("2.7", "2.0", 2),
    ],
)
def test_old_record_formats_count_only_below_protocol_3(protocol: str, kept: str, magic: int) -> None:
    broker = parse(inter_broker_protocol_version=protocol, log_message_format_version=kept)
    assert TopicConfig.of(broker, {}).magic == magic
    of_topic = TopicConfig.of(parse(inter_broker_protocol_version=protocol), {"message.format.version": kept})
    assert of_topic.magic == magic


@pytest.mark.parametrize("release", ["4.0", "0.7", "3", "two", "2.x", ""])
def test_a_release_that_does_not_exist_is_refused(release: str) -> None:
    with pytest.raises(ConfigError, match=r"inter\.broker\.protocol\.version"):
        parse(inter_broker_protocol_version=release)


def test_the_older_setting_of_timestamp_bounds_counts_where_the_newer_ones_are_at_their_default() -> None:
    older = TopicConfig.of(parse(), {"message.timestamp.difference.max.ms": "7"})
    assert (older.timestamp_before_max_ms, older.timestamp_after_max_ms) == (7, 7)
    both = TopicConfig.of(parse(), {"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "9"})
    assert (both.timestamp_before_max_ms, both.timestamp_after_max_ms) == (7, 9)


@pytest.mark.parametrize(
    ("overrides", "level"),
    [
        ({"compression.type": "gzip"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, 9),
        ({"compression.type": "lz4"}, 9),
        ({"compression.type": "zstd", "compression.zstd.level": "-5"}, -5),
        ({"compression.type": "snappy"}, None),
        ({"compression.type": "producer", "compression.zstd.level": "5"}, None),
    ],
)
def test_compression_level(overrides: dict[str, str], level: int | None) -> None:
    assert TopicConfig.of(parse(), overrides).compression_level == level


def test_gzip_has_no_level_zero() -> None:
    with pytest.raises(ConfigError, match=r"gzip\.level=0"):
        parse(compression_gzip_level="0")
    with pytest.raises(ConfigError, match=r"gzip\.level=0"):
        TopicConfig.of(parse(), {"compression.gzip.level": "0"})


@pytest.mark.parametrize("limit", ["-1", "0", "1000", "1001"])
def test_the_memory_of_requests_holds_the_largest_request(limit: str) -> None:
    config = parse(queued_max_request_bytes=limit, socket_request_max_bytes="1000")
    assert config.queued_max_request_bytes == int(limit)


def test_a_memory_of_requests_that_is_too_small_is_refused() -> None:
    message = (
        r"queued\.max\.request\.bytes=999 is not allowed: it must be larger than or equal to "
        r"socket\.request\.max\.bytes=1000, or -1 for no limit"
    )
    with pytest.raises(ConfigError, match=message):
        parse(queued_max_request_bytes="999", socket_request_max_bytes="1000")


def test_a_slow_client_keeps_memory_for_the_timeout_of_clients_by_default() -> None:
    assert parse().queued_max_request_slow_ms == 30_000
    assert parse(queued_max_request_slow_ms="1").queued_max_request_slow_ms == 1
    with pytest.raises(ConfigError, match=r"queued\.max\.request\.slow\.ms"):
        parse(queued_max_request_slow_ms="0")


def test_consumer_groups_are_enabled_by_default() -> None:
    config = parse()
    assert config.group_coordinator_rebalance_protocols == ("classic", "consumer")
    assert config.consumer_assignors == ("uniform", "range")


def test_assignors_may_be_named_by_kafkas_classes() -> None:
    classes = ",".join(f"org.apache.kafka.coordinator.group.assignor.{name}Assignor" for name in ("Range", "Uniform"))
    assert parse(group_consumer_assignors=classes).consumer_assignors == ("range", "uniform")
    with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
        parse(group_consumer_assignors="sticky")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_coordinator_rebalance_protocols": "consumer"}, "must include classic"),
        ({"group_coordinator_rebalance_protocols": "classic,share"}, "must be one of classic, consumer"),
        ({"group_consumer_assignors": ""}, "must name at least one assignor"),
        (
            {"group_consumer_session_timeout_ms": "44999"},
            "group.consumer.min.session.timeout.ms=45000 is not allowed: it must be less than or equal to "
            "group.consumer.session.timeout.ms=44999",
        ),
        ({"group_consumer_session_timeout_ms": "60001"}, "group.consumer.max.session.timeout.ms=60000"),
        ({"group_consumer_min_session_timeout_ms": "60001"}, "group.consumer.max.session.timeout.ms=60000"),
        ({"group_consumer_heartbeat_interval_ms": "4999"}, "group.consumer.min.heartbeat.interval.ms=5000"),
        ({"group_consumer_heartbeat_interval_ms": "15001"}, "group.consumer.max.heartbeat.interval.ms=15000"),
        (
            {"group_consumer_heartbeat_interval_ms": "45000", "group_consumer_max_heartbeat_interval_ms": "50000"},
            "must be less than group.consumer.session.timeout.ms=45000",
        ),
        ({"group_consumer_max_size": "0"}, "group.consumer.max.size"),
        ({"group_consumer_migration_policy": "sideways"}, "one of disabled, upgrade, downgrade, bidirectional"),
        ({"group_consumer_regex_refresh_interval_ms": "9999"}, "group.consumer.regex.refresh.interval.ms"),
    ],
)
def test_settings_of_consumer_groups_that_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(**values)


def test_the_memory_of_requests_cannot_change_while_the_broker_runs() -> None:
    with pytest.raises(ConfigError, match=r"queued\.max\.request\.bytes cannot be changed while the broker runs"):
        parse().with_dynamic({"queued.max.request.bytes": "200000000"})


def test_every_topic_setting_falls_back_to_a_broker_value_of_the_same_default() -> None:
    assert TopicConfig.of(parse(), {}) == TopicConfig()


@pytest.mark.parametrize("setting", [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()], ids=lambda s: s.name)
def test_every_setting_reads_back_what_it_renders(setting: Setting) -> None:
    text = setting.render(setting.default)
    if text:
        assert setting.parse(text) == setting.default
    else:
        assert setting.default in (None, (), "")


@given(st.integers())
def test_bounds_hold_for_every_number(number: int) -> None:
    setting = Setting(name="a", attribute="a", kind=SettingType.INT, default=5, documentation="", low=-3, high=9)
    if -3 <= number <= 9:
        assert setting.parse(str(number)) == number
    else:
        with pytest.raises(ConfigError):
            setting.parse(str(number))
