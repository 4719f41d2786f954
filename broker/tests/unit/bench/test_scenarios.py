"""The catalogue of scenarios, and the selection of scenarios."""

from __future__ import annotations

import pytest
from comparison.declarations import Scenario, estimate_seconds
from comparison.scenarios import CATALOGUE, THEMES, chosen


def test_names_differ_and_themes_exist() -> None:
    names = [scenario.name for scenario in CATALOGUE]
    assert len(set(names)) == len(names)
    assert {scenario.theme for scenario in CATALOGUE} == {theme.name for theme in THEMES}


def test_no_names_choose_everything() -> None:
    assert chosen([]) == list(CATALOGUE)


def test_a_whole_name_chooses_itself_and_a_beginning_its_family() -> None:
    assert [scenario.name for scenario in chosen(["idle"])] == ["idle"]
    family = [scenario.name for scenario in chosen(["consume-java"])]
    assert len(family) == 4
    assert all(name.startswith("consume-java") for name in family)


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(ValueError, match="nothing-like-it"):
        chosen(["idle", "nothing-like-it"])


@pytest.mark.parametrize("scenario", CATALOGUE, ids=lambda scenario: scenario.name)
def test_smaller_work_is_still_work(scenario: Scenario) -> None:
    tiny = scenario.workload.scaled(1e-9)
    counts = [getattr(tiny, name) for name in ("records", "requests", "log_bytes", "keys") if hasattr(tiny, name)]
    assert all(count > 0 for count in counts)
    assert estimate_seconds(scenario, 1, 0.05) < estimate_seconds(scenario, 3, 1.0)
