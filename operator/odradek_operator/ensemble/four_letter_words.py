"""Sends four-letter words to a ZooKeeper server, for probes, scrapes and the operator."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

ANSWER_SECONDS: Final = 3.0
"""Timeout of the whole exchange; shorter than that of a probe, so that the reason is reported."""

MAX_ANSWER_BYTES: Final = 1 << 20
"""An answer to `mntr` has about 20 KB."""


class NoAnswerError(Exception):
    """The server did not answer; the message says why."""


async def ask(
    host: str, port: int, word: str, *, timeout_seconds: float = ANSWER_SECONDS, tls: ssl.SSLContext | None = None
) -> str:
    """Return the answer to a word. `tls`: the context for a port with TLS. Raises `NoAnswerError`."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                writer.write(word.encode("ascii"))
                return (await _all_of(reader)).decode("utf-8", "replace")
            finally:
                # Nothing is left to send, and an orderly close would wait for a server that may hang.
                writer.transport.abort()
    except TimeoutError as error:
        raise NoAnswerError(f"no answer to {word} within {timeout_seconds:g} s") from error
    except OSError as error:
        raise NoAnswerError(f"no answer to {word}: {error.strerror or error}") from error


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    received = bytearray()
    while piece := await reader.read(65_536):
        received += piece
        if len(received) > MAX_ANSWER_BYTES:
            raise NoAnswerError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    return bytes(received)
