"""The port of the coordinators to the log, with real logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.app.coordinator_log import CoordinatorLog
from odradek.base.errors import (
    InvalidTransactionStateError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StorageError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import File
from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import iterate_entries
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import ControlType
from odradek_testkit.batches import iterate
from odradek_testkit.logs import batch, marker
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import record_set
from odradek_testkit.server import MemoryServer

TP = TopicPartition("__consumer_offsets", 0)
Scenario = Callable[[MemoryServer, CoordinatorLog], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def main() -> None:
            server = MemoryServer(tmp_path, VirtualClock())
            await server.start()
            try:
                log = CoordinatorLog(server.replicas, server.topic_stats, commit_timeout_ms=5000, load_bytes=100)
                await scenario(server, log)
            finally:
                await server.close()

        run_virtual(main())

    return run


async def read(log: CoordinatorLog) -> list[bytes]:
    return [piece async for piece in log.read(TP)]


def test_appended_records_are_read_in_complete_batches(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, log: CoordinatorLog) -> None:
        await server.announce(TP.topic, {0: [1]})
        assert await read(log) == []
        given = [bytes(record_set(value * 40, value)) for value in (b"a", b"b", b"c")]
        assert [await log.append(TP, each) for each in given] == [0, 2, 4]
        assert given[1] == bytes(record_set(b"b" * 40, b"b")), "the bytes of the caller were changed"
        pieces = await read(log)
        assert len(pieces) == 3
        assert [header.base_offset for piece in pieces for _, header in iterate(piece)] == [0, 2, 4]

    play(scenario)


def test_appends_count_in_the_metrics_of_the_topic(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, log: CoordinatorLog) -> None:
        await server.announce(TP.topic, {0: [1], 1: [1, 2]}, brokers=(1, 2))
        records = bytes(record_set(b"a", b"b"))
        await log.append(TP, records)
        stats = server.topic_stats.of(TP.topic)
        assert (stats.messages_in, stats.bytes_in) == (2, len(records))
        assert (stats.total_produce, stats.failed_produce) == (1, 0)
        with pytest.raises(RequestTimedOutError):
            await log.append(TopicPartition(TP.topic, 1), records)
        assert (stats.messages_in, stats.bytes_in) == (4, 2 * len(records)), "the leader's log has them"
        assert (stats.total_produce, stats.failed_produce) == (2, 1)

    play(scenario)


def test_old_formats_are_read_in_whole_entries_too(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, log: CoordinatorLog) -> None:
        await server.announce(TP.topic, {0: [1]})
        messages = [(number, 1, b"k", b"%d" % number * 40) for number in range(4)]
        old = encode_set(messages[:2], magic=0) + encode_set(messages[2:], magic=1, codec=Codec.GZIP)
        server.replicas.leader(TP).log.append_as_follower(memoryview(bytearray(old)))
        assert await log.append(TP, bytes(record_set(b"new"))) == 4
        pieces = await read(log)
        assert b"".join(pieces).startswith(old)
        found = [header.base_offset for piece in pieces for _, header in iterate_entries(piece)]
        assert found == [0, 1, 3, 4]

    play(scenario)


def test_an_append_is_not_done_before_it_is_replicated(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, log: CoordinatorLog) -> None:
        await server.announce(TP.topic, {0: [1, 2]}, brokers=(1, 2))
        with pytest.raises(RequestTimedOutError):
            await log.append(TP, bytes(record_set(b"a")))
        left = asyncio.ensure_future(log.append(TP, bytes(record_set(b"b"))))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert server.replicas.leader(TP).log.log_end_offset == 2

    play(scenario)


def test_partitions_that_are_not_led_here(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, log: CoordinatorLog) -> None:
        with pytest.raises(UnknownTopicOrPartitionError):
            await log.append(TP, bytes(record_set(b"a")))
        await server.announce(TP.topic, {0: [2, 1]}, brokers=(1, 2))
        with pytest.raises(NotLeaderOrFollowerError):
            await log.append(TP, bytes(record_set(b"a")))
        with pytest.raises(NotLeaderOrFollowerError):
            await read(log)

    play(scenario)


def test_leadership_lost_while_reading(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, log: CoordinatorLog) -> None:
        await server.announce(TP.topic, {0: [1]})
        for _ in range(3):
            await log.append(TP, bytes(record_set(b"a" * 60)))
        pieces = log.read(TP)
        await anext(pieces)
        await server.announce(TP.topic, {0: [1]}, leader_epoch=1)
        with pytest.raises(NotLeaderOrFollowerError):
            await anext(pieces)

    play(scenario)


def test_a_disk_that_fails(play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: MemoryServer, log: CoordinatorLog) -> None:
        await server.announce(TP.topic, {0: [1]})
        await log.append(TP, bytes(record_set(b"a")))

        class Gone:
            def pread_now(self, length: int, position: int) -> bytes:
                raise StorageError("the disk is gone")

        hosted = server.replicas.leader(TP).log
        original = hosted.read
        monkeypatch.setattr(
            type(hosted),
            "read",
            lambda _, *args, **options: original(*args, **options)._replace(file=cast(File, Gone())),
        )
        with pytest.raises(KafkaStorageError):
            await read(log)
        assert server.replicas.counts().offline == 1

    play(scenario)


# Transactions

TX = TransactionalWriter("tx", 7, 0)


class Verifier:
    """Confirms transactions with `code`, and notes what it was asked."""

    def __init__(self) -> None:
        self.code = 0
        self.asked: list[tuple[TransactionalWriter, list[TopicPartition]]] = []

    async def verify(
        self, writer: TransactionalWriter, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        self.asked.append((writer, list(partitions)))
        await asyncio.sleep(0)
        return dict.fromkeys(partitions, self.code)


def transactional(value: bytes) -> bytes:
    return bytes(batch(value, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))


def abort(server: MemoryServer) -> None:
    server.replicas.leader(TP).log.append_as_leader(
        marker(ControlType.ABORT, producer_id=7), leader_epoch=0, origin=AppendOrigin.COORDINATOR
    )


def verifying(server: MemoryServer, verifier: Verifier, *, is_on: bool = True) -> CoordinatorLog:
    return CoordinatorLog(
        server.replicas,
        server.topic_stats,
        commit_timeout_ms=5000,
        load_bytes=100,
        verifier=verifier,
        verifies=lambda: is_on,
    )


def test_a_transaction_is_verified_before_its_first_append(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, _: CoordinatorLog) -> None:
        verifier = Verifier()
        log = verifying(server, verifier)
        await server.announce(TP.topic, {0: [1]})
        for number in range(2):
            verified = await log.verify(TP, TX)
            assert await log.append(TP, transactional(b"%d" % number), verified) == number
        assert verifier.asked == [(TX, [TP])]
        abort(server)
        with pytest.raises(InvalidTransactionStateError):
            await log.append(TP, transactional(b"without a guard"), TX)
        stale = await log.verify(TP, TX)
        abort(server)
        with pytest.raises(InvalidTransactionStateError):
            await log.append(TP, transactional(b"delayed"), stale)
        assert await log.append(TP, transactional(b"next"), await log.verify(TP, TX)) == 4
        assert len(verifier.asked) == 3

    play(scenario)


def test_a_transaction_that_is_not_confirmed(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, _: CoordinatorLog) -> None:
        verifier = Verifier()
        log = verifying(server, verifier)
        with pytest.raises(UnknownTopicOrPartitionError):
            await log.verify(TP, TX)
        await server.announce(TP.topic, {0: [1]})
        verifier.code = TransactionAbortableError.code
        with pytest.raises(TransactionAbortableError):
            await log.verify(TP, TX)

    play(scenario)


def test_a_partition_is_added_before_its_first_append(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, _: CoordinatorLog) -> None:
        verifier = Verifier()
        log = verifying(server, verifier, is_on=False)
        await server.announce(TP.topic, {0: [1]})
        adding = TX._replace(adds=True)
        verified = await log.verify(TP, adding)
        assert verifier.asked == [(adding, [TP])]
        assert await log.append(TP, transactional(b"a"), verified) == 0

    play(scenario)


def test_an_addition_is_repeated_after_the_marker_of_the_last_transaction(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, _: CoordinatorLog) -> None:
        class Marking(Verifier):
            async def verify(
                self, writer: TransactionalWriter, partitions: Sequence[TopicPartition]
            ) -> Mapping[TopicPartition, int]:
                codes = await super().verify(writer, partitions)
                if len(self.asked) == 1:
                    abort(server)
                return codes

        verifier = Marking()
        log = verifying(server, verifier)
        await server.announce(TP.topic, {0: [1]})
        verified = await log.verify(TP, TX._replace(adds=True))
        assert len(verifier.asked) == 2
        assert await log.append(TP, transactional(b"a"), verified) == 1

    play(scenario)


def test_verification_can_be_disabled(play: Callable[[Scenario], None]) -> None:
    async def scenario(server: MemoryServer, without: CoordinatorLog) -> None:
        verifier = Verifier()
        await server.announce(TP.topic, {0: [1]})
        for number, log in enumerate((without, verifying(server, verifier, is_on=False))):
            verified = await log.verify(TP, TX)
            assert await log.append(TP, transactional(b"a"), verified) == 2 * number
            abort(server)
        assert verifier.asked == []

    play(scenario)
