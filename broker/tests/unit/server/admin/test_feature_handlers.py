"""UpdateFeatures in both versions. A cluster in ZooKeeper mode finalizes no feature."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import InvalidRequestError, NotControllerError
from odradek.cluster import MetadataCache
from odradek.controller.features import FeatureUpdate
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_response, encode_response
from odradek.protocol.messages.cluster import ApiVersionsRequest
from odradek.security.principals import ANONYMOUS, Identity
from odradek.server.admin.feature_handlers import NOTHING_FINALIZED, Finalized, FinalizedFeatures
from odradek.server.dispatch import RequestContext
from odradek.server.metadata_handlers import MetadataHandlers, TopicCreator
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk.layout import FEATURE, Feature
from odradek.zk.port import ConnectionLost
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]


@pytest.mark.parametrize(
    ("version", "fields", "upgrade_type"),
    [
        (0, {"allow_downgrade": False}, 1),
        (0, {"allow_downgrade": True}, 2),
        (1, {"upgrade_type": 3, "validate_only": True}, 3),
    ],
)
def test_requests_and_responses(play: Play, version: int, fields: dict[str, object], upgrade_type: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        validate_only = fields.pop("validate_only", False)
        update = {"feature": "metadata.version", "max_version_level": 4, **fields}
        message = {"timeout_ms": 1_000, "feature_updates": [update], "validate_only": validate_only}
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


Scenario = Callable[[MemoryZk, FinalizedFeatures, VirtualClock], Coroutine[Any, Any, None]]


def following(scenario: Scenario, before: Feature | None = None) -> None:
    async def main() -> None:
        tree, clock = MemoryTree(), VirtualClock()
        zk, other = MemoryZk(tree), MemoryZk(tree)
        if before is not None:
            await other.create(FEATURE, before.encode())
        features = FinalizedFeatures(zk, clock)
        await features.start()
        try:
            zk.failures = [ConnectionLost("gone")] * 3
            await scenario(other, features, clock)
        finally:
            await features.close()
            await features.close()

    run_virtual(main())


def test_changes_of_finalized_features_are_read() -> None:
    async def scenario(zk: MemoryZk, features: FinalizedFeatures, clock: VirtualClock) -> None:
        assert features.current == NOTHING_FINALIZED
        await zk.create(FEATURE, Feature(enabled=True, features={"a": 3}).encode())
        await clock.sleep_ms(10_000)
        assert features.current == Finalized(0, {"a": 3})
        await zk.set(FEATURE, Feature(enabled=True, features={"a": 4}).encode())
        await clock.sleep_ms(10)
        assert features.current == Finalized(1, {"a": 4})
        await zk.set(FEATURE, Feature(enabled=False).encode())
        await clock.sleep_ms(10)
        assert features.current == NOTHING_FINALIZED

    following(scenario)


@pytest.mark.parametrize("end", [b"no feature", None])
def test_an_invalid_znode_counts_as_empty(end: bytes | None) -> None:
    async def scenario(zk: MemoryZk, features: FinalizedFeatures, clock: VirtualClock) -> None:
        assert features.current == Finalized(0, {"a": 3})
        await (zk.delete(FEATURE) if end is None else zk.set(FEATURE, end))
        await clock.sleep_ms(10_000)
        assert features.current == NOTHING_FINALIZED

    following(scenario, Feature(enabled=True, features={"a": 3}))


@pytest.mark.parametrize("finalized", [NOTHING_FINALIZED, Finalized(0, {}), Finalized(7, {"b": 2, "a": 1})])
def test_every_broker_returns_the_finalized_features(finalized: Finalized) -> None:
    async def main() -> None:
        handlers = MetadataHandlers(
            config=BrokerConfig(),
            cluster_id="c",
            view=MetadataCache(),
            creator=cast("TopicCreator", None),
            finalized=lambda: finalized,
        )
        context = RequestContext(
            api_key=ApiKey.API_VERSIONS,
            api_version=0,
            client_id=None,
            client_host="::1",
            listener="PLAINTEXT",
            identity=Identity(ANONYMOUS, "::1", "PLAINTEXT", "PLAINTEXT"),
        )
        for version in range(API_TABLE[ApiKey.API_VERSIONS].max_version + 1):
            request = ApiVersionsRequest(client_software_name="tester", client_software_version="1")
            message = await handlers.api_versions(replace(context, api_version=version), request)
            frame = memoryview(encode_response(ApiKey.API_VERSIONS, version, 1, message)[4:])
            answer = decode_response(ApiKey.API_VERSIONS, version, frame)
            if version < 3:
                continue
            assert answer.finalized_features_epoch == finalized.epoch
            finalized_levels = [
                (one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features
            ]
            assert finalized_levels == [(name, level, level) for name, level in sorted(finalized.levels.items())]
            supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
            assert supported == [("transaction.version", 0 if version >= 4 else 1, 2)]

    run_virtual(main())
