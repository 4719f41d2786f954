"""Tests that dashboards match their models, use existing series, have explanations, and have no overlapping panels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chart_files import CHART, read
from chart_promql import grouping_of, is_balanced, labels_of, series_of
from chart_series import KNOWN, LABELS
from odradek_operator.dashboards.files import DASHBOARDS, files
from odradek_operator.dashboards.grafana import COLUMNS, model

MODELS = {each.name: model(each) for each in DASHBOARDS}
IN_GRAFANA = ("$__rate_interval", "$__range")


def panels(name: str) -> list[dict[str, Any]]:
    """The panels of a dashboard except rows."""
    return [panel for panel in MODELS[name]["panels"] if panel["type"] != "row"]


def queries(name: str) -> list[str]:
    """Every query of a dashboard."""
    return [target["expr"] for panel in panels(name) for target in panel["targets"]]


def test_files_are_fresh() -> None:
    stale = [path for path, text in files().items() if read(CHART / path) != text]
    assert stale == [], "run `make crds`"


def test_no_other_file_lies_beside_them() -> None:
    found = {
        f"{path.parent.name}/{path.name}" for folder in ("dashboards", "rules") for path in (CHART / folder).iterdir()
    }
    assert found == {*files()}


@pytest.mark.parametrize("name", MODELS)
def test_series_are_served(name: str) -> None:
    for query in queries(name):
        assert series_of(query), query
        assert series_of(query) <= KNOWN, query
        assert labels_of(query) <= LABELS, query
    for variable in MODELS[name]["templating"]["list"][1:]:
        assert variable["query"]["query"].startswith("label_values("), variable
        series = variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]
        assert series_of(series) <= KNOWN, variable


@pytest.mark.parametrize("name", MODELS)
def test_queries_are_whole(name: str) -> None:
    variables = {f"${each['name']}" for each in MODELS[name]["templating"]["list"]}
    for query in queries(name):
        assert is_balanced(query), query
        assert "{{" not in query, query
        assert "SCOPE" not in query, query
        for word in query.replace('"', " ").replace("-", " ").replace("]", " ").replace("[", " ").split():
            if word.startswith("$"):
                assert word.rstrip(",})") in {*variables, *IN_GRAFANA}, query


@pytest.mark.parametrize("name", MODELS)
def test_every_query_stands_once(name: str) -> None:
    found = queries(name)
    assert len(found) == len({*found})


@pytest.mark.parametrize("name", MODELS)
def test_every_panel_is_explained(name: str) -> None:
    titles = [panel["title"] for panel in panels(name)]
    assert len(titles) == len({*titles})
    for panel in panels(name):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["description"].rstrip(".") != panel["title"], panel["title"]


@pytest.mark.parametrize("name", MODELS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in MODELS[name]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", MODELS)
def test_legends_name_labels_that_the_query_keeps(name: str) -> None:
    for panel in panels(name):
        for target in panel["targets"]:
            named = {word.split("}}")[0] for word in target["legendFormat"].split("{{")[1:]}
            assert named <= LABELS, panel["title"]
            if " by (" in target["expr"] and target["expr"].startswith(("sum by", "max by")):
                assert named <= labels_of(target["expr"]), panel["title"]


def test_lines_distinguish_the_brokers_of_a_pod() -> None:
    for panel in panels("cluster"):
        for target in panel["targets"]:
            assert 'container="kafka"' not in target["expr"], panel["title"]
            pods = {"pod", "kubernetes_pod_name"} & grouping_of(target["expr"])
            assert not pods or "container" in grouping_of(target["expr"]), panel["title"]
            named = "kubernetes_pod_name}}" in target["legendFormat"]
            assert not named or "{{container}}" in target["legendFormat"], panel["title"]


def test_numbers_and_addresses_are_unique() -> None:
    assert len({each["uid"] for each in MODELS.values()}) == len(MODELS)
    for each in MODELS.values():
        numbers = [panel["id"] for panel in each["panels"]]
        assert numbers == [*range(1, len(numbers) + 1)]
        json.dumps(each)
