"""Requests and responses as typed values: headers, and one decode and one encode for every API but Produce and Fetch.

Enters: frames without their length prefix, or messages. Leaves: entities, or frames with their length prefix.
Called by the server's dispatch, the controller, the followers and the client.
Invariant: a bad frame raises `MalformedFrameError` or `UnsupportedVersionError` and nothing else, in time and memory
proportional to its size; a message that does not fit its schema raises `ValueError`, because that is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple

from odradek.base.errors import MalformedFrameError, UnsupportedVersionError
from odradek.protocol.apis import API_TABLE, Api, ApiKey, api
from odradek.protocol.decoder import decoder
from odradek.protocol.encoder import Encode, EncodedElements, KnownNames, KnownNamesOf, Message, compile_encoder
from odradek.protocol.schema import schema_of
from odradek.protocol.wire import DEFAULT_ELEMENT_BUDGET, Reader, base128, legacy_string

__all__ = [
    "EncodedElements",
    "Message",
    "RequestHeader",
    "decode_header",
    "decode_request",
    "decode_response",
    "decode_response_header",
    "decode_struct",
    "elements_encoder",
    "encode_request",
    "encode_request_header",
    "encode_response",
    "encode_response_header",
    "encode_struct",
]

_REQUEST_START: Final = Struct(">hhih")
_FRAME_START: Final = Struct(">ihhi")
_RESPONSE_START: Final = Struct(">ii")
_SHORT_HEADER_BYTES: Final = 8

BROKER_ELEMENT_BUDGET: Final = 1 << 22
"""Array elements in a frame of a broker, a controller or in an answer to us: the metadata of 200,000 partitions."""


class RequestHeader(NamedTuple):
    """Who asks for what. `client_id` is None where the client gave none."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None


_ROWS: Final[dict[int, Api]] = {int(key): row for key, row in API_TABLE.items()}
_CONTROLLED_SHUTDOWN: Final = ApiKey.CONTROLLED_SHUTDOWN
_API_VERSIONS: Final = ApiKey.API_VERSIONS


def decode_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Header of a request and the position of its body.

    `UnsupportedVersionError`: the API or its version is not served; what follows cannot be told then. ApiVersions is
    the exception: its header keeps one form for newer versions, so that the caller can answer with version 0 and
    `UNSUPPORTED_VERSION` (KIP-511); compare `api_version` with the table. `MalformedFrameError`: cut short.
    """
    try:
        key, version, correlation_id, length = _REQUEST_START.unpack_from(frame)
    except struct_error:
        return _decode_short_header(frame)
    row = _ROWS.get(key)
    if row is None:
        raise UnsupportedVersionError(f"API key {key} is not served")
    known = row.key
    if not row.min_version <= version <= row.max_version and known is not _API_VERSIONS:
        raise UnsupportedVersionError(f"{row.name} version {version} is not served")
    if version == 0 and known is _CONTROLLED_SHUTDOWN:
        return RequestHeader(known, version, correlation_id, None), _SHORT_HEADER_BYTES
    position = _REQUEST_START.size
    client_id: str | None
    if length > 0:
        position += length
        if position > len(frame):
            raise MalformedFrameError(f"client id of {length} bytes in a frame of {len(frame)} bytes")
        try:
            client_id = str(frame[position - length : position], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedFrameError("client id is not UTF-8") from error
    elif length >= -1:
        client_id = "" if length == 0 else None
    else:
        raise MalformedFrameError(f"client id length {length}")
    if version >= row.flexible_since:
        position = _after_tagged_fields(frame, position)
    # Made for every request: this way it takes half the time of the call.
    return tuple.__new__(RequestHeader, (known, version, correlation_id, client_id)), position


def _after_tagged_fields(frame: bytes | memoryview, position: int) -> int:
    if position < len(frame) and frame[position] == 0:
        return position + 1
    reader = Reader(frame, position)
    reader.skip_tagged_fields()
    return reader.position


def _decode_short_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """The header of ControlledShutdown 0 has no client id and may be followed by less than two bytes."""
    reader = Reader(frame)
    key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(_CONTROLLED_SHUTDOWN, version, correlation_id, None), _SHORT_HEADER_BYTES
    raise MalformedFrameError(f"frame of {len(frame)} bytes is shorter than a request header")


def decode_request(header: RequestHeader, frame: bytes | memoryview, position: int) -> Any:
    """The body of a request as kio's entity of its version; it owns its memory.

    Bytes after the last field are passed over, as Apache Kafka does: librdkafka 2.16 sends three with each Metadata 12
    request for all topics. `MalformedFrameError` for everything else wrong with the bytes, `UnsupportedVersionError`
    when the version is not served.
    """
    row = API_TABLE[header.api_key]
    budget = BROKER_ELEMENT_BUDGET if row.internal else DEFAULT_ELEMENT_BUDGET
    # One copy: slices of bytes decode faster than those of a memoryview, and the entity must own what it keeps.
    return decoder(row.request_type(header.api_version))(Reader(bytes(frame[position:]), element_budget=budget))


def decode_struct(
    entity_type: type[Any],
    data: bytes | memoryview,
    position: int = 0,
    *,
    element_budget: int = DEFAULT_ELEMENT_BUDGET,
) -> Any:
    """An entity of any kio type, such as the consumer protocol's, that must end where the data ends."""
    reader = Reader(bytes(data[position:]), element_budget=element_budget)
    entity = decoder(entity_type)(reader)
    reader.expect_end()
    return entity


def encode_struct(entity_type: type[Any], message: Message) -> bytes:
    """The bytes of any kio type, without header and length; `ValueError` when the message does not fit it."""
    out = bytearray()
    _data_encoder(entity_type)(out, message)
    return bytes(out)


_DATA_ENCODERS: Final[dict[int, Encode]] = {}
"""By identity of the schema; schemas are never dropped."""


def _data_encoder(entity_type: type[Any]) -> Encode:
    schema = schema_of(entity_type)
    encode = _DATA_ENCODERS.get(id(schema))
    if encode is None:
        known = KnownNames()
        known.add(schema)
        encode = _DATA_ENCODERS[id(schema)] = compile_encoder(schema, KnownNamesOf(lambda: known))
    return encode


_ENCODERS: Final[dict[tuple[ApiKey, int, str], Encode]] = {}


def _encoder(row: Api, version: int, direction: str) -> Encode:
    encode = _ENCODERS.get((row.key, version, direction))
    if encode is None:
        encode = _ENCODERS[row.key, version, direction] = _make_encoder(row, version, direction)
    return encode


def _make_encoder(row: Api, version: int, direction: str) -> Encode:
    entity_type = row.request_type(version) if direction == "request" else row.response_type(version)
    return compile_encoder(schema_of(entity_type), KnownNamesOf(lambda: _known_names(row, direction)))


def _known_names(row: Api, direction: str) -> KnownNames:
    known = KnownNames()
    for each in range(row.min_version, row.max_version + 1):
        known.add(schema_of(row.request_type(each) if direction == "request" else row.response_type(each)))
    return known


def encode_response(api_key: ApiKey, version: int, correlation_id: int, message: Message) -> bytes:
    """A whole response frame with its length prefix; `ValueError` when the message does not fit the API."""
    row = API_TABLE[api_key]
    out = bytearray(_RESPONSE_START.size)
    if row.response_header_version(version):
        out.append(0)
    _encoder(row, version, "response")(out, message)
    _RESPONSE_START.pack_into(out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def elements_encoder(
    api_key: ApiKey, version: int, path: tuple[str, ...]
) -> Callable[[Sequence[Message]], EncodedElements]:
    """Encodes elements of an array of structs in a response, to be put in the array's place in its message.

    `path`: the names of the arrays that lead there, as `("topics", "partitions")` for Metadata. The encoder raises
    `ValueError` when a message does not fit the API.
    """
    encode = _ELEMENT_ENCODERS.get((api_key, version, path))
    if encode is None:
        encode = _ELEMENT_ENCODERS[api_key, version, path] = _make_element_encoder(API_TABLE[api_key], version, path)

    def encode_all(messages: Sequence[Message]) -> EncodedElements:
        out = bytearray()
        for message in messages:
            encode(out, message)
        return EncodedElements(len(messages), bytes(out))

    return encode_all


_ELEMENT_ENCODERS: Final[dict[tuple[ApiKey, int, tuple[str, ...]], Encode]] = {}


def _make_element_encoder(row: Api, version: int, path: tuple[str, ...]) -> Encode:
    schema, known = schema_of(row.response_type(version)), KnownNamesOf(lambda: _known_names(row, "response"))
    for name in path:
        inner = next(item.struct for item in schema.fields if item.name == name and item.is_array)
        assert inner is not None, f"{name} is no array of structs"
        schema, known = inner, known.inner(name)
    return compile_encoder(schema, known)


def encode_response_header(api_key: ApiKey, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Length prefix and header for a body that is sent in pieces of its own."""
    tagged = b"\x00" if API_TABLE[api_key].response_header_version(version) else b""
    return _RESPONSE_START.pack(4 + len(tagged) + body_bytes, correlation_id) + tagged


def encode_request_header(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, *, body_bytes: int
) -> bytes:
    """Length prefix and header for a request body of `body_bytes` that is sent in pieces of its own."""
    header_version = api(api_key).request_header_version(version)
    rest = b"" if header_version == 0 else legacy_string(client_id)
    if header_version == 2:
        rest += base128(0)
    return _FRAME_START.pack(8 + len(rest) + body_bytes, api_key, version, correlation_id) + rest


def encode_request(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, message: Message
) -> bytes:
    """A whole request frame with its length prefix; `ValueError` when the message does not fit the API."""
    body = bytearray()
    _encoder(api(api_key), version, "request")(body, message)
    return encode_request_header(api_key, version, correlation_id, client_id, body_bytes=len(body)) + body


def decode_response_header(api_key: ApiKey, version: int, frame: bytes | memoryview) -> tuple[int, int]:
    """Correlation id of a response frame, and the position of its body."""
    reader = Reader(frame)
    correlation_id = reader.int32()
    if API_TABLE[api_key].response_header_version(version):
        reader.skip_tagged_fields()
    return correlation_id, reader.position


def decode_response(api_key: ApiKey, version: int, frame: bytes | memoryview) -> Any:
    """A response frame, header included, as kio's entity of its version; its correlation id is not looked at.

    `MalformedFrameError` for everything wrong with the bytes.
    """
    _, position = decode_response_header(api_key, version, frame)
    entity_type = API_TABLE[api_key].response_type(version)
    return decode_struct(entity_type, frame, position, element_budget=BROKER_ELEMENT_BUDGET)
