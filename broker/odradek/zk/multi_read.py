"""Reads of many znodes in one request (ZOOKEEPER-3402, servers from 3.6), which kazoo does not support.

This module serialises the request and parses the response, and `zk/kazoo_client` sends the request. One request is much
cheaper than single reads, for kazoo, its thread and the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final

from kazoo import exceptions as kazoo_errors

_HEADER: Final = Struct(">i?i")
"""Header of each operation and result: type, end flag, error code."""
_LENGTH: Final = Struct(">i")
_STAT: Final = Struct(">qqqqiiiqiiq")
_GET_DATA: Final = 4
_ERROR: Final = -1
_ONE: Final = _HEADER.pack(_GET_DATA, False, -1)
_END: Final = _HEADER.pack(-1, True, -1)
_NO_WATCH: Final = b"\x00"

Read = tuple[bytes | None, Sequence[int]] | Exception
"""Data and stat of a znode, or the error of its read."""


class MultiRead:
    """A request with the interface that kazoo expects: `type`, `serialize`, `deserialize`."""

    type: Final = 22

    __slots__ = ("_paths",)

    def __init__(self, paths: Sequence[str]) -> None:
        """Absolute paths."""
        self._paths = paths

    def serialize(self) -> bytes:
        """Return the body of the request."""
        out = bytearray()
        for path in self._paths:
            name = path.encode()
            out += _ONE + _LENGTH.pack(len(name)) + name + _NO_WATCH
        return bytes(out + _END)

    @staticmethod
    def deserialize(data: bytes, position: int) -> list[Read]:
        """Return the results in the order of the paths."""
        results: list[Read] = []
        while True:
            kind, is_end, _ = _HEADER.unpack_from(data, position)
            position += _HEADER.size
            if is_end:
                return results
            number: int = _LENGTH.unpack_from(data, position)[0]
            position += _LENGTH.size
            if kind == _ERROR:
                results.append(_error(number))
                continue
            content = None if number < 0 else bytes(data[position : position + number])
            position += max(number, 0)
            results.append((content, _STAT.unpack_from(data, position)))
            position += _STAT.size


def _error(code: int) -> Exception:
    """Return kazoo's exception for an error code of ZooKeeper."""
    kinds: Mapping[int, Callable[[], Exception]] = kazoo_errors.EXCEPTIONS
    return kinds[code]()
