"""The content of `/feature`, and the updates that are refused."""

from __future__ import annotations

import pytest

from odradek.controller.features import FeatureUpdate, initial, raised, updated
from odradek.protocol.feature_levels import TRANSACTION_VERSION, registered_features
from odradek.zk.layout import Feature


@pytest.mark.parametrize(
    ("protocol", "current", "wanted"),
    [
        ((3, 9), None, Feature(enabled=True, features={}, version=2)),
        ((3, 2), None, Feature(enabled=True, features={}, version=1)),
        ((2, 6), None, Feature(enabled=False, features={}, version=1)),
        (
            (3, 9),
            Feature(enabled=True, features={"f": 2}, version=1),
            Feature(enabled=True, features={"f": 2}, version=2),
        ),
        ((3, 9), Feature(enabled=False, features={"f": 2}), Feature(enabled=True, features={})),
        ((2, 6), Feature(enabled=True, features={"f": 2}), Feature(enabled=False, features={}, version=1)),
    ],
)
def test_the_inter_broker_protocol_decides(protocol: tuple[int, int], current: Feature | None, wanted: Feature) -> None:
    assert initial(protocol, current) == wanted
    assert initial(protocol, wanted) == wanted


OURS = registered_features()
NONE_OF_THEM: dict[str, dict[str, int]] = {}


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "levels"),
    [
        ("f", 0, 2, {}),
        ("f", -1, 3, {}),
        ("f", 0, 1, None),
        ("f", 3, 1, None),
        ("f", 2, 1, None),
        ("f", 1, 1, None),
        ("f", 1, 2, None),
        ("f", 3, 2, None),
        ("g", 0, 2, None),
        ("g", 1, 1, None),
        ("", 1, 1, None),
        ("f", 0, 0, None),
        ("f", 0, 4, None),
    ],
)
def test_accepted_and_refused_updates(
    feature: str, level: int, upgrade_type: int, levels: dict[str, int] | None
) -> None:
    update = FeatureUpdate(feature=feature, level=level, upgrade_type=upgrade_type)
    after, results = updated({"f": 2}, [update], {1: OURS})
    assert after == ({"f": 2} if levels is None else levels)
    assert [getattr(error, "code", None) for error in results.values()] == [None if levels is not None else 42]


@pytest.mark.parametrize(
    ("before", "level", "upgrade_type", "after"),
    [
        (None, 2, 1, 2),
        (None, 1, 1, 1),
        (1, 2, 1, 2),
        (2, 1, 2, 1),
        (2, 0, 2, None),
        (None, 3, 1, None),
        (2, 1, 1, 2),
        (1, 2, 2, 1),
    ],
)
def test_levels_of_transactions(before: int | None, level: int, upgrade_type: int, after: int | None) -> None:
    finalized = {} if before is None else {TRANSACTION_VERSION: before}
    update = FeatureUpdate(feature=TRANSACTION_VERSION, level=level, upgrade_type=upgrade_type)
    levels, results = updated(finalized, [update], {1: OURS, 2: OURS})
    assert levels.get(TRANSACTION_VERSION) == after
    assert (results[TRANSACTION_VERSION] is None) == (before != after)


def test_a_level_that_a_broker_does_not_support_is_not_finalized() -> None:
    update = FeatureUpdate(feature=TRANSACTION_VERSION, level=2, upgrade_type=1)
    brokers = {3: NONE_OF_THEM, 1: OURS, 2: {TRANSACTION_VERSION: {"min_version": 1, "max_version": 1}}}
    levels, results = updated({}, [update], brokers)
    assert levels == {}
    assert "not supported by the brokers 2, 3" in str(results[TRANSACTION_VERSION])
    assert raised({}, {TRANSACTION_VERSION: 2}, brokers) == {}


def test_the_level_of_the_setting_is_only_raised() -> None:
    assert raised({}, {TRANSACTION_VERSION: 2}, {1: OURS}) == {TRANSACTION_VERSION: 2}
    assert raised({TRANSACTION_VERSION: 2}, {TRANSACTION_VERSION: 1}, {1: OURS}) == {TRANSACTION_VERSION: 2}
    assert raised({"f": 3}, {TRANSACTION_VERSION: 0}, {1: OURS}) == {"f": 3}
