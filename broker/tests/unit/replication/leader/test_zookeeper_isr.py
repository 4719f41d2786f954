"""ISR changes that leaders write to ZooKeeper, with ZooKeeper in memory."""

from __future__ import annotations

import json

import pytest

from odradek.base.errors import InvalidUpdateVersionError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.replication.leader.zookeeper_isr import ZooKeeperIsrWriter
from odradek.replication.replica_requests import CommittedIsr
from odradek.testing.memory_zk import MemoryZk
from odradek.zk import layout
from odradek_testkit.loop import VirtualClock, run_virtual

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
PATH = layout.partition_state_path(TP)
STATE = layout.PartitionState(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=7)


class Bench:
    """A writer, and the states of two partitions in ZooKeeper."""

    def __init__(self) -> None:
        self.zk = MemoryZk()
        self.clock = VirtualClock()
        self.writer = ZooKeeperIsrWriter(self.zk, self.clock, broker_id=1, controller_epoch=lambda: 7)

    async def start(self) -> None:
        for tp in (TP, OTHER):
            await self.zk.create(layout.partition_state_path(tp), STATE.encode(), make_parents=True)
        await self.zk.create(layout.ISR_CHANGES, b"", make_parents=True)

    async def notices(self) -> list[set[int]]:
        found = []
        for child in sorted(await self.zk.children(layout.ISR_CHANGES)):
            data, _ = await self.zk.get(f"{layout.ISR_CHANGES}/{child}")
            found.append({each["partition"] for each in json.loads(data)["partitions"]})
        return found


def test_a_change_is_written_on_condition_and_announced_with_others() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.start()
        answer = await bench.writer.alter_isr(TP, 4, (1,), 0)
        assert answer == CommittedIsr(leader=1, leader_epoch=4, isr=(1,), partition_epoch=1)
        data, stat = await bench.zk.get(PATH)
        assert stat.version == 1
        assert layout.PartitionState.decode(TP, data) == layout.PartitionState(
            leader=1, leader_epoch=4, isr=(1,), controller_epoch=7
        )
        await bench.writer.alter_isr(OTHER, 4, (1,), 0)
        assert await bench.notices() == []
        await bench.clock.sleep_ms(2600)
        assert await bench.notices() == [{0, 1}]
        await bench.writer.alter_isr(TP, 4, (1, 2), 1)
        await bench.clock.sleep_ms(2600)
        assert await bench.notices() == [{0, 1}, {0}]
        await bench.writer.close()

    run_virtual(main())


def test_the_state_of_another_writer_is_kept() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.start()
        await bench.zk.set(PATH, layout.PartitionState(leader=2, leader_epoch=5, isr=(2,), controller_epoch=8).encode())
        with pytest.raises(InvalidUpdateVersionError):
            await bench.writer.alter_isr(TP, 4, (1,), 0)
        data, _ = await bench.zk.get(PATH)
        assert layout.PartitionState.decode(TP, data).leader == 2
        with pytest.raises(UnknownTopicOrPartitionError):
            await bench.writer.alter_isr(TopicPartition("gone", 0), 4, (1,), 0)
        await bench.clock.sleep_ms(10_000)
        assert await bench.notices() == []
        await bench.writer.close()

    run_virtual(main())


def test_our_own_write_whose_answer_was_lost_counts() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.start()
        await bench.writer.alter_isr(TP, 4, (1,), 0)
        assert (await bench.writer.alter_isr(TP, 4, (1,), 0)).partition_epoch == 1
        with pytest.raises(InvalidUpdateVersionError):
            await bench.writer.alter_isr(TP, 4, (1, 2), 0)
        await bench.writer.close()
        await bench.writer.close()

    run_virtual(main())


def test_a_notification_is_retried_until_zookeeper_accepts_it() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.start()
        await bench.zk.delete(layout.ISR_CHANGES)
        await bench.writer.alter_isr(TP, 4, (1,), 0)
        await bench.clock.sleep_ms(6000)
        await bench.zk.create(layout.ISR_CHANGES, b"", make_parents=True)
        await bench.clock.sleep_ms(3000)
        assert await bench.notices() == [{0}]
        await bench.writer.close()

    run_virtual(main())
