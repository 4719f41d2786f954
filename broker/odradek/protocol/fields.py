"""Declares the wire format of the fields of a message class.

`wire` is the default of every field in `odradek.protocol.messages`; `schema` reads the declarations.
Version ranges have the notation of Kafka's message definitions: "0+", "1-4", "3", "none".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

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
