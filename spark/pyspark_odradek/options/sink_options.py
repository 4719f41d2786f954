"""The options of the sink, validated when Spark plans the query.

Names, defaults and errors are those of Spark's own sink for Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.base.errors import ConfigError, InvalidTopicError
from odradek.base.topic_rules import check_topic_name
from odradek.client.settings import ClientSettings
from pyspark_odradek.options.client_options import check_servers
from pyspark_odradek.options.option_values import CLIENT_PREFIX, OptionValues

SINK_FORBIDDEN: Final[Mapping[str, str]] = {
    "key.serializer": "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer.",
    "value.serializer": (
        "Kafka option 'value.serializer' is not supported as values are serialized with ByteArraySerializer."
    ),
    "interceptor.classes": "kafka.interceptor.classes is not allowed: classes of the JVM cannot run here",
    "transactional.id": (
        "kafka.transactional.id is not allowed: all tasks would have the same one and fence each other"
    ),
}
"""Client properties that would break the sink, and the error."""

SINK_WITHOUT_EFFECT: Final = frozenset(
    """
    linger.ms transaction.timeout.ms
    group.id group.instance.id auto.commit.interval.ms max.poll.records max.poll.interval.ms session.timeout.ms
    heartbeat.interval.ms group.protocol group.remote.assignor exclude.internal.topics partition.assignment.strategy
    auto.offset.reset enable.auto.commit isolation.level fetch.min.bytes fetch.max.wait.ms fetch.max.bytes
    max.partition.fetch.bytes check.crcs client.rack
    """.split()
)
"""Client properties without an effect on the sink, which logs a warning."""

BATCH_BYTES: Final = 512 << 10
"""Default of `kafka.batch.size`, larger than that of Apache Kafka: a task has many rows at once and never waits for
more. A topic whose `max.message.bytes` is lower needs a lower value."""

DEFAULT_PARTITIONER: Final = "default"
ROUND_ROBIN: Final = "round_robin"
_PARTITIONERS: Final[Mapping[str, str]] = {
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": DEFAULT_PARTITIONER,
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": ROUND_ROBIN,
}
_PARTITIONER_CLASS: Final = "partitioner.class"
_IGNORE_KEYS: Final = "partitioner.ignore.keys"


DECISION_TOPIC: Final = "odradek-spark-decisions"
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
MAX_SINK_ID_BYTES: Final = 200
"""Maximum size of a sink id, which is part of every transactional id."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Default of `kafka.transaction.timeout.ms` with exactly-once delivery: the default of the brokers'
`transaction.max.timeout.ms`."""
_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceOptions:
    """The options of exactly-once delivery."""

    sink_id: str | None
    """Identity of the output, which begins all transactional ids. None: the id of the query or of the write."""
    decision_topic: str
    """The compacted topic with the decisions. The driver creates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a query that writes."""

    topic: str | None
    """Topic of all records; it overrides the column `topic`."""
    partitioner: str
    """`DEFAULT_PARTITIONER` or `ROUND_ROBIN`."""
    ignore_keys: bool
    """Whether the default partitioner treats records with a key like those without (KIP-794)."""
    exactly_once: ExactlyOnceOptions | None = None
    """None for at-least-once delivery."""
    client: ClientSettings
    warnings: tuple[str, ...] = ()


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a query that writes. Raises `ConfigError` for the first invalid one."""
    values = OptionValues(options)
    properties = values.client_properties()
    for name, message in SINK_FORBIDDEN.items():
        if name in properties:
            raise ConfigError(message)
    check_servers(properties)
    partitioner = _partitioner(properties.pop(_PARTITIONER_CLASS, ""))
    ignore_keys = OptionValues({_IGNORE_KEYS: properties.pop(_IGNORE_KEYS, "false")}).flag(_IGNORE_KEYS, False)
    properties.setdefault("client.id", "spark-odradek-sink")
    properties.setdefault("batch.size", str(BATCH_BYTES))
    exactly_once = _exactly_once(values)
    without_effect = SINK_WITHOUT_EFFECT
    if exactly_once is not None:
        without_effect -= {_TRANSACTION_TIMEOUT}
        properties.setdefault(_TRANSACTION_TIMEOUT, str(TRANSACTION_TIMEOUT_MS))
        _check_transactional(properties)
    settings, warnings = ClientSettings.parse(properties)
    idle = sorted(properties.keys() & without_effect)
    warnings += [f"{name} has no effect on the sink" for name in idle]
    return SinkOptions(
        topic=values.text("topic"),
        partitioner=partitioner,
        ignore_keys=ignore_keys,
        exactly_once=exactly_once,
        client=settings,
        warnings=tuple(f"{CLIENT_PREFIX}{warning}" for warning in warnings),
    )


def _exactly_once(values: OptionValues) -> ExactlyOnceOptions | None:
    if values.choice("deliveryGuarantee", (AT_LEAST_ONCE, EXACTLY_ONCE)) == AT_LEAST_ONCE:
        for name in values.present("sinkId", "decisionTopic"):
            raise ConfigError(f"{name} is not allowed: it needs deliveryGuarantee={EXACTLY_ONCE}")
        return None
    sink_id = values.text("sinkId")
    if sink_id is not None and not 0 < len(sink_id.strip().encode()) <= MAX_SINK_ID_BYTES:
        raise ConfigError(f"sinkId={sink_id!r} is not allowed: it must have 1 to {MAX_SINK_ID_BYTES} bytes")
    topic = values.text("decisionTopic")
    if topic is not None:
        try:
            check_topic_name(topic)
        except InvalidTopicError as error:
            raise ConfigError(f"decisionTopic={topic!r} is not allowed: {error}") from None
    return ExactlyOnceOptions(sink_id=sink_id, decision_topic=topic or DECISION_TOPIC)


def _check_transactional(properties: Mapping[str, str]) -> None:
    """Refuse what a producer with transactions cannot have, with the option that needs transactions."""
    for name, allowed in (("acks", ("all", "-1")), ("enable.idempotence", ("true",))):
        value = properties.get(name)
        if value is not None and value.strip().lower() not in allowed:
            raise ConfigError(
                f"{CLIENT_PREFIX}{name}={value} is not allowed: deliveryGuarantee={EXACTLY_ONCE} needs {allowed[0]}"
            )


def _partitioner(name: str) -> str:
    if not name.strip():
        return DEFAULT_PARTITIONER
    if name.strip() not in _PARTITIONERS:
        raise ConfigError(
            f"{CLIENT_PREFIX}{_PARTITIONER_CLASS}={name!r} is not allowed: classes of the JVM cannot run here. It must "
            f"be one of {', '.join(_PARTITIONERS)}; or choose partitions with a column `partition`"
        )
    return _PARTITIONERS[name.strip()]
