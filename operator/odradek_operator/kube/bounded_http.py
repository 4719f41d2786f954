"""Asks pods over HTTP that may be broken or hostile.

An answer is bounded in time and size, redirects are not followed, and nothing is decompressed. `job_reports` and
`mirror_reports` use it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import aiohttp

from odradek.base.errors import OdradekError

ASK_SECONDS: Final = 5.0
"""Time for the whole answer of a pod."""
_MAX_LINE: Final = 4_096


class PodAnswerError(OdradekError):
    """A pod gave no answer within the limits."""


async def bounded_get(url: str, *, max_bytes: int, seconds: float = ASK_SECONDS) -> bytes:
    """Return the answer at a URL. Raises `PodAnswerError` if there is none, or if it is too late or too long."""
    try:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_line_size=_MAX_LINE,
                max_field_size=_MAX_LINE,
            ) as session,
            session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            if answer.status != HTTPStatus.OK:
                raise PodAnswerError(f"{url} answers with status {answer.status}")
            return await _bounded(answer.content, url, max_bytes)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise PodAnswerError(f"{url} does not answer: {error or type(error).__name__}") from error


async def _bounded(content: aiohttp.StreamReader, url: str, max_bytes: int) -> bytes:
    found = bytearray()
    async for piece in content.iter_any():
        found += piece
        if len(found) > max_bytes:
            raise PodAnswerError(f"the answer of {url} is longer than {max_bytes} bytes")
    return bytes(found)
