"""Options: each one is parsed. The error for an invalid one has its documented name and the allowed values."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import settings_of
from odradek.base.types import TopicPartition
from odradek.client.config_files import pod_login
from odradek.client.security_fields import SecurityFields
from odradek.client.settings import CLIENT_SETTINGS
from pyspark_odradek.offsets import EARLIEST, LATEST
from pyspark_odradek.options.client_options import FORBIDDEN, WITHOUT_EFFECT, with_config_file
from pyspark_odradek.options.source_options import Bound, SourceOptions, Subscription, parse

NEEDED = {"kafka.bootstrap.servers": "h1:9092, h2:9093"}


def parsed(**options: str) -> SourceOptions:
    return parse({**NEEDED, "subscribe": "t", **options})


def test_defaults_are_those_of_the_source_for_kafka() -> None:
    options = parse({**NEEDED, "subscribe": " b , a,,"})
    assert options.subscription == Subscription(topics=("a", "b"))
    assert (options.start, options.end) == (None, None)
    assert (options.fail_on_data_loss, options.include_headers) == (True, False)
    assert (options.poll_timeout_ms, options.fetch_offset_tries, options.fetch_offset_retry_ms) == (120_000, 3, 1000)
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert options.client.bootstrap_servers == ("h1:9092", "h2:9093")


def test_names_arrive_in_lower_case() -> None:
    options = parse({**NEEDED, "subscribepattern": "log.*", "maxoffsetspertrigger": "7", "startingoffsets": "EARLIEST"})
    assert options.subscription == Subscription(pattern="log.*")
    assert options.max_offsets_per_trigger == 7
    assert options.start == Bound(option="startingOffsets", position=EARLIEST)


def test_assign() -> None:
    options = parse({**NEEDED, "assign": '{"b":[1,0],"a":[3]}'})
    expected = (TopicPartition("a", 3), TopicPartition("b", 0), TopicPartition("b", 1))
    assert options.subscription.partitions == expected


def test_numbers_flags_and_durations() -> None:
    options = parsed(
        minPartitions="4",
        maxRecordsPerPartition="1000",
        minOffsetsPerTrigger="5",
        maxOffsetsPerTrigger="5",
        maxTriggerDelay="90s",
        failOnDataLoss="False",
        includeHeaders="true",
        groupIdPrefix="nightly",
        **{"fetchOffset.retryIntervalMs": "0", "fetchOffset.numRetries": "9", "kafkaConsumer.pollTimeoutMs": "10"},
    )
    assert (options.min_partitions, options.max_records_per_partition) == (4, 1000)
    assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (5, 5)
    assert (options.max_trigger_delay_ms, options.fail_on_data_loss, options.include_headers) == (90_000, False, True)
    assert (options.fetch_offset_retry_ms, options.fetch_offset_tries, options.poll_timeout_ms) == (0, 9, 10)
    assert options.client.client_id == "nightly"


@pytest.mark.parametrize(
    ("options", "client_id"),
    [
        ({}, "spark-odradek-source"),
        ({"groupIdPrefix": "nightly"}, "nightly"),
        ({"groupIdPrefix": "nightly", "kafka.group.id": "mine"}, "mine"),
        ({"kafka.group.id": "mine", "kafka.client.id": "other"}, "other"),
    ],
)
def test_the_client_id_is_the_name_of_the_group_unless_given(options: dict[str, str], client_id: str) -> None:
    found = parsed(**options)
    assert found.client.client_id == client_id
    assert found.warnings == ()


def test_client_properties_pass_through_and_unknown_ones_are_told() -> None:
    options = parsed(**{"kafka.isolation.level": "read_committed", "kafka.client.id": "mine", "kafka.sasl.jaas.x": "1"})
    assert options.client.read_committed
    assert options.client.client_id == "mine"
    assert [warning.split()[0] for warning in options.warnings] == ["kafka.sasl.jaas.x"]


def test_a_file_has_the_properties_that_are_not_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.rack=a\nsecurity.protocol=SSL\nnonsense=1\n")
    options = parse(with_config_file({"subscribe": "t", "configFile": str(file), "kafka.client.rack": "b"}))
    assert options.client.bootstrap_servers == ("file:1",)
    assert (options.client.client_rack, options.client.security_protocol) == ("b", "SSL")
    assert [warning.split()[0] for warning in options.warnings] == ["kafka.nonsense"]

    monkeypatch.setenv("ODRADEK_COMMAND_CONFIG", str(file))
    assert parse(with_config_file({"subscribe": "t"})).client.bootstrap_servers == ("file:1",)
    with pytest.raises(ConfigError, match=r"configFile /nowhere/file cannot be read"):
        with_config_file({"subscribe": "t", "configFile": "/nowhere/file"})


def test_a_pod_logs_in_with_its_token_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ODRADEK_COMMAND_CONFIG", raising=False)
    monkeypatch.setattr(pod_login, "__defaults__", (tmp_path,))
    wanted = {"subscribe": "t", "kafka.bootstrap.servers": "a:1"}
    assert parse(with_config_file(wanted)).client.security_protocol == "PLAINTEXT"
    (tmp_path / "token").write_text("a token")
    assert "kafka.ssl.truststore.location" not in with_config_file(wanted)
    (tmp_path / "ca.crt").touch()
    client = parse(with_config_file(wanted)).client
    assert (client.security_protocol, client.sasl_mechanism) == ("SASL_SSL", "OAUTHBEARER")
    assert client.sasl_oauthbearer_token_endpoint_url == f"file://{tmp_path / 'token'}"
    assert client.ssl_truststore_location == str(tmp_path / "ca.crt")
    assert parse(with_config_file({**wanted, "kafka.security.protocol": "PLAINTEXT"})).client.sasl_mechanism is None


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"startingTimestamp": "5", "startingOffsets": "latest"}, Bound(option="startingTimestamp", timestamp_ms=5)),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":9}}', "startingOffsets": "latest"},
            Bound(option="startingOffsetsByTimestamp", timestamps_ms={TopicPartition("t", 0): 9}),
        ),
        (
            {"startingOffsets": '{"t":{"0":23,"1":-2}}'},
            Bound(option="startingOffsets", offsets={TopicPartition("t", 0): 23, TopicPartition("t", 1): EARLIEST}),
        ),
        ({"startingOffsets": " latest "}, Bound(option="startingOffsets", position=LATEST)),
    ],
)
def test_the_start_by_precedence(options: dict[str, str], bound: Bound) -> None:
    assert parsed(**options).start == bound


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", " , "),
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"t":{"x":1}}'),
        ("startingOffsets", '{"t":{"0":-3}}'),
        ("startingOffsets", '{"t":{"0":true}}'),
        ("startingOffsets", '{"t":[0]}'),
        ("startingOffsets", "[]"),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}'),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("failOnDataLoss", "maybe"),
        ("kafkaConsumer.pollTimeoutMs", "0"),
        ("minPartitions", "0"),
        ("maxRecordsPerPartition", "-1"),
        ("maxOffsetsPerTrigger", "many"),
        ("maxTriggerDelay", "soon"),
        ("kafka.bootstrap.servers", "nowhere"),
        ("kafka.isolation.level", "strict"),
        ("kafka.auto.offset.reset", "earliest"),
        ("kafka.key.deserializer", "x"),
        ("kafka.value.deserializer", "x"),
        ("kafka.enable.auto.commit", "true"),
        ("kafka.interceptor.classes", "x"),
    ],
)
def test_a_wrong_value_names_its_option(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(**{name: value})
    assert name.removeprefix("kafka.") in str(caught.value)


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"t":0}', '{"t":["0"]}', '{"t":[-1]}', '{"t":[true]}'])
def test_a_wrong_assignment(text: str) -> None:
    with pytest.raises(ConfigError, match="assign="):
        parse({**NEEDED, "assign": text})


@pytest.mark.parametrize("pattern", ["", " ", "(", "*"])
def test_a_wrong_pattern(pattern: str) -> None:
    with pytest.raises(ConfigError, match="subscribePattern="):
        parse({**NEEDED, "subscribePattern": pattern})


@pytest.mark.parametrize("options", [{}, {"subscribe": "a", "assign": '{"a":[0]}'}])
def test_one_of_three_is_needed(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="subscribe, subscribePattern and assign"):
        parse({**NEEDED, **options})


def test_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is needed"):
        parse({"subscribe": "a"})


def test_the_minimum_may_not_exceed_the_maximum() -> None:
    with pytest.raises(ConfigError, match="minOffsetsPerTrigger"):
        parsed(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t":{"0":-1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"t":{"0":-2}}'},
    ],
)
def test_what_a_batch_may_not_say(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        parsed(**options).check_batch()
    if "startingOffsets" in options:
        parsed(**options).check_stream()


@pytest.mark.parametrize(
    ("start", "end", "error_class"),
    [
        (
            {"startingOffsets": '{"t":{"0":9}}'},
            {"endingOffsets": '{"t":{"0":8}}'},
            "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":9}}'},
            {"endingOffsetsByTimestamp": '{"t":{"0":8}}'},
            "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        ),
        (
            {"startingOffsets": '{"t":{"0":1}}'},
            {"endingOffsets": '{"t":{"0":8,"1":9}}'},
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
        ),
    ],
)
def test_a_batch_may_not_end_before_its_start(start: dict[str, str], end: dict[str, str], error_class: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[{error_class}\] {next(iter(start))}"):
        parsed(**start, **end).check_batch()
    parsed(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":-1}}').check_batch()
    parsed(startingOffsets='{"t":{"0":-2}}', endingOffsets='{"t":{"0":0}}').check_batch()


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_what_a_stream_may_not_say(name: str) -> None:
    options = parsed(**{name: '{"t":{"0":5}}'})
    options.check_batch()
    with pytest.raises(ConfigError, match=name):
        options.check_stream()


def test_a_stream_ignores_an_ending_timestamp() -> None:
    parsed(endingTimestamp="5").check_stream()


HONOURED = frozenset(
    """
    bootstrap.servers client.id client.rack group.id isolation.level check.crcs
    request.timeout.ms default.api.timeout.ms socket.connection.setup.timeout.ms metadata.max.age.ms
    retry.backoff.ms retry.backoff.max.ms reconnect.backoff.ms reconnect.backoff.max.ms
    fetch.min.bytes fetch.max.wait.ms fetch.max.bytes max.partition.fetch.bytes
    """.split()
)
"""Client properties that affect the requests, the connections or the decoder of the source."""


def test_every_client_property_is_honoured_warned_of_or_refused() -> None:
    assert HONOURED | WITHOUT_EFFECT | FORBIDDEN.keys() | settings_of(SecurityFields).keys() >= {*CLIENT_SETTINGS}
    assert not HONOURED & WITHOUT_EFFECT


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_a_property_of_producers_or_groups_is_warned_of(name: str) -> None:
    value = CLIENT_SETTINGS[name].render(CLIENT_SETTINGS[name].default) or "true"
    # The assignor of the broker is refused with the classic group protocol.
    others = {"kafka.group.protocol": "consumer"} if name == "group.remote.assignor" else {}
    warnings = parsed(**{f"kafka.{name}": value}, **others).warnings
    assert len(warnings) == 1 + len(others)
    assert any(warning.startswith(f"kafka.{name} has no effect") for warning in warnings)
