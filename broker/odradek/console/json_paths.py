"""Paths into JSON values, such as `$.items[0].name`. Pure.

The syntax is a part of RFC 9535: names, indexes, and `[*]` for all elements of an array or all values of an object.
Filters and `..` are left out: with them, the path of one user could occupy the console for minutes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from odradek.base.errors import ConfigError

JsonPath = tuple[str | int | None, ...]
"""The steps of a path: a name, an index, or None for all."""

MAX_STEPS: Final = 32
_STEP: Final = re.compile(
    r"""\.(?P<name>[\w-]+) | \[(?P<index>-?\d{1,9})\] | (?P<all>\[\*\]|\.\*)
    | \[(?P<quoted>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")\]""",
    re.VERBOSE,
)


def parse_path(text: str) -> JsonPath:
    """Return the steps of a path. `$` at the beginning can be left out. Raises `ConfigError`."""
    rest = text.strip().removeprefix("$")
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    steps: list[str | int | None] = []
    position = 0
    while position < len(rest):
        found = _STEP.match(rest, position)
        if found is None or len(steps) == MAX_STEPS:
            raise ConfigError(
                f"JSON path {text!r} is not valid at {rest[position : position + 20]!r}: it must have at most "
                f"{MAX_STEPS} steps such as .name, ['a name'], [0] or [*]"
            )
        steps.append(_step(found))
        position = found.end()
    if not steps:
        raise ConfigError(f"JSON path {text!r} has no steps: it must be like $.order.id or $.items[0].name")
    return tuple(steps)


def _step(found: re.Match[str]) -> str | int | None:
    if found["all"]:
        return None
    if found["index"]:
        return int(found["index"])
    if found["quoted"]:
        return re.sub(r"\\(.)", r"\1", found["quoted"][1:-1])
    return found["name"]


def values_at(value: Any, path: JsonPath) -> Iterator[Any]:
    """Yield the values that a path selects. Each step visits a value at most once."""
    selected = [value]
    for step in path:
        selected = [inner for outer in selected for inner in _inner(outer, step)]
    yield from selected


def _inner(value: Any, step: str | int | None) -> Iterator[Any]:
    if step is None:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value
    elif isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield value[step]
    elif isinstance(value, list) and -len(value) <= step < len(value):
        yield value[step]


def is_equal(value: Any, text: str) -> bool:
    """Whether a JSON value is what a person typed: a string without quotes, or any value as JSON."""
    if isinstance(value, str):
        return value == text or json.dumps(value) == text
    try:
        typed = json.loads(text)
    except (ValueError, RecursionError):
        return False
    # In Python, 1 == True.
    return bool(typed == value) and isinstance(typed, bool) == isinstance(value, bool)
