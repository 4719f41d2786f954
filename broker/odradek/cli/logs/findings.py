"""What `odradek log verify` tells: findings with severity, place and advice, and the list that bounds them.

The checks add to a `Findings`, the command shows it. Pure. Invariant: however broken a file is, a kind of finding is
told at most `MOST_OF_A_KIND` times for it, and then counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

MOST_OF_A_KIND: Final = 10


class Severity(IntEnum):
    """How bad: what a broker does about it by itself is a warning or a note."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Finding(NamedTuple):
    """One thing that was found; `position` is a byte in the file, None where it concerns the file as a whole."""

    severity: Severity
    check: str
    path: str
    position: int | None
    text: str
    advice: str


REPLACE_REPLICA: Final = (
    "If other replicas are in sync: stop the broker, remove this partition's directory, and let it be copied again. "
    "Otherwise restore it, or cut the segment here and lose what follows."
)
REMAKE_INDEX: Final = "Stop the broker and remove the file: a start after that makes it anew."
NEXT_START: Final = "Nothing: the broker settles it at its next start."
LOOK: Final = "Nothing, unless you do not know why it is there."


@dataclass(slots=True)
class Findings:
    """A list that takes only so many of a kind for each file."""

    found: list[Finding]
    _counts: dict[tuple[str, str], int]

    def __init__(self) -> None:
        """Nothing found yet."""
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
        """Take a finding, or count it when the file has enough of its kind."""
        key = (check, str(path))
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= MOST_OF_A_KIND:
            self.found.append(Finding(severity, check, str(path), position, text, advice))

    def all(self) -> list[Finding]:
        """The findings, and for each kind of which there were more, how many."""
        surplus = [
            Finding(Severity.NOTE, check, path, None, f"{count - MOST_OF_A_KIND} more of this kind", LOOK)
            for (check, path), count in self._counts.items()
            if count > MOST_OF_A_KIND
        ]
        return [*self.found, *surplus]
