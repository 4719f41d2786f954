"""A broker that may have lost records registers only when it is in no ISR."""

from __future__ import annotations

import asyncio

from odradek.base.types import TopicPartition
from odradek.testing.memory_zk import MemoryZk
from odradek.zk import layout
from odradek.zk.layout import PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.rejoining import until_out_of_sync
from odradek_testkit.loop import VirtualClock, run_virtual

T0 = TopicPartition("t", 0)


async def cluster(*registered: int, isr: tuple[int, ...]) -> MemoryZk:
    zk = MemoryZk()
    assignment = TopicAssignment(topic="t", partitions={0: ReplicaAssignment(replicas=(1, 2))})
    await zk.create(assignment.path, assignment.encode(), make_parents=True)
    await zk.create(layout.partition_state_path(T0), state(isr), make_parents=True)
    await zk.ensure_path(layout.BROKER_IDS)
    await zk.ensure_path(layout.DELETE_TOPICS)
    for broker in registered:
        await zk.create(layout.broker_path(broker), b"{}", ephemeral=True)
    return zk


def state(isr: tuple[int, ...]) -> bytes:
    return PartitionState(leader=isr[0], leader_epoch=1, isr=isr, controller_epoch=1).encode()


def test_it_waits_until_it_is_removed_from_the_isr() -> None:
    async def main() -> None:
        zk, clock = await cluster(2, isr=(2, 1)), VirtualClock()
        begun_ms = clock.monotonic_ms()

        async def take_out() -> None:
            await clock.sleep_ms(700)
            await zk.set(layout.partition_state_path(T0), state((2,)))

        controller = asyncio.create_task(take_out())
        assert await until_out_of_sync(zk, clock, 1, wait_ms=10_000)
        await controller
        assert 700 <= clock.monotonic_ms() - begun_ms < 2_000

    run_virtual(main())


def test_the_wait_has_a_timeout() -> None:
    async def main() -> None:
        zk, clock = await cluster(2, isr=(2, 1)), VirtualClock()
        begun_ms = clock.monotonic_ms()
        assert not await until_out_of_sync(zk, clock, 1, wait_ms=3_000)
        assert 3_000 <= clock.monotonic_ms() - begun_ms < 5_000

    run_virtual(main())


def test_it_waits_only_for_partitions_that_another_broker_can_lead() -> None:
    async def main() -> None:
        clock = VirtualClock()
        begun_ms = clock.monotonic_ms()
        for zk in (
            await cluster(isr=(2, 1)),  # the other member is dead, too
            await cluster(1, 3, isr=(2, 1)),  # other brokers are alive, but have no replica of it
            await cluster(2, isr=(2,)),
            await cluster(2, isr=(1,)),  # only this broker has all records, so it must lead
        ):
            assert await until_out_of_sync(zk, clock, 1, wait_ms=3_000)
        assert await until_out_of_sync(await cluster(2, isr=(2, 1)), clock, 3, wait_ms=3_000)
        assert await until_out_of_sync(MemoryZk(), clock, 1, wait_ms=3_000)
        assert clock.monotonic_ms() == begun_ms

    run_virtual(main())


def test_topics_in_deletion_and_invalid_topics_are_ignored() -> None:
    async def main() -> None:
        clock = VirtualClock()
        zk = await cluster(2, isr=(2, 1))
        await zk.create(layout.delete_topic_path("t"), b"")
        assert await until_out_of_sync(zk, clock, 1, wait_ms=3_000)
        zk = await cluster(2, isr=(2, 1))
        await zk.set(layout.topic_path("t"), b"?")
        assert await until_out_of_sync(zk, clock, 1, wait_ms=3_000)
        zk = await cluster(2, isr=(2, 1))
        await zk.set(layout.partition_state_path(T0), b"?")
        assert await until_out_of_sync(zk, clock, 1, wait_ms=3_000)

    run_virtual(main())
