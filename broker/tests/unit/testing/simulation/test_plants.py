"""A plant (a deliberate bug) is active only inside its block, and one that no longer fits the code raises an error."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_testkit.simulation.plants.catalog import PLANTS
from odradek_testkit.simulation.plants.planting import Bite, Plant, PlantError, planted


class Right:
    def number(self) -> int:
        return 1

    @staticmethod
    def twice(number: int) -> int:
        return 2 * number


class Heir(Right):
    pass


def wrong_number(right: Any, bite: Bite) -> Any:
    def number(self: Right) -> int:
        bite()
        result: int = right(self) + 1
        return result

    return number


def wrong_twice(right: Any, bite: Bite) -> Any:
    def twice(number: int) -> int:
        bite()
        result: int = right(number) + 1
        return result

    return twice


def plant(*patches: tuple[Any, str, Any]) -> Plant:
    return Plant(name="p", seed=0, finds=frozenset({"x"}), patches=patches)


def test_methods_are_replaced_and_put_back() -> None:
    before = dict(vars(Right))
    with planted(plant((Right, "number", wrong_number), (Right, "twice", wrong_twice))) as state:
        assert (Right().number(), Right.twice(3), Right().twice(3)) == (2, 7, 7)
        assert state.bites == 3
    assert dict(vars(Right)) == before
    assert (Right().number(), Right.twice(3)) == (1, 6)


def test_the_right_code_comes_back_after_an_error() -> None:
    with pytest.raises(KeyError), planted(plant((Right, "number", wrong_number))):
        raise KeyError
    assert Right().number() == 1


@pytest.mark.parametrize(("owner", "attribute"), [(Right, "gone"), (Heir, "number")])
def test_what_is_not_there_cannot_be_replaced(owner: Any, attribute: str) -> None:
    with (
        pytest.raises(PlantError, match=f"no longer defines {attribute}"),
        planted(plant((Right, "number", wrong_number), (owner, attribute, wrong_number))),
    ):
        pytest.fail("nothing is to run")
    assert Right().number() == 1


@pytest.mark.parametrize("each", PLANTS, ids=lambda each: each.name)
def test_every_plant_applies_to_the_code_as_it_is(each: Plant) -> None:
    before = [vars(owner)[attribute] for owner, attribute, _ in each.patches]
    with planted(each):
        assert all(
            vars(owner)[attribute] is not right
            for (owner, attribute, _), right in zip(each.patches, before, strict=True)
        )
    assert [vars(owner)[attribute] for owner, attribute, _ in each.patches] == before
