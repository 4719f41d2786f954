"""Serializers and deserializers: the formats of Java's classes, None, functions, and what happens after an error."""

from __future__ import annotations

from typing import Any

import pytest

import odradek
from odradek.base.errors import ConfigError
from odradek.client.extensions.serializers import (
    BytesDeserializer,
    BytesSerializer,
    SerializationError,
    StringDeserializer,
    StringSerializer,
    deserialize_function,
    serialize_function,
)


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("String", "é", b"\xc3\xa9"),
        ("Integer", -2, b"\xff\xff\xff\xfe"),
        ("Long", 258, b"\x00\x00\x00\x00\x00\x00\x01\x02"),
        ("Float", 1.5, b"\x3f\xc0\x00\x00"),
        ("Double", -2.0, b"\xc0\x00\x00\x00\x00\x00\x00\x00"),
        ("Json", {"a": ["é", 1, None, True]}, b'{"a":["\xc3\xa9",1,null,true]}'),
        ("Bytes", b"\x00\xff", b"\x00\xff"),
    ],
)
def test_the_formats_are_those_of_java(name: str, value: Any, data: bytes) -> None:
    serializer = getattr(odradek, f"{name}Serializer")()
    deserializer = getattr(odradek, f"{name}Deserializer")()
    assert serializer.serialize("t", value, ()) == data
    assert deserializer.deserialize("t", data, ()) == value
    assert serializer.serialize("t", None, ()) is None
    assert deserializer.deserialize("t", None, ()) is None


def test_text_has_any_encoding() -> None:
    assert StringSerializer("utf-16-be").serialize("t", "a", ()) == b"\x00a"
    assert StringDeserializer("utf-16-be").deserialize("t", b"\x00a", ()) == "a"


def test_a_function_is_not_called_for_none() -> None:
    serialize = serialize_function(str.encode, "value_serializer")
    assert serialize is not None
    assert (serialize("t", "a", ()), serialize("t", None, ())) == (b"a", None)
    deserialize = deserialize_function(int, "value_deserializer")
    assert deserialize is not None
    assert (deserialize("t", b"12", ()), deserialize("t", None, ())) == (12, None)
    assert serialize_function(None, "key_serializer") is None
    assert deserialize_function(None, "key_deserializer") is None


def test_an_object_gets_the_topic_the_headers_and_none() -> None:
    class Tagging:
        def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
            return f"{topic} {value} {headers}".encode()

    serialize = serialize_function(Tagging(), "key_serializer")
    assert serialize is not None
    assert serialize("t", None, (("h", b"1"),)) == b"t None (('h', b'1'),)"


def test_what_is_not_a_serializer_is_refused() -> None:
    given: Any = "json"
    with pytest.raises(ConfigError, match=r"must be a function or have the method serialize$"):
        serialize_function(given, "value_serializer")
    with pytest.raises(ConfigError, match=r"must be a function or have the method deserialize$"):
        deserialize_function(given, "key_deserializer")
    cls: Any = StringSerializer
    with pytest.raises(ConfigError, match=r"it must be an object, such as StringSerializer\(\)"):
        serialize_function(cls, "value_serializer")


def test_the_error_of_a_serializer_says_which_one_failed() -> None:
    serialize = serialize_function(odradek.IntegerSerializer(), "key_serializer")
    assert serialize is not None
    with pytest.raises(SerializationError, match="the key_serializer failed for topic t: error") as raised:
        serialize("t", "text", ())
    assert raised.value.__cause__ is not None
    not_bytes = serialize_function(str, "value_serializer")  # type: ignore[arg-type]
    assert not_bytes is not None
    with pytest.raises(SerializationError, match="returned an object of type str instead of bytes"):
        not_bytes("t", 1, ())


def test_bytes_must_be_bytes() -> None:
    serialize = serialize_function(BytesSerializer(), "value_serializer")
    assert serialize is not None
    assert serialize("t", b"a", ()) == b"a"
    with pytest.raises(SerializationError):
        serialize("t", "a", ())
    assert BytesDeserializer().deserialize("t", b"a", ()) == b"a"
