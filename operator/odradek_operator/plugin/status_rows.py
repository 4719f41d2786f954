"""The table of `kubectl odradek status`: resources with their states. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from odradek_operator.kube.api.object_kinds import Kind, Object

SHOWN = (Kind.CLUSTER, Kind.TOPIC, Kind.USER, Kind.PIPELINE, Kind.MIRROR)
"""The kinds in the table, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRow:
    """A resource. The names of the fields are the headings of the columns."""

    namespace: str
    kind: str
    name: str
    cluster: str
    ready: str
    """True, False or Unknown."""
    details: str
    reason: str
    """Why it is not ready."""


def status_row(kind: Kind, body: Object) -> StatusRow:
    """Return the row of a resource."""
    metadata, status = body["metadata"], body.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    condition = next((one for one in conditions if one["type"] == "Ready"), {})
    ready = str(condition.get("status", "Unknown"))
    spec = body.get("spec") or {}
    why = "" if ready == "True" else f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
    return StatusRow(
        namespace=metadata.get("namespace", ""),
        kind=kind.word,
        name=metadata["name"],
        cluster=metadata["name"] if kind is Kind.CLUSTER else _cluster(kind, spec),
        ready=ready,
        details=_details(kind, status),
        reason=why or ("" if condition else "The operator has not written a status yet."),
    )


def _cluster(kind: Kind, spec: Mapping[str, Any]) -> str:
    """Return the Cluster that a resource belongs to; of a Mirror the target, which may be another cluster's address."""
    side: Mapping[str, Any] = (spec.get("target") or {}) if kind is Kind.MIRROR else spec
    return str(side.get("cluster") or side.get("bootstrapServers") or "")


def _details(kind: Kind, status: Mapping[str, Any]) -> str:
    """Return the most important figures of a status."""
    if kind is Kind.CLUSTER:
        found = [_labelled(status, "brokersReady", "brokers"), _labelled(status, "version", "version", before=True)]
    elif kind is Kind.TOPIC:
        found = [_labelled(status, "partitions"), _labelled(status, "replicas"), str(status.get("size", ""))]
    elif kind is Kind.USER:
        found = [_labelled(status, "secret", "Secret", before=True)]
    elif kind is Kind.MIRROR:
        found = [
            str(status.get("phase", "")),
            _labelled(status, "podsReady", "pods"),
            _labelled(status, "lagRecords", "lag", before=True),
        ]
    else:
        found = [str(status.get("phase", "")), _labelled(status, "lag", "lag", before=True)]
    return ", ".join(filter(None, found))


def _labelled(status: Mapping[str, Any], key: str, label: str | None = None, *, before: bool = False) -> str:
    value = status.get(key)
    if value is None:
        return ""
    return f"{label or key} {value}" if before else f"{value} {label or key}"


def status_table(rows: Sequence[StatusRow]) -> str:
    """Return rows as text in columns, as kubectl prints them."""
    headings = tuple(field.name.upper() for field in fields(StatusRow))
    lines = [headings, *(tuple(asdict(row).values()) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(headings))]
    return "\n".join(_padded(line, widths) for line in lines)


def _padded(line: Iterable[str], widths: Iterable[int]) -> str:
    return "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
