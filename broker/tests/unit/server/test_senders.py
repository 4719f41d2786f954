"""Requests between brokers: the listeners and the controllers from which they are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    NONE,
    ClusterAuthorizationFailedError,
    ConfigError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
)
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.server.senders import LAG_MS
from odradek.zk import layout
from odradek.zk.layout import ControllerRegistration
from odradek.zk.port import ConnectionLost
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.reigning import ReigningServer
from odradek_testkit.server import BROKER_EPOCH, MemoryServer

Play = Callable[..., None]
TWO_LISTENERS = {
    "listeners": "PLAINTEXT://localhost:9092,REPLICATION://localhost:9091",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
    "inter.broker.listener.name": "REPLICATION",
}
INTERNAL = [key for key, api in API_TABLE.items() if api.internal]
SENDER: Message = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": BROKER_EPOCH}
BODIES: dict[ApiKey, Message] = {
    ApiKey.LEADER_AND_ISR: {**SENDER, "type": 0, "topic_states": [], "live_leaders": []},
    ApiKey.STOP_REPLICA: {**SENDER, "topic_states": [], "topics": [], "delete_partitions": False},
    ApiKey.UPDATE_METADATA: {**SENDER, "topic_states": [], "live_brokers": []},
    ApiKey.CONTROLLED_SHUTDOWN: {"broker_id": 1, "broker_epoch": BROKER_EPOCH},
    ApiKey.ALTER_PARTITION: {"broker_id": 1, "broker_epoch": BROKER_EPOCH, "topics": []},
    ApiKey.ALLOCATE_PRODUCER_IDS: {"broker_id": 1, "broker_epoch": BROKER_EPOCH},
}


async def code_of(server: MemoryServer, api_key: ApiKey, listener: str, version: int | None = None) -> int:
    number = API_TABLE[api_key].max_version if version is None else version
    return int((await server.connect(listener).ask(api_key, number, BODIES[api_key])).error_code)


@pytest.mark.parametrize("api_key", INTERNAL, ids=lambda key: API_TABLE[key].name)
def test_requests_between_brokers_are_served_on_their_listener_only(
    play: Play, api_key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: MemoryServer) -> None:
        for _ in range(3):
            refused = await code_of(server, api_key, "PLAINTEXT")
            assert refused == ClusterAuthorizationFailedError.code
        assert server.view.image.brokers == {}
        assert await code_of(server, api_key, "REPLICATION") != ClusterAuthorizationFailedError.code

    play(scenario, settings=TWO_LISTENERS)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "192.0.2.7" in warning and "inter.broker.listener.name" in warning


def test_a_refused_request_is_not_decoded(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        whole = codec.encode_request(ApiKey.UPDATE_METADATA, 8, 1, None, BODIES[ApiKey.UPDATE_METADATA])[4:-1]
        frame = len(whole).to_bytes(4, "big") + whole
        answer = await server.connect().send(frame)
        response: Any = codec.decode_response(ApiKey.UPDATE_METADATA, 8, answer[4:])
        assert response.error_code == ClusterAuthorizationFailedError.code

    play(scenario, settings=TWO_LISTENERS)


def test_a_broker_with_one_listener_serves_all_requests_on_it(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        assert await code_of(server, ApiKey.UPDATE_METADATA, "PLAINTEXT") == NONE

    play(scenario)


def test_more_listeners_may_be_named_while_the_inter_broker_listener_is_changed(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        for listener in ("PLAINTEXT", "REPLICATION"):
            assert await code_of(server, ApiKey.UPDATE_METADATA, listener) == NONE

    play(scenario, settings={**TWO_LISTENERS, "inter.broker.request.listeners": "PLAINTEXT"})


def test_an_unknown_listener_cannot_be_named() -> None:
    properties = {"broker.id": "1", "zookeeper.connect": "z:1", "inter.broker.request.listeners": "OTHER"}
    with pytest.raises(ConfigError, match="'OTHER'"):
        BrokerConfig.parse(properties)


def test_clients_still_learn_of_every_api(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        request = {"client_software_name": "c", "client_software_version": "1"}
        answer = await server.ask(ApiKey.API_VERSIONS, 3, request)
        assert {int(key) for key in INTERNAL} <= {item.api_key for item in answer.api_keys}

    play(scenario, settings=TWO_LISTENERS)


# Controllers


def reigning(tmp_path: Path, scenario: Callable[[ReigningServer], Any]) -> None:
    async def main() -> None:
        server = ReigningServer(tmp_path, VirtualClock())
        await server.start()
        try:
            await scenario(server)
        finally:
            await server.close()

    run_virtual(main())


async def update(server: ReigningServer, **changed: int) -> int:
    """A request with an empty list of brokers, which would remove this broker from the image."""
    sender = {"controller_id": 1, "controller_epoch": server.runtime.epoch, "broker_epoch": server.broker_epoch}
    message: Message = {**sender, **changed, "topic_states": [], "live_brokers": []}
    return int((await server.connect().ask(ApiKey.UPDATE_METADATA, 8, message)).error_code)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"controller_epoch": 2**31 - 1}, StaleControllerEpochError.code),
        ({"controller_epoch": 0}, StaleControllerEpochError.code),
        ({"controller_id": 2}, StaleControllerEpochError.code),
        ({"broker_epoch": 2**62}, StaleBrokerEpochError.code),
        ({"broker_epoch": 0}, StaleBrokerEpochError.code),
    ],
    ids=["later epoch", "earlier epoch", "another id", "unknown broker epoch", "earlier broker epoch"],
)
def test_a_controller_of_another_cluster_is_refused(tmp_path: Path, changed: dict[str, int], code: int) -> None:
    async def scenario(server: ReigningServer) -> None:
        image = server.view.image
        assert await update(server, **changed) == code
        assert server.view.image is image
        assert await update(server) == NONE

    reigning(tmp_path, scenario)


def test_a_mismatch_is_checked_again_while_the_zookeeper_server_may_be_behind(tmp_path: Path) -> None:
    async def scenario(server: ReigningServer) -> None:
        await server.runtime.close()
        epoch = layout.decode_controller_epoch((await server.zk.get(layout.CONTROLLER_EPOCH))[0])
        asked = asyncio.ensure_future(update(server, controller_id=2, controller_epoch=epoch + 1))
        await server.clock.sleep_ms(LAG_MS / 2)
        assert not asked.done()
        registration = ControllerRegistration(broker_id=2, timestamp_ms=0)
        await server.zk.create(layout.CONTROLLER, registration.encode(), ephemeral=True)
        await server.zk.set(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch + 1))
        assert await asked == NONE
        assert server.view.image.controller_id == 2

    reigning(tmp_path, scenario)


def test_a_known_controller_is_not_read_again_and_without_zookeeper_any_is_accepted(tmp_path: Path) -> None:
    async def scenario(server: ReigningServer) -> None:
        assert await update(server) == NONE
        await server.runtime.close()
        before = len(server.zk.failures)
        server.zk.failures = [ConnectionLost("away", "/")]
        assert await update(server, controller_epoch=1) == NONE
        assert len(server.zk.failures) == before + 1
        assert await update(server, controller_id=2, controller_epoch=2) == NONE
        assert server.zk.failures == []

    reigning(tmp_path, scenario)
