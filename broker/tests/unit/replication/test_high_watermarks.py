"""The high watermark checkpoint across restarts."""

from __future__ import annotations

from pathlib import Path

from odradek.base.types import TopicPartition
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryCluster

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_high_watermarks_are_kept_until_their_log_gets_a_role(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        cluster = MemoryCluster(tmp_path, clock)
        broker = await cluster.start_broker(1)
        for tp in (TP, OTHER):
            cluster.create(tp, (1,))
            assert (await broker.append(tp, b"a", b"b")).error_code == 0
        await broker.close()
        for clean in (False, False):
            broker = await cluster.start_broker(1)
            cluster.elect(TP, leader=1, isr=(1,), inform=(1,))
            assert (await broker.append(TP, b"c")).error_code == 0
            await clock.sleep_ms(6000)
            await broker.close(clean=clean)
        broker = await cluster.start_broker(1)
        assert broker.logs.read_high_watermarks() == {TP: 4, OTHER: 2}
        await cluster.close()

    run_virtual(main())


def test_a_high_watermark_is_claimed_once(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = MemoryCluster(tmp_path, VirtualClock())
        broker = await cluster.start_broker(1)
        cluster.create(TP, (1,))
        assert (await broker.append(TP, b"a", b"b")).error_code == 0
        await broker.close()
        broker = await cluster.start_broker(1)
        marks = broker.replicas.roles._marks
        assert (marks.claim(TP), marks.claim(TP), marks.claim(OTHER)) == (2, 0, 0)
        await cluster.close()

    run_virtual(main())
