"""Reads the fields of a resource one by one and collects every problem, not only the first. Pure.

`crds` asks a `Section` for each field that it knows, by type and bounds, and closes it: whatever was not asked for is
unknown, and is answered with the nearest known name. A wrong field is noted and replaced by its default, so that
reading goes on; nothing that was read may be used when `Problems.found` is not empty. What has no file, since it came
from Kubernetes, has no line either: `located` gives it a form that sections can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from odradek.base.errors import OdradekError
from odradek_operator.crds.documents import LocatedMapping

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUANTITY_PATTERN: Final = r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
"""Kubernetes' quantities, without exponents and signs."""

_QUANTITY: Final = re.compile(QUANTITY_PATTERN)
_UNITS: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    "m": Decimal(1).scaleb(-3),
    **{letter: Decimal(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}

MAX_NAME_LENGTH: Final = 253
"""Of a Kubernetes object's name (RFC 1123 subdomain)."""


class Problem(NamedTuple):
    """Something wrong in a manifest."""

    source: str
    line: int
    resource: str
    """Kind and name, or the document's number where these are missing."""
    path: str
    """The field, such as `spec.brokers.replicas`."""
    message: str
    """What is allowed, and what was found."""

    def __str__(self) -> str:
        """One line: where, which resource, which field, what is wrong; an object of Kubernetes has no place."""
        if not self.source:
            return f"{self.path}: {self.message}"
        return f"{self.source}:{self.line}: {self.resource}: {self.path}: {self.message}"


class Problems:
    """The problems of one document."""

    def __init__(self, source: str, resource: str, *, tolerant: bool = False) -> None:
        """`source` is the file, `resource` how the document is called in messages.

        With `tolerant`, unknown fields are no problem but are listed in `unknown`.
        """
        self.source: Final = source
        self.resource = resource
        self.found: list[Problem] = []
        self.unknown: list[str] = []
        self._tolerant = tolerant

    def add(self, line: int, path: str, message: str) -> None:
        """Note one."""
        self.found.append(Problem(self.source, line, self.resource, path, message))

    def add_unknown(self, line: int, path: str, message: str) -> None:
        """Note a field that is not known."""
        if self._tolerant:
            self.unknown.append(path)
        else:
            self.add(line, path, message)


@dataclass(frozen=True, slots=True)
class Rule:
    """A check beyond the type: `holds` for allowed text, `allowed` says which that is."""

    holds: Callable[[str], object]
    allowed: str


OBJECT_NAME: Final = Rule(
    lambda text: len(text) <= MAX_NAME_LENGTH and _NAME.fullmatch(text),
    "lower-case letters, digits, '-' and '.', at most 253, beginning and ending with a letter or digit",
)
QUANTITY: Final = Rule(_QUANTITY.fullmatch, "a quantity such as 100Gi, 2 or 500m")
ANY_TEXT: Final = Rule(bool, "text that is not empty")


def quantity_value(text: str) -> Decimal:
    """What a quantity amounts to: 1Ki is 1024, 500m a half. Raises `ValueError` when the text is none."""
    if _QUANTITY.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not {QUANTITY.allowed}")
    number = text.rstrip("mkKMGTPEi")
    return Decimal(number) * _UNITS[text[len(number) :]]


def located(value: Mapping[str, Any]) -> LocatedMapping:
    """A mapping that came from no file, with all that is in it, as if everything stood at line 0."""
    found = LocatedMapping(0)
    found.update({str(key): _located(item) for key, item in value.items()})
    return found


def _located(value: Any) -> Any:
    if isinstance(value, Mapping):
        return located(value)
    return [_located(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Without lines: ordinary dictionaries and lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


class Section:
    """One mapping of a document."""

    def __init__(self, problems: Problems, values: LocatedMapping, path: str) -> None:
        """`path` is the mapping's own, empty for the document."""
        self._problems = problems
        self._values = values
        self._path = path
        self._known: list[str] = []

    def path(self, name: str) -> str:
        """A field's full path."""
        return f"{self._path}.{name}" if self._path else name

    def line(self, name: str) -> int:
        """A field's line; the mapping's where the field is missing."""
        return self._values.lines.get(name, self._values.line)

    def value(self, name: str) -> object:
        """What stands there, whatever it is; None where nothing does. Does not make the field known."""
        return self._values.get(name)

    def refuse(self, name: str, allowed: str) -> None:
        """Note that a field is not what it must be."""
        found = f", found {_shown(self._values[name])}" if name in self._values else ", and it is missing"
        self.complain(name, f"must be {allowed}{found}.")

    def complain(self, name: str, message: str) -> None:
        """Note a problem in words of its own."""
        self._problems.add(self.line(name), self.path(name), message)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null. Makes it known."""
        if name not in self._known:
            self._known.append(name)
        return self._values.get(name) is not None

    def text(self, name: str, default: str | None = None, *, rule: Rule = ANY_TEXT) -> str:
        """Text that obeys the rule; required when there is no default."""
        if not self.has(name) and default is not None:
            return default
        value = self._values.get(name)
        # YAML reads `size: 10` as a number; where a quantity is meant, that is one.
        if rule is QUANTITY and type(value) in (int, float):
            value = str(value)
        if not isinstance(value, str) or not rule.holds(value):
            self.refuse(name, rule.allowed)
            return default or ""
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts that are not empty; missing is empty."""
        if not self.has(name):
            return ()
        value = self._values.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) and ANY_TEXT.holds(item) for item in value):
            self.refuse(name, "a list of text that is not empty")
            return ()
        return tuple(value)

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of a few words."""
        return self.text(name, default, rule=Rule(lambda text: text in choices, _either(choices)))

    def integer(self, name: str, default: int | None = None, *, low: int, high: int) -> int:
        """A whole number within bounds; required when there is no default."""
        if not self.has(name) and default is not None:
            return default
        value = self._values.get(name)
        if type(value) is not int or not low <= value <= high:
            self.refuse(name, f"a whole number from {low} to {high}")
            return low if default is None else default
        return value

    def amount(self, name: str, default: int, *, low: int) -> int:
        """A quantity as a whole number, rounded down."""
        if not self.has(name):
            return default
        before = len(self._problems.found)
        text = self.text(name, "", rule=QUANTITY)
        if len(self._problems.found) > before:
            return default
        amount = int(quantity_value(text))
        if amount < low:
            self.refuse(name, f"at least {low}")
        return amount

    def texts_by_name(self, name: str) -> dict[str, str]:
        """A mapping of text to text, such as labels; missing is empty."""
        inner = self.section(name)
        if inner is None:
            return {}
        for key, value in inner._values.items():
            if not isinstance(value, str):
                inner.refuse(key, "text: put it in quotes")
        return {key: value for key, value in inner._values.items() if isinstance(value, str)}

    def verbatim(self, name: str) -> dict[str, Any] | None:
        """A mapping whose content is Kubernetes' own, as plain dictionaries and lists; None when it is missing."""
        inner = self.section(name)
        return None if inner is None else dict(_plain(inner._values))

    def verbatim_list(self, name: str) -> tuple[dict[str, Any], ...]:
        """A list of such mappings; missing is empty."""
        return tuple(dict(_plain(inner._values)) for inner in self.sections(name))

    def boolean(self, name: str, default: bool) -> bool:
        """true or false."""
        if not self.has(name):
            return default
        value = self._values.get(name)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
            return default
        return value

    def section(self, name: str) -> Section | None:
        """A mapping within; None when it is missing."""
        if not self.has(name):
            return None
        value = self._values.get(name)
        if not isinstance(value, LocatedMapping):
            self.refuse(name, "a mapping")
            return None
        return Section(self._problems, value, self.path(name))

    def sections(self, name: str) -> list[Section]:
        """A list of mappings; missing is empty."""
        if not self.has(name):
            return []
        value = self._values.get(name)
        if not isinstance(value, list):
            self.refuse(name, "a list of mappings")
            return []
        found = []
        for index, item in enumerate(value):
            if isinstance(item, LocatedMapping):
                found.append(Section(self._problems, item, f"{self.path(name)}[{index}]"))
            else:
                self.complain(name, f"entry {index} must be a mapping, found {_shown(item)}.")
        return found

    def properties(self, name: str) -> dict[str, str]:
        """A mapping of Kafka properties: numbers and booleans become the text that Kafka writes."""
        inner = self.section(name)
        if inner is None:
            return {}
        found = {}
        for key, value in inner._values.items():
            if isinstance(value, bool):
                found[key] = "true" if value else "false"
            elif isinstance(value, str | int | float):
                found[key] = str(value)
            else:
                inner.refuse(key, "text, a number, true or false")
        return found

    def line_of_property(self, name: str, key: str) -> int:
        """The line of a key within the mapping `name`."""
        inner = self._values.get(name)
        return inner.lines.get(key, inner.line) if isinstance(inner, LocatedMapping) else self.line(name)

    def complain_of_property(self, name: str, key: str, message: str) -> None:
        """Note a problem with a key of the mapping `name`, whose own name may have dots."""
        self._problems.add(self.line_of_property(name, key), f"{self.path(name)}[{key}]", message)

    def ignore(self, *names: str) -> None:
        """Make fields known whose content is not ours to judge."""
        self._known += names

    def close(self) -> None:
        """Note every field that nobody asked for."""
        for name in self._values:
            if name not in self._known:
                message = f"is not a field here{nearest(name, self._known)}; known: {_list(self._known)}."
                self._problems.add_unknown(self.line(name), self.path(name), message)


def nearest(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    """`, did you mean X?` where something similar is known, else nothing."""
    similar = get_close_matches(name, list(known), n=1)
    return f" (did you mean {similar[0]}?)" if similar else ""


def _either(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "nothing"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


class ResourceError(OdradekError):
    """Manifests are invalid. The text has one line for each problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """`problems` has at least one element."""
        super().__init__("\n".join(map(str, problems)))
        self.problems: Final = tuple(problems)
