"""Settings of the classic producer, with the names of Apache Kafka 0.7; those of 0.8 are understood, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import (
    Setting,
    check_values,
    choice,
    integer,
    parse_known,
    settings_of,
    text,
    words,
)

CODECS: Final[Mapping[str, str]] = {"0": "none", "1": "gzip", "2": "snappy"}
"""Values of `compression.codec` in Kafka 0.7, and what they are called later."""

LATER_NAMES: Final[Mapping[str, str]] = {
    "metadata.broker.list": "broker.list",
    "zookeeper.connect": "zk.connect",
    "queue.buffering.max.ms": "queue.time",
    "queue.buffering.max.messages": "queue.size",
    "queue.enqueue.timeout.ms": "queue.enqueuetimeout.ms",
    "batch.num.messages": "batch.size",
    "request.required.acks": "acks",
    "request.timeout.ms": "socket.timeout.ms",
    "message.send.max.retries": "num.retries",
}
"""Names of Kafka 0.8 and those of 0.7, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of a `ClassicProducer`. Raises `ConfigError` for an invalid value."""

    broker_list: tuple[str, ...] = words((), "Brokers: host:port, or id:host:port as in Kafka 0.7")
    zk_connect: str = text("", "The ensemble in which brokers and topics are found: host:port,host:port/chroot")
    producer_type: str = choice("sync", "Whether send waits, or puts messages into a queue", ("sync", "async"))
    serializer_class: str = text("", "The Encoder, as module:name; by default, messages are bytes")
    partitioner_class: str = text("", "The Partitioner, as module:name; by default, the hash of the key decides")
    event_handler: str = text("", "The EventHandler of an asynchronous producer, as module:name")
    callback_handler: str = text("", "The CallbackHandler of an asynchronous producer, as module:name")
    queue_time: int = integer(5_000, "Maximum time of a message in the queue, in ms", low=0)
    queue_size: int = integer(10_000, "Maximum number of messages in the queue", low=1)
    queue_enqueuetimeout_ms: int = integer(
        -1, "Wait in ms if the queue is full: 0 raises an error at once, -1 waits for ever", low=-1
    )
    batch_size: int = integer(200, "Number of messages that an asynchronous producer sends together", low=1)
    compression_codec: str = choice(
        "0", "Codec of all topics: 0 none, 1 gzip, 2 snappy", ("0", "1", "2", "none", "gzip", "snappy")
    )
    acks: str = choice("1", "Acknowledgements that a send waits for; -1: of all replicas in sync", ("0", "1", "-1"))
    num_retries: int = integer(3, "Repetitions of a failed request", low=0)
    socket_timeout_ms: int = integer(30_000, "Timeout of a request in ms", low=1)
    max_message_size: int = integer(1_000_000, "Maximum size of a message in bytes", low=1)
    client_id: str = text("", "Name of the client in the brokers' logs and quotas")

    def __post_init__(self) -> None:
        """Check the values."""
        check_values(self, PRODUCER_SETTINGS)
        if bool(self.broker_list) == bool(self.zk_connect):
            raise ConfigError("the producer needs either broker.list or zk.connect, and not both")

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self:
        """Parse properties with the names of Kafka 0.7 or 0.8. Raises `ConfigError` for an unknown name."""
        return cls(
            **parse_known(
                {key.lower(): properties[key] for key in properties},
                PRODUCER_SETTINGS,
                LATER_NAMES,
                whose="this producer",
            )
        )

    @property
    def compression_type(self) -> str:
        """The codec by its later name."""
        return CODECS.get(self.compression_codec, self.compression_codec)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The brokers of `broker.list` as host:port."""
        return tuple(":".join(each.split(":")[-2:]) for each in self.broker_list)


PRODUCER_SETTINGS: Final[Mapping[str, Setting]] = settings_of(ProducerConfig)
"""All settings by name, in lower case."""
