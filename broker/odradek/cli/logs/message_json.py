"""Converts messages to the JSON that Apache Kafka's JsonConverter classes write. Pure."""

from __future__ import annotations

import base64
from dataclasses import fields
from typing import Any
from uuid import UUID

from odradek.protocol.fields import METADATA_KEY, Wire


def message_json(message: Any) -> dict[str, object]:
    """Convert an object of a generated class, or of one of its structs, that was decoded from the newest version.

    Names are in camel case, bytes in base64, ids in URL-safe base64. A tagged field with its default is omitted.
    """
    shown: dict[str, object] = {}
    for field in fields(message):
        value = getattr(message, field.name)
        form: Wire = field.metadata[METADATA_KEY]
        if form.tag is None or value != field.default:
            shown[_camel(field.name)] = _value(value)
    return shown


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _value(value: Any) -> object:
    if isinstance(value, tuple):
        return [_value(each) for each in value]
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if value is None or isinstance(value, str | int | float):
        return value
    return message_json(value)
