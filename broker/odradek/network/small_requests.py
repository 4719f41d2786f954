"""Requests that are handled several at a time, because each of them is small.

For a request with one record, an object for the request, for each layer that it passes and for its response costs more
than the work itself. A `SmallHandler` gets the bytes that have arrived instead, and answers as many requests as it can
in one call. It leaves everything unusual to the handler of single requests.
"""

from __future__ import annotations

from typing import Final, Protocol

from odradek.network.buffer import FrameBuffer
from odradek.protocol.keys import ApiKey
from odradek.security.principals import Identity

MOST_BYTES: Final = 32 << 10
"""Maximum number of bytes that a handler gets at once."""

LEAST_PAUSE: Final = 4
MOST_PAUSE: Final = 256
"""Number of requests for which a handler is not asked again after it has refused one: a client mostly sends requests of
one kind. It doubles with each further refusal."""

_PRODUCE: Final = int(ApiKey.PRODUCE)
_NONE: Final = (0, b"")


class SmallClient(Protocol):
    """What a handler needs to know about a connection. `network/connection` describes the attributes."""

    identity: Identity | None
    memo: object


class SmallAnswers(Protocol):
    """Handles small Produce requests."""

    def answer(self, connection: SmallClient, data: bytes) -> tuple[int, int, bytes] | None:
        """Handle requests from the beginning of `data`, which are whole frames with their length prefixes, except that
        the last one may be incomplete.

        Returns the number of handled bytes, the number of handled requests, and the frames of their responses, in
        order. If no request was handled, the first one has to be handled alone, but the next ones may be small. Returns
        None if the connection sends requests of another kind.
        """
        ...


class SmallRequests:
    """Decides for one connection when its requests are handled together."""

    __slots__ = ("_handler", "_left", "_pause")

    def __init__(self, handler: SmallAnswers) -> None:
        """Ask the handler at the first request."""
        self._handler: Final = handler
        self._left = 0
        """Requests until the handler is asked again."""
        self._pause = LEAST_PAUSE

    @classmethod
    def of(cls, handler: SmallAnswers | None) -> SmallRequests | None:
        """Return None without a handler."""
        return None if handler is None else cls(handler)

    def answer(self, connection: SmallClient, buffer: FrameBuffer) -> tuple[int, bytes]:
        """Handle small requests at the beginning of the buffer and remove them. No earlier one may be pending.

        Returns the number of requests and the frames of their responses; 0 if the first request has to be handled
        alone.
        """
        if not buffer.unread_bytes:
            return _NONE
        if self._left:
            self._left -= 1
            return _NONE
        data = buffer.small_frames(_PRODUCE, MOST_BYTES)
        if not data or connection.identity is None:
            return _NONE
        handled = self._handler.answer(connection, data)
        if handled is None:
            self._left = self._pause
            self._pause = min(2 * self._pause, MOST_PAUSE)
            return _NONE
        size, count, answers = handled
        if count:
            self._pause = LEAST_PAUSE
            buffer.skip(size)
        return count, answers
