"""Small Produce requests are answered, written and counted as by the usual handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.base.errors import NONE, KafkaStorageError, NotLeaderOrFollowerError, StorageError
from odradek.base.system_ports import SystemFile
from odradek.base.types import TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, decode_response, encode_request
from odradek.records.v2.batch import BatchBuilder
from odradek.security.quotas.quota_model import QuotaEntity, QuotaKind
from odradek_testkit.server import MemoryServer, Peer

Play = Callable[..., None]
VERSION = 7
NOW_MS = 1_700_000_000_000


def records(value: bytes, *, timestamp_ms: int = NOW_MS, **options: int) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(None, value, timestamp_ms=timestamp_ms)
    return builder.build(**options)


def frame(number: int, *parts: tuple[str, int, bytes], acks: int = 1, version: int = VERSION) -> bytes:
    topics = [{"name": topic, "partition_data": [{"index": index, "records": data}]} for topic, index, data in parts]
    message: Message = {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": topics}
    return encode_request(ApiKey.PRODUCE, version, number, "tester", message)


async def answers(peer: Peer, *frames: bytes, version: int = VERSION) -> list[tuple[int, list[tuple[int, int]]]]:
    """Send frames at once. Return the correlation id and the error codes and offsets of each response."""
    waiting = [peer.send(b"") for _ in frames[1:]] + [peer.send(b"".join(frames))]
    found = []
    for data in await asyncio.gather(*waiting):
        decoded = decode_response(ApiKey.PRODUCE, version, data[4:])
        parts = [part for topic in decoded.responses for part in topic.partition_responses]
        rows = [(part.error_code, part.base_offset) for part in parts]
        found.append((int.from_bytes(data[4:8], "big"), rows))
    return found


class Writes:
    """Counts the writes of logs that plain batches share, and lets the next ones fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.failure: StorageError | None = None
        write = PartitionLog.write_plain

        def counted(log: PartitionLog, group: Any) -> None:
            self.sizes.append(len(group.batches))
            write(log, group)

        pwritev = SystemFile.pwritev

        def failing(file: SystemFile, buffers: Any, position: int) -> int:
            if self.failure is not None and file.path.endswith(".log"):
                raise self.failure
            return pwritev(file, buffers, position)

        monkeypatch.setattr(PartitionLog, "write_plain", counted)
        monkeypatch.setattr(SystemFile, "pwritev", failing)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(monkeypatch)


async def started(server: MemoryServer) -> Peer:
    """Announce a topic with a record in each partition. Return a producer."""
    await server.announce("t", {0: [1], 1: [1], 2: [2]})
    peer = server.connect_producer()
    for number in (0, 1):
        assert await answers(peer, frame(number, ("t", number, records(b"first")))) == [(number, [(NONE, 0)])]
    return peer


async def after_pause(peer: Peer) -> None:
    """Send as many requests as are handled alone after one that is not small."""
    for number in range(4):
        await answers(peer, frame(number, ("t", 1, records(b"pause"))))


@pytest.mark.parametrize("version", range(5, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_requests_that_arrive_together_share_a_write(play: Play, writes: Writes, version: int, acks: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        peer = await started(server)
        await after_pause(peer)
        log = server.replicas.leader(TopicPartition("t", 0)).log
        frames = [
            frame(number, ("t", 0, records(b"%d" % number)), acks=acks, version=version) for number in range(10, 15)
        ]
        assert await answers(peer, *frames, version=version) == [
            (number, [(NONE, number - 9)]) for number in range(10, 15)
        ]
        assert writes.sizes[-1] == 5
        assert (log.log_end_offset, log.high_watermark) == (6, 6)
        data = log.read(0, max_bytes=1 << 20).load()
        expected = [records(b"first"), *(records(b"%d" % number) for number in range(10, 15))]
        stamped = b""
        for offset, batch in enumerate(expected):
            stamped += offset.to_bytes(8, "big") + batch[8:12] + bytes(4) + batch[16:]
        assert data == stamped

    play(scenario)


def test_requests_are_counted_as_usual(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        usual, peer = server.connect(), await started(server)
        await after_pause(peer)
        stats, counts = server.topic_stats.of("t"), server.request_stats.counts

        def counters() -> tuple[int, ...]:
            return stats.total_produce, stats.messages_in, stats.bytes_in, counts["Produce", VERSION]

        def difference(before: tuple[int, ...]) -> list[int]:
            return [now - then for then, now in zip(before, counters(), strict=True)]

        frames = [frame(n, ("t", 0, records(b"abc")), ("t", 1, records(b"d"))) for n in range(3)]
        before = counters()
        alone = await answers(usual, *frames)
        by_usual = difference(before)
        before = counters()
        together = await answers(peer, *frames)
        assert difference(before) == by_usual
        assert [[(code, offset + 3) for code, offset in rows] for _, rows in alone] == [rows for _, rows in together]

    play(scenario)


def test_an_unusual_request_between_small_ones_keeps_its_place(play: Play, writes: Writes) -> None:
    async def scenario(server: MemoryServer) -> None:
        peer = await started(server)
        await after_pause(peer)
        idempotent = records(b"i", producer_id=5, producer_epoch=0, base_sequence=0)
        found = await answers(
            peer,
            frame(1, ("t", 0, records(b"a"))),
            frame(2, ("t", 0, idempotent)),
            frame(3, ("t", 2, records(b"b"))),
            frame(4, ("t", 0, records(b"c"))),
        )
        assert found == [
            (1, [(NONE, 1)]),
            (2, [(NONE, 2)]),
            (3, [(NotLeaderOrFollowerError.code, -1)]),
            (4, [(NONE, 3)]),
        ]
        assert writes.sizes[-1] == 1

    play(scenario)


def test_a_full_disk_refuses_the_records_and_leaves_the_log_unchanged(play: Play, writes: Writes) -> None:
    async def scenario(server: MemoryServer) -> None:
        peer = await started(server)
        await after_pause(peer)
        log = server.replicas.leader(TopicPartition("t", 0)).log
        writes.failure = StorageError("no space left", path="x", full=True)
        frames = [frame(number, ("t", 0, records(b"x"))) for number in (1, 2)]
        failed = await answers(peer, *frames)
        assert failed == [(number, [(KafkaStorageError.code, -1)]) for number in (1, 2)]
        assert writes.sizes[-1] == 2
        assert (log.log_end_offset, log.high_watermark, log.is_offline) == (1, 1, False)
        writes.failure = None
        assert await answers(peer, *frames) == [(1, [(NONE, 1)]), (2, [(NONE, 2)])]
        assert server.topic_stats.of("t").failed_produce == 2

    play(scenario)


def test_a_failed_disk_takes_the_partition_offline(play: Play, writes: Writes) -> None:
    async def scenario(server: MemoryServer) -> None:
        peer = await started(server)
        await after_pause(peer)
        writes.failure = StorageError("input/output error", path="x")
        found = await answers(peer, *(frame(number, ("t", 0, records(b"x"))) for number in (1, 2)))
        assert found == [(number, [(KafkaStorageError.code, -1)]) for number in (1, 2)]
        assert TopicPartition("t", 0) in server.replicas.table.offline

    play(scenario)


def test_clients_with_quotas_are_charged(play: Play, writes: Writes) -> None:
    async def scenario(server: MemoryServer) -> None:
        peer = await started(server)
        await after_pause(peer)
        await server.quotas.change(QuotaEntity(client_id="tester"), {QuotaKind.PRODUCER_BYTE_RATE: 1e9})
        await server.quotas.start()
        before = len(writes.sizes)
        assert await answers(peer, frame(1, ("t", 0, records(b"x")))) == [(1, [(NONE, 1)])]
        assert len(writes.sizes) == before
        await server.quotas.close()

    play(scenario)


def test_requests_that_are_timed_are_handled_alone(play: Play, writes: Writes) -> None:
    async def scenario(server: MemoryServer) -> None:
        peer = await started(server)
        await after_pause(peer)
        times = server.request_stats.times_of("Produce")
        times.countdown = 3
        frames = [frame(number, ("t", 0, records(b"x"))) for number in range(5)]
        before = len(writes.sizes)
        assert [rows for _, rows in await answers(peer, *frames)] == [[(NONE, 1 + number)] for number in range(5)]
        assert writes.sizes[before:] == [2]
        assert times.countdown == 1

    play(scenario)


def test_a_log_that_has_to_roll_takes_no_small_requests(play: Play, writes: Writes) -> None:
    async def scenario(server: MemoryServer) -> None:
        peer = await started(server)
        await after_pause(peer)
        log = server.replicas.leader(TopicPartition("t", 0)).log
        late = records(b"late", timestamp_ms=NOW_MS + 2 * log.config.segment_ms)
        before = len(writes.sizes)
        assert await answers(peer, frame(1, ("t", 0, late))) == [(1, [(NONE, 1)])]
        assert len(writes.sizes) == before
        assert len(log.segments) == 2

    play(scenario)


def test_flushes_that_are_required_are_awaited(play: Play, writes: Writes) -> None:
    async def scenario(server: MemoryServer) -> None:
        peer = await started(server)
        await after_pause(peer)
        before = len(writes.sizes)
        assert await answers(peer, frame(1, ("t", 0, records(b"x")))) == [(1, [(NONE, 1)])]
        assert len(writes.sizes) == before

    play(scenario, settings={"log.flush.interval.messages": "1"})
