"""Renders records as lines, with a template or as JSON. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from string import Formatter
from typing import Final

from odradek.cli.records.value_decoders import (
    DECODERS,
    NULL,
    STRING,
    Decoders,
    RecordDecodingError,
    decoded_text,
    decoded_value,
)
from odradek.client.models import ConsumerRecord

Render = Callable[[ConsumerRecord], str]

_DECODED: Final = ("key", "value")
_PLAIN: Final[dict[str, Render]] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: str(record.partition),
    "offset": lambda record: str(record.offset),
    "timestamp": lambda record: str(record.timestamp),
    "time": lambda record: _time(record.timestamp),
    "timestamp_type": lambda record: _timestamp_type(record),
    "key_size": lambda record: _size(record.key),
    "value_size": lambda record: _size(record.value),
}
FIELDS: Final = (*_PLAIN, *_DECODED, "headers", "header:NAME")
"""The fields of a template. `{header:NAME}` is the value of the last header with this name."""

_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}


def template(text: str, decoders: Decoders | None = None) -> Render:
    """Return a renderer for a template such as `{key}: {value}`. Raises `ValueError` for an unknown field.

    `{key:hex}` and `{value:hex}` use another decoder than that of the option. The renderer raises
    `RecordDecodingError`.
    """
    chosen = decoders or Decoders()
    for typed, meant in _ESCAPES.items():
        text = text.replace(typed, meant)
    parts: list[Render] = []
    for literal, name, spec, conversion in Formatter().parse(text):
        if literal:
            parts.append(_literal(literal))
        if name is not None:
            parts.append(_field(name, spec or "", conversion, chosen))

    return lambda record: "".join([part(record) for part in parts])


def _literal(text: str) -> Render:
    return lambda record: text


def _field(name: str, spec: str, conversion: str | None, decoders: Decoders) -> Render:
    """Return the renderer of one field. Raises `ValueError` for an unknown one."""
    if name in _PLAIN and not spec and not conversion:
        return _PLAIN[name]
    if name in _DECODED and not conversion and spec in ("", *DECODERS):
        return _part(name, spec or getattr(decoders, name))
    if name == "headers" and not spec and not conversion:
        return lambda record: ",".join(
            f"{key}={_decoded(record, f'header {key}', decoders.header, value)}" for key, value in record.headers
        )
    if name == "header" and spec and not conversion:
        return lambda record: _decoded(record, f"header {spec}", decoders.header, dict(record.headers).get(spec))
    given = f"{{{name}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}}}"
    raise ValueError(
        f"{given} is not a field; the fields are {', '.join(f'{{{field}}}' for field in FIELDS)}, and {{key:DECODER}} "
        f"and {{value:DECODER}} with one of {', '.join(DECODERS)}"
    )


def _part(name: str, decoder: str) -> Render:
    return lambda record: _decoded(record, name, decoder, getattr(record, name))


def _decoded(record: ConsumerRecord, part: str, decoder: str, data: bytes | None) -> str:
    try:
        return decoded_text(decoder, data)
    except RecordDecodingError as error:
        raise _located(record, part, decoder, error) from error


def _located(record: ConsumerRecord, part: str, decoder: str, error: RecordDecodingError) -> RecordDecodingError:
    return RecordDecodingError(
        f"The {part} of the record at offset {record.offset} of {record.topic}-{record.partition} cannot be decoded as "
        f"{decoder}: {error}"
    )


def _size(data: bytes | None) -> str:
    """Return the size in bytes; -1 for None, as in the format of records."""
    return "-1" if data is None else str(len(data))


def _time(timestamp: int) -> str:
    if timestamp < 0:
        return NULL
    return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timestamp_type(record: ConsumerRecord) -> str:
    return NULL if record.timestamp < 0 else _TIMESTAMP_TYPES.get(record.timestamp_type, NULL)


def compact_json(value: object) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def json_lines(decoders: Decoders | None = None, *, dump: Callable[[object], str] = compact_json) -> Render:
    """Return a renderer that makes one object, which `dump` formats. It raises `RecordDecodingError`.

    With the decoder `string`, bytes that are not UTF-8 are in base64, in a field with the suffix `_base64`.
    """
    chosen = decoders or Decoders()

    def render(record: ConsumerRecord) -> str:
        value: dict[str, object] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
        }
        headers: list[dict[str, object]] = []
        part, decoder = "key", chosen.key
        try:
            _put(value, "key", record.key, decoder)
            part, decoder = "value", chosen.value
            _put(value, "value", record.value, decoder)
            decoder = chosen.header
            for name, content in record.headers:
                part = f"header {name}"
                headers.append({"name": name})
                _put(headers[-1], "value", content, decoder)
        except RecordDecodingError as error:
            raise _located(record, part, decoder, error) from error
        return dump({**value, "headers": headers})

    return render


def _put(target: dict[str, object], name: str, content: bytes | None, decoder: str) -> None:
    if content is None:
        target[name] = None
        return
    try:
        target[name] = decoded_value(decoder, content)
    except RecordDecodingError:
        if decoder != STRING:
            raise
        target[f"{name}_base64"] = base64.b64encode(content).decode("ascii")
