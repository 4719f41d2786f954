"""The connection to another broker as the controller and the coordinators use it.

`network/channel` implements it, and tests have their own channels.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from odradek.base.ports import Buffer
from odradek.base.types import Endpoint
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message


class BrokerChannel(Protocol):
    """An open connection with negotiated versions, such as `Channel` in `network/channel`."""

    @property
    def client_id(self) -> str | None:
        """The client id of the requests."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether calls can still succeed."""
        ...

    def pick(self, api_key: ApiKey) -> int:
        """Return the highest version that both sides support. Raises `UnsupportedVersionError` if there is none."""
        ...

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        """Send one request and return the response. Raises `NetworkError` or `RequestTimedOutError`."""
        ...

    async def call(self, encode: Callable[[int], Sequence[Buffer]]) -> memoryview:
        """Send the frame that `encode` returns for a correlation id, and return the frame of the response."""
        ...

    async def close(self) -> None:
        """Close the connection. Pending calls raise `NetworkError`. Idempotent."""
        ...


Connect = Callable[[Endpoint], Awaitable[BrokerChannel]]
"""Opens a connection and negotiates versions. Raises `NetworkError` and similar errors."""
