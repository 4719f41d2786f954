"""Decoders for the keys, values and headers that `odradek consume` prints. Pure.

The numbers have the formats of Kafka's serializers of the same names: big-endian, with a fixed size.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from odradek.base.errors import OdradekError

STRING: Final = "string"
NULL: Final = "null"
"""Text of a missing key, value or header value."""

_NUMBERS: Final = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}
DECODERS: Final = (STRING, "hex", "base64", "json", *_NUMBERS)
"""Names of all decoders."""


class RecordDecodingError(OdradekError):
    """A key, value or header does not have the format of its decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoders:
    """The names of the decoders for the parts of a record."""

    key: str = STRING
    value: str = STRING
    header: str = STRING


def _json(data: bytes) -> object:
    # Python also parses NaN and infinity, which are not JSON.
    return json.loads(data.decode("utf-8"), parse_constant=_refuse)


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _number(form: str) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        (number,) = struct.unpack(form, data)
        return number if math.isfinite(number) else str(number)

    return decode


_FUNCTIONS: Final[dict[str, Callable[[bytes], object]]] = {
    STRING: lambda data: data.decode("utf-8"),
    "hex": lambda data: data.hex(),
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "json": _json,
    **{name: _number(form) for name, form in _NUMBERS.items()},
}


def decoded_value(name: str, data: bytes) -> object:
    """Return what a decoder makes of bytes, as a value for JSON. Raises `RecordDecodingError`.

    `string` raises it for bytes that are not UTF-8. Numbers that JSON does not have (NaN, infinity) become text.
    """
    try:
        return _FUNCTIONS[name](data)
    except (ValueError, struct.error) as error:
        raise RecordDecodingError(_why(name, data)) from error


def decoded_text(name: str, data: bytes | None) -> str:
    """Return what a decoder makes of bytes as text: `null` for None, JSON on one line. Raises `RecordDecodingError`.

    With `string`, bytes that are not UTF-8 become escapes such as `\\xff`.
    """
    if data is None:
        return NULL
    if name == STRING:
        return data.decode("utf-8", "backslashreplace")
    value = decoded_value(name, data)
    return value if isinstance(value, str) and name != "json" else json.dumps(value, ensure_ascii=False)


def _why(name: str, data: bytes) -> str:
    form = _NUMBERS.get(name)
    if form is None:
        return f"it is not {'text in UTF-8' if name == STRING else 'JSON'}"
    return f"it has {len(data)} bytes, {name} needs {struct.calcsize(form)}"
