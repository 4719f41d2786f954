"""The number of bytes that must have arrived before a connection with TLS wakes the event loop (`SO_RCVLOWAT`).

A client with TLS sends records of at most 16 KiB. Without a threshold, each of them can wake the loop for a system call
and a call of OpenSSL, although a large request cannot be handled before it is complete. Without TLS nothing is gained.

A `Connection` owns a threshold and sets it after each read. Invariant: it is never above what the peer has still to
send of the current frame, so the rest of the frame always wakes the loop. The reasons:
- OpenSSL may hold an incomplete record, whose bytes do not arrive again. Everything else that the frame lacks is still
  to be read from the socket, as at least as many encrypted bytes. `SLACK_BYTES` is more than a record.
- A transport that has more decrypted bytes than the buffer takes reads again in the next iteration of the event loop,
  whatever arrives, and then the threshold is set again.
- Linux wakes the loop regardless of the threshold at the end of the connection, after an error, and if the receive
  window is nearly closed (`tcp_epollin_ready`). It limits the threshold to half of a receive buffer of fixed size, and
  wakes the loop if a lower threshold is reached already (`tcp_set_rcvlowat`). See also socket(7). Other systems promise
  less, so they have no threshold.

A client that ends TLS within a frame and keeps the socket open is noticed late, at the latest when it has been idle.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from typing import Final, Protocol

logger = logging.getLogger(__name__)

LEAST_BYTES: Final = 16 << 10
"""A lower threshold would save no wake-up: it is at most one record."""

MOST_BYTES: Final = 48 << 10
"""Maximum threshold. It leaves a part of the smallest receive window, 64 KiB, open, so that the peer sends on while the
loop reads.

It is also less than the largest segment, 65,483 bytes on the loopback interface. A client with Nagle's algorithm sends
what follows a segment only after its acknowledgement, which takes 40 ms while nobody reads."""

SLACK_BYTES: Final = 17 << 10
"""More than an incomplete record in OpenSSL: 16 KiB of data, 256 bytes of padding and authentication, and a header of
5 bytes."""

_ANY: Final = 1
"""The default of the system: any byte wakes the event loop."""


class SocketOptions(Protocol):
    """The part of a transport's socket that a threshold needs."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option. Raises `OSError`."""
        ...


class WakeThreshold:
    """The threshold of one socket."""

    __slots__ = ("_bytes", "_is_in_use", "_socket")

    def __init__(self, options: SocketOptions) -> None:
        """Changes nothing yet."""
        self._socket: Final = options
        self._bytes = _ANY
        self._is_in_use = True

    def want(self, missing_bytes: int) -> None:
        """Set the threshold for a frame that lacks this many bytes; 0 without an incomplete frame."""
        threshold = min(missing_bytes - SLACK_BYTES, MOST_BYTES)
        if threshold < LEAST_BYTES:
            threshold = _ANY
        if threshold != self._bytes:
            self._set(threshold)

    def lift(self) -> bool:
        """Let any byte wake the event loop. Returns whether bytes may wait in the socket: the threshold was higher."""
        if self._bytes == _ANY:
            return False
        self._set(_ANY)
        return True

    def _set(self, threshold: int) -> None:
        if not self._is_in_use:
            return
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, threshold)
        except (OSError, ValueError) as error:  # uvloop raises ValueError if the socket is closed.
            logger.debug("SO_RCVLOWAT is not used any more: %s", error)
            self._is_in_use = False
            threshold = _ANY
        self._bytes = threshold


def threshold_of(transport: asyncio.BaseTransport) -> WakeThreshold | None:
    """Return a threshold for the socket of a transport; None if it has no TLS or no socket, or not on Linux."""
    if sys.platform != "linux" or transport.get_extra_info("ssl_object") is None:
        return None
    options = transport.get_extra_info("socket")
    return None if options is None else WakeThreshold(options)
