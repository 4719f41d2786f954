"""Warnings that clients can cause: at most a few in an interval, so that nobody can fill a log or its disk."""

from __future__ import annotations

import logging
from typing import Final

from odradek.base.ports import Clock

INTERVAL_MS: Final = 10_000.0
MOST_LINES: Final = 10
"""Warnings in an interval. The first warning of the next one says how many were left out."""


class LimitedLog:
    """A logger for warnings of one kind."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        """`logger` gets the warnings."""
        self._logger: Final = logger
        self._clock: Final = clock
        self._ends_ms = 0.0
        self._lines = 0

    def warn(self, text: str, *values: object) -> None:
        """Log a warning, as `logging.Logger.warning`, or only count it."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._ends_ms:
            left_out, self._lines = self._lines - MOST_LINES, 0
            self._ends_ms = now_ms + INTERVAL_MS
            if left_out > 0:
                self._logger.warning("%d more warnings like the next one were left out", left_out)
        self._lines += 1
        if self._lines <= MOST_LINES:
            self._logger.warning(text, *values)
