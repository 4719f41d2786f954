"""What users can plug into a classic producer: encoders, partitioners, event handlers and callback handlers."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from odradek.base.errors import ConfigError
from odradek.classic.assignment import java_hash


@dataclass(frozen=True, slots=True)
class ProducerData:
    """Messages for a topic. The key chooses the partition of all of them; without a key, it is chosen at random."""

    topic: str
    key: Any = None
    data: Sequence[Any] = field(default=())


class Encoder(Protocol):
    """Makes bytes of a message or of a key."""

    def to_message(self, data: Any) -> bytes | None:
        """Return the bytes."""
        ...


class ClassicPartitioner(Protocol):
    """Chooses a partition."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Return an index from 0 to `num_partitions` - 1 into the partitions of the topic, in order."""
        ...


class EventHandler(Protocol):
    """Sends the messages of an asynchronous producer."""

    def handle(self, events: Sequence[ProducerData]) -> None:
        """Serialize and send messages that have left the queue."""
        ...

    def close(self) -> None:
        """End. Called once, after the last `handle`."""
        ...


class CallbackHandler:
    """Is called while messages pass the queue of an asynchronous producer. The methods do nothing here."""

    def before_enqueue(self, data: ProducerData) -> ProducerData:
        """Return what is put into the queue instead of `data`. Runs in the thread of `send`."""
        return data

    def after_enqueue(self, data: ProducerData, added: bool) -> None:
        """`added` is false if the queue was full."""

    def after_dequeuing_existing_data(self, data: ProducerData | None) -> list[ProducerData]:
        """Return what is added to the batch. `data` has just left the queue; None if `queue.time` has passed."""
        return [] if data is None else [data]

    def before_sending_data(self, data: Sequence[ProducerData]) -> Sequence[ProducerData]:
        """Return what is sent instead of a batch."""
        return data

    def last_batch_before_close(self) -> Sequence[ProducerData]:
        """Return what is sent before the producer ends."""
        return ()


class DefaultEncoder:
    """Passes bytes on, as in the documents."""

    def to_message(self, data: Any) -> bytes | None:
        """Return `data`. Raises `TypeError` if it is neither bytes nor None."""
        if data is None or isinstance(data, bytes):
            return data
        raise TypeError(f"a message must be bytes, not {type(data).__name__}: set serializer.class")


class StringEncoder:
    """Encodes text as UTF-8."""

    def to_message(self, data: Any) -> bytes | None:
        """Return the text of `data` as bytes; None stays None."""
        return None if data is None else str(data).encode()


class HashPartitioner:
    """hash(key) % partitions with the hashes of Java, so that producers in Java choose the same."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the index for a key; a random one without a key. Raises `TypeError` if Java's hash is not known."""
        if key is None:
            return random.randrange(num_partitions)
        return (java_hash_of(key) & 0x7FFFFFFF) % num_partitions


_INT_BITS: Final = 32


def java_hash_of(key: Any) -> int:
    """Return `hashCode` of a String, Integer or Long, or that of an array of bytes, as a signed number of 32 bits.

    Raises `TypeError` for other types.
    """
    if isinstance(key, str):
        return java_hash(key)
    if isinstance(key, bytes):
        value = 1
        for byte in key:
            value = (31 * value + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    elif isinstance(key, int) and -(1 << 63) <= key < 1 << 63:
        # A number beyond the int range is a Long, whose halves are combined.
        is_int = -(1 << _INT_BITS - 1) <= key < 1 << _INT_BITS - 1
        value = (key if is_int else key ^ (key >> _INT_BITS)) & 0xFFFFFFFF
    else:
        raise TypeError(f"the hash of a key of type {type(key).__name__} is not known: set partitioner.class")
    return value - (1 << _INT_BITS) if value >> (_INT_BITS - 1) else value


def load_plugin(setting: str, name: str) -> Any:
    """Return a new object of the class `module:name`. Raises `ConfigError` with the setting if that is not possible."""
    module, separator, attribute = name.partition(":")
    if not separator:
        raise ConfigError(f"{setting}={name!r} is not allowed: it must be module:name")
    try:
        return getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"{setting}={name!r} cannot be loaded: {error}") from error
