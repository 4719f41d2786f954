"""The runtime in virtual time: loading, the queue of appends, changes of leadership, errors, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from odradek.base.errors import (
    CoordinatorLoadInProgressError,
    CorruptMessageError,
    KafkaStorageError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProtocolError,
    StorageError,
    UnknownServerError,
)
from odradek.base.types import Offset, TopicPartition
from odradek.coordinator.coordinator_ports import RecordLog, Respond, TransactionalWriter
from odradek.coordinator.coordinator_runtime import CoordinatorRuntime
from odradek.records.v2.batch import read_header
from odradek.records.v2.record import decode_batch
from odradek_testkit.batches import iterate
from odradek_testkit.groups import MemoryPartition
from odradek_testkit.loop import VirtualClock, run_virtual

PARTITION = TopicPartition("__state", 0)


class Words:
    """A state machine that stores words."""

    def __init__(self, log: RecordLog) -> None:
        self.log = log
        self.words: list[str] = []
        self.events: list[str] = []

    def replay(self, records: bytes) -> Iterator[int]:
        for position, header in iterate(records):
            for record in decode_batch(records, position, header, limit=1 << 20):
                assert record.key is not None
                self.words.append(record.key.decode())
            yield header.record_count

    def on_loaded(self) -> None:
        self.events.append("loaded")

    def on_unloaded(self) -> None:
        self.events.append("unloaded")

    def add(self, word: str, respond: Respond[str]) -> None:
        def appended(outcome: Offset | ProtocolError) -> None:
            if isinstance(outcome, ProtocolError):
                respond(outcome)
            else:
                self.words.append(word)
                respond(f"{word} at {outcome}")

        self.log.append([(word.encode(), b"")], appended)


class Bench:
    """A runtime with one partition in memory."""

    def __init__(self, batch_limit_bytes: int = 1 << 20) -> None:
        self.partition = MemoryPartition()
        self.clock = VirtualClock()
        self.runtime: CoordinatorRuntime[Words] = CoordinatorRuntime(
            writer=self.partition, reader=self.partition, clock=self.clock, batch_limit_bytes=batch_limit_bytes
        )

    def load(self, epoch: int = 0) -> None:
        self.runtime.load(PARTITION, epoch, Words)

    async def loaded(self, epoch: int = 0) -> Words:
        self.load(epoch)
        while self.runtime.is_loading:
            await self.clock.sleep_ms(1)
        return self.runtime.shard(PARTITION)

    def add(self, word: str) -> Awaitable[str]:
        return self.runtime.call(PARTITION, lambda shard, respond: shard.add(word, respond))

    async def results(self, *words: str) -> list[object]:
        return await asyncio.gather(*map(self.add, words), return_exceptions=True)


def virtual(test: Callable[[Bench], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        bench = Bench(**options)
        try:
            await test(bench)
        finally:
            await bench.runtime.close()

    run_virtual(main())


def test_a_partition_serves_once_it_is_loaded() -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(NotCoordinatorError):
            bench.runtime.shard(PARTITION)
        release = asyncio.Event()
        bench.partition.before_read = release.wait
        bench.load()
        await bench.clock.sleep_ms(1)
        assert bench.runtime.is_loading
        with pytest.raises(CoordinatorLoadInProgressError):
            await bench.add("early")
        assert bench.runtime.shards() == []
        assert bench.runtime.load_times.max_ms == 0
        release.set()
        await bench.clock.sleep_ms(1)
        assert bench.runtime.load_times.max_ms == 1
        assert await bench.add("word") == "word at 0"
        assert [shard.events for shard in bench.runtime.shards()] == [["loaded"]]

    virtual(scenario)


def test_appended_records_are_replayed_in_order_after_a_move() -> None:
    async def scenario(bench: Bench) -> None:
        first = await bench.loaded()
        words = [f"word {number}" for number in range(1500)]
        await bench.results(*words)
        bench.runtime.unload(PARTITION)
        assert first.events == ["loaded", "unloaded"]
        second = await bench.loaded(1)
        assert second is not first
        assert second.words == first.words == words

    virtual(scenario)


def test_other_tasks_run_while_a_large_partition_is_loaded() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.loaded()
        for start in range(0, 4000, 400):
            await bench.results(*(f"word {start + number}" for number in range(400)))
        bench.runtime.unload(PARTITION)
        turns = 0
        bench.load(1)
        while bench.runtime.is_loading:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 5

    virtual(scenario)


def test_queued_appends_are_combined_into_the_next() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.loaded()
        assert await bench.results("a", "b") == ["a at 0", "b at 0"]
        release = asyncio.Event()
        bench.partition.before_append = release.wait
        tasks = [asyncio.ensure_future(bench.add("c"))]
        await bench.clock.sleep_ms(1)
        tasks += [asyncio.ensure_future(bench.add(word)) for word in "def"]
        await bench.clock.sleep_ms(1)
        assert bench.partition.appends == 2
        release.set()
        assert await asyncio.gather(*tasks) == ["c at 2", "d at 3", "e at 3", "f at 3"]
        assert bench.partition.appends == 3

    virtual(scenario)


def test_a_batch_is_limited_unless_a_single_append_is_larger() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.loaded()
        await bench.results("x" * 100, "y" * 100, "z" * 400, "v" * 100)
        sizes = [len(records) for records in bench.partition.record_sets]
        assert len(sizes) == 3
        assert sizes[0] <= 400 and sizes[2] <= 400

    virtual(scenario, batch_limit_bytes=400)


def test_another_limit_of_batches_applies_immediately() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.loaded()
        await bench.results("x" * 100, "y" * 100)
        assert len(bench.partition.record_sets) == 1
        bench.runtime.limit_batches(200)
        await bench.results("z" * 100, "v" * 100)
        assert len(bench.partition.record_sets) == 3

    virtual(scenario, batch_limit_bytes=400)


@pytest.mark.parametrize(
    ("failure", "answered"),
    [
        (NotEnoughReplicasError("no"), NotEnoughReplicasError),
        (StorageError("disk"), KafkaStorageError),
        (RuntimeError("bug"), UnknownServerError),
    ],
)
def test_a_failed_append_fails_its_batch_and_no_other(failure: Exception, answered: type[ProtocolError]) -> None:
    async def scenario(bench: Bench) -> None:
        shard = await bench.loaded()
        bench.partition.failures = [failure]
        results = await bench.results("a", "b")
        assert [type(result) for result in results] == [answered, answered]
        assert await bench.add("c") == "c at 0"
        assert shard.words == ["c"]

    virtual(scenario)


def test_a_failing_callback_does_not_affect_others() -> None:
    async def scenario(bench: Bench) -> None:
        shard = await bench.loaded()

        def fail(outcome: object) -> None:
            raise RuntimeError("bug")

        shard.log.append([(b"bad", None)], fail)
        assert await bench.add("good") == "good at 0"

    virtual(scenario)


def test_unloading_ends_all_queued_appends() -> None:
    async def scenario(bench: Bench) -> None:
        shard = await bench.loaded()
        bench.partition.before_append = asyncio.Event().wait
        tasks = [asyncio.ensure_future(bench.add("a"))]
        await bench.clock.sleep_ms(1)
        tasks.append(asyncio.ensure_future(bench.add("b")))
        await bench.clock.sleep_ms(1)
        bench.runtime.unload(PARTITION)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [NotCoordinatorError, NotCoordinatorError]
        late: list[object] = []
        shard.log.append([(b"late", None)], late.append)
        await bench.clock.sleep_ms(1)
        assert [type(outcome) for outcome in late] == [NotCoordinatorError]
        assert bench.partition.record_sets == []

    virtual(scenario)


def test_a_partition_that_cannot_be_read_is_tried_again_from_the_start() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.loaded()
        await bench.add("word")
        bench.runtime.unload(PARTITION)
        bench.partition.read_failures = [CorruptMessageError("bad"), StorageError("disk"), RuntimeError("bug")]
        bench.load(1)
        await bench.clock.sleep_ms(500)
        assert bench.runtime.is_loading
        shard = await bench.loaded(1)
        assert shard.words == ["word"]

    virtual(scenario)


def test_a_move_during_the_load_ends_it() -> None:
    async def scenario(bench: Bench) -> None:
        bench.partition.before_read = asyncio.Event().wait
        bench.load()
        await bench.clock.sleep_ms(1)
        bench.runtime.unload(PARTITION)
        assert not bench.runtime.is_loading
        with pytest.raises(NotCoordinatorError):
            bench.runtime.shard(PARTITION)
        bench.partition.before_read = None
        assert (await bench.loaded(1)).events == ["loaded"]

    virtual(scenario)


def test_a_reelected_leader_keeps_its_state() -> None:
    async def scenario(bench: Bench) -> None:
        shard = await bench.loaded(3)
        bench.load(4)
        bench.load(2)
        assert bench.runtime.shard(PARTITION) is shard
        assert shard.events == ["loaded"]

    virtual(scenario)


def test_a_cancelled_caller_does_not_cancel_its_operation() -> None:
    async def scenario(bench: Bench) -> None:
        shard = await bench.loaded()
        release = asyncio.Event()
        bench.partition.before_append = release.wait
        task = asyncio.ensure_future(bench.add("word"))
        await bench.clock.sleep_ms(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        release.set()
        await bench.clock.sleep_ms(1)
        assert shard.words == ["word"]

    virtual(scenario)


def test_close_is_idempotent_and_prevents_loading() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.loaded()
        await bench.runtime.close()
        await bench.runtime.close()
        bench.load(5)
        with pytest.raises(NotCoordinatorError):
            bench.runtime.shard(PARTITION)

    virtual(scenario)


def test_appends_of_a_transaction_share_no_batch_with_others() -> None:
    async def scenario(bench: Bench) -> None:
        writer = TransactionalWriter("tx", 7, 2)
        log = (await bench.loaded()).log
        results: list[Offset | ProtocolError] = []
        release = asyncio.Event()
        bench.partition.before_append = release.wait
        for key, transaction in ((b"a", None), (b"b", writer), (b"c", writer)):
            log.append([(key, b"")], results.append, transaction)
        await bench.clock.sleep_ms(1)
        log.append([(b"d", b"")], results.append)
        release.set()
        while len(results) < 4:
            await bench.clock.sleep_ms(1)
        assert results == [0, 1, 1, 3]
        assert bench.partition.transactions == [None, writer, None]
        headers = [read_header(records) for records in bench.partition.record_sets]
        assert [(h.is_transactional, h.producer_id, h.producer_epoch, h.base_sequence) for h in headers] == [
            (False, -1, -1, -1),
            (True, 7, 2, 0),
            (False, -1, -1, -1),
        ]

    virtual(scenario)


def test_an_operation_waits_until_the_partition_is_loaded() -> None:
    async def scenario(bench: Bench) -> None:
        seen: list[tuple[str, ...]] = []

        def note(shard: Words) -> None:
            seen.append(tuple(shard.events))

        bench.runtime.when_loaded(PARTITION, note)
        assert seen == [], "this broker does not lead the partition"
        bench.load()
        bench.runtime.when_loaded(PARTITION, note)
        assert seen == []
        await bench.loaded()
        assert seen == [("loaded",)]
        bench.runtime.when_loaded(PARTITION, note)
        assert seen == [("loaded",), ("loaded",)]

    virtual(scenario)


def test_a_coordinator_learns_its_later_epochs() -> None:
    async def scenario(bench: Bench) -> None:
        log = (await bench.loaded(3)).log
        assert log.leader_epoch == 3
        bench.load(5)
        assert log.leader_epoch == 5

    virtual(scenario)
