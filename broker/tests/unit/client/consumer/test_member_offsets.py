"""Commits and reads of offsets by members under the protocol of KIP-848, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.base.errors import RebalanceInProgressError, StaleMemberEpochError, UnknownMemberIdError
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import GroupMetadata
from odradek.client.settings import ClientSettings
from odradek_testkit.clients.assigning_coordinator import AssigningCoordinator
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", group_id="g", group_protocol="consumer", auto_offset_reset="earliest")


def consumer_of(cluster: Any, *topics: str, **changes: Any) -> Consumer:
    return Consumer(SETTINGS.replace(**changes), *topics, clock=VirtualClock(), connect=cluster.connect)


def test_a_commit_with_a_stale_epoch_is_repeated_with_the_new_one(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, "t", enable_auto_commit=False) as consumer:
            with pytest.raises(RebalanceInProgressError):
                await consumer.commit({TopicPartition("t", 0): 1})
            await consumer.getmany(timeout_ms=1_000)
            member_id = consumer.membership.member_id
            assert consumer.group_metadata() == GroupMetadata("g", 1, member_id)
            coordinator.epoch = 7
            coordinator.commit_errors = [StaleMemberEpochError]
            await consumer.commit({TopicPartition("t", 0): 1})
            assert coordinator.committers == [(member_id, 1, [0]), (member_id, 7, [0])]
            coordinator.commit_errors = [UnknownMemberIdError]
            coordinator.errors = [UnknownMemberIdError]
            with pytest.raises(UnknownMemberIdError):
                await consumer.commit({TopicPartition("t", 0): 1})
            # The heartbeat is sent at once and finds that the member was removed.
            await consumer.getmany(timeout_ms=500)
            assert coordinator.epochs().count(0) == 2

    run_virtual(main())


def test_a_repeated_commit_leaves_out_the_partitions_that_were_given_up(fakes: Any) -> None:
    """With the new epoch, the coordinator would accept them and overwrite the commits of the new owner."""
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, "t", enable_auto_commit=False, retry_backoff_ms=1_000) as consumer:
            await consumer.getmany(timeout_ms=1_000)
            coordinator.give(1)
            coordinator.commit_errors = [StaleMemberEpochError]
            offsets = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2}
            commit = asyncio.ensure_future(consumer.commit(offsets))
            await consumer.getmany(timeout_ms=500)
            await commit

    run_virtual(main())
    assert [(epoch, numbers) for _, epoch, numbers in coordinator.committers] == [(1, [0, 1]), (2, [1])]


def test_committed_offsets_are_read_with_the_member_epoch(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    coordinator.fetch_errors = [StaleMemberEpochError]

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=1_000)
            member_id = consumer.membership.member_id
            assert coordinator.readers == [(member_id, 1), (member_id, 1)]
            assert await consumer.position(TopicPartition("t", 0)) == 0
            await consumer.unsubscribe()
            await consumer.committed(TopicPartition("t", 0))
            assert coordinator.readers[2:] == [(None, -1)]

    run_virtual(main())


def test_a_member_that_was_removed_while_it_reads_offsets_joins_again(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    coordinator.fetch_errors = [UnknownMemberIdError]
    coordinator.errors = [None, UnknownMemberIdError]

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=5_000)
            assert await consumer.position(TopicPartition("t", 0)) == 0

    run_virtual(main())
    assert coordinator.epochs()[:3] == [0, 1, 0]
