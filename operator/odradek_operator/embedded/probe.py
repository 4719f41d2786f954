"""Requests a broker's `/readyz` without an HTTP library."""

from __future__ import annotations

import asyncio
from typing import Final

PROBE_SECONDS: Final = 2.0
_OK: Final = b"200"


async def is_ready(host: str, port: int, *, timeout_seconds: float = PROBE_SECONDS) -> bool:
    """Whether `http://host:port/readyz` answers 200 in time."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _status(host, port) == _OK
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return False


async def _status(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        parts = (await reader.readuntil(b"\r\n")).split()
        return parts[1] if len(parts) > 1 else b""
    finally:
        writer.close()
        await writer.wait_closed()
