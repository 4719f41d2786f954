"""As much of PromQL as the tests need: the series, labels and brackets of a query. `promtool` checks the rest."""

from __future__ import annotations

import re
from typing import Final

_TEXT: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_MATCHERS: Final = re.compile(r"\{([^{}]*)\}")
_RANGE: Final = re.compile(r"\[[^\[\]]*\]")
_NAME: Final = re.compile(r"(?<![\w:$])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])")
_WORDS: Final = frozenset(["and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring"])
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}


def series_of(query: str) -> set[str]:
    """The names of all series in a query."""
    bare = _RANGE.sub("", _MATCHERS.sub("", _GROUPING.sub("", _TEXT.sub('""', query))))
    bare = re.sub(r"\boffset\s+\w+", "", bare)
    return set(_NAME.findall(bare)) - _WORDS


def labels_of(query: str) -> set[str]:
    """The names of all labels in a query."""
    bare = _TEXT.sub('""', query)
    grouped = {label.strip() for group in _GROUPING.findall(bare) for label in group.split(",")}
    matched = {found for group in _MATCHERS.findall(bare) for found in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", group)}
    return {label for label in grouped | matched if label}


def is_balanced(query: str) -> bool:
    """Return whether every bracket is closed by a bracket of the same type."""
    opened: list[str] = []
    for character in _TEXT.sub('""', query):
        if character in _PAIRS.values():
            opened.append(character)
        elif character in _PAIRS and (not opened or opened.pop() != _PAIRS[character]):
            return False
    return not opened


def selections_of(query: str) -> list[tuple[str, set[str]]]:
    """Every series in a query, in order, with the labels of its matchers."""
    bare = _GROUPING.sub("", _TEXT.sub('""', query))
    found = re.findall(r"([a-zA-Z_:][\w:]*)\s*\{([^{}]*)\}", bare)
    return [(name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))) for name, matchers in found]


def grouping_of(query: str) -> set[str]:
    """The labels by which a query groups."""
    return {label.strip() for group in _GROUPING.findall(query) for label in group.split(",") if label.strip()}
