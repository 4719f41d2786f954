"""Lines of text from a file, a pipe or a keyboard, without stopping the event loop while nobody types.

Enters: a file descriptor. Leaves: lists of lines, as many as are there at once, so that a keyboard's line goes out
when it is typed and a file's go by the thousand. Called by `produce`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

from odradek.base.errors import OdradekError

CHUNK_BYTES: Final = 256 * 1024
MAX_LINE_BYTES: Final = 64 << 20
"""A longer line is taken for a file that has no lines."""


class LineTooLongError(OdradekError):
    """The input is no text of lines."""


class LineSplitter:
    """Bytes in, whole lines out; `\\n` and `\\r\\n` end a line. Pure."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        """Nothing read yet."""
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes. Raises `LineTooLongError`."""
        first, *others = data.split(b"\n")
        self._rest += first
        if len(self._rest) > MAX_LINE_BYTES:
            raise LineTooLongError(f"The input has a line of more than {MAX_LINE_BYTES >> 20} MiB: is it text?")
        if not others:
            return []
        *whole, rest = others
        lines = [self._rest, *whole]
        self._rest = rest
        return [line.removesuffix(b"\r") for line in lines]

    def finish(self) -> list[bytes]:
        """What stands after the last line end, if anything."""
        rest, self._rest = self._rest, b""
        return [rest.removesuffix(b"\r")] if rest else []


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines as they come, until the end of the input; never an empty list."""
    splitter = LineSplitter()
    while data := await _read(descriptor):
        lines = splitter.feed(data)
        if lines:
            yield lines
    lines = splitter.finish()
    if lines:
        yield lines


async def _read(descriptor: int) -> bytes:
    """The next bytes; empty at the end. A read is only made when it will not block."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    try:
        loop.add_reader(descriptor, readable.set_result, None)
    except PermissionError:
        return os.read(descriptor, CHUNK_BYTES)  # A regular file, which epoll refuses because it never blocks.
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, CHUNK_BYTES)
