"""Limits of connections, and what is counted of them. They are compiled: each request reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from odradek.network.buffer import SharedSpace
from odradek.network.pages import FileAccess
from odradek.network.request_memory import RequestMemory
from odradek.network.small_requests import SmallAnswers

TOGETHER_BYTES: Final = 64 << 10
"""Maximum size of responses that are collected to be sent together."""


@dataclass(slots=True)
class NetworkCounters:
    """Running totals of one listener, for the metrics. All except `connections` only grow."""

    connections: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    connections_held: int = 0
    """Connections that were closed because their address had opened too many in a short time (KIP-612)."""
    connections_expired: int = 0
    requests: int = 0
    requests_refused: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    authentications: int = 0
    """Logins and client certificates that were accepted."""
    failed_authentications: int = 0
    """Logins and TLS handshakes that failed."""
    reauthentications: int = 0
    failed_reauthentications: int = 0
    sessions_expired: int = 0
    """Connections that were closed because the client did not authenticate again in time (KIP-368)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Limits of one connection, in bytes unless stated otherwise.

    `max_frame_bytes` is Kafka's `socket.request.max.bytes`. `max_in_flight` limits unanswered pipelined requests, and
    `max_in_flight_bytes` the total of their frames. While more than `write_high_water_bytes` of responses are unsent,
    no request is accepted. `files` specifies how parts of responses are read from files. `memory` limits the memory of
    frames over all connections that have it; None for no limit. `small` handles small requests several at a time. All
    connections with the same `shared` belong to one event loop.
    """

    max_frame_bytes: int = 104_857_600
    max_in_flight: int = 64
    max_in_flight_bytes: int = 64 << 20
    write_high_water_bytes: int = 1 << 20
    files: FileAccess = field(default_factory=FileAccess)
    memory: RequestMemory | None = None
    small: SmallAnswers | None = None
    shared: SharedSpace = field(default_factory=SharedSpace)
