"""Produce, Fetch, ListOffsets and OffsetForLeaderEpoch with real logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.base.errors import (
    NONE,
    FetchSessionIdNotFoundError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NetworkError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    StorageError,
    TransactionalIdAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from odradek.base.ports import File, FileRegion, Part
from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.network.connection import Request
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.records.v2.batch import BatchBuilder
from odradek.server.data.produce_and_fetch import FROM_FILE_BYTES, FROM_FILES_BYTES
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
ID = UUID(int=77)
TP = TopicPartition("t", 0)
EARLIEST, LATEST, MAXIMUM = -2, -1, -3


def versions(api_key: ApiKey) -> range:
    return range(API_TABLE[api_key].min_version, API_TABLE[api_key].max_version + 1)


def records(*timestamps: int, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for timestamp in timestamps:
        builder.append(None, b"value", timestamp_ms=timestamp)
    return builder.build()


def transactional(timestamp: int) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(None, b"value", timestamp_ms=timestamp)
    return builder.build(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)


def producing(*parts: tuple[str, int, bytes | None], acks: int = -1, transactional_id: str | None = None) -> Message:
    topics = [{"name": topic, "partition_data": [{"index": number, "records": data}]} for topic, number, data in parts]
    return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 1000, "topic_data": topics}


async def produce(server: MemoryServer, version: int, *parts: tuple[str, int, bytes | None], **options: Any) -> Any:
    answer = await server.ask(ApiKey.PRODUCE, version, producing(*parts, **options))
    return [part for topic in answer.responses for part in topic.partition_responses]


def fetching(version: int, *offsets: tuple[str, int, int], **options: object) -> Message:
    topics = [
        {
            **({"topic_id": ID if topic == "t" else UUID(int=5)} if version >= 13 else {"topic": topic}),
            "partitions": [{"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}],
        }
        for topic, number, offset in offsets
    ]
    wait: Message = {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1}
    return {**wait, "topics": topics, "forgotten_topics_data": [], **options}


async def fetch(server: MemoryServer, version: int, *offsets: tuple[str, int, int], **options: object) -> Any:
    answer = await server.ask(ApiKey.FETCH, version, fetching(version, *offsets, **options))
    return [part for topic in answer.responses for part in topic.partitions]


async def listed(server: MemoryServer, version: int, timestamp: int, topic: str = "t", replica_id: int = -1) -> Any:
    item: Message = {"partition_index": 0, "timestamp": timestamp}
    message = {"replica_id": replica_id, "isolation_level": 0, "topics": [{"name": topic, "partitions": [item]}]}
    answer = await server.ask(ApiKey.LIST_OFFSETS, version, message)
    return answer.topics[0].partitions[0]


# Produce and Fetch


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_records_are_appended(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        for acks, offset in ((-1, 0), (1, 2)):
            (part,) = await produce(server, version, ("t", 0, records(5, 6)), acks=acks)
            assert (part.error_code, part.base_offset) == (NONE, offset)
        assert server.replicas.leader(TP).log.high_watermark == 4
        stats = server.topic_stats.of("t")
        assert (stats.messages_in, stats.bytes_in, stats.total_produce) == (4, 2 * len(records(5, 6)), 2)

    play(scenario)


def test_partitions_of_a_produce_request_are_independent(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [2]})
        parts = [("t", 0, records(1)), ("t", 0, None), ("t", 1, records(1)), ("no", 0, records(1)), ("t", 0, b"")]
        answers = await produce(server, 8, *parts)
        assert sorted(part.error_code for part in answers) == sorted(
            [
                NONE,
                InvalidRecordError.code,
                NotLeaderOrFollowerError.code,
                UnknownTopicOrPartitionError.code,
                InvalidRecordError.code,
            ]
        )
        assert server.replicas.leader(TP).log.log_end_offset == 1
        assert set(server.topic_stats.topics) == {"t"}, "there is a metric for a topic that does not exist"

    play(scenario)


@pytest.mark.parametrize(
    ("version", "options", "data", "code"),
    [
        (6, {}, records(1, codec=Codec.ZSTD), UnsupportedCompressionTypeError.code),
        (7, {}, records(1, codec=Codec.ZSTD), NONE),
        (9, {"acks": 2}, records(1), InvalidRequiredAcksError.code),
        (9, {"transactional_id": "x"}, records(1), NONE),
        (9, {"transactional_id": "x"}, transactional(1), NONE),
        (9, {}, transactional(1), TransactionalIdAuthorizationFailedError.code),
        (2, {}, transactional(1), TransactionalIdAuthorizationFailedError.code),
    ],
)
def test_invalid_produce_requests(play: Play, version: int, options: Any, data: bytes, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        (part,) = await produce(server, version, ("t", 0, data), **options)
        assert part.error_code == code
        assert server.replicas.leader(TP).log.log_end_offset == (0 if code else 1)

    play(scenario)


def test_with_acks_0_only_a_failure_has_an_effect(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        peer = server.connect()
        silent = asyncio.ensure_future(peer.ask(ApiKey.PRODUCE, 9, producing(("t", 0, records(1)), acks=0)))
        await asyncio.sleep(0)
        assert server.replicas.leader(TP).log.log_end_offset == 1
        assert not peer.is_aborted
        failing = asyncio.ensure_future(peer.ask(ApiKey.PRODUCE, 9, producing(("no", 0, records(1)), acks=0)))
        for each in (silent, failing):
            with pytest.raises(NetworkError):
                await each
        assert peer.is_aborted

    play(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH)[4:])
def test_records_are_fetched(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        await produce(server, 9, ("t", 0, records(5, 6)))
        for level in (0, 1):
            (part,) = await fetch(server, version, ("t", 0, 0), isolation_level=level)
            assert (part.error_code, part.high_watermark, part.last_stable_offset) == (NONE, 2, 2)
            assert bytes(part.records)[61:] == records(5, 6)[61:]
            assert (part.aborted_transactions is None) is (level == 0)
        (part,) = await fetch(server, version, ("t", 0, 3))
        assert part.error_code == OffsetOutOfRangeError.code
        (part,) = await fetch(server, version, ("no", 0, 0))
        unknown = UnknownTopicIdError if version >= 13 else UnknownTopicOrPartitionError
        assert part.error_code == unknown.code
        assert server.topic_stats.of("t").bytes_out == 2 * len(records(5, 6))
        assert set(server.topic_stats.topics) == {"t"}

    play(scenario)


def test_a_fetch_does_not_wait_for_more_than_max_bytes(play: Play) -> None:
    """If min_bytes is above max_bytes, max_bytes are enough."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await produce(server, 9, ("t", 0, records(*range(9))))
        size = len(records(*range(9)))
        before = server.clock.monotonic_ms()
        (part,) = await fetch(server, 4, ("t", 0, 0), min_bytes=1 << 30, max_bytes=size, max_wait_ms=60_000)
        assert len(part.records) == size
        assert server.clock.monotonic_ms() - before < 1_000
        await fetch(server, 4, ("t", 0, 9), max_wait_ms=60_000)
        assert server.clock.monotonic_ms() - before >= 60_000

    play(scenario)


def test_fetch_sessions(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [1]}, topic_id=ID)
        first = await server.ask(
            ApiKey.FETCH, 12, fetching(12, ("t", 0, 0), ("t", 1, 0), session_epoch=0, max_wait_ms=0)
        )
        assert first.session_id > 0
        again = fetching(12, session_id=first.session_id, session_epoch=1, max_wait_ms=0)
        assert (await server.ask(ApiKey.FETCH, 12, again)).responses == ()
        lost = fetching(12, session_id=first.session_id + 1, session_epoch=1)
        assert (await server.ask(ApiKey.FETCH, 12, lost)).error_code == FetchSessionIdNotFoundError.code

    play(scenario)


@pytest.mark.parametrize(("version", "code"), [(10, NotLeaderOrFollowerError.code), (11, NONE)])
def test_followers_serve_new_consumers_only(play: Play, version: int, code: int) -> None:
    """KIP-392."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [2, 1]}, topic_id=ID, brokers=(1, 2))
        (part,) = await fetch(server, version, ("t", 0, 0), max_wait_ms=0)
        assert part.error_code == code

    play(scenario)


def test_a_disk_that_fails_while_records_are_read(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await produce(server, 9, ("t", 0, records(5)))

        class Gone:
            def pread(self, length: int, position: int) -> bytes:
                raise StorageError("the disk is gone")

            pread_now = pread

        log = server.replicas.leader(TP).log
        read = log.read
        monkeypatch.setattr(
            type(log), "read", lambda _, *args, **options: read(*args, **options)._replace(file=cast(File, Gone()))
        )
        codes = [(await fetch(server, 12, ("t", 0, 0)))[0].error_code for _ in range(2)]
        assert codes == [KafkaStorageError.code] * 2
        assert server.replicas.counts().offline == 1

    play(scenario)


@pytest.mark.parametrize(
    ("version", "sizes", "from_files"),
    [
        (12, [FROM_FILES_BYTES], [True]),
        (12, [FROM_FILES_BYTES - 200_000, 199_000], [False, False]),
        (12, [FROM_FILES_BYTES, 1_000, FROM_FILE_BYTES], [True, False, True]),
        (9, [FROM_FILES_BYTES], [False]),
    ],
)
def test_large_answers_are_sent_from_the_files(
    play: Play, monkeypatch: pytest.MonkeyPatch, version: int, sizes: list[int], from_files: list[bool]
) -> None:
    given: list[bool] = []
    respond = Request.respond

    def spy(request: Request, parts: Sequence[Part]) -> None:
        if request.api_key is ApiKey.FETCH:
            given.extend(isinstance(part, FileRegion) for part in parts[1::2])
        respond(request, parts)

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {number: [1] for number in range(len(sizes))})
        for number, size in enumerate(sizes):
            for start in range(0, size, 500_000):
                builder = BatchBuilder(limit_bytes=1 << 20)
                builder.append(None, b"v" * min(500_000, size - start), timestamp_ms=1)
                (part,) = await produce(server, 8, ("t", number, builder.build()))
                assert part.error_code == NONE
        monkeypatch.setattr(Request, "respond", spy)
        asked: Any = fetching(version, *[("t", number, 0) for number in range(len(sizes))], max_bytes=50 << 20)
        for item in asked["topics"][0]["partitions"]:
            item["partition_max_bytes"] = 50 << 20
        answer = await server.ask(ApiKey.FETCH, version, asked)
        found = [bytes(part.records) for topic in answer.responses for part in topic.partitions]
        logs = [server.replicas.leader(TopicPartition("t", number)).log for number in range(len(sizes))]
        assert found == [log.read(0, max_bytes=50 << 20).load() for log in logs]

    play(scenario)
    assert given[: len(sizes)] == from_files


# Offsets


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS)[1:])
@pytest.mark.parametrize(
    ("timestamp", "since", "found"),
    [
        (EARLIEST, 1, (-1, 0)),
        (LATEST, 1, (-1, 3)),
        (MAXIMUM, 7, (9, 1)),
        (-4, 8, (-1, 0)),
        (-5, 9, (-1, -1)),
        (-6, 99, (-1, -1)),
        (0, 1, (5, 0)),
        (6, 1, (9, 1)),
        (10, 1, (-1, -1)),
    ],
)
def test_offsets_by_time(play: Play, version: int, timestamp: int, since: int, found: tuple[int, int]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, leader_epoch=2)
        await produce(server, 9, ("t", 0, records(5, 9, 7)))
        item = await listed(server, version, timestamp)
        if version < since:
            assert (item.error_code, item.offset) == (UnsupportedVersionError.code, -1)
            return
        assert (item.error_code, item.offset) == (NONE, found[1])
        assert item.timestamp == found[0]
        if version >= 4:
            assert item.leader_epoch == (2 if found[1] >= 0 else -1)

    play(scenario)


@pytest.mark.parametrize(
    ("timestamp", "wanted", "found"),
    [
        (LATEST, 1, [6]),
        (LATEST, 9, [6, 4, 2, 0]),
        (LATEST, 2, [6, 4]),
        (LATEST, 0, []),
        (LATEST, -1, []),
        (EARLIEST, 9, [0]),
        (9_999, 9, []),
        (10_000, 9, [0]),
        (15_000, 9, [0]),
        (20_000, 9, [4, 2, 0]),
        (60_000, 9, [6, 4, 2, 0]),
        (-1_000_000, 9, []),
        (MAXIMUM, 9, []),
    ],
)
def test_the_oldest_version_lists_where_segments_begin(
    play: Play, timestamp: int, wanted: int, found: list[int]
) -> None:
    """Segments rolled at or before a time, in milliseconds since the first batch. The time of the log end is now."""

    async def scenario(server: MemoryServer) -> None:
        await server.configs.change("t", lambda _: {"segment.bytes": "100", "retention.ms": "-1"})
        await server.announce("t", {0: [1]})
        began = server.clock.wall_ms()
        for _ in range(3):
            await produce(server, 9, ("t", 0, records(5, 6)))
            await server.clock.sleep_ms(10_000)
        time = timestamp if timestamp in (LATEST, EARLIEST, MAXIMUM) else began + timestamp
        assert await old_offsets(server, time, wanted) == (NONE, found)

    play(scenario)


async def old_offsets(
    server: MemoryServer, timestamp: int, wanted: int = 9, topic: str = "t", replica_id: int = -1
) -> tuple[int, list[int]]:
    item: Message = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": wanted}
    message = {"replica_id": replica_id, "topics": [{"name": topic, "partitions": [item]}]}
    answer = await server.ask(ApiKey.LIST_OFFSETS, 0, message)
    (part,) = answer.topics[0].partitions
    return part.error_code, list(part.old_style_offsets)


def test_the_oldest_version_limits_offsets_to_the_high_watermark(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        assert await old_offsets(server, LATEST) == (NONE, [0])
        await server.announce("t", {0: [1, 2]}, leader_epoch=1, brokers=(1, 2))
        await produce(server, 9, ("t", 0, records(5, 6)), acks=1)
        assert await old_offsets(server, LATEST) == (NONE, [0, 0])
        assert await old_offsets(server, LATEST, replica_id=2) == (NONE, [2, 0])
        assert await old_offsets(server, LATEST, topic="no") == (UnknownTopicOrPartitionError.code, [])

    play(scenario)


@pytest.mark.parametrize("version", [7, 8, 11])
def test_a_producer_gets_the_indexes_of_invalid_records(play: Play, version: int) -> None:
    """KIP-467."""

    async def scenario(server: MemoryServer) -> None:
        await server.configs.change("t", lambda _: {"cleanup.policy": "compact"})
        await server.announce("t", {0: [1]})
        (part,) = await produce(server, version, ("t", 0, records(5, 6)))
        assert part.error_code == InvalidRecordError.code
        if version >= 8:
            assert [error.batch_index for error in part.record_errors] == [0, 1]
            assert all(error.batch_index_error_message for error in part.record_errors)
            assert part.error_message

    play(scenario)


@pytest.mark.parametrize(("version", "code"), [(4, LeaderNotAvailableError.code), (5, OffsetNotAvailableError.code)])
def test_a_new_leader_does_not_guess_the_end(play: Play, version: int, code: int) -> None:
    """Until its followers have fetched, the high watermark may be below the offset that the old leader had
    committed."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2]}, brokers=(1, 2))
        await produce(server, 9, ("t", 0, records(5, 6)), acks=1)
        await server.announce("t", {0: [1, 2]}, brokers=(1, 2), leader_epoch=1)
        assert [(await listed(server, version, timestamp)).error_code for timestamp in (LATEST, 5, 99)] == [code] * 3
        assert (await listed(server, version, EARLIEST)).offset == 0
        follower = await listed(server, version, LATEST, replica_id=2)
        assert (follower.error_code, follower.offset) == (NONE, 2)

    play(scenario)


def test_errors_of_list_offsets(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [2]})
        items = [
            {"partition_index": number, "timestamp": LATEST, "current_leader_epoch": epoch}
            for number, epoch in ((0, 3), (1, -1), (7, -1), (8, -1), (8, -1))
        ]
        message = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": items}]}
        answer = await server.ask(ApiKey.LIST_OFFSETS, 9, message)
        assert [item.error_code for item in answer.topics[0].partitions] == [
            UnknownLeaderEpochError.code,
            NotLeaderOrFollowerError.code,
            UnknownTopicOrPartitionError.code,
            InvalidRequestError.code,
            InvalidRequestError.code,
        ]

    play(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_end_offsets_of_epochs(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        for epoch in (0, 4):
            await server.announce("t", {0: [1]}, leader_epoch=epoch)
            await produce(server, 9, ("t", 0, records(5, 6)))
        items = [
            {"partition": number, "current_leader_epoch": -1, "leader_epoch": epoch}
            for number, epoch in ((0, 0), (0, 3), (0, 4), (0, 9), (5, 0))
        ]
        message = {"replica_id": -1, "topics": [{"topic": "t", "partitions": items}]}
        answer = await server.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, message)
        ends = [(item.error_code, item.end_offset) for item in answer.topics[0].partitions]
        assert ends == [(NONE, 2), (NONE, 2), (NONE, 4), (NONE, -1), (UnknownTopicOrPartitionError.code, -1)]
        if version >= 1:
            assert [item.leader_epoch for item in answer.topics[0].partitions] == [0, 0, 4, -1, -1]

    play(scenario)
