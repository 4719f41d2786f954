"""What a driver reports at `/status` (docs/design/0029, "Pipelines"). Pure.

The job may be broken or hostile: nothing of a report is trusted, and its size is bounded by the reader of the answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from odradek.base.errors import OdradekError
from odradek_operator.objects.pod_facts import clean_text
from odradek_operator.pipelines.driver_pods import parse_time

MAX_REPORT_BYTES: Final = 64 << 10
MAX_COUNT: Final = 2**63 - 1
"""The API server accepts no larger integers."""


class JobReportError(OdradekError):
    """An answer is no report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The report of a driver. What it does not know is None."""

    batch: int | None = None
    input_rate: float | None = None
    """Records per second."""
    rate: float | None = None
    """Processed records per second."""
    lag: int | None = None
    """Records that are not processed yet."""
    last_checkpoint: datetime | None = None
    error: str = ""

    @classmethod
    def read(cls, content: bytes) -> JobReport:
        """Read a report. Raises `JobReportError` if it is none. Values that are wrong are ignored."""
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise JobReportError(f"the driver's report is no JSON: {error}") from error
        if not isinstance(document, dict):
            raise JobReportError("the driver's report is no JSON object")
        return cls(
            batch=_count(document.get("batch")),
            input_rate=_rate(document.get("inputRowsPerSecond")),
            rate=_rate(document.get("processedRowsPerSecond")),
            lag=_count(document.get("offsetsBehindLatest")),
            last_checkpoint=parse_time(document.get("lastCheckpoint")),
            error=clean_text(document.get("error")),
        )


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT:
        return None
    return int(value)


def _rate(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT:
        return None
    return round(float(value), 1)
