"""The operator's own errors, under the project's tree. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.base.errors import OdradekError
from odradek_operator.fields import Problem


class ResourceError(OdradekError):
    """Manifests are wrong. The text has one line for each problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """At least one problem."""
        super().__init__("\n".join(map(str, problems)))
        self.problems: Final = tuple(problems)
