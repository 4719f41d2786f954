"""The dispatcher: results and failures of handlers, and their effect on the client and the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import (
    ConfigError,
    InvalidConfigError,
    InvalidRequestError,
    KafkaStorageError,
    NetworkError,
    RequestTimedOutError,
    StorageError,
    UnknownServerError,
    UnsupportedVersionError,
)
from odradek.metrics.request_stats import RequestStats
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, decode_response, encode_request
from odradek.server.dispatch import Dispatcher
from odradek.zk.port import BadVersion, ConnectionLost, SessionExpired
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.server import MemoryServer

CLUSTER: Message = {"include_cluster_authorized_operations": False, "endpoint_type": 1}


def replaced(answer: Callable[[], Awaitable[Message]]) -> dict[ApiKey, Any]:
    async def handler(context: object, request: object) -> Message:
        return await answer()

    return {ApiKey.DESCRIBE_CLUSTER: handler}


@pytest.mark.parametrize(
    ("raised", "answered"),
    [
        (InvalidRequestError("no"), InvalidRequestError),
        (StorageError("the disk is gone"), KafkaStorageError),
        (ConfigError("a=b is not allowed"), InvalidConfigError),
        (ConnectionLost("gone"), RequestTimedOutError),
        (SessionExpired("gone"), RequestTimedOutError),
        (BadVersion("other"), UnknownServerError),
        (KeyError("a bug"), UnknownServerError),
    ],
)
def test_errors_become_codes_and_the_connection_stays_open(
    play: Callable[..., None], raised: Exception, answered: type[UnknownServerError]
) -> None:
    async def fail() -> Message:
        raise raised

    async def scenario(server: MemoryServer) -> None:
        for _ in range(2):
            answer = await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)
            assert answer.error_code == answered.code
        assert server.request_stats.errors == {("DescribeCluster", answered.code): 2}
        assert server.request_stats.counts["DescribeCluster", 1] == 2

    play(scenario, replace=replaced(fail))


def test_an_answer_that_does_not_fit_its_version_is_a_failure_of_the_broker(play: Callable[..., None]) -> None:
    async def nonsense() -> Message:
        return {"colour": "blue"}

    async def scenario(server: MemoryServer) -> None:
        assert (await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)).error_code == UnknownServerError.code

    play(scenario, replace=replaced(nonsense))


def test_an_error_without_a_response_closes_the_connection(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> Message:
        raise InvalidRequestError("no")

    async def scenario(server: MemoryServer) -> None:
        monkeypatch.setattr("odradek.server.dispatch.failure", lambda *_: None)
        with pytest.raises(NetworkError):
            await server.connect().ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)
        monkeypatch.setattr("odradek.server.dispatch.failure", lambda *_: {"colour": "blue"})
        with pytest.raises(NetworkError):
            await server.connect().ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)

    play(scenario, replace=replaced(fail))


def test_closing_cancels_requests_in_progress(play: Callable[..., None]) -> None:
    begun: list[str] = []

    async def forever() -> Message:
        try:
            begun.append("begun")
            await asyncio.get_running_loop().create_future()
        finally:
            begun.append("ended")
        return {}

    async def scenario(server: MemoryServer) -> None:
        peer = server.connect()
        asking = asyncio.ensure_future(peer.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER))
        for _ in range(5):
            await asyncio.sleep(0)
        await server.dispatcher.close()
        await server.dispatcher.close()
        with pytest.raises(NetworkError):
            await asking
        assert begun == ["begun", "ended"]
        assert peer.is_aborted

    play(scenario, replace=replaced(forever))


def test_a_newer_client_learns_our_versions(play: Callable[..., None]) -> None:
    """The response to version 99 of ApiVersions has version 0 and the supported versions (KIP-511)."""

    async def scenario(server: MemoryServer) -> None:
        software: Message = {"client_software_name": "x", "client_software_version": "1"}
        frame = bytearray(encode_request(ApiKey.API_VERSIONS, 4, 9, "c", software))
        frame[6:8] = (99).to_bytes(2, "big")
        answer = decode_response(ApiKey.API_VERSIONS, 0, (await server.peer.send(bytes(frame)))[4:])
        row = API_TABLE[ApiKey.API_VERSIONS]
        assert answer.error_code == UnsupportedVersionError.code
        assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [
            (row.key, row.min_version, row.max_version)
        ]
        assert (await server.ask(ApiKey.API_VERSIONS, 3, software)).error_code == 0

    play(scenario)


def test_handlers_and_api_table_must_agree(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="differ"):
            Dispatcher(handlers={}, direct={}, stats=RequestStats(), clock=VirtualClock())

    run_virtual(main())
