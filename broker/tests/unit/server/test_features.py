"""UpdateFeatures: both versions ask for the same, and a cluster in ZooKeeper mode finalizes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.errors import InvalidRequestError, NotControllerError
from odradek.controller.features import FeatureUpdate
from odradek.protocol.apis import ApiKey
from odradek.testing.server import MemoryServer

Play = Callable[..., None]


@pytest.mark.parametrize(
    ("version", "fields", "upgrade_type"),
    [
        (0, {"allow_downgrade": False}, 1),
        (0, {"allow_downgrade": True}, 2),
        (1, {"upgrade_type": 3, "validate_only": True}, 3),
    ],
)
def test_what_is_asked_and_answered(play: Play, version: int, fields: dict[str, object], upgrade_type: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        validate_only = fields.pop("validate_only", False)
        update = {"feature": "metadata.version", "max_version_level": 4, **fields}
        message = {"timeout": 1_000, "feature_updates": [update], "validate_only": validate_only}
        response = await server.ask(ApiKey.UPDATE_FEATURES, version, message)
        wanted = FeatureUpdate(feature="metadata.version", level=4, upgrade_type=upgrade_type)
        assert server.controller.asked == [([wanted], validate_only)]
        assert int(response.error_code) == 0
        assert [(item.feature, int(item.error_code)) for item in response.results] == [
            ("metadata.version", InvalidRequestError.code)
        ]
        server.controller.is_active = False
        response = await server.ask(ApiKey.UPDATE_FEATURES, version, message)
        assert (int(response.error_code), response.results) == (NotControllerError.code, ())

    play(scenario)
