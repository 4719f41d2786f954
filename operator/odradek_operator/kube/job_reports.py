"""Asks drivers for their reports over HTTP. A driver may be broken or hostile.

An answer is bounded in time and size, redirects are not followed, and nothing is decompressed. A driver that does not
answer has no report, which is only visible in the status.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import aiohttp

from odradek_operator.pipelines.driver_pods import DriverPod
from odradek_operator.pipelines.job_report import MAX_REPORT_BYTES, JobReport, JobReportError
from odradek_operator.pipelines.pipeline_names import STATUS_PORT

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 5.0
"""Time for the whole answer of a driver."""
_MAX_LINE: Final = 4_096

AskDriver = Callable[[DriverPod], Awaitable[JobReport | None]]
"""Returns the report of a driver, or None if it has none."""


def report_url(driver: DriverPod) -> str:
    """Return the URL of the report of a driver with an address."""
    return f"http://{driver.address}:{STATUS_PORT}/status"


async def ask_driver(driver: DriverPod) -> JobReport | None:
    """Ask a driver, for five seconds at most."""
    return None if driver.address is None else await ask_url(report_url(driver), name=driver.name)


async def ask_url(url: str, *, name: str, seconds: float = ASK_SECONDS) -> JobReport | None:
    """Return the report at a URL; None if there is none. `name`: the driver, for the log."""
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
                raise JobReportError(f"it answers with status {answer.status}")
            return JobReport.read(await _bounded(answer.content))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, JobReportError) as error:
        # A driver that has just started does not listen yet.
        logger.debug("driver %s has no report: %s", name, error or type(error).__name__)
        return None


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    found = bytearray()
    async for piece in content.iter_any():
        found += piece
        if len(found) > MAX_REPORT_BYTES:
            raise JobReportError(f"its answer is longer than {MAX_REPORT_BYTES} bytes")
    return bytes(found)
