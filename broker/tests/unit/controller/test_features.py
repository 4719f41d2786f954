"""The content of `/feature`, and the updates that are refused."""

from __future__ import annotations

import pytest

from odradek.controller.features import FeatureUpdate, initial, updated
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
    after, results = updated({"f": 2}, [update])
    assert after == ({"f": 2} if levels is None else levels)
    assert [getattr(error, "code", None) for error in results.values()] == [None if levels is not None else 42]
