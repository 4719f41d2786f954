"""AlterReplicaLogDirs, DescribeLogDirs and DeleteRecords over the wire, in every version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.messages.log_dirs import AlterReplicaLogDirsResponse
from odradek.replication.replica_requests import AppendRequest
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import record_set
from odradek_testkit.server import MemoryServer

TP = TopicPartition("events", 0)
GIB = 1 << 30


def versions(api_key: ApiKey) -> range:
    api = API_TABLE[api_key]
    return range(api.min_version, api.max_version + 1)


class Scene:
    """A server with two directories, and a topic of two partitions of which it leads the first."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = VirtualClock()
        self.disks = [str(tmp_path / "disk-0"), str(tmp_path / "disk-1")]
        self.server = MemoryServer(tmp_path, self.clock, settings={"log.dirs": ",".join(self.disks)})

    async def __aenter__(self) -> MemoryServer:
        await self.server.start()
        await self.server.announce("events", {0: [1], 1: [2, 3]}, brokers=(1, 2, 3))
        for _ in range(5):
            entries = [(TP, record_set(b"value"))]
            self.server.replicas.append(AppendRequest(1, 1000, entries), lambda results: None)
        return self.server

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()


def partitions(response: Any) -> dict[tuple[str, int], Any]:
    """Return the entries of a response by topic and partition."""
    topics = response.results if isinstance(response, AlterReplicaLogDirsResponse) else response.topics
    return {
        (getattr(topic, "name", None) or topic.topic_name, each.partition_index): each
        for topic in topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_REPLICA_LOG_DIRS))
def test_a_replica_moves(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        scene = Scene(tmp_path)
        async with scene as server:
            (target,) = set(scene.disks) - {server.logs.directory_of(TP)}
            topics = [{"name": "events", "partitions": [0, 1]}, {"name": "nowhere", "partitions": [7]}]
            dirs = [
                {"path": target, "topics": topics},
                {"path": str(tmp_path), "topics": [{"name": "lost", "partitions": [0]}]},
            ]
            response = await server.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, {"dirs": dirs})
            codes = {key: int(each.error_code) for key, each in partitions(response).items()}
            assert codes == {("events", 0): 0, ("events", 1): 9, ("nowhere", 7): 3, ("lost", 0): 57}
            await scene.clock.sleep_ms(1000)
            assert server.logs.directory_of(TP) == target

    run_virtual(main())


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_directories_are_described(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        scene = Scene(tmp_path)
        async with scene as server:
            (target,) = set(scene.disks) - {server.logs.directory_of(TP)}
            server.logs.create_future(TP, target)
            log = server.logs.get(TP)
            assert log is not None
            for topics, count in ((None, 1), ([{"topic": "events", "partitions": [0]}], 1), ([], 0)):
                response = await server.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})
                assert {result.log_dir for result in response.results} == set(scene.disks)
                for result in response.results:
                    found = partitions(result)
                    assert len(found) == count
                    assert int(result.error_code) == 0
                    if version >= 4:
                        assert 0 < result.usable_bytes <= result.total_bytes
                    for each in found.values():
                        is_future = result.log_dir == target
                        assert each.is_future_key is is_future
                        assert each.partition_size == (0 if is_future else log.size_bytes)
                        assert each.offset_lag == (5 if is_future else 0)

    run_virtual(main())


def test_a_failed_directory_has_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        from odradek.base.errors import StorageError

        scene = Scene(tmp_path)
        async with scene as server:
            log = server.logs.get(TP)
            assert log is not None
            failed = server.logs.directory_of(TP)
            server.logs.directory_failed(log, StorageError("dead", path=log.directory))
            await asyncio.sleep(0.1)
            response = await server.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
            found = {result.log_dir: result for result in response.results}
            assert int(found[failed].error_code) == 56
            assert (found[failed].topics, found[failed].usable_bytes) == ((), -1)
            assert sum(int(result.error_code) for result in response.results) == 56

    run_virtual(main())


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_records_are_deleted(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as server:
            topics = [
                {"name": "events", "partitions": [{"partition_index": n, "offset": 3} for n in (0, 1, 9)]},
                {"name": "nowhere", "partitions": [{"partition_index": 0, "offset": -1}]},
            ]
            response = await server.ask(ApiKey.DELETE_RECORDS, version, {"topics": topics, "timeout_ms": 1000})
            found = {key: (int(each.error_code), each.low_watermark) for key, each in partitions(response).items()}
            assert found == {
                ("events", 0): (0, 3),
                ("events", 1): (6, -1),
                ("events", 9): (3, -1),
                ("nowhere", 0): (3, -1),
            }
            offsets = [{"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}]
            request = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "events", "partitions": offsets}]}
            answer = await server.ask(ApiKey.LIST_OFFSETS, 7, request)
            assert answer.topics[0].partitions[0].offset == 3

    run_virtual(main())
