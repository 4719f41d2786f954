"""How long to wait before a process that ended by itself is started again. Pure.

The wait doubles from one second to half a minute, so that a broker that cannot start does not keep the machine busy.
After a process has run for a while, the next wait is one second again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 30.0
"""A process that ran for this long has started successfully."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """The number of times in a row that a process ended early."""

    early_ends: int = 0

    def ended(self, ran_seconds: float) -> BackOff:
        """Return the value after a process ended that ran for `ran_seconds`."""
        return BackOff(1 if ran_seconds >= STEADY_SECONDS else self.early_ends + 1)

    @property
    def delay_seconds(self) -> float:
        """The wait before the next start; 0 if no process has ended."""
        if self.early_ends == 0:
            return 0.0
        # The exponent is limited, so that a process that fails all night does not give a huge number.
        return min(FIRST_SECONDS * (1 << min(self.early_ends - 1, 10)), LONGEST_SECONDS)
