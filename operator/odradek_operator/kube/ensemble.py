"""Asks each member of a ZooKeeper ensemble for its part: leader or follower, by the four-letter word `srvr`.

Enters: hosts. Leaves: the modes of those that answer in time. Called by the loop of a cluster when members are to be
restarted, since the leader goes last.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

TIMEOUT_SECONDS: Final = 3.0
_MODE: Final = re.compile(rb"^Mode: (\w+)$", re.MULTILINE)
_MAX_ANSWER: Final = 16_384


async def modes(hosts: Mapping[int, tuple[str, int]]) -> dict[int, str]:
    """`leader`, `follower` or `standalone` by member; one that does not answer is missing."""
    answers = await asyncio.gather(*(_mode(*address) for address in hosts.values()))
    return {member: mode for member, mode in zip(hosts, answers, strict=True) if mode is not None}


async def _mode(host: str, port: int) -> str | None:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"srvr")
                answer = await reader.read(_MAX_ANSWER)
                while more := await reader.read(_MAX_ANSWER - len(answer)):
                    answer += more
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    found = _MODE.search(answer)
    return found.group(1).decode() if found else None
