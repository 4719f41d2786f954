"""The findings of `odradek log verify`, with severity, file and advice, in a list of limited size.

The checks add to a `Findings`; the command shows it. Pure. Invariant: a kind of finding is listed at most
`MOST_OF_A_KIND` times per file, and counted beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

MOST_OF_A_KIND: Final = 10


class Severity(IntEnum):
    """Severity: a warning or a note needs no action, because the broker handles it."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Finding(NamedTuple):
    """One finding. `position` is a byte in the file, or None for the whole file."""

    severity: Severity
    check: str
    path: str
    position: int | None
    text: str
    advice: str


REPLACE_REPLICA: Final = (
    "If other replicas are in sync: stop the broker and remove this partition's directory; it is replicated again. "
    "Otherwise restore it, or truncate the segment here and lose the rest."
)
REMAKE_INDEX: Final = "Stop the broker and remove the file: the broker creates it again."
NEXT_START: Final = "None: the broker repairs it at its next start."
LOOK: Final = "None, if you know why it is there."


@dataclass(slots=True)
class Findings:
    """A list with a limited number of findings of a kind per file."""

    found: list[Finding]
    _counts: dict[tuple[str, str], int]

    def __init__(self) -> None:
        """Without findings."""
        self.found = []
        self._counts = {}

    def add(
        self,
        severity: Severity,
        check: str,
        path: object,
        text: str,
        *,
        position: int | None = None,
        advice: str = NEXT_START,
    ) -> None:
        """Add a finding, or only count it if the file has too many of its kind."""
        key = (check, str(path))
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= MOST_OF_A_KIND:
            self.found.append(Finding(severity, check, str(path), position, text, advice))

    def all(self) -> list[Finding]:
        """The findings, and the number of unlisted ones by kind."""
        surplus = [
            Finding(Severity.NOTE, check, path, None, f"{count - MOST_OF_A_KIND} more of this kind", LOOK)
            for (check, path), count in self._counts.items()
            if count > MOST_OF_A_KIND
        ]
        return [*self.found, *surplus]
