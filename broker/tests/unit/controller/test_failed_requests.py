"""Failed requests: the error for the client, and whether this broker remains the controller."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import (
    InvalidReplicaAssignmentError,
    NotControllerError,
    PolicyViolationError,
    UnknownServerError,
)
from odradek.base.types import TopicPartition
from odradek.controller.reassignment.reassigner import Reassigner
from odradek.controller.reign import Reign
from odradek.protocol.apis import ApiKey
from odradek.zk import layout
from odradek.zk.layout import ReplicaAssignment, TopicAssignment
from odradek.zk.port import ConnectionLost, InvalidPath
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.reigning import ReigningServer

Play = Callable[[Callable[[ReigningServer], Any]], None]
T0 = TopicPartition("t", 0)
LIST = {"timeout_ms": 1_000, "topics": None}


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(scenario: Callable[[ReigningServer], Any]) -> None:
        async def main() -> None:
            server = ReigningServer(tmp_path, VirtualClock())
            await server.start()
            wanted = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
            request = {"topics": [wanted], "timeout_ms": 5_000, "validate_only": False}
            assert (await server.ask(ApiKey.CREATE_TOPICS, 7, request)).topics[0].error_code == 0
            try:
                await scenario(server)
            finally:
                await server.close()

        run_virtual(main())

    return run


def raises(error: Exception) -> Callable[..., Any]:
    def fail(*args: object, **kwargs: object) -> Any:
        raise error

    return fail


async def elect(server: ReigningServer) -> Any:
    wanted = {"topic": "t", "partitions": [0]}
    request = {"election_type": 1, "topic_partitions": [wanted], "timeout_ms": 1_000}
    return await server.ask(ApiKey.ELECT_LEADERS, 2, request)


async def until_reigning_again(server: ReigningServer, epoch: int) -> None:
    while not server.runtime.is_active:
        await server.clock.sleep_ms(10)
    assert server.runtime.epoch > epoch


def test_a_bug_before_any_change_only_fails_the_request(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: ReigningServer) -> None:
        epoch = server.runtime.epoch
        with monkeypatch.context() as patched:
            patched.setattr(Reassigner, "list", raises(KeyError("bug")))
            for _ in range(3):
                answer = await server.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST)
                assert answer.error_code == UnknownServerError.code
        assert (server.runtime.is_active, server.runtime.epoch) == (True, epoch)
        assert (await server.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST)).error_code == 0

    play(scenario)
    logged = [record for record in caplog.records if record.exc_info is not None]
    assert len(logged) == 3
    assert all(record.levelno == logging.ERROR and "remains the controller" in record.message for record in logged)


def test_a_bug_after_a_change_ends_the_reign_and_its_client_does_not_try_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: ReigningServer) -> None:
        epoch = server.runtime.epoch
        with monkeypatch.context() as patched:

            async def half_done(reign: Reign, *args: object, **kwargs: object) -> Any:
                await reign.store.delete_each([layout.PREFERRED_ELECTION])
                raise KeyError("bug")

            patched.setattr(Reign, "elect", half_done)
            assert (await elect(server)).error_code == UnknownServerError.code
            assert not server.runtime.is_active
        await until_reigning_again(server, epoch)

    play(scenario)


def test_a_shutdown_that_failed_after_the_image_changed_ends_the_reign(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: ReigningServer) -> None:
        epoch = server.runtime.epoch
        with monkeypatch.context() as patched:
            patched.setattr(Reign, "elect", raises(KeyError("bug")))
            with pytest.raises(UnknownServerError):
                await server.runtime.controlled_shutdown(1, server.broker_epoch)
        await until_reigning_again(server, epoch)

    play(scenario)


def test_without_zookeeper_the_client_asks_the_next_controller(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: ReigningServer) -> None:
        epoch = server.runtime.epoch
        with monkeypatch.context() as patched:
            patched.setattr(Reassigner, "list", raises(ConnectionLost("the connection was lost")))
            answer = await server.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST)
            assert answer.error_code == NotControllerError.code
        await until_reigning_again(server, epoch)

    play(scenario)


def test_an_invalid_path_fails_only_the_request(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: ReigningServer) -> None:
        epoch = server.runtime.epoch
        monkeypatch.setattr(Reassigner, "list", raises(InvalidPath("not an absolute path", "x")))
        answer = await server.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST)
        assert answer.error_code == UnknownServerError.code
        assert (server.runtime.is_active, server.runtime.epoch) == (True, epoch)

    play(scenario)


def test_an_assignment_too_large_for_zookeeper_is_refused(play: Play) -> None:
    async def scenario(server: ReigningServer) -> None:
        epoch, runtime = server.runtime.epoch, server.runtime
        moving = ReplicaAssignment(replicas=(2, 1), adding=(2,), removing=(1,))
        topic = TopicAssignment(topic="u", topic_id=None, partitions=dict.fromkeys(range(200), moving))
        await server.zk.create(topic.path, topic.encode())
        wanted = TopicPartition("u", 199)
        while wanted not in await runtime.list_reassignments(None):
            await server.clock.sleep_ms(10)
        server.zk.max_request_bytes = 1_000
        results = await runtime.alter_reassignments({wanted: None, T0: (1,)})
        refused = results[wanted]
        assert isinstance(refused, PolicyViolationError)
        assert "zookeeper.jute.maxbuffer" in str(refused)
        assert results[T0] is None
        assert (runtime.is_active, runtime.epoch) == (True, epoch)

    play(scenario)


def test_settings_too_large_for_zookeeper_are_refused_and_the_session_survives(play: Play) -> None:
    async def scenario(server: ReigningServer) -> None:
        settings = [{"name": f"unknown-{i}", "value": "x" * 32_000, "config_operation": 0} for i in range(40)]
        resource = {"resource_type": 4, "resource_name": "1", "configs": settings}
        request = {"resources": [resource], "validate_only": False}
        answer = await server.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert answer.responses[0].error_code == PolicyViolationError.code
        assert server.runtime.is_active

    play(scenario)


def test_an_error_message_truncates_a_long_value(play: Play) -> None:
    async def scenario(server: ReigningServer) -> None:
        wanted = {"name": "v", "num_partitions": -1, "replication_factor": -1}
        assigned = {**wanted, "assignments": [{"partition_index": 0, "broker_ids": range(20_000)}], "configs": ()}
        request = {"topics": [assigned], "timeout_ms": 5_000, "validate_only": False}
        answer = (await server.ask(ApiKey.CREATE_TOPICS, 7, request)).topics[0]
        assert answer.error_code == InvalidReplicaAssignmentError.code
        assert "unknown brokers" in answer.error_message and len(answer.error_message) < 3_000

    play(scenario)
