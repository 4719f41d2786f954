"""Features with the admin client: what is sent, what is returned, and errors (KIP-584)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.base.errors import ClusterAuthorizationFailedError, InvalidRequestError
from odradek.client.administration.feature_admin import (
    FeatureAdmin,
    FeatureLevel,
    FeatureMetadata,
    FeatureUpgrade,
    VersionRange,
)
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, decode_response, encode_request, encode_response

FEATURES: Message = {
    "error_code": 0,
    "api_keys": [],
    "throttle_time_ms": 0,
    "supported_features": [{"name": "group.version", "min_version": 0, "max_version": 1}],
    "finalized_features_epoch": 4,
    "finalized_features": [{"name": "group.version", "max_version_level": 1, "min_version_level": 1}],
}


class Controller:
    """Stands for a cluster whose brokers give one answer to every request."""

    settings = ClientSettings.of("fake:9092", request_timeout_ms=500)

    def __init__(self, answer: Message) -> None:
        self._answer = answer
        self.asked: list[Message] = []
        self.at_least: list[int] = []

    def deadline(self, what: str) -> str:
        return what

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], deadline: str) -> Any:
        return await attempt()

    async def ask_any(self, expected: Any, message: Message, *, at_least: int = 0) -> Any:
        key: ApiKey = expected.API_KEY
        version = API_TABLE[key].max_version
        encode_request(key, version, 1, "me", message)
        self.asked.append(message)
        self.at_least.append(at_least)
        return decode_response(expected, version, encode_response(key, version, 1, self._answer)[4:])

    ask_controller = ask_any


def admin(controller: Controller) -> FeatureAdmin:
    return FeatureAdmin(controller)  # type: ignore[arg-type]  # the part of a cluster that it needs


def updated(code: int = 0, **results: int) -> Message:
    rows = [
        {"feature": name, "error_code": each, "error_message": "no" if each else None} for name, each in results.items()
    ]
    return {"throttle_time_ms": 0, "error_code": code, "error_message": None, "results": rows}


def test_finalized_and_supported_features_are_returned() -> None:
    controller = Controller(FEATURES)
    assert asyncio.run(admin(controller).describe_features()) == FeatureMetadata(
        finalized={"group.version": VersionRange(1, 1)},
        finalized_epoch=4,
        supported={"group.version": VersionRange(0, 1)},
    )
    assert controller.at_least == [3]
    unknown = Controller({**FEATURES, "finalized_features_epoch": -1, "finalized_features": []})
    assert asyncio.run(admin(unknown).describe_features()).finalized_epoch is None


def test_each_feature_of_an_update_has_its_own_result() -> None:
    controller = Controller(updated(a=0, b=InvalidRequestError.code))
    levels = {"a": FeatureLevel(2), "b": FeatureLevel(0, FeatureUpgrade.SAFE_DOWNGRADE)}
    results = asyncio.run(admin(controller).update_features(levels))
    assert results["a"] is None
    assert isinstance(results["b"], InvalidRequestError)
    assert str(results["b"]) == "b: no"
    (asked,) = controller.asked
    assert asked["feature_updates"] == [
        {"feature": "a", "max_version_level": 2, "allow_downgrade": False, "upgrade_type": 1},
        {"feature": "b", "max_version_level": 0, "allow_downgrade": True, "upgrade_type": 2},
    ]
    assert (asked["timeout_ms"], asked["validate_only"]) == (500, False)


def test_a_validation_and_an_unsafe_downgrade_need_a_newer_controller() -> None:
    controller = Controller(updated())
    unsafe = FeatureLevel(1, FeatureUpgrade.UNSAFE_DOWNGRADE)
    asyncio.run(admin(controller).update_features({"a": FeatureLevel(1)}))
    asyncio.run(admin(controller).update_features({"a": FeatureLevel(1)}, validate_only=True))
    asyncio.run(admin(controller).update_features({"a": unsafe}))
    assert controller.at_least == [0, 1, 1]


def test_a_refused_request_raises_its_error() -> None:
    with pytest.raises(ClusterAuthorizationFailedError, match="features cannot be updated"):
        asyncio.run(admin(Controller(updated(ClusterAuthorizationFailedError.code))).update_features({}))
