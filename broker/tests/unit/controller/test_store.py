"""States of many partitions are written in groups, but the condition of each state is separate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from odradek.base.types import ControllerEpoch, TopicPartition
from odradek.controller.context import Leadership
from odradek.controller.controller_election import ControllerMovedError, Election
from odradek.controller.plans import StateWrite
from odradek.controller.store import Conflict, Store, Written
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk import layout
from odradek.zk.layout import PartitionState
from odradek.zk.port import Operation, Result, ZkError

COUNT = 120
EVERY = [TopicPartition("t", number) for number in range(COUNT)]


class CountingZk(MemoryZk):
    """Counts the transactions."""

    transactions = 0

    async def multi_many(self, transactions: Iterable[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        wanted = list(transactions)
        self.transactions += len(wanted)
        return await super().multi_many(wanted)


def state(leader: int, epoch: int = 0) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=epoch, isr=(leader,), controller_epoch=1)


def write(partition: TopicPartition, leader: int, expected: int | None) -> StateWrite:
    return StateWrite(
        partition=partition,
        state=state(leader, 0 if expected is None else expected + 1),
        expected_epoch=expected,
        reason="a test",
    )


@pytest.fixture
async def zk() -> CountingZk:
    zk = CountingZk(MemoryTree())
    await zk.create(layout.topic_path("t"), b"{}", make_parents=True)
    await zk.create(layout.CONTROLLER_EPOCH, b"1")
    return zk


@pytest.fixture
async def store(zk: CountingZk) -> Store:
    return Store(zk, Election(epoch=ControllerEpoch(1), epoch_version=0))


async def test_many_states_are_written_with_few_transactions(store: Store, zk: CountingZk) -> None:
    made = await store.write_states([write(partition, 1, None) for partition in EVERY])
    assert made == dict.fromkeys(EVERY, Written(0))
    changed = await store.write_states([write(partition, 2, 0) for partition in EVERY])
    assert changed == dict.fromkeys(EVERY, Written(1))
    assert await store.leaderships(EVERY) == dict.fromkeys(EVERY, Leadership(state(2, 1), 1))
    assert zk.transactions < COUNT // 10


async def test_a_failed_write_does_not_affect_others(store: Store, zk: CountingZk) -> None:
    """A state that was changed, deleted or already exists does not affect others in its group."""
    await store.write_states([write(partition, 1, None) for partition in EVERY[:-1]])
    await zk.set(layout.partition_state_path(EVERY[3]), state(7, 4).encode())
    await zk.delete(layout.partition_state_path(EVERY[60]))
    writes = [write(partition, 2, 0) for partition in EVERY[:110]]
    writes += [write(partition, 2, None) for partition in EVERY[110:]]
    found = await store.write_states(writes)
    expected: dict[TopicPartition, Written | Conflict] = dict.fromkeys(EVERY[:110], Written(1))
    expected |= {EVERY[3]: Conflict(Leadership(state(7, 4), 1)), EVERY[60]: Conflict(None)}
    expected |= dict.fromkeys(EVERY[110:], Conflict(Leadership(state(1), 0)))
    expected[EVERY[-1]] = Written(0)
    assert found == expected


async def test_a_partition_that_has_its_parent_gets_its_state(store: Store, zk: CountingZk) -> None:
    await zk.create(layout.partition_path(EVERY[5]), make_parents=True)
    found = await store.write_states([write(partition, 1, None) for partition in EVERY[:10]])
    assert found == dict.fromkeys(EVERY[:10], Written(0))


async def test_nothing_is_written_in_a_reign_that_is_over(store: Store, zk: CountingZk) -> None:
    await store.write_states([write(partition, 1, None) for partition in EVERY])
    await zk.set(layout.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMovedError):
        await store.write_states([write(partition, 2, 0) for partition in EVERY])
    assert set((await store.leaderships(EVERY)).values()) == {Leadership(state(1), 0)}
