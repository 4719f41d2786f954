"""Offsets of old consumers in ZooKeeper: which are read and which are ignored. The live test uses a real ensemble."""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek_operator.exporter.exporter_settings import ExporterSettings, NameFilter
from odradek_operator.exporter.zookeeper_groups import read_commits
from odradek_testkit.loop import run_virtual

ZNODES = {
    "/consumers/g/offsets/t/0": b"10",
    "/consumers/g/offsets/t/1": b"20",
    "/consumers/g/offsets/hidden/0": b"30",
    "/consumers/g/ids/member": b"{}",
    "/consumers/h/offsets/t/0": b"no offset",
    "/consumers/h/offsets/t/1": b"-1",
    "/consumers/h/offsets/t/x": b"1",
    "/consumers/h/offsets/t/2": b"5",
    "/consumers/hidden/offsets/t/0": b"5",
    "/consumers/empty/ids/member": b"{}",
}


def test_offsets_are_read_and_everything_else_is_passed_over() -> None:
    async def main() -> dict[str, dict[TopicPartition, int]]:
        zk = MemoryZk(MemoryTree())
        for path, data in ZNODES.items():
            await zk.create(path, data, make_parents=True)
        visible = NameFilter.of(".*", "hidden")
        return await read_commits(zk, ExporterSettings(topics=visible, groups=visible))

    assert run_virtual(main()) == {
        "g": {TopicPartition("t", 0): 10, TopicPartition("t", 1): 20},
        "h": {TopicPartition("t", 2): 5},
    }


def test_an_ensemble_that_no_consumer_uses_has_none() -> None:
    assert run_virtual(read_commits(MemoryZk(MemoryTree()), ExporterSettings())) == {}
