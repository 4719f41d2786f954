"""Serializers and deserializers: the conversions between the objects of an application and the bytes of records.

A serializer is a function of the value, or an object with `serialize(topic, value, headers)`; a deserializer is a
function of the bytes, or an object with `deserialize(topic, data, headers)`. Functions are not called for None, so a
tombstone stays one; objects are, as in Java. The numbers have the formats of Java's classes of the same names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, Final, Protocol

from odradek.base.errors import ConfigError, OdradekError
from odradek.base.types import TopicPartition
from odradek.client.models import ConsumerRecord, Headers


class SerializationError(OdradekError):
    """A serializer or deserializer failed. Its exception is the cause."""


class RecordDeserializationError(SerializationError):
    """The deserializer of a consumer failed for a record.

    The position of the partition stays at the record: each call raises the error again, until the application skips the
    record with `seek(error.topic_partition, error.offset + 1)`.
    """

    def __init__(self, message: str, record: ConsumerRecord, origin: str) -> None:
        """`record` has key and value as bytes. `origin` says which of the two could not be converted."""
        super().__init__(message)
        self.record: Final = record
        """The record with its bytes (KIP-1036)."""
        self.origin: Final = origin
        """`key` or `value`."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(self.record.topic, self.record.partition)

    @property
    def offset(self) -> int:
        """The offset of the record."""
        return self.record.offset


class Serializer(Protocol):
    """Converts keys or values to bytes."""

    def serialize(self, topic: str, value: Any, headers: Headers) -> bytes | None:
        """Return the bytes of a value. The result for None should be None, which is a tombstone."""
        ...


class Deserializer(Protocol):
    """Converts bytes to keys or values."""

    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> Any:
        """Return the value of some bytes, or of None, if the record has no key or value."""
        ...


Serialize = Callable[[str, Any, Headers], bytes | None]
Deserialize = Callable[[str, bytes | None, Headers], Any]


def serialize_function(given: Serializer | Callable[[Any], bytes] | None, name: str) -> Serialize | None:
    """Return the function of a serializer; None without one. `name` is that of the argument.

    Raises `ConfigError` if it is not a serializer.
    """
    method: Serialize | None = getattr(given, "serialize", None)
    function: Serialize | None = _function(given, method, name)
    if function is None:
        return None

    def serialize(topic: str, value: Any, headers: Headers) -> bytes | None:
        try:
            data = function(topic, value, headers)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(f"the {name} failed for topic {topic}: {error!r}") from error
        if data is not None and not isinstance(data, bytes):
            raise SerializationError(f"the {name} returned an object of type {type(data).__name__} instead of bytes")
        return data

    return serialize


def deserialize_function(given: Deserializer | Callable[[bytes], Any] | None, name: str) -> Deserialize | None:
    """Return the function of a deserializer; None without one. `name` is that of the argument.

    Raises `ConfigError` if it is not a deserializer.
    """
    method: Deserialize | None = getattr(given, "deserialize", None)
    function: Deserialize | None = _function(given, method, name)
    return function


def _function(given: Any, method: Callable[[str, Any, Headers], Any] | None, name: str) -> Any:
    if isinstance(given, type) and method is not None:
        raise ConfigError(f"{name}={given.__name__} is not allowed: it must be an object, such as {given.__name__}()")
    if given is None or method is not None:
        return method
    if not callable(given):
        raise ConfigError(
            f"{name}={given!r} is not allowed: it must be a function or have the method {name.partition('_')[2][:-1]}"
        )
    return lambda topic, value, headers: None if value is None else given(value)


class StringSerializer:
    """Text, in UTF-8 or another encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        """`encoding` is the name of a codec of Python."""
        self._encoding: Final = encoding

    def serialize(self, topic: str, value: str | None, headers: Headers) -> bytes | None:
        """Return the encoded text."""
        return None if value is None else value.encode(self._encoding)


class StringDeserializer:
    """Text, in UTF-8 or another encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        """`encoding` is the name of a codec of Python."""
        self._encoding: Final = encoding

    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> str | None:
        """Return the text."""
        return None if data is None else data.decode(self._encoding)


class _Number:
    """Numbers of a fixed size, the most significant byte first."""

    _format: ClassVar[Struct]


class _NumberSerializer(_Number):
    def serialize(self, topic: str, value: float | None, headers: Headers) -> bytes | None:
        """Return the bytes of a number."""
        return None if value is None else self._format.pack(value)


class _NumberDeserializer(_Number):
    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> Any:
        """Return the number."""
        return None if data is None else self._format.unpack(data)[0]


class IntegerSerializer(_NumberSerializer):
    """Signed integers of 32 bits."""

    _format = Struct(">i")


class IntegerDeserializer(_NumberDeserializer):
    """Signed integers of 32 bits."""

    _format = Struct(">i")


class LongSerializer(_NumberSerializer):
    """Signed integers of 64 bits."""

    _format = Struct(">q")


class LongDeserializer(_NumberDeserializer):
    """Signed integers of 64 bits."""

    _format = Struct(">q")


class FloatSerializer(_NumberSerializer):
    """Floating-point numbers of 32 bits."""

    _format = Struct(">f")


class FloatDeserializer(_NumberDeserializer):
    """Floating-point numbers of 32 bits."""

    _format = Struct(">f")


class DoubleSerializer(_NumberSerializer):
    """Floating-point numbers of 64 bits, the type `float` of Python."""

    _format = Struct(">d")


class DoubleDeserializer(_NumberDeserializer):
    """Floating-point numbers of 64 bits, the type `float` of Python."""

    _format = Struct(">d")


class JsonSerializer:
    """JSON in UTF-8 without spaces."""

    def serialize(self, topic: str, value: Any, headers: Headers) -> bytes | None:
        """Return the JSON text of lists, dictionaries, text, numbers, true and false."""
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class JsonDeserializer:
    """JSON in UTF-8."""

    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> Any:
        """Return the value of a JSON text."""
        return None if data is None else json.loads(data)


class BytesSerializer:
    """Bytes, unchanged. Other types are refused."""

    def serialize(self, topic: str, value: bytes | None, headers: Headers) -> bytes | None:
        """Return the bytes."""
        return value


class BytesDeserializer:
    """Bytes, unchanged."""

    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> bytes | None:
        """Return the bytes."""
        return data


def as_bytes(given: object, what: str) -> bytes:
    """Return a key or value, which `what` names, as bytes. Raises `TypeError` if it is something else."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a {what} must be bytes, not {type(given).__name__}: give the producer a {what}_serializer")
