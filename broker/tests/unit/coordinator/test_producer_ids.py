"""Producer ids: blocks, shared claims, failures."""

from __future__ import annotations

import asyncio

import pytest

from odradek.base.errors import CoordinatorLoadInProgressError, StorageError
from odradek.coordinator.producer_ids import ProducerIds
from odradek_testkit.loop import run_virtual


class Blocks:
    """The blocks of a cluster, with three ids each. A claim takes some time."""

    def __init__(self) -> None:
        self.claims = 0
        self.failures: list[Exception] = []

    async def claim(self) -> tuple[int, int]:
        await asyncio.sleep(0.01)
        if self.failures:
            raise self.failures.pop(0)
        self.claims += 1
        return (self.claims - 1) * 3, 3


def test_ids_come_from_one_block_after_the_other() -> None:
    async def main() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks.claim)
        assert [await ids.next() for _ in range(7)] == list(range(7))
        assert blocks.claims == 3

    run_virtual(main())


def test_two_brokers_never_share_an_id() -> None:
    async def main() -> None:
        blocks = Blocks()
        brokers = [ProducerIds(blocks.claim), ProducerIds(blocks.claim)]
        found = [await brokers[number % 2].next() for number in range(20)]
        assert len(set(found)) == 20

    run_virtual(main())


def test_concurrent_callers_share_a_claim() -> None:
    async def main() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks.claim)
        found = await asyncio.gather(*(ids.next() for _ in range(5)))
        assert sorted(found) == [0, 1, 2, 3, 4]
        assert blocks.claims == 2

    run_virtual(main())


def test_a_cancelled_caller_does_not_cancel_the_claim() -> None:
    async def main() -> None:
        ids = ProducerIds(Blocks().claim)
        first, second = asyncio.ensure_future(ids.next()), asyncio.ensure_future(ids.next())
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 0

    run_virtual(main())


def test_a_failed_claim_can_be_retried() -> None:
    async def main() -> None:
        blocks = Blocks()
        blocks.failures = [StorageError("gone")]
        ids = ProducerIds(blocks.claim)
        failed = await asyncio.gather(ids.next(), ids.next(), return_exceptions=True)
        assert [type(error) for error in failed] == [CoordinatorLoadInProgressError] * 2
        assert await ids.next() == 0

    run_virtual(main())


def test_closing_ends_a_claim() -> None:
    async def main() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks.claim)
        waiting = asyncio.ensure_future(ids.next())
        await asyncio.sleep(0)
        await ids.close()
        await ids.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert blocks.claims == 0

    run_virtual(main())
