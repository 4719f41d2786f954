"""Encodes and decodes Heartbeat without message objects: a coordinator of many groups gets thousands per second.

Versions 0 to 4: throttle time from 1 (KIP-219), instance id from 3 (KIP-345), flexible from 4 (KIP-482).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.wire import Reader

_FLEXIBLE_SINCE: Final = API_TABLE[ApiKey.HEARTBEAT].flexible_since
_THROTTLE_SINCE: Final = 1
_INSTANCE_ID_SINCE: Final = 3

_OLDEST_RESPONSE: Final = Struct(">iih")
_RESPONSE: Final = Struct(">iiih")
_FLEXIBLE_RESPONSE: Final = Struct(">iiBihB")
_LENGTH_BYTES: Final = 4
"""The length field of a frame does not count itself."""


ClassicHeartbeat = tuple[str, int, str, str | None]
"""Group id, generation, member id and instance id of a request. Not a named tuple, whose constructor is interpreted."""


def decode_heartbeat(version: int, frame: bytes | memoryview, position: int) -> ClassicHeartbeat:
    """Decode the body of a request, which begins at `position`. Bytes after it are ignored, as in `codec`.

    Raises `MalformedFrameError` for any other invalid bytes.
    """
    reader = Reader(frame, position)
    if version >= _FLEXIBLE_SINCE:
        group_id, generation, member_id = reader.compact_string(), reader.int32(), reader.compact_string()
        instance_id = reader.compact_nullable_string()
        reader.skip_tagged_fields()
        return group_id, generation, member_id, instance_id
    group_id, generation, member_id = reader.string(), reader.int32(), reader.string()
    instance_id = reader.nullable_string() if version >= _INSTANCE_ID_SINCE else None
    return group_id, generation, member_id, instance_id


def encode_heartbeat_response(version: int, correlation_id: int, error_code: int, throttle_ms: int) -> bytes:
    """Return a response frame with its length prefix."""
    if version >= _FLEXIBLE_SINCE:
        size = _FLEXIBLE_RESPONSE.size - _LENGTH_BYTES
        return _FLEXIBLE_RESPONSE.pack(size, correlation_id, 0, throttle_ms, error_code, 0)
    if version >= _THROTTLE_SINCE:
        return _RESPONSE.pack(_RESPONSE.size - _LENGTH_BYTES, correlation_id, throttle_ms, error_code)
    return _OLDEST_RESPONSE.pack(_OLDEST_RESPONSE.size - _LENGTH_BYTES, correlation_id, error_code)
