"""Reads lines from a file, a pipe or a terminal without blocking the event loop. Used by `produce`.

Yields all lines that are available: one line at a time from a terminal, thousands from a file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

from odradek.base.errors import OdradekError

CHUNK_BYTES: Final = 256 * 1024
MAX_LINE_BYTES: Final = 64 << 20
"""Maximum length of a line. A longer line means that the input is not text."""


class LineTooLongError(OdradekError):
    """The input has a line that is too long."""


class LineSplitter:
    """Splits bytes into lines, which end with `\\n` or `\\r\\n`. Pure."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        """Create a splitter with an empty buffer."""
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes. Raises `LineTooLongError`."""
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
        """Return the text after the last line end, if there is any."""
        rest, self._rest = self._rest, b""
        return [rest.removesuffix(b"\r")] if rest else []


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield lines as they arrive, in non-empty lists, until the end of the input."""
    splitter = LineSplitter()
    while data := await _read(descriptor):
        lines = splitter.feed(data)
        if lines:
            yield lines
    lines = splitter.finish()
    if lines:
        yield lines


async def _read(descriptor: int) -> bytes:
    """Return the next bytes; empty at the end. Reads only when that does not block."""
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
