"""The report at `GET /topics` for the operator: partitions, size and consumer lag of every topic.

The exporter encodes it and the operator decodes it with this module. The format is JSON:

    {"topics": {"orders": {"partitions": 6, "sizeBytes": 1048576,
                           "groups": [{"group": "billing", "lagRecords": 12, "lagSeconds": 3.5}]}}}

`partitions` is the number of partitions. `sizeBytes` is the total size of the leaders' logs, null if it is unknown.
`groups` has the groups with commits in the topic, up to a limit, with the largest lag first. `lagRecords` is the total
of all partitions. `lagSeconds` is their maximum, null if it is unknown. Readers ignore unknown keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from odradek.base.errors import OdradekError
from odradek_operator.exporter.snapshot import ExporterSnapshot, Position, TopicReading

T = TypeVar("T")

_TYPE_NAMES: Final[Mapping[type, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "integer",
    float: "number",
}


class ReportError(OdradekError):
    """The input is not a valid report. The message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The lag of one group in one topic."""

    group: str
    lag_records: int
    lag_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """The size of one topic, and the lag of its groups."""

    partitions: int
    size_bytes: int | None = None
    groups: tuple[GroupLag, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The reports of all topics, by name."""

    topics: Mapping[str, TopicReport] = field(default_factory=dict)


def report_of(snapshot: ExporterSnapshot, *, groups_per_topic: int) -> Report:
    """Return the report of a snapshot, with at most this many groups per topic."""
    lags = _lags(snapshot)
    return Report(
        topics={
            topic.name: TopicReport(
                partitions=len(topic.partitions),
                size_bytes=_size(topic),
                groups=tuple(
                    sorted(lags.get(topic.name, ()), key=lambda lag: (-lag.lag_records, lag.group))[:groups_per_topic]
                ),
            )
            for topic in snapshot.topics
        }
    )


def _size(topic: TopicReading) -> int | None:
    known = [partition.size_bytes for partition in topic.partitions if partition.size_bytes is not None]
    return sum(known) if known else None


def _lags(snapshot: ExporterSnapshot) -> dict[str, list[GroupLag]]:
    found: dict[str, list[GroupLag]] = {}
    for group in snapshot.groups:
        by_topic: dict[str, list[Position]] = {}
        for position in group.positions:
            if position.lag is not None:
                by_topic.setdefault(position.topic, []).append(position)
        for topic, positions in by_topic.items():
            found.setdefault(topic, []).append(_group_lag(group.name, positions))
    return found


def _group_lag(group: str, positions: Iterable[Position]) -> GroupLag:
    records, seconds = 0, None
    for position in positions:
        records += position.lag or 0
        if position.lag_seconds is not None:
            seconds = max(seconds or 0.0, position.lag_seconds)
    return GroupLag(group=group, lag_records=records, lag_seconds=seconds)


def encode(report: Report) -> dict[str, object]:
    """Return the report as a value for `json.dumps`."""
    return {
        "topics": {
            name: {
                "partitions": topic.partitions,
                "sizeBytes": topic.size_bytes,
                "groups": [
                    {
                        "group": lag.group,
                        "lagRecords": lag.lag_records,
                        "lagSeconds": None if lag.lag_seconds is None else round(lag.lag_seconds, 1),
                    }
                    for lag in topic.groups
                ],
            }
            for name, topic in report.topics.items()
        }
    }


def decode(text: str | bytes) -> Report:
    """Parse the JSON of a report. Raises `ReportError`."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ReportError(f"the exporter's report is not JSON: {error}") from error
    topics = _member(document, "the top level", "topics", dict)
    return Report(topics={str(name): _decode_topic(f"topic {name}", value) for name, value in topics.items()})


def _decode_topic(where: str, value: object) -> TopicReport:
    return TopicReport(
        partitions=_member(value, where, "partitions", int),
        size_bytes=_nullable(value, where, "sizeBytes", int),
        groups=tuple(_decode_group(where, each) for each in _member(value, where, "groups", list)),
    )


def _decode_group(where: str, value: object) -> GroupLag:
    return GroupLag(
        group=_member(value, where, "group", str),
        lag_records=_member(value, where, "lagRecords", int),
        lag_seconds=_nullable(value, where, "lagSeconds", float),
    )


def _nullable(value: object, where: str, key: str, kind: type[T]) -> T | None:
    if isinstance(value, dict) and value.get(key, ...) is None:
        return None
    return _member(value, where, key, kind)


def _member(value: object, where: str, key: str, kind: type[T]) -> T:
    """Return a member of a JSON object. Integers are accepted for floats.

    Raises `ReportError` if the member is missing or has another type.
    """
    if not isinstance(value, dict):
        raise ReportError(f"{where} of the exporter's report is not an object")
    found = value.get(key)
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        found = float(found)
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ReportError(f"{where} of the exporter's report has no key {key} of type {_TYPE_NAMES[kind]}")
    return found
