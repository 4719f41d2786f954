"""Asks drivers for their reports over HTTP.

A driver that does not answer has no report, which is only visible in the status.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from odradek_operator.kube.bounded_http import ASK_SECONDS, PodAnswerError, bounded_get
from odradek_operator.pipelines.driver_pods import DriverPod
from odradek_operator.pipelines.job_report import MAX_REPORT_BYTES, JobReport, JobReportError
from odradek_operator.pipelines.pipeline_names import STATUS_PORT

logger = logging.getLogger(__name__)

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
        return JobReport.read(await bounded_get(url, max_bytes=MAX_REPORT_BYTES, seconds=seconds))
    except (PodAnswerError, JobReportError) as error:
        # A driver that has just started does not listen yet.
        logger.debug("driver %s has no report: %s", name, error)
        return None
