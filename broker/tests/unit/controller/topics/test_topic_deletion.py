"""Deletion of topics: the steps that are possible in each state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.base.errors import TopicAlreadyExistsError
from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext, Replica, ReplicaStatus
from odradek.controller.topics.topic_deletion import next_steps, replicas_to_delete
from odradek.protocol.apis import ApiKey
from odradek_testkit.inline_ports import StallingThreads
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.reigning import ReigningServer

T0 = TopicPartition("t", 0)
TOPIC = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
Build = Callable[..., ControllerContext]
R = ReplicaStatus


@pytest.mark.parametrize(
    ("statuses", "blocked", "finished", "retried", "started"),
    [
        ((R.ONLINE, R.ONLINE), False, [], [], ["t"]),
        ((R.ONLINE, R.ONLINE), True, [], [], []),
        ((R.DELETION_STARTED, R.OFFLINE), False, [], [], []),
        ((R.DELETION_STARTED, R.DELETION_INELIGIBLE), False, [], [], []),
        ((R.DELETION_SUCCESSFUL, R.DELETION_INELIGIBLE), True, [], [], []),
        ((R.DELETION_SUCCESSFUL, R.DELETION_INELIGIBLE), False, [], [2], ["t"]),
        ((R.DELETION_SUCCESSFUL, R.DELETION_SUCCESSFUL), False, ["t"], [], []),
        ((R.DELETION_SUCCESSFUL, R.DELETION_SUCCESSFUL), True, ["t"], [], []),
    ],
)
def test_steps(
    build: Build,
    statuses: tuple[ReplicaStatus, ReplicaStatus],
    blocked: bool,
    finished: list[str],
    retried: list[int],
    started: list[str],
) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1, 2))})
    context.deletions = {"t"}
    context.blocked_deletions = {"t": "why"} if blocked else {}
    context.replica_status = {Replica(T0, 1): statuses[0], Replica(T0, 2): statuses[1]}
    steps = next_steps(context)
    assert steps.finished == finished
    assert [replica.broker for replica in steps.retried] == retried
    assert steps.started == started


def test_topics_that_are_not_marked_are_not_changed(build: Build) -> None:
    steps = next_steps(build([1], {0: ((1,), 1, (1,))}))
    assert (steps.finished, steps.retried, steps.started) == ([], [], [])


def test_dead_replicas_block_and_deleted_ones_do_not(build: Build) -> None:
    context = build([1, 2], {0: ((1, 2, 3, 4), 1, (1,))})
    context.shutting_down = {2}
    context.replica_status[Replica(T0, 4)] = R.DELETION_SUCCESSFUL
    split = replicas_to_delete(context, "t")
    assert [replica.broker for replica in split.alive] == [1, 2]
    assert [replica.broker for replica in split.dead] == [3]


def test_a_topic_exists_until_a_slow_disk_has_made_its_deletion_durable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a power failure could bring the old log back under the name of a new topic."""

    async def main() -> None:
        disks = StallingThreads()
        server = ReigningServer(tmp_path, VirtualClock(), disk_threads=disks)
        await server.start()

        async def create() -> int:
            request = {"topics": [TOPIC], "timeout_ms": 5_000, "validate_only": False}
            return int((await server.ask(ApiKey.CREATE_TOPICS, 7, request)).topics[0].error_code)

        try:
            assert await create() == 0
            disks.stall(str(tmp_path))
            await server.ask(ApiKey.DELETE_TOPICS, 4, {"topic_names": ["t"], "timeout_ms": 100})
            for _ in range(2):
                await server.clock.sleep_ms(5_000)
                assert await create() == TopicAlreadyExistsError.code
            assert "the deletion of topic t waits: the disk of a broker is slow" in caplog.text
            disks.resume(str(tmp_path))
            async with asyncio.timeout(60):
                while await create():
                    await server.clock.sleep_ms(100)
        finally:
            disks.resume(str(tmp_path))
            await server.close()

    caplog.set_level(logging.INFO)
    run_virtual(main())
