"""The options of the sink: defaults, client properties and errors."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import settings_of
from odradek.client.security_fields import SecurityFields
from odradek.client.settings import CLIENT_SETTINGS
from pyspark_odradek.options.sink_options import (
    BATCH_BYTES,
    DECISION_TOPIC,
    DEFAULT_PARTITIONER,
    ROUND_ROBIN,
    SINK_FORBIDDEN,
    SINK_WITHOUT_EFFECT,
    ExactlyOnceOptions,
    SinkOptions,
    parse_sink,
)

NEEDED = {"kafka.bootstrap.servers": "h1:9092, h2:9093"}


def parsed(**options: str) -> SinkOptions:
    return parse_sink({**NEEDED, **options})


def test_defaults() -> None:
    options = parsed()
    assert (options.topic, options.partitioner, options.ignore_keys) == (None, DEFAULT_PARTITIONER, False)
    assert options.client.bootstrap_servers == ("h1:9092", "h2:9093")
    assert (options.client.batch_size, options.client.client_id) == (BATCH_BYTES, "spark-odradek-sink")
    assert options.client.idempotent
    assert options.warnings == ()


def test_client_properties_take_effect() -> None:
    options = parsed(
        **{
            "topic": "t",
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "4000",
            "kafka.client.id": "mine",
            "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            "kafka.partitioner.ignore.keys": "true",
        }
    )
    client = options.client
    assert (client.acks, client.compression_type, client.batch_size, client.client_id) == ("1", "zstd", 4000, "mine")
    assert (options.topic, options.partitioner, options.ignore_keys) == ("t", ROUND_ROBIN, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": ""}, r"the option kafka\.bootstrap\.servers is needed"),
        ({"kafka.key.serializer": "x"}, "'key.serializer' is not supported as keys are serialized"),
        ({"kafka.value.serializer": "x"}, "'value.serializer' is not supported as values are serialized"),
        ({"kafka.transactional.id": "x"}, r"kafka\.transactional\.id is not allowed"),
        ({"kafka.interceptor.classes": "x"}, r"kafka\.interceptor\.classes is not allowed"),
        ({"kafka.partitioner.class": "com.example.Mine"}, "'com.example.Mine' is not allowed"),
        ({"kafka.partitioner.ignore.keys": "perhaps"}, "must be true or false"),
        ({"kafka.acks": "2"}, "acks"),
        ({"deliveryGuarantee": "at-most-once"}, "must be one of at-least-once, exactly-once"),
        ({"sinkId": "s"}, "sinkId is not allowed: it needs deliveryGuarantee=exactly-once"),
        ({"decisionTopic": "t"}, "decisionTopic is not allowed: it needs"),
        ({"deliveryGuarantee": "exactly-once", "sinkId": " "}, "must have 1 to 200 bytes"),
        ({"deliveryGuarantee": "exactly-once", "sinkId": "s" * 201}, "must have 1 to 200 bytes"),
        ({"deliveryGuarantee": "exactly-once", "decisionTopic": "a b"}, "decisionTopic='a b' is not allowed"),
        ({"deliveryGuarantee": "exactly-once", "kafka.acks": "1"}, "deliveryGuarantee=exactly-once needs all"),
        ({"deliveryGuarantee": "exactly-once", "kafka.enable.idempotence": "false"}, "exactly-once needs true"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parsed(**options)


HONOURED = frozenset(
    """
    bootstrap.servers client.id request.timeout.ms default.api.timeout.ms socket.connection.setup.timeout.ms
    metadata.max.age.ms retry.backoff.ms retry.backoff.max.ms reconnect.backoff.ms reconnect.backoff.max.ms
    allow.auto.create.topics acks enable.idempotence batch.size buffer.memory compression.type delivery.timeout.ms
    max.block.ms max.in.flight.requests.per.connection max.request.size retries
    """.split()
)
"""Client properties that affect the requests, the connections or the batches of the sink."""


def test_every_client_property_is_honoured_warned_of_or_refused() -> None:
    security = settings_of(SecurityFields).keys()
    assert HONOURED | SINK_WITHOUT_EFFECT | SINK_FORBIDDEN.keys() | security >= {*CLIENT_SETTINGS}
    assert not HONOURED & SINK_WITHOUT_EFFECT


@pytest.mark.parametrize("name", sorted(SINK_WITHOUT_EFFECT))
def test_a_property_without_effect_is_warned_of(name: str) -> None:
    value = CLIENT_SETTINGS[name].render(CLIENT_SETTINGS[name].default) or "true"
    # The assignor of the broker is refused with the classic group protocol.
    others = {"kafka.group.protocol": "consumer"} if name == "group.remote.assignor" else {}
    warnings = parsed(**{f"kafka.{name}": value}, **others).warnings
    assert len(warnings) == 1 + len(others)
    assert any(warning.startswith(f"kafka.{name} has no effect") for warning in warnings)


def test_an_unknown_client_property_is_warned_of() -> None:
    (warning,) = parsed(**{"kafka.no.such.thing": "1"}).warnings
    assert "no.such.thing" in warning


def test_exactly_once_delivery() -> None:
    assert parsed(deliveryGuarantee="at-least-once").exactly_once is None
    options = parsed(deliveryGuarantee="Exactly-Once")
    assert options.exactly_once == ExactlyOnceOptions(sink_id=None, decision_topic=DECISION_TOPIC)
    assert options.client.transaction_timeout_ms == 900_000
    assert options.warnings == ()
    options = parsed(
        deliveryGuarantee="exactly-once", sinkId="s", decisionTopic="d", **{"kafka.transaction.timeout.ms": "5000"}
    )
    assert options.exactly_once == ExactlyOnceOptions(sink_id="s", decision_topic="d")
    assert options.client.transaction_timeout_ms == 5_000
    assert options.warnings == ()
