"""Encodes and decodes requests and responses: headers, and the bodies of all APIs except Produce and Fetch.

The server's dispatch, the controller, the followers and the client use it. Frames are decoded without their length
prefix and encoded with it.
Invariant: a bad frame raises only `MalformedFrameError` or `UnsupportedVersionError`, in time and memory proportional
to its size. A message that does not match its schema raises `ValueError`, because that is a bug in this program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar, overload

from odradek.base.errors import MalformedFrameError, UnsupportedVersionError
from odradek.protocol.apis import API_TABLE, Api, ApiKey, api
from odradek.protocol.decoder import Decode, decoder
from odradek.protocol.encoder import Encode, EncodedElements, Message, compile_encoder
from odradek.protocol.schema import schema_of
from odradek.protocol.wire import DEFAULT_ELEMENT_BUDGET, Reader, base128, legacy_string

__all__ = [
    "ApiMessage",
    "EncodedElements",
    "Message",
    "RequestHeader",
    "decode_header",
    "decode_header_fields",
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

_REQUEST_START: Final = Struct(">Iih")
"""API key and version as one number, the correlation id, and the length of the client id."""
_REQUEST_START_BYTES: Final = _REQUEST_START.size
_KEY_AND_VERSION: Final = Struct(">hh")
_UINT32: Final = Struct(">I")
_FRAME_START: Final = Struct(">ihhi")
_RESPONSE_START: Final = Struct(">ii")
_SHORT_HEADER_BYTES: Final = 8

BROKER_ELEMENT_BUDGET: Final = 1 << 22
"""Maximum number of array elements in a frame between brokers or in a response: the metadata of 200,000 partitions."""


class RequestHeader(NamedTuple):
    """The header of a request. `client_id` is None if the client sent none."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None


class ApiMessage(Protocol):
    """A request or a response, whose class has its API."""

    API_KEY: ClassVar[ApiKey]


Response = TypeVar("Response", bound=ApiMessage)
_Struct = TypeVar("_Struct")

_ROWS: Final[dict[int, Api]] = {int(key): row for key, row in API_TABLE.items()}
_CONTROLLED_SHUTDOWN: Final = ApiKey.CONTROLLED_SHUTDOWN
_API_VERSIONS: Final = ApiKey.API_VERSIONS


class _Usual(NamedTuple):
    """A supported version of an API, and whether it is flexible."""

    api_key: ApiKey
    version: int
    is_flexible: bool


_VERSION_BITS: Final = 16
_USUAL: Final[dict[int, _Usual]] = {
    key << _VERSION_BITS | version: _Usual(row.key, version, row.is_flexible(version))
    for key, row in _ROWS.items()
    for version in range(row.min_version, row.max_version + 1)
    if row.request_header_version(version)
}
"""Every supported version whose header has a client id, by the first four bytes of the request."""


def decode_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Return the header of a request and the position of its body.

    Raises `UnsupportedVersionError` if the API or its version is not supported: then the rest cannot be decoded.
    ApiVersions is the exception: its header has the same form in newer versions, so that the caller can answer with
    version 0 and `UNSUPPORTED_VERSION` (KIP-511); compare `api_version` with the table. Raises `MalformedFrameError` if
    the frame is truncated.
    """
    key, version, correlation_id, client_id, position = decode_header_fields(frame)
    return RequestHeader(key, version, correlation_id, client_id), position


def decode_header_fields(frame: bytes | memoryview) -> tuple[ApiKey, int, int, str | None, int]:
    """Return the fields of `RequestHeader` and the position of the body, without an object for the header.

    The network decodes every request with it. Raises as `decode_header`.
    """
    try:
        start, correlation_id, length = _REQUEST_START.unpack_from(frame)
    except struct_error:
        return _decode_short_header(frame)
    usual = _USUAL.get(start)
    if usual is None:
        usual = _unusual(start)
        if usual.api_key is _CONTROLLED_SHUTDOWN:
            return _CONTROLLED_SHUTDOWN, 0, correlation_id, None, _SHORT_HEADER_BYTES
    key, version, is_flexible = usual
    position = _REQUEST_START_BYTES
    client_id: str | None
    if length > 0:
        begin = position
        position += length
        if position > len(frame):
            raise MalformedFrameError(f"client id of {length} bytes exceeds the frame of {len(frame)} bytes")
        try:
            client_id = str(frame[begin:position], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedFrameError("client id is not UTF-8") from error
    elif length >= -1:
        client_id = "" if length == 0 else None
    else:
        raise MalformedFrameError(f"invalid client id length {length}")
    if is_flexible:
        position = _after_tagged_fields(frame, position)
    return key, version, correlation_id, client_id, position


def _unusual(start: int) -> _Usual:
    """Return the version of a request that is not in `_USUAL`: ControlledShutdown 0, or any version of ApiVersions."""
    key, version = _KEY_AND_VERSION.unpack(_UINT32.pack(start))
    row = _ROWS.get(key)
    if row is None:
        raise UnsupportedVersionError(f"API key {key} is not supported")
    if not row.serves(version) and row.key is not _API_VERSIONS:
        raise UnsupportedVersionError(f"{row.name} version {version} is not supported")
    return _Usual(row.key, version, row.is_flexible(version))


def _after_tagged_fields(frame: bytes | memoryview, position: int) -> int:
    if position < len(frame) and frame[position] == 0:
        return position + 1
    reader = Reader(frame, position)
    reader.skip_tagged_fields()
    return reader.position


def _decode_short_header(frame: bytes | memoryview) -> tuple[ApiKey, int, int, str | None, int]:
    """Decode the header of ControlledShutdown 0, which has no client id and may be followed by less than two bytes."""
    reader = Reader(frame)
    key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return _CONTROLLED_SHUTDOWN, version, correlation_id, None, _SHORT_HEADER_BYTES
    raise MalformedFrameError(f"frame of {len(frame)} bytes is shorter than a request header")


def decode_request(header: RequestHeader, frame: bytes | memoryview, position: int) -> Any:
    """Decode the body of a request into an object of its API's request class, which owns its memory.

    Bytes after the last field are ignored, as by Apache Kafka: librdkafka 2.16 sends three with each Metadata 12
    request for all topics. Raises `MalformedFrameError` for any other invalid bytes, and `UnsupportedVersionError` if
    the version is not supported.
    """
    key, version, _, _ = header
    decode = _REQUEST_DECODERS.get((key, version))
    row = API_TABLE[key]
    if decode is None:
        row.check(version)
        decode = _REQUEST_DECODERS[key, version] = decoder(schema_of(row.request_type, version))
    budget = BROKER_ELEMENT_BUDGET if row.internal else DEFAULT_ELEMENT_BUDGET
    # One copy: slices of bytes decode faster than those of a memoryview, and the message must own its memory.
    return decode(Reader(bytes(frame[position:]), element_budget=budget))


_REQUEST_DECODERS: Final[dict[tuple[ApiKey, int], Decode]] = {}


def decode_struct(
    message_type: type[_Struct],
    version: int,
    data: bytes | memoryview,
    position: int = 0,
    *,
    element_budget: int = DEFAULT_ELEMENT_BUDGET,
    allow_more: bool = False,
) -> _Struct:
    """Decode an object of any message class, such as the consumer protocol's.

    Raises `MalformedFrameError`, also for bytes after the object unless `allow_more` is set.
    """
    reader = Reader(bytes(data[position:]), element_budget=element_budget)
    message: _Struct = decoder(schema_of(message_type, version))(reader)
    if not allow_more:
        reader.expect_end()
    return message


def encode_struct(message_type: type[Any], version: int, message: Message) -> bytes:
    """Encode any message without header and length. Raises `ValueError` if it does not match its class."""
    out = bytearray()
    _encoder(message_type, version)(out, message)
    return bytes(out)


_ENCODERS: Final[dict[tuple[type[Any], int], Encode]] = {}


def _encoder(message_type: type[Any], version: int) -> Encode:
    encode = _ENCODERS.get((message_type, version))
    if encode is None:
        encode = _ENCODERS[message_type, version] = compile_encoder(schema_of(message_type, version))
    return encode


def encode_response(api_key: ApiKey, version: int, correlation_id: int, message: Message) -> bytes:
    """Return a response frame with its length prefix. Raises `ValueError` if the message does not match the API."""
    row = API_TABLE[api_key]
    out = bytearray(_RESPONSE_START.size)
    if row.response_header_version(version):
        out.append(0)
    row.check(version)
    _encoder(row.response_type, version)(out, message)
    _RESPONSE_START.pack_into(out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def elements_encoder(
    api_key: ApiKey, version: int, path: tuple[str, ...]
) -> Callable[[Sequence[Message]], EncodedElements]:
    """Return an encoder for elements of an array of structs in a response, to replace the array in its message.

    `path`: the names of the arrays that contain them, such as `("topics", "partitions")` for Metadata. The encoder
    raises `ValueError` if a message does not match the API.
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
    row.check(version)
    schema = schema_of(row.response_type, version)
    for name in path:
        inner = next(item.struct for item in schema.fields if item.name == name and item.is_array)
        assert inner is not None, f"{name} is not an array of structs"
        schema = inner
    return compile_encoder(schema)


def encode_response_header(api_key: ApiKey, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Return the length prefix and header for a body that is sent separately."""
    tagged = b"\x00" if API_TABLE[api_key].response_header_version(version) else b""
    return _RESPONSE_START.pack(4 + len(tagged) + body_bytes, correlation_id) + tagged


def encode_request_header(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, *, body_bytes: int
) -> bytes:
    """Return the length prefix and header for a request body of `body_bytes` that is sent separately."""
    header_version = api(api_key).request_header_version(version)
    rest = b"" if header_version == 0 else legacy_string(client_id)
    if header_version == 2:
        rest += base128(0)
    return _FRAME_START.pack(8 + len(rest) + body_bytes, api_key, version, correlation_id) + rest


def encode_request(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, message: Message
) -> bytes:
    """Return a request frame with its length prefix. Raises `ValueError` if the message does not match the API."""
    body = bytearray()
    row = api(api_key)
    row.check(version)
    _encoder(row.request_type, version)(body, message)
    return encode_request_header(api_key, version, correlation_id, client_id, body_bytes=len(body)) + body


def decode_response_header(api_key: ApiKey, version: int, frame: bytes | memoryview) -> tuple[int, int]:
    """Return the correlation id of a response frame and the position of its body."""
    reader = Reader(frame)
    correlation_id = reader.int32()
    if API_TABLE[api_key].response_header_version(version):
        reader.skip_tagged_fields()
    return correlation_id, reader.position


@overload
def decode_response(expected: type[Response], version: int, frame: bytes | memoryview) -> Response: ...


@overload
def decode_response(expected: ApiKey, version: int, frame: bytes | memoryview) -> Any: ...


def decode_response(expected: ApiKey | type[Any], version: int, frame: bytes | memoryview) -> Any:
    """Decode the body of a response frame that includes its header; the correlation id is not checked.

    `expected` is the class of the response, or the API key if the class is only known at run time. Raises
    `MalformedFrameError` for invalid bytes.
    """
    row = API_TABLE[expected if isinstance(expected, ApiKey) else expected.API_KEY]
    row.check(version)
    _, position = decode_response_header(row.key, version, frame)
    return decode_struct(row.response_type, version, frame, position, element_budget=BROKER_ELEMENT_BUDGET)
