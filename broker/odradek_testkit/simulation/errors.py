"""The error that the checkers of a simulation raise; `play` catches it."""

from __future__ import annotations

from typing import Final


class Violation(AssertionError):  # noqa: N818 - the word of the design note
    """An invariant of docs/design/0008-simulation.md does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        """`invariant` is the short name of the violated invariant; `what` describes the observation."""
        super().__init__(f"{invariant}: {what}")
        self.invariant: Final = invariant
        self.what: Final = what
