"""Renders records as lines, with a template or as JSON. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from string import Formatter
from typing import Final

from odradek.client.models import ConsumerRecord

FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
NULL: Final = "null"
"""Text of a missing key or value in a template."""

_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}

Render = Callable[[ConsumerRecord], str]


def template(text: str) -> Render:
    """Return a renderer for a template such as `{key}: {value}`. Raises `ValueError` for an unknown field."""
    for typed, meant in _ESCAPES.items():
        text = text.replace(typed, meant)
    parts: list[tuple[str, str | None]] = []
    for literal, name, spec, conversion in Formatter().parse(text):
        if name is not None and (name not in FIELDS or spec or conversion):
            raise ValueError(
                f"{{{name}}} is not a field; the fields are {', '.join(f'{{{field}}}' for field in FIELDS)}"
            )
        parts.append((literal, name))

    def render(record: ConsumerRecord) -> str:
        return "".join(literal + ("" if name is None else _field(record, name)) for literal, name in parts)

    return render


def _field(record: ConsumerRecord, name: str) -> str:
    if name == "headers":
        return ",".join(f"{key}={_text(value)}" for key, value in record.headers)
    value = getattr(record, name)
    return _text(value) if isinstance(value, bytes) or value is None else str(value)


def _text(value: bytes | None) -> str:
    return NULL if value is None else value.decode("utf-8", "backslashreplace")


def as_json(record: ConsumerRecord) -> str:
    """Return one JSON object. Bytes that are not UTF-8 are in base64, in a field with the suffix `_base64`."""
    value: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put(value, "key", record.key)
    _put(value, "value", record.value)
    headers = []
    for name, content in record.headers:
        header: dict[str, object] = {"name": name}
        _put(header, "value", content)
        headers.append(header)
    return json.dumps({**value, "headers": headers}, ensure_ascii=False)


def _put(target: dict[str, object], name: str, content: bytes | None) -> None:
    if content is None:
        target[name] = None
        return
    try:
        target[name] = content.decode("utf-8")
    except UnicodeDecodeError:
        target[f"{name}_base64"] = base64.b64encode(content).decode("ascii")
