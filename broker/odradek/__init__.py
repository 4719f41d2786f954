"""Odradek: a Kafka-compatible broker, its client library and its command line.

The names in `__all__` are the public interface for Python programs. Each is imported when it is first used, because
the broker and the command line start faster without the client library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from odradek.base import VERSION

if TYPE_CHECKING:
    from odradek.base.errors import ConfigError, OdradekError, ProtocolError
    from odradek.base.types import TopicPartition
    from odradek.client.admin import Admin
    from odradek.client.blocking.blocking_admin import BlockingAdmin
    from odradek.client.blocking.blocking_consumer import BlockingConsumer
    from odradek.client.blocking.blocking_producer import BlockingProducer
    from odradek.client.blocking.client import BlockingClient
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.models import ConsumerRecord, GroupMetadata, NewTopic, OffsetAndMetadata, RecordMetadata
    from odradek.client.producer.producer import Producer
    from odradek.client.settings import ClientSettings


__version__ = VERSION

__all__ = [
    "Admin",
    "BlockingAdmin",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingProducer",
    "ClientSettings",
    "ConfigError",
    "Consumer",
    "ConsumerRecord",
    "GroupMetadata",
    "NewTopic",
    "OdradekError",
    "OffsetAndMetadata",
    "Producer",
    "ProtocolError",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]

_MODULES = {
    "Admin": "client.admin",
    "BlockingAdmin": "client.blocking.blocking_admin",
    "BlockingClient": "client.blocking.client",
    "BlockingConsumer": "client.blocking.blocking_consumer",
    "BlockingProducer": "client.blocking.blocking_producer",
    "ClientSettings": "client.settings",
    "ConfigError": "base.errors",
    "Consumer": "client.consumer.consumer",
    "ConsumerRecord": "client.models",
    "GroupMetadata": "client.models",
    "NewTopic": "client.models",
    "OdradekError": "base.errors",
    "OffsetAndMetadata": "client.models",
    "Producer": "client.producer.producer",
    "ProtocolError": "base.errors",
    "RecordMetadata": "client.models",
    "TopicPartition": "base.types",
}


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*globals(), *__all__])
