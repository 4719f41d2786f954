"""Parses label and field selectors, and matches labels and objects. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Labels = Mapping[str, str]
_TERM: Final = re.compile(r"(?:[^,(]|\([^)]*\))+")
_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<verb>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUAL: Final = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<verb>==|=|!=)\s*(?P<value>[^\s=!]*)")
_PRESENT: Final = re.compile(r"(?P<absent>!?)(?P<key>[^\s=!()]+)")


def matcher(selector: str) -> Callable[[Labels], bool]:
    """Whether labels match a selector. Raises `ValueError` for an invalid selector."""
    terms = [_term(term.strip()) for term in _TERM.findall(selector) if term.strip()]
    return lambda labels: all(term(labels) for term in terms)


def field_matcher(selector: str, selectable: frozenset[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an object matches a field selector with `=` and `!=`. Raises `ValueError` for another operator."""
    wanted = []
    for term in filter(None, selector.split(",")):
        found = _EQUAL.fullmatch(term)
        if found is None:
            raise ValueError(f"invalid selector: {term!r}; can't understand it")
        if found["key"] not in selectable:
            raise ValueError(f"field label not supported: {found['key']}")
        wanted.append((found["key"].split("."), found["value"], found["verb"] != "!="))
    return lambda body: all((_field(body, path) == value) == equal for path, value, equal in wanted)


def _field(body: Any, path: list[str]) -> str:
    for name in path:
        body = body.get(name) if isinstance(body, Mapping) else None
    return "" if body is None else str(body)


def _term(term: str) -> Callable[[Labels], bool]:
    if found := _SET.fullmatch(term):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["verb"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.fullmatch(term):
        key, value = found["key"], found["value"]
        if found["verb"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _PRESENT.fullmatch(term):
        key, absent = found["key"], bool(found["absent"])
        return lambda labels: (key in labels) != absent
    raise ValueError(f"unable to parse requirement: {term}")
