"""Types of dashboards, and their conversion into Grafana's JSON. Pure.

A `Dashboard` consists of rows of panels, which are arranged from left to right in Grafana's 24 columns. Ids of panels
are consecutive numbers, so that the generated files are reproducible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from odradek_operator.dashboards.queries import SELECTED

COLUMNS: Final = 24
SCHEMA: Final = 39
"""Version of Grafana's JSON schema, which Grafana 10.4 and later support."""

Json = dict[str, Any]
_DATASOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}


class PanelType(Enum):
    """Type of a panel."""

    LINES = "timeseries"
    AREAS = "stacked"
    NUMBER = "stat"
    BARS = "bargauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a panel. `legend` is the name of each line, in which {{label}} stands for the value of a label."""

    text: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `width` and `height` are in units of Grafana's grid, `low` and `high` the limits of the axis.

    With `bad`, a number is red from `bad` upwards. If `bad` is less than `good`, it is red below `good` instead.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    type: PanelType = PanelType.LINES
    unit: str = "short"
    width: int = 8
    height: int = 7
    low: float | None = 0
    high: float | None = None
    bad: float | None = None
    good: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of panels with a title. Panels that do not fit continue on the next line."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a dashboard, with which users select values of a label."""

    name: str
    label: str
    series: str
    """A series with the label, with an optional selector in braces."""
    value: str
    """Name of the label in Prometheus."""
    several: bool = False
    """Whether users can select several values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A dashboard. Its file is `NAME.json`, and its uid in Grafana is `odradek-NAME`."""

    name: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


def lines(text: str, legend: str = "") -> tuple[Query, ...]:
    """Return a tuple with one query, for panels with a single query."""
    return (Query(text=text, legend=legend),)


def model(dashboard: Dashboard) -> Json:
    """Return Grafana's JSON model."""
    return {
        "uid": f"odradek-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["odradek", "kafka"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "title": "Odradek",
                "type": "dashboards",
                "tags": ["odradek"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "annotations": {"list": []},
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard.rows)),
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}


def _variable(variable: Variable) -> Json:
    query = f"label_values({SELECTED.fill(variable.series)}, {variable.value})"
    chosen = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": variable.name},
        "definition": query,
        # The values are queried again when the time range changes, because brokers and topics come and go.
        "refresh": 2,
        "sort": 1,
        **(chosen if variable.several else {"includeAll": False, "multi": False}),
    }


def _panels(rows: Sequence[Row]) -> Iterator[Json]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }
        top += 1
        left = height = 0
        for panel in row.panels:
            number += 1
            if left + panel.width > COLUMNS:
                left, top, height = 0, top + height, 0
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": panel.height})
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _panel(panel: Panel, number: int, place: Json) -> Json:
    is_line = panel.type in (PanelType.LINES, PanelType.AREAS)
    return {
        "id": number,
        "type": "timeseries" if is_line else panel.type.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _field(panel, is_line), "overrides": []},
        "options": _LINE_OPTIONS if is_line else _number_options(panel.type),
        "targets": [_target(panel, query, index) for index, query in enumerate(panel.queries)],
    }


def _field(panel: Panel, is_line: bool) -> Json:
    field: Json = {"unit": panel.unit, "color": {"mode": "palette-classic" if is_line else "thresholds"}}
    if panel.low is not None:
        field["min"] = panel.low
    if panel.high is not None:
        field["max"] = panel.high
    if is_line:
        field["custom"] = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
        if panel.type is PanelType.AREAS:
            field["custom"] |= {"stacking": {"mode": "normal"}, "fillOpacity": 40}
    else:
        field["thresholds"] = {"mode": "absolute", "steps": _steps(panel)}
    return field


def _steps(panel: Panel) -> list[Json]:
    if panel.bad is None:
        return [{"color": "blue", "value": None}]
    if panel.bad < panel.good:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.good}]
    return [{"color": "green", "value": None}, {"color": "red", "value": panel.bad}]


_LINE_OPTIONS: Final[Json] = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
    "tooltip": {"mode": "multi", "sort": "desc"},
}


def _number_options(type_: PanelType) -> Json:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if type_ is PanelType.BARS:
        return {"reduceOptions": last, "orientation": "horizontal", "displayMode": "gradient", "showUnfilled": True}
    return {"reduceOptions": last, "colorMode": "value", "graphMode": "area", "textMode": "value"}


def _target(panel: Panel, query: Query, index: int) -> Json:
    return {
        "refId": chr(ord("A") + index),
        "datasource": _DATASOURCE,
        "expr": SELECTED.fill(query.text),
        "legendFormat": query.legend or "__auto",
        "instant": panel.type is PanelType.BARS,
        "range": panel.type is not PanelType.BARS,
    }
