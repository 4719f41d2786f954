"""Conversion of Fetch responses for old consumers: which records, in which process, and which errors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import (
    NONE,
    CorruptMessageError,
    KafkaStorageError,
    NetworkError,
    NotLeaderOrFollowerError,
    OdradekError,
    UnknownServerError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
    WorkerDiedError,
)
from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.hotpath import FetchedPartition
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder
from odradek.server.data import conversion
from odradek.server.data.conversion import DownConversion, estimated_us, holds_newer
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
T = TypeVar("T")
TP = TopicPartition("t", 0)


def batch(*values: bytes, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for number, value in enumerate(values):
        builder.append(b"key", value, timestamp_ms=5 + number, headers=(("h", b"v"),) if number else ())
    return builder.build()


def records_in(records: bytes) -> list[tuple[int, int, bytes | None]]:
    """Return (format, offset, value) of each record."""
    return [
        (header.magic, record.offset, record.value)
        for position, header in iterate_entries(records)
        for record in iterate_records(records, position, header, limit=1 << 20)
    ]


class InlineWorkers:
    """Does the work in this process. Tests set `hold` and `error`."""

    def __init__(self) -> None:
        self.calls = 0
        self.began = asyncio.Event()
        self.error: OdradekError | None = None
        self.hold: asyncio.Event | None = None

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        self.calls += 1
        self.began.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return function(*arguments)


def fetching(offset: int, max_bytes: int = 1 << 20, **options: object) -> Message:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    topics = [{"topic": "t", "partitions": [partition]}]
    wait: Message = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1}
    return {**wait, "topics": topics, "forgotten_topics_data": [], **options}


async def fetch(server: MemoryServer, version: int, offset: int = 0, **options: Any) -> Any:
    answer = await server.ask(ApiKey.FETCH, version, fetching(offset, **options))
    return answer.responses[0].partitions[0]


async def produce(server: MemoryServer, *batches: bytes, version: int = 9) -> None:
    for data in batches:
        partition = {"index": 0, "records": data}
        message = {"transactional_id": None, "acks": 1, "timeout_ms": 0}
        topics = [{"name": "t", "partition_data": [partition]}]
        answer = await server.ask(ApiKey.PRODUCE, version, {**message, "topic_data": topics})
        assert answer.responses[0].partition_responses[0].error_code == NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
def test_each_version_gets_its_format(play: Play, version: int, magic: int, codec: Codec) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await produce(server, batch(b"a", b"b", codec=codec), batch(b"c", codec=codec))
        part = await fetch(server, version)
        assert (part.error_code, part.high_watermark) == (NONE, 3)
        assert records_in(part.records) == [(magic, 0, b"a"), (magic, 1, b"b"), (magic, 2, b"c")]
        later = records_in((await fetch(server, version, 1)).records)
        expected = [(magic, 1, b"b"), (magic, 2, b"c")]
        assert later[-2:] == expected
        if codec is Codec.NONE and magic < 2:
            assert later == expected, "old consumers expect no record before the requested offset"

    play(scenario)


@pytest.mark.parametrize("version", [0, 2])
def test_an_answer_does_not_grow_beyond_what_was_read(play: Play, version: int) -> None:
    """Except for the first entry: small records need more bytes in the old formats."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await produce(server, *(batch(*[b"v"] * 20) for _ in range(9)))
        stored = len((await fetch(server, 4)).records)
        part = await fetch(server, version)
        assert 0 < len(part.records) <= stored
        values = records_in(part.records)
        assert [offset for _, offset, _ in values] == list(range(len(values)))
        assert len(values) < 180

    play(scenario)


@pytest.mark.parametrize(("version", "is_whole"), [(0, False), (2, False), (3, True), (4, True)])
def test_a_batch_above_the_limit(play: Play, version: int, is_whole: bool) -> None:
    """Up to version 2 it is truncated, so that the consumer requests more bytes (KIP-74)."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await produce(server, batch(b"v" * 500))
        part = await fetch(server, version, max_bytes=100)
        if is_whole:
            assert [value for _, _, value in records_in(part.records)] == [b"v" * 500]
        else:
            assert len(part.records) == 100
            assert records_in(part.records) == []

    play(scenario)


@pytest.mark.parametrize("codec", ["producer", "zstd"])
@pytest.mark.parametrize("version", [0, 3, 4, 9, 10])
def test_zstd_requires_a_version_that_supports_it(play: Play, version: int, codec: str) -> None:
    """As in Kafka, the batches determine it below version 4, and the setting of the topic below version 10."""

    async def scenario(server: MemoryServer) -> None:
        await server.configs.change("t", lambda _: {"compression.type": codec})
        await server.announce("t", {0: [1]})
        await produce(server, batch(b"a", codec=Codec.ZSTD))
        part = await fetch(server, version)
        if version >= (10 if codec == "zstd" else 4):
            assert records_in(part.records) == [(2, 0, b"a")]
        else:
            assert (part.error_code, part.records) == (UnsupportedCompressionTypeError.code, b"")

    play(scenario)


@pytest.mark.parametrize(
    ("version", "code"), [(1, UnsupportedVersionError.code), (3, UnsupportedVersionError.code), (4, 0)]
)
def test_a_topic_can_disable_conversion(play: Play, version: int, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.configs.change("t", lambda _: {"message.downconversion.enable": "false"})
        await server.announce("t", {0: [1]})
        await produce(server, batch(b"a"))
        part = await fetch(server, version)
        assert (part.error_code, bool(part.records)) == (code, code == 0)

    play(scenario)


def test_records_in_a_supported_format_are_not_changed(play: Play) -> None:
    settings = {"inter.broker.protocol.version": "2.7", "log.message.format.version": "0.10.1"}

    async def scenario(server: MemoryServer) -> None:
        await server.configs.change("t", lambda _: {"message.downconversion.enable": "false"})
        await server.announce("t", {0: [1]})
        await produce(server, batch(b"a"))
        stored = (await fetch(server, 4)).records
        assert records_in(stored) == [(1, 0, b"a")]
        assert (await fetch(server, 2)).records == stored
        assert (await fetch(server, 1)).error_code == UnsupportedVersionError.code

    play(scenario, settings=settings)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_producers_may_send_old_formats(play: Play, version: int) -> None:
    """The details of KIP-467 exist from version 8 on. Older responses have only the error code."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        for magic in (0, 1):
            await produce(server, encode_set([(0, 5, b"key", b"a")], magic=magic), version=version)
        await produce(server, batch(b"b"), version=version)
        assert records_in((await fetch(server, 4)).records) == [(2, 0, b"a"), (2, 1, b"a"), (2, 2, b"b")]

    play(scenario)


@pytest.mark.parametrize(("version", "code"), [(5, NotLeaderOrFollowerError.code), (6, KafkaStorageError.code)])
def test_old_consumers_do_not_know_storage_errors(version: int, code: int) -> None:
    rows = fitted(version, [FetchedPartition("t", None, 0, KafkaStorageError.code)])
    assert [row.error_code for row in rows] == [code]


class FakeRequest:
    """The part of a request that the conversion uses."""

    def __init__(self, version: int) -> None:
        self.api_version = version
        self.failure: str | None = None

    def fail(self, reason: str) -> None:
        self.failure = reason


def fitted(version: int, rows: list[FetchedPartition]) -> list[FetchedPartition]:
    found: list[list[FetchedPartition]] = []
    request: Any = FakeRequest(version)
    DownConversion(lambda _: None, BrokerTopicStats()).fit(request, rows, [0] * len(rows), found.append)
    (answer,) = found
    return answer


@pytest.mark.parametrize("damage", [10, 17, 70])
def test_records_that_cannot_be_read_are_an_error_of_their_partition(damage: int) -> None:
    damaged = bytearray(batch(b"value"))
    damaged[damage] ^= 0xFF
    rows = fitted(1, [FetchedPartition("t", None, 0, records=bytes(damaged)), FetchedPartition("t", None, 1)])
    if holds_newer(bytes(damaged), 0):
        assert (rows[0].error_code, rows[0].records) == (CorruptMessageError.code, b"")
    else:
        assert rows[0].records == damaged, "an incomplete entry is returned as it is"
    assert rows[1].error_code == NONE


# Later and in other processes


LARGE = b"v" * 1000


@pytest.fixture
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed batch of `LARGE` is sent to a worker. Two uncompressed batches of one record fit into one
    iteration."""
    monkeypatch.setattr(conversion, "TURN_US", 20)
    monkeypatch.setattr(conversion, "_PACKED_BYTES_PER_US", 1)


def packed(value: bytes) -> bytes:
    return batch(value, codec=Codec.GZIP)


@pytest.mark.parametrize(
    ("records", "least", "most"),
    [
        (b"", 0, 0),
        (batch(*[b"v"] * 47), 100, 110),
        (batch(*[b"v"] * 48), 80, 100),
        (batch(b"a") + batch(b"b"), 20, 20),
        (batch(b"a") + batch(b"b")[:-1], 20, 20),
        (batch(b"a")[:60], 0, 0),
        (encode_set([(0, 5, None, b"v" * 100)] * 3, magic=1), 30, 30),
        (batch(random.Random(1).randbytes(16_000), codec=Codec.LZ4), 1000, 1020),
        (encode_set([(0, 5, None, random.Random(1).randbytes(16_000))], magic=1, codec=Codec.LZ4), 1000, 1020),
        (bytes(200), 0, 0),
    ],
)
def test_the_conversion_time_is_estimated_from_headers(records: bytes, least: int, most: int) -> None:
    assert least <= estimated_us(records) <= most


@given(st.binary(max_size=300), st.integers(0, 120), st.binary(min_size=1, max_size=8))
def test_any_bytes_have_an_estimated_conversion_time(garbage: bytes, at: int, change: bytes) -> None:
    assert estimated_us(garbage) >= 0
    damaged = bytearray(batch(b"value") * 2)
    damaged[at : at + len(change)] = change
    assert estimated_us(damaged) >= 0


async def away(
    workers: InlineWorkers, rows: list[FetchedPartition], act: Callable[[DownConversion, FakeRequest], Any]
) -> tuple[list[list[FetchedPartition]], FakeRequest]:
    found: list[list[FetchedPartition]] = []
    converter, request = DownConversion(lambda _: None, BrokerTopicStats(), workers), FakeRequest(1)
    passed: Any = request
    converter.fit(passed, rows, [0] * len(rows), found.append)
    assert found == [], "the response must wait"
    await act(converter, request)
    return found, request


@pytest.mark.usefixtures("little_at_once")
def test_large_sets_go_to_workers_and_the_answer_keeps_its_order() -> None:
    async def main() -> None:
        workers = InlineWorkers()
        values = [LARGE, b"small", LARGE, b"", b"more"]
        rows = [
            FetchedPartition("t", None, number, records=(packed if each is LARGE else batch)(each))
            for number, each in enumerate(values)
        ]

        async def act(converter: DownConversion, request: FakeRequest) -> None:
            await asyncio.gather(*converter._tasks)

        found, request = await away(workers, rows, act)
        ((*answered,),) = found
        assert [records_in(bytes(row.records)) for row in answered] == [[(0, 0, each)] for each in values]
        assert [row.partition for row in answered] == [0, 1, 2, 3, 4]
        assert (workers.calls, request.failure) == (2, None)

    asyncio.run(main())


@pytest.mark.usefixtures("little_at_once")
def test_large_responses_are_converted_in_several_iterations() -> None:
    """A conversion that is too small for a worker waits only until other tasks have run."""

    async def main() -> None:
        workers = InlineWorkers()
        turns: list[int] = []
        rows = [FetchedPartition("t", None, number, records=batch(b"%d" % number)) for number in range(5)]
        found: list[list[FetchedPartition]] = []
        request: Any = FakeRequest(1)
        DownConversion(lambda _: None, BrokerTopicStats(), workers).fit(request, rows, [0] * 5, found.append)
        while not found:
            turns.append(sum(bool(row.records) and not holds_newer(row.records, 0) for row in rows))
            await asyncio.sleep(0)
        assert turns[0] == 2
        assert set(turns) >= {2, 3, 4}
        assert [records_in(bytes(row.records)) for row in found[0]] == [[(0, 0, b"%d" % number)] for number in range(5)]
        assert workers.calls == 0

    asyncio.run(main())


@pytest.mark.usefixtures("little_at_once")
@pytest.mark.parametrize("error", [WorkerDiedError("gone"), CorruptMessageError("bad")])
def test_an_error_of_a_worker_is_returned_to_the_client(error: OdradekError) -> None:
    async def main() -> None:
        workers = InlineWorkers()
        workers.error = error

        async def act(converter: DownConversion, request: FakeRequest) -> None:
            await asyncio.gather(*converter._tasks)

        found, _ = await away(workers, [FetchedPartition("t", None, 0, records=packed(LARGE))], act)
        code = UnknownServerError.code if isinstance(error, WorkerDiedError) else CorruptMessageError.code
        assert [(row.error_code, row.records) for row in found[0]] == [(code, b"")]

    asyncio.run(main())


@pytest.mark.usefixtures("little_at_once")
def test_a_stop_fails_conversions_in_progress() -> None:
    async def main() -> None:
        workers = InlineWorkers()
        workers.hold = asyncio.Event()

        async def act(converter: DownConversion, request: FakeRequest) -> None:
            await converter.close()
            await converter.close()
            assert not converter._tasks

        found, request = await away(workers, [FetchedPartition("t", None, 0, records=packed(LARGE))], act)
        assert found == []
        assert request.failure is not None

    asyncio.run(main())


@pytest.mark.usefixtures("little_at_once")
def test_a_bug_in_a_conversion_closes_only_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        workers = InlineWorkers()
        monkeypatch.setattr(conversion, "converted_down", lambda *_: 1 // 0)

        async def act(converter: DownConversion, request: FakeRequest) -> None:
            await asyncio.gather(*converter._tasks, return_exceptions=True)
            await asyncio.sleep(0)

        found, request = await away(workers, [FetchedPartition("t", None, 0, records=packed(LARGE))], act)
        assert found == []
        assert request.failure is not None

    asyncio.run(main())


@pytest.mark.usefixtures("little_at_once")
def test_a_client_disconnects_while_its_records_are_converted(play: Play) -> None:
    workers = InlineWorkers()

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await produce(server, packed(LARGE))
        workers.hold = asyncio.Event()
        peer = server.connect()
        asking = asyncio.ensure_future(peer.ask(ApiKey.FETCH, 1, fetching(0)))
        await workers.began.wait()
        peer.abort()
        with pytest.raises(NetworkError):
            await asking
        workers.hold.set()
        part = await fetch(server, 1)
        assert records_in(part.records) == [(0, 0, LARGE)]

    play(scenario, workers=workers)
