"""Problems in resources, and the words in which messages name values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from odradek.base.errors import OdradekError

_SHOWN_LENGTH: Final = 80


class Problem(NamedTuple):
    """An error in a resource."""

    source: str
    """Name of the file; empty for an object of the API server."""
    line: int
    resource: str
    """Kind and name, or the number of the document if these are missing."""
    path: str
    """The field, such as `spec.brokers.replicas`."""
    message: str
    """What is allowed, and what was found."""

    def __str__(self) -> str:
        """Return one line: file, line, resource, field and message; for an object of the API server the last two."""
        if not self.source:
            return f"{self.path}: {self.message}"
        return f"{self.source}:{self.line}: {self.resource}: {self.path}: {self.message}"


class ResourceError(OdradekError):
    """Resources are invalid. The text has one line for each problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """`problems` has at least one element."""
        super().__init__("\n".join(map(str, problems)))
        self.problems: Final = tuple(problems)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` if a known name is similar, else an empty text."""
    similar = get_close_matches(name, list(known), n=1)
    return f" (did you mean {similar[0]}?)" if similar else ""


def either(choices: Sequence[str]) -> str:
    """Return the choices as `A, B or C`."""
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def shown(value: Any) -> str:
    """Return a value as messages show it: shortened, without the content of mappings and lists."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 3] + "..."
