"""The findings of `odradek log verify`, with severity, file and advice, in a list of limited size.

The checks add to a `Findings`, and the command shows it. Pure. Invariant: for each file, at most `MOST_OF_A_KIND`
findings of one kind are listed; the others are only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

MOST_OF_A_KIND: Final = 10


class Severity(IntEnum):
    """Severity of a finding. Only an error needs action: the broker repairs the cause of a warning or a note."""

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
    "If other replicas are in sync, stop the broker and remove this partition's directory: the broker replicates it "
    "again. Otherwise restore it from a backup, or truncate the segment at this position and lose the records after it."
)
REMAKE_INDEX: Final = "Stop the broker and remove the file: the broker creates it again."
NEXT_START: Final = "None: the broker repairs it at its next start."
IF_UNEXPECTED: Final = "None if this is expected."


@dataclass(slots=True)
class Findings:
    """A list of findings, with a limit for each kind and file."""

    found: list[Finding]
    _counts: dict[tuple[str, str], int]

    def __init__(self) -> None:
        """Create an empty list."""
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
        """Return the findings, and for each kind the number of those that are not listed."""
        surplus = [
            Finding(Severity.NOTE, check, path, None, f"{count - MOST_OF_A_KIND} more of this kind", IF_UNEXPECTED)
            for (check, path), count in self._counts.items()
            if count > MOST_OF_A_KIND
        ]
        return [*self.found, *surplus]
