"""How long to wait before a process that ended by itself is started again. Pure.

Doubling from a second to half a minute, so that a broker that cannot start does not keep the machine busy; a process
that ran for a while begins again with a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 30.0
"""A process that ran for this long is taken to be sound."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """How often in a row a process has ended early."""

    early_ends: int = 0

    def ended(self, ran_seconds: float) -> BackOff:
        """After the process ended, having run for so long."""
        return BackOff(1 if ran_seconds >= STEADY_SECONDS else self.early_ends + 1)

    @property
    def delay_seconds(self) -> float:
        """The wait before the next start; nothing before the first."""
        if self.early_ends == 0:
            return 0.0
        # The exponent is bounded, so that a process which ends all night makes no huge number.
        return min(FIRST_SECONDS * (1 << min(self.early_ends - 1, 10)), LONGEST_SECONDS)
