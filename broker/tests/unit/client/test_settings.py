"""Client settings: names, bounds and rules between values."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from odradek import Admin, BlockingClient, Consumer, Producer
from odradek.base.errors import ConfigError
from odradek.client.keywords import ClientKeywords
from odradek.client.settings import CLIENT_SETTINGS, ClientSettings, as_settings, parse_address


def test_properties_are_read_by_kafkas_names() -> None:
    settings, warnings = ClientSettings.parse(
        {
            "kafka.bootstrap.servers": "a:1, [::1]:2",
            "linger.ms": "5",
            "KAFKA.Compression.Type": "lz4",
            "fetch_max_wait_ms": "7",
            "kafka.enable.auto.commit": "false",
            "partition.assignment.strategy": "roundrobin,range",
            "kafka.sasl.kerberos.kinit.cmd": "x",
        }
    )
    assert settings.bootstrap_addresses() == [("a", 1), ("::1", 2)]
    assert (settings.linger_ms, settings.compression_type, settings.fetch_max_wait_ms) == (5, "lz4", 7)
    assert settings.enable_auto_commit is False
    assert settings.partition_assignment_strategy == ("roundrobin", "range")
    assert len(warnings) == 1
    assert warnings[0].startswith("kafka.sasl.kerberos.kinit.cmd ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger.ms", "soon"),
        ("linger.ms", "-1"),
        ("acks", "2"),
        ("compression.type", "zip"),
        ("auto.offset.reset", "middle"),
        ("isolation.level", "serializable"),
        ("enable.idempotence", "yes"),
        ("security.protocol", "TLS"),
        ("partition.assignment.strategy", "striped"),
        ("bootstrap.servers", "nowhere"),
        ("bootstrap.servers", "a:0"),
        ("bootstrap.servers", "a:65536"),
        ("bootstrap.servers", "a:1,:2"),
    ],
)
def test_the_error_names_the_invalid_value(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ClientSettings.parse({name: value})


@pytest.mark.parametrize(
    "values",
    [
        {"acks": "1", "enable_idempotence": True},
        {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
        {"delivery_timeout_ms": 1_000, "request_timeout_ms": 900, "linger_ms": 101},
        {"batch_size": 0},
        {"transactional_id": ""},
        {"transactional_id": "a", "enable_idempotence": False},
        {"transactional_id": "a", "acks": "1"},
        {"transactional_id": "a", "max_in_flight_requests_per_connection": 6},
        {"transaction_timeout_ms": 0},
    ],
)
def test_contradictory_values_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ClientSettings(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "idempotent"),
    [
        ({}, True),
        ({"acks": "-1"}, True),
        ({"acks": "1"}, False),
        ({"max_in_flight_requests_per_connection": 6}, False),
        ({"enable_idempotence": False}, False),
        ({"transactional_id": "a"}, True),
    ],
)
def test_idempotence_is_enabled_if_the_settings_permit_it(values: dict[str, object], idempotent: bool) -> None:
    assert ClientSettings(**values).idempotent is idempotent  # type: ignore[arg-type]


def test_settings_can_be_pickled_and_compared() -> None:
    settings = ClientSettings.of("a:1,b:2", acks="all")
    assert settings.required_acks == -1
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert {settings: 1}[as_settings("a:1,b:2")] == 1
    assert settings.replace(linger_ms=3) != settings
    assert as_settings(settings) is settings


@pytest.mark.parametrize(
    ("protocol", "name", "value"),
    [
        ("consumer", "session.timeout.ms", "10000"),
        pytest.param("consumer", "session.timeout.ms", "45000", id="the default"),
        ("consumer", "heartbeat.interval.ms", "1000"),
        ("consumer", "partition.assignment.strategy", "roundrobin"),
        ("classic", "group.remote.assignor", "range"),
    ],
)
def test_settings_of_the_other_group_protocol_are_refused(protocol: str, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name}={value} is not allowed with group.protocol={protocol}")):
        ClientSettings.parse({"group.protocol": protocol, name: value})
    setting = CLIENT_SETTINGS[name]
    with pytest.raises(ConfigError, match=re.escape(f"{name}={value} is not allowed with group.protocol={protocol}")):
        ClientSettings.of("a:1", **{"group_protocol": protocol, setting.attribute: setting.parse(value)})
    other = "classic" if protocol == "consumer" else "consumer"
    assert ClientSettings.of("a:1", **{"group_protocol": other, setting.attribute: setting.parse(value)})


def test_defaults_are_those_of_kafka() -> None:
    for name, default in (
        ("batch.size", 16_384),
        ("delivery.timeout.ms", 120_000),
        ("max.block.ms", 60_000),
        ("session.timeout.ms", 45_000),
        ("fetch.max.bytes", 52_428_800),
        ("retry.backoff.max.ms", 1_000),
        ("max.poll.records", 500),
        ("transaction.timeout.ms", 60_000),
        ("transactional.id", None),
    ):
        assert CLIENT_SETTINGS[name].default == default


def test_help_describes_every_setting_with_its_default() -> None:
    described = ClientSettings.__doc__ or ""
    assert all(
        f"\n    {setting.attribute}: {setting.documentation}." in described for setting in CLIENT_SETTINGS.values()
    )
    assert "    linger_ms: Time that a batch waits for more records, in ms. Default: 0.\n" in described


def test_addresses() -> None:
    assert parse_address("[fe80::1]:9092") == ("fe80::1", 9092)


def test_security_settings_are_checked_at_once_and_never_shown() -> None:
    entry = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hunter2";'
    settings, warnings = ClientSettings.parse(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": entry,
            "ssl.endpoint.identification.algorithm": "",
            "ssl.truststore.password": "hunter3",
            "ssl.truststore.location": "trust.p12",
        }
    )
    assert warnings == []
    assert "hunter" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings
    with pytest.raises(ConfigError, match=r"sasl\.mechanism=GSSAPI is not supported"):
        ClientSettings.parse({"security.protocol": "SASL_SSL", "sasl.jaas.config": entry})


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, BlockingClient])
def test_a_keyword_sets_one_setting(client: Any) -> None:
    found = asyncio.run(settings_after(lambda: client("a:1,b:2", client_id="mine", linger_ms=5)))
    assert found.bootstrap_servers == ("a:1", "b:2")
    assert (found.client_id, found.linger_ms, found.acks) == ("mine", 5, "all")


async def settings_after(create: Callable[[], Any]) -> ClientSettings:
    client = create()
    found: ClientSettings = client.settings if isinstance(client, BlockingClient) else client._settings
    return found


def test_keywords_override_the_first_argument() -> None:
    settings = ClientSettings.of("a:1", acks="1", linger_ms=3)
    changed = as_settings(settings, linger_ms=4)
    assert (changed.acks, changed.linger_ms, changed.bootstrap_servers) == ("1", 4, ("a:1",))
    assert as_settings(settings) is settings


def test_values_can_be_text_lists_or_numbers() -> None:
    settings = as_settings(
        bootstrap_servers=["a:1", "b:2"],
        acks=1,
        linger_ms="7",
        enable_idempotence="false",
        partition_assignment_strategy="roundrobin,range",
        **{"fetch.min.bytes": 9},
    )
    assert settings.bootstrap_servers == ("a:1", "b:2")
    assert (settings.acks, settings.linger_ms, settings.enable_idempotence) == ("1", 7, False)
    assert settings.partition_assignment_strategy == ("roundrobin", "range")
    assert settings.fetch_min_bytes == 9


def test_an_unknown_keyword_names_the_closest_setting() -> None:
    for create in (as_settings, ClientSettings.of, Producer, BlockingClient):
        with pytest.raises(TypeError, match="'lingerms' is not a setting of the clients: did you mean 'linger_ms'"):
            create("a:1", lingerms=5)
    with pytest.raises(TypeError, match=r"'zzz' is not a setting of the clients$"):
        ClientSettings.of("a:1").replace(zzz=1)


def test_an_invalid_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        as_settings("a:1", linger_ms="soon")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is set twice"):
        as_settings("a:1", bootstrap_servers="b:1")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        BlockingClient().settings.bootstrap_addresses()


def test_every_setting_is_a_keyword() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(ClientSettings)}
    assert list(ClientKeywords.__annotations__) == list(fields)
    for name, hint in ClientKeywords.__annotations__.items():
        if name not in ("bootstrap_servers", "partition_assignment_strategy", "acks"):
            assert hint.__forward_arg__ == fields[name], name
