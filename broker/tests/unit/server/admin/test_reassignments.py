"""Requests and responses of AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.errors import InvalidReplicaAssignmentError, NotControllerError
from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.zk.layout import ReplicaAssignment
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ALTER, LIST = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS
WISHES = {
    "timeout_ms": 1_000,
    "topics": [
        {
            "name": "t",
            "partitions": [
                {"partition_index": 0, "replicas": [3, 1]},
                {"partition_index": 1, "replicas": None},
            ],
        },
        {"name": "u", "partitions": [{"partition_index": 0, "replicas": [9]}]},
    ],
}


def test_each_partition_has_a_result(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        server.controller.outcomes = {U0: InvalidReplicaAssignmentError("9 is dead")}
        response = await server.ask(ALTER, 0, WISHES)
        assert server.controller.asked == [{T0: (3, 1), T1: None, U0: (9,)}]
        assert (response.error_code, response.error_message) == (0, None)
        found = {
            (topic.name, part.partition_index): (int(part.error_code), part.error_message)
            for topic in response.responses
            for part in topic.partitions
        }
        assert found == {("t", 0): (0, None), ("t", 1): (0, None), ("u", 0): (39, "9 is dead")}

    play(scenario)


def test_the_list_has_reassignments_in_progress(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        moving = ReplicaAssignment(replicas=(3, 1, 2), adding=(3,), removing=(2,))
        server.controller.reassignments = {T0: moving, U0: moving}

        async def listed(topics: object) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
            response = await server.ask(LIST, 0, {"timeout_ms": 1_000, "topics": topics})
            return [
                (topic.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
                for topic in response.topics
                for part in topic.partitions
            ]

        every = [("t", 0, (3, 1, 2), (3,), (2,)), ("u", 0, (3, 1, 2), (3,), (2,))]
        assert await listed(None) == every
        assert await listed([{"name": "t", "partition_indexes": [0, 1]}]) == every[:1]
        assert await listed([]) == []

    play(scenario)


def test_another_broker_is_the_controller(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        server.controller.is_active = False
        for api_key, message in ((ALTER, WISHES), (LIST, {"timeout_ms": 1, "topics": None})):
            response = await server.ask(api_key, 0, message)
            assert int(response.error_code) == NotControllerError.code
            assert response.error_message == "another broker is the controller"

    play(scenario)
