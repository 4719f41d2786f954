"""Declares message classes and the wire format of their fields.

`message` makes each class in `odradek.protocol.messages`, and `wire` is the default of each of its fields; `schema`
reads the declarations.
Version ranges have the notation of Kafka's message definitions: "0+", "1-4", "3", "none".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

from odradek.base.types import ZERO_UUID

_ALL_LATER: Final = 32767


class Versions:
    """A range of versions. Raises `ValueError` if the text is not a range."""

    __slots__ = ("first", "last")

    def __init__(self, text: str) -> None:
        """`text`: "0+", "1-4", "3" or "none"."""
        self.first, self.last = 0, -1
        if text == "none":
            return
        first, dash, last = text.removesuffix("+").partition("-")
        self.first = int(first)
        self.last = _ALL_LATER if text.endswith("+") else int(last if dash else first)

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


class NoDefault:
    """Type of `NO_DEFAULT`."""


NO_DEFAULT: Final = NoDefault()
"""The definition of the field has no default."""

METADATA_KEY: Final = "wire"


@dataclass(frozen=True, slots=True)
class Wire:
    """The wire format of one field: its kind, or the class of its struct, and the versions that have it."""

    kind: str | type[Any]
    versions: Versions
    is_array: bool
    nullable: Versions
    tag: int | None
    tagged: Versions
    has_default: bool


def wire(
    kind: str | type[Any],
    versions: str,
    *,
    array: bool = False,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str = "none",
    default: object = NO_DEFAULT,
    secret: bool = False,
) -> Any:
    """Declare a field of a message class.

    `kind` is a primitive of Kafka's protocol or the class of a struct; with `array`, that of the elements. `nullable`
    and `tagged` are the versions in which the field may be null and in which it is a tagged field (KIP-482). Without
    `default` the field has Kafka's default for its kind: 0, false, an empty string or array, the zero UUID. The `repr`
    of the message does not show a `secret` field.
    """
    has_default = default is not NO_DEFAULT
    form = Wire(kind, Versions(versions), array, Versions(nullable), tag, Versions(tagged), has_default)
    first = default if has_default else _zero(kind, array)
    return field(default=first, repr=not secret, metadata={METADATA_KEY: form})


def _zero(kind: str | type[Any], array: bool) -> object:
    if array:
        return ()
    if isinstance(kind, type):
        return kind()
    return {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": ZERO_UUID, "float64": 0.0}.get(kind, 0)


class WireMessage:
    """Base of all message classes: immutable, with keyword arguments for its fields, and equal by type and values.

    These methods serve all classes. `dataclass` would compile eight functions for each of 320 classes, which takes a
    quarter of importing the broker.
    """

    __slots__ = ()

    _DEFAULTS: ClassVar[Mapping[str, object]]
    """The fields, in the order of their declaration."""

    def __init__(self, **values: object) -> None:
        """Set the fields; those that are not given have their defaults. Raises `TypeError` for an unknown name."""
        if unknown := values.keys() - self._DEFAULTS.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        for name, value in {**self._DEFAULTS, **values}.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _values(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self._DEFAULTS}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WireMessage) or type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[object, ...]:
        return _with_values, (type(self), self._values())


def _with_values(cls: type[WireMessage], values: dict[str, object]) -> WireMessage:
    return cls(**values)


M = TypeVar("M", bound=WireMessage)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def message(cls: type[M]) -> type[M]:
    """Make a subclass of `WireMessage` whose fields are all declared with `wire` a dataclass with slots."""
    made: Any = dataclass(init=False, repr=False, eq=False, kw_only=True, slots=True)(cls)
    made._DEFAULTS = {each.name: each.default for each in fields(made)}
    return made  # type: ignore[no-any-return]
