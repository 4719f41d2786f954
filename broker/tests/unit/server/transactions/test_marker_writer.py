"""Markers are appended to the partitions that this broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from odradek.base.errors import (
    NONE,
    InvalidProducerEpochError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    TransactionCoordinatorFencedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from odradek.base.types import GROUP_METADATA_TOPIC, TopicPartition
from odradek.coordinator.transactions.transaction_values import TransactionMarker
from odradek.protocol.messages.transactions import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
)
from odradek.records.v2.batch import ControlType, read_header
from odradek.records.v2.record import decode_batch
from odradek.records.v2.transactions import read_marker_type
from odradek.replication.replica_requests import AppendRequest
from odradek.server.transactions.marker_writer import LocalMarkers, MarkerHandlers
from odradek_testkit.logs import batch
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
PID: Final = 7
T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
OFFSETS: Final = TopicPartition(GROUP_METADATA_TOPIC, 0)
TIMEOUT_MS: Final = 30_000


class Lab:
    """The markers of a server, and what they have ended."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.ended: list[tuple[TopicPartition, int, bool, int]] = []
        self.writer = LocalMarkers(
            server.replicas,
            server.clock,
            server.topic_stats,
            timeout_ms=TIMEOUT_MS,
            on_ended=lambda *what: self.ended.append(what),
        )

    async def write(self, *partitions: TopicPartition, **fields: Any) -> dict[TopicPartition, int]:
        (codes,) = await self.writer.write([marker(*partitions, **fields)])
        return dict(codes)

    def begin(self, topic_partition: TopicPartition) -> None:
        records = batch(b"v", producer_id=PID, producer_epoch=0, base_sequence=0, is_transactional=True)
        self.server.replicas.append(AppendRequest(1, 1000, [(topic_partition, records)]), lambda results: None)


def marker(
    *partitions: TopicPartition, epoch: int = 0, is_commit: bool = True, coordinator: int = 3
) -> TransactionMarker:
    return TransactionMarker(PID, epoch, is_commit, coordinator, partitions)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_ends_the_transaction(play: Play, is_commit: bool) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [1]})
        lab = Lab(server)
        lab.begin(T0)
        log = server.replicas.partition(T0).log
        assert log.first_unstable_offset == 0
        assert await lab.write(T0, T1, is_commit=is_commit) == {T0: NONE, T1: NONE}
        assert log.first_unstable_offset is None
        assert log.aborted_transactions(0, 2) == (() if is_commit else ((PID, 0),))
        raw = log.read(1, max_bytes=1000).load()
        header = read_header(raw)
        assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
        assert (header.producer_id, header.producer_epoch, header.base_offset) == (PID, 0, 1)
        assert header.max_timestamp == server.clock.wall_ms()
        assert read_marker_type(raw, 0, header) is (ControlType.COMMIT if is_commit else ControlType.ABORT)
        assert len(decode_batch(raw, 0, header, limit=1000)) == 1
        assert log.active_producers()[0].coordinator_epoch == 3
        assert lab.ended == []

    play(scenario)


def test_each_partition_has_its_own_result(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [1, 2]}, brokers=(1, 2))
        await server.announce("t", {1: [2, 1]}, brokers=(1, 2), leader_epoch=1)
        codes = await Lab(server).write(T0, T1, GONE)
        assert codes == {T0: NONE, T1: NotLeaderOrFollowerError.code, GONE: UnknownTopicOrPartitionError.code}
        assert await Lab(server).write(GONE) == {GONE: UnknownTopicOrPartitionError.code}
        assert await Lab(server).writer.write([]) == []

    play(scenario)


def test_outdated_markers_are_refused(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        lab = Lab(server)
        assert await lab.write(T0, epoch=4) == {T0: NONE}
        assert await lab.write(T0, epoch=3) == {T0: InvalidProducerEpochError.code}
        assert await lab.write(T0, epoch=4, coordinator=2) == {T0: TransactionCoordinatorFencedError.code}
        assert await lab.write(T0, epoch=4) == {T0: NONE}, "a marker may be repeated"
        assert server.replicas.partition(T0).log.log_end_offset == 2

    play(scenario)


def test_old_formats_have_no_markers(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        assert await Lab(server).write(T0) == {T0: UnsupportedForMessageFormatError.code}
        assert server.replicas.partition(T0).log.log_end_offset == 0

    play(scenario, settings={"inter.broker.protocol.version": "2.7", "log.message.format.version": "0.10.1"})


def test_the_end_of_a_transaction_of_offsets_is_reported(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce(GROUP_METADATA_TOPIC, {0: [1]})
        await server.announce("t", {0: [1]})
        lab = Lab(server)
        lab.begin(OFFSETS)
        await lab.write(T0, OFFSETS)
        await lab.write(OFFSETS, is_commit=False)
        await lab.write(OFFSETS, epoch=-1)
        assert lab.ended == [(OFFSETS, PID, True, 1), (OFFSETS, PID, False, 2)]

    play(scenario)


def test_a_marker_waits_for_the_isr(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce(GROUP_METADATA_TOPIC, {0: [1, 2]}, brokers=(1, 2))
        lab = Lab(server)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await lab.write(OFFSETS) == {OFFSETS: RequestTimedOutError.code}
        assert loop.time() - begun == pytest.approx(TIMEOUT_MS / 1000, abs=1)
        assert lab.ended == [], "the end is not certain"

    play(scenario)


def test_a_caller_that_gives_up_does_not_disturb_the_append(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2]}, brokers=(1, 2))
        lab = Lab(server)
        writing = asyncio.ensure_future(lab.write(T0))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        assert server.replicas.produce_purgatory.size == 0

    play(scenario)


def test_a_request_has_markers_of_several_producers(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [1]})

        def of(producer_id: int, topic: str, *partitions: int) -> WriteTxnMarkersRequestWritableTxnMarker:
            return WriteTxnMarkersRequestWritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_result=True,
                topics=(WriteTxnMarkersRequestWritableTxnMarkerTopic(name=topic, partition_indexes=partitions),),
                coordinator_epoch=0,
            )

        request = WriteTxnMarkersRequest(markers=(of(7, "t", 0, 1), of(8, "t", 0), of(7, "gone", 3)))
        context: Any = None
        answer = await MarkerHandlers(Lab(server).writer).write_markers(context, request)
        written = [{"partition_index": number, "error_code": NONE} for number in (0, 1)]
        unknown = [{"partition_index": 3, "error_code": UnknownTopicOrPartitionError.code}]
        assert answer == {
            "markers": [
                {
                    "producer_id": 7,
                    "topics": [{"name": "t", "partitions": written}, {"name": "gone", "partitions": unknown}],
                },
                {"producer_id": 8, "topics": [{"name": "t", "partitions": written[:1]}]},
            ]
        }

    play(scenario)


@pytest.mark.parametrize("fields", [{"producer_id": -1}, {"producer_epoch": -1}])
def test_a_marker_without_a_producer_is_refused(play: Play, fields: dict[str, int]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        lab = Lab(server)
        written = await lab.writer.write([marker(T0)._replace(**fields), marker(T0)])
        assert written == [{T0: UnknownServerError.code}, {T0: NONE}]
        assert server.replicas.partition(T0).log.log_end_offset == 1

    play(scenario)


def test_offsets_that_cannot_be_made_visible_are_an_error(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        await server.announce(GROUP_METADATA_TOPIC, {0: [1]})
        writer = LocalMarkers(server.replicas, server.clock, server.topic_stats, timeout_ms=TIMEOUT_MS, on_ended=fail)
        assert await writer.write([marker(OFFSETS)]) == [{OFFSETS: UnknownServerError.code}]

    play(scenario)
