"""Reads whose bytes are not in memory: they wait for a thread, and what changes meanwhile makes them start again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.app.coordinator_log import CoordinatorLog
from odradek.base.errors import (
    CorruptMessageError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.log.lookups import ATTEMPTS
from odradek.log.partition_log import PartitionLog
from odradek.metrics.request_stats import RequestStats
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.fetch import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import iterate_entries
from odradek.records.v2.batch import ControlType
from odradek.replication.replica_requests import FetchParams, FetchResult
from odradek.replication.roles import StopReplica
from odradek.replication.sessions.fetch_session import FetchPartition
from odradek.security.principals import ANONYMOUS, Identity
from odradek.server.data.list_offsets import OffsetHandlers
from odradek.server.data.produce_and_fetch import DataHandlers
from odradek.server.data.record_sets import LoadedRecords, RecordSets
from odradek.server.data.time_search import SEARCH_S
from odradek.server.dispatch import RequestContext
from odradek_testkit.cleaning import settle, write_cleaned
from odradek_testkit.inline_ports import HeldReads
from odradek_testkit.logs import batch, marker
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster
from odradek_testkit.torture.cold_files import ColdFiles

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 20
COLD_OFFSET = 5
FIRST_MS = 1_700_000_000_000
GAP = 2 * ATTEMPTS
"""Number of segments without any batch."""


class Stage:
    """One broker with two disks, and partitions whose segments contain four records each."""

    def __init__(self, cluster: MemoryCluster, clock: VirtualClock, files: ColdFiles, reads: HeldReads) -> None:
        self.cluster = cluster
        self.clock = clock
        self.files = files
        self.reads = reads

    @property
    def broker(self) -> MemoryBroker:
        return self.cluster.brokers[1]

    def log(self, tp: TopicPartition = TP) -> PartitionLog:
        return self.broker.partition(tp).log

    def create(self, tp: TopicPartition, records: int = RECORDS) -> PartitionLog:
        """Create a partition with records a second apart, and its leader here."""
        self.cluster.create(tp, (1,))
        log = self.log(tp)
        for number in range(records):
            log.append_as_leader(batch(b"%100d" % number, timestamp_ms=FIRST_MS + 1000 * number), leader_epoch=0)
        settle(log)
        return log

    def begin(self, offset: int, *tps: TopicPartition, **options: Any) -> asyncio.Future[list[FetchResult]]:
        """Fetch as a consumer that does not wait."""
        answer: asyncio.Future[list[FetchResult]] = asyncio.get_running_loop().create_future()
        params = FetchParams(options.pop("max_wait_ms", 0), 1, 1 << 20, **options)
        entries = [FetchPartition(tp.topic, tp.partition, offset, 1 << 20) for tp in tps or (TP,)]
        self.broker.replicas.fetch(params, entries, answer.set_result)
        return answer

    async def fetch(self, offset: int, *tps: TopicPartition, **options: Any) -> list[FetchResult]:
        return await self.begin(offset, *tps, **options)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.clock.sleep_ms(1)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold a read that has begun, while the block changes something."""
        await self.until(lambda: self.reads.is_holding)
        yield
        self.reads.release()


Scenario = Callable[[Stage], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]


@pytest.fixture(params=["early", "late"])
def is_early(request: pytest.FixtureRequest) -> bool:
    """Whether a held read has read before the change, or reads after it."""
    return bool(request.param == "early")


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(scenario: Scenario) -> None:
        async def main() -> None:
            clock, reads, files = VirtualClock(), HeldReads(), ColdFiles()
            cluster = MemoryCluster(
                tmp_path,
                clock,
                topic_settings={"segment.bytes": "800", "index.interval.bytes": "0", "retention.ms": "-1"},
                disk_threads=reads,
                disks=2,
                files=files,
            )
            await cluster.start_broker(1)
            try:
                await scenario(Stage(cluster, clock, files, reads))
            finally:
                reads.release()
                await cluster.close()

        run_virtual(main())

    return run


def offsets(result: FetchResult) -> list[int]:
    assert not result.error_code
    assert result.records is not None
    return [header.base_offset for _, header in iterate_entries(result.records.load())]


def test_what_is_not_in_memory_is_found_by_a_thread(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        log = stage.create(TP)
        assert len(log.segments) == 5
        stage.files.is_cold = True
        for offset in range(RECORDS):
            (result,) = await stage.fetch(offset)
            assert offsets(result)[0] == offset
            base = max(segment.base_offset for segment in log.segments if segment.base_offset <= offset)
            assert offsets(result) == list(range(offset, min(base + 4, RECORDS)))

    play(scenario)


def test_what_is_in_memory_needs_no_thread(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        await stage.fetch(COLD_OFFSET)  # loads the segment
        before = stage.reads.total
        answer = stage.begin(COLD_OFFSET)
        assert answer.done()
        assert offsets(answer.result()[0])[0] == COLD_OFFSET
        assert stage.reads.total == before

    play(scenario)


def test_a_disk_that_does_not_answer_does_not_hold_up_other_partitions(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        stage.create(OTHER)
        await stage.fetch(COLD_OFFSET, OTHER)
        stage.reads.hold()
        before = stage.reads.total
        for _ in range(3):
            cold, warm = await stage.fetch(COLD_OFFSET, TP, OTHER)
            assert cold.records is None
            assert not cold.error_code
            assert cold.high_watermark == RECORDS
            assert offsets(warm)[0] == COLD_OFFSET
        # Without other records, the fetch waits for a second, then it is answered without records.
        began_ms = stage.clock.monotonic_ms()
        (cold,) = await stage.fetch(COLD_OFFSET)
        assert cold.records is None
        assert stage.clock.monotonic_ms() - began_ms == pytest.approx(1000, abs=2)
        assert stage.reads.total == before + 1, "the same lookup does not run twice"
        waiting = stage.begin(COLD_OFFSET)
        stage.reads.release()
        assert offsets((await waiting)[0])[0] == COLD_OFFSET

    play(scenario)


async def roll(stage: Stage) -> Callable[[FetchResult], None]:
    for number in range(8):
        stage.log().append_as_leader(batch(b"%100d" % number), leader_epoch=0)
    return lambda result: _expect(result, COLD_OFFSET)


async def truncate(stage: Stage) -> Callable[[FetchResult], None]:
    """Truncate within the segment, and write other records there."""
    log = stage.log()
    log.truncate_to(COLD_OFFSET - 1)
    for number in range(4):
        log.append_as_leader(batch(b"other %d" % number), leader_epoch=0)
    log.high_watermark = log.log_end_offset

    def check(result: FetchResult) -> None:
        _expect(result, COLD_OFFSET)
        assert result.records is not None
        assert b"other 1" in result.records.load()

    return check


async def expire(stage: Stage) -> Callable[[FetchResult], None]:
    stage.log().delete_records_before(12)
    assert stage.log().delete_expired(stage.clock.wall_ms()) == 3
    return lambda result: _refused(result, OffsetOutOfRangeError.code)


async def delete_records(stage: Stage) -> Callable[[FetchResult], None]:
    stage.log().delete_records_before(COLD_OFFSET + 1)
    return lambda result: _refused(result, OffsetOutOfRangeError.code)


async def swap(stage: Stage) -> Callable[[FetchResult], None]:
    log = stage.log()
    cleaned = write_cleaned(
        stage.files, log, stage.clock, 2, keeps=lambda header: header.base_offset not in (COLD_OFFSET, 1, 2)
    )
    assert log.swap_cleaned(cleaned)
    return lambda result: _expect(result, COLD_OFFSET + 1)


async def move(stage: Stage) -> Callable[[FetchResult], None]:
    logs, before = stage.broker.logs, stage.log()
    (target,) = {path for path in logs.online_directories if path != logs.directory_of(TP)}
    logs.create_future(TP, target)
    stage.broker.replicas.mover.start(stage.broker.partition(TP))
    await stage.until(lambda: stage.log() is not before)
    return lambda result: _expect(result, COLD_OFFSET)


async def delete(stage: Stage) -> Callable[[FetchResult], None]:
    stage.broker.replicas.roles.stop([StopReplica(TP, 0, True)])
    return lambda result: _refused(result, UnknownTopicOrPartitionError.code)


async def lose(stage: Stage) -> Callable[[FetchResult], None]:
    stage.broker.partition(TP).is_leader = False
    return lambda result: _refused(result, NotLeaderOrFollowerError.code)


async def fail(stage: Stage) -> Callable[[FetchResult], None]:
    stage.broker.logs.directory_failed(stage.log(), StorageError("the test took it offline"))
    return lambda result: _refused(result, KafkaStorageError.code)


def _expect(result: FetchResult, offset: int) -> None:
    assert offsets(result)[0] == offset


def _refused(result: FetchResult, code: int) -> None:
    assert result.error_code == code
    assert result.records is None


Change = Callable[[Stage], Awaitable[Callable[[FetchResult], None]]]

CHANGES = [roll, truncate, expire, delete_records, swap, move, delete, lose, fail]


@pytest.mark.parametrize("change", CHANGES)
def test_a_fetch_sees_what_changes_during_its_lookup(play: Play, change: Change, is_early: bool) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        stage.files.is_cold = True
        stage.reads.is_early = is_early
        stage.reads.hold()
        answer = stage.begin(COLD_OFFSET)
        async with stage.held():
            check = await change(stage)
        check((await answer)[0])
        # What the lookup found is not used later, either.
        check((await stage.fetch(COLD_OFFSET))[0])

    play(scenario)


@pytest.mark.parametrize("change", [roll, truncate, expire, swap, move])
def test_a_search_by_time_sees_what_changes_meanwhile(play: Play, change: Change, is_early: bool) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        lookups, wanted_ms = stage.broker.replicas.lookups, FIRST_MS + 1000 * COLD_OFFSET
        stage.files.is_cold = True
        stage.reads.is_early = is_early
        stage.reads.hold()
        search = asyncio.ensure_future(lookups.offset_for_timestamp(stage.log(), wanted_ms))
        before = stage.log()
        async with stage.held():
            await change(stage)
        if stage.log() is not before:
            with pytest.raises(KafkaStorageError, match="no log in an online directory any more"):
                await search
        else:
            assert await search == stage.log().offset_for_timestamp(wanted_ms)

    play(scenario)


def test_a_log_that_changes_all_the_time_is_an_error_that_clients_retry(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        log = stage.create(TP)
        stage.files.is_cold = True
        lookups = stage.broker.replicas.lookups
        for search in (lookups.offset_for_timestamp(log, FIRST_MS), lookups.read(log, 0, max_bytes=1 << 20)):
            stage.reads.hold()
            task = asyncio.ensure_future(search)
            for _ in range(ATTEMPTS):
                async with stage.held():
                    log.truncate_to(log.log_end_offset - 1)
                    stage.reads.hold()
            with pytest.raises(OffsetNotAvailableError, match=f"t-0 changed during each of {ATTEMPTS} lookups of"):
                await task

    play(scenario)


@pytest.mark.parametrize("is_cold_when_read", [True, False])
@pytest.mark.parametrize("last_kept", [0, 4 * GAP + 1, 4 * GAP + 4])
def test_a_gap_of_more_segments_than_can_be_loaded_is_one_lookup(
    play: Play, last_kept: int, is_cold_when_read: bool
) -> None:
    async def scenario(stage: Stage) -> None:
        log = stage.create(TP, 4 * (GAP + 2))
        for number in range(GAP + 1):
            cleaned = write_cleaned(
                stage.files,
                log,
                stage.clock,
                1,
                keeps=lambda header: header.base_offset in (0, last_kept),
                first=number,
            )
            assert log.swap_cleaned(cleaned)
        assert len(log.segments) == GAP + 2
        stage.broker.logs.segment_cache.max_files = 1
        stage.files.is_cold = is_cold_when_read
        for offset in (1, 2, GAP, 4 * GAP):
            # The next record after the gap.
            expected = last_kept or log.active_segment.base_offset
            (result,) = await stage.fetch(offset)
            assert offsets(result)[0] == expected
            found = await stage.broker.replicas.lookups.read(log, offset, max_bytes=1)
            assert next(iterate_entries(found.load()))[1].base_offset == expected
            # A gap up to the end of the readable records.
            assert not (await stage.broker.replicas.lookups.read(log, offset, max_bytes=1, max_offset=expected)).length
        # A coordinator loads all records, and the partition stays online.
        reader = CoordinatorLog(stage.broker.replicas, BrokerTopicStats(), commit_timeout_ms=1000, load_bytes=1 << 20)
        loaded = [header.base_offset async for records in reader.read(TP) for _, header in iterate_entries(records)]
        kept = {0, last_kept, *range(log.active_segment.base_offset, log.log_end_offset)}
        assert loaded == sorted(kept)

    play(scenario)


def test_aborted_transactions_of_more_segments_than_can_be_loaded_are_found(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create(TP, (1,))
        log, transactions = stage.log(), 2 * ATTEMPTS
        for number in range(transactions):
            records = batch(bytes(600), producer_id=1, producer_epoch=0, base_sequence=number, is_transactional=True)
            log.append_as_leader(records, leader_epoch=0)
            aborted = marker(ControlType.ABORT, producer_id=1)
            log.append_as_leader(aborted, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        settle(log)
        stage.broker.logs.segment_cache.max_files = 1
        for segment in log.segments[:-1]:
            segment.release()
        expected = tuple((1, 2 * number) for number in range(transactions))
        lookups = stage.broker.replicas.lookups
        assert await lookups.aborted_transactions(log, 0, 2 * transactions) == expected
        assert await lookups.aborted_transactions(log, 3, 6) == expected[1:3]

    play(scenario)


def test_damage_that_a_lookup_finds_is_reported(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        log = stage.create(TP)
        stage.files.is_cold = True
        log.segments[1].file.pwritev((bytes(500),), 0)
        (result,) = await stage.fetch(COLD_OFFSET)
        assert result.error_code == CorruptMessageError.code
        with pytest.raises(CorruptMessageError):
            await stage.broker.replicas.lookups.read(log, COLD_OFFSET, max_bytes=100)
        assert not log.is_offline

    play(scenario)


def test_a_disk_that_fails_during_a_lookup_goes_offline(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        log = stage.create(TP)
        stage.files.is_cold = True

        def gone(_files: ColdFiles, path: str, **_options: object) -> None:
            raise StorageError(f"cannot open {path}: the disk is gone", path=path)

        monkeypatch.setattr(ColdFiles, "open", gone)
        log.segments[1].release()
        (result,) = await stage.fetch(COLD_OFFSET)
        assert result.error_code == KafkaStorageError.code
        assert log.is_offline

    play(scenario)


def test_a_coordinator_stops_reading_a_partition_that_it_lost_meanwhile(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        stage.files.is_cold = True
        log = CoordinatorLog(stage.broker.replicas, BrokerTopicStats(), commit_timeout_ms=5000, load_bytes=300)
        pieces = log.read(TP)
        first = await anext(pieces)
        assert [header.base_offset for _, header in iterate_entries(first)] == [0]
        stage.reads.hold()
        following = asyncio.ensure_future(anext(pieces))
        async with stage.held():
            stage.broker.partition(TP).leader_epoch += 1
        with pytest.raises(NotLeaderOrFollowerError):
            await following

    play(scenario)


# Handlers


def handlers(stage: Stage) -> DataHandlers:
    broker = stage.broker
    return DataHandlers(
        replicas=broker.replicas,
        sessions=broker.sessions,
        view=broker.view,
        topic_stats=BrokerTopicStats(),
        request_stats=RequestStats(),
        clock=stage.clock,
    )


async def listed(stage: Stage, timestamp: int, *partitions: int) -> list[tuple[int, int]]:
    """Return the error code and the offset of each partition in a ListOffsets response."""
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(
            ListOffsetsRequestTopic(
                name=TP.topic,
                partitions=tuple(
                    ListOffsetsRequestPartition(partition_index=number, timestamp=timestamp) for number in partitions
                ),
            ),
        ),
    )
    context = RequestContext(
        api_key=ApiKey.LIST_OFFSETS,
        api_version=7,
        client_id=None,
        client_host="localhost",
        listener="PLAINTEXT",
        identity=Identity(ANONYMOUS, "localhost", "PLAINTEXT", "PLAINTEXT"),
    )
    offsets = OffsetHandlers(replicas=stage.broker.replicas, clock=stage.clock)
    answer: Any = await offsets.list_offsets(context, request)
    (topic,) = answer["topics"]
    return [(row["error_code"], row["offset"]) for row in topic["partitions"]]


def test_a_search_by_time_whose_disk_does_not_answer_is_repeated_by_the_client(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        stage.create(OTHER)
        stage.reads.hold()
        began_ms = stage.clock.monotonic_ms()
        (late, found) = await listed(stage, FIRST_MS + 7000, 0, 1)
        assert late == (OffsetNotAvailableError.code, -1)
        assert found == (0, 7)
        assert stage.clock.monotonic_ms() - began_ms == pytest.approx(1000 * SEARCH_S, abs=2)
        assert await listed(stage, FIRST_MS + 7000, 0, 1) == [(0, 7), (0, 7)]

    play(scenario)


@pytest.mark.parametrize("change", [move, delete, lose])
def test_a_search_by_time_ends_with_the_state_of_the_replica(play: Play, change: Change, is_early: bool) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        stage.files.is_cold = True
        stage.reads.is_early = is_early
        stage.reads.hold()
        search = asyncio.ensure_future(listed(stage, FIRST_MS + 7000, 0))
        async with stage.held():
            await change(stage)
        ((code, offset),) = await search
        wanted = {move: 0, delete: UnknownTopicOrPartitionError.code, lose: NotLeaderOrFollowerError.code}[change]
        assert code == wanted
        assert offset == (-1 if code else 7)

    play(scenario)


async def loaded(stage: Stage, *tps: TopicPartition) -> list[LoadedRecords]:
    """Load the records of partitions as for a consumer whose records may have to be converted."""
    results = await stage.fetch(0, *tps)
    entries = [FetchPartition(tp.topic, tp.partition, 0, 1 << 20) for tp in tps]
    done: asyncio.Future[Sequence[LoadedRecords]] = asyncio.get_running_loop().create_future()
    sets = RecordSets(stage.broker.replicas, lambda *_: pytest.fail("nothing failed"))
    sets.load(list(zip(entries, results, strict=True)), done.set_result)
    try:
        return list(await done)
    finally:
        await sets.close()


def test_records_for_old_consumers_are_read_by_a_thread(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        stage.create(OTHER)
        await stage.fetch(0, TP)
        await stage.fetch(0, OTHER)
        before = stage.reads.total
        warm = await loaded(stage, TP, OTHER)
        assert all(each.records for each in warm)
        assert stage.reads.total == before, "what is in memory needs no thread"
        stage.files.is_cold = True
        assert [each.records for each in await loaded(stage, TP, OTHER)] == [each.records for each in warm]
        assert stage.reads.total > before
        stage.reads.is_early = False
        stage.reads.hold()  # the next read is that of the records, because the place is known
        late, other = await loaded(stage, TP, OTHER)
        assert late.result.records is None
        assert late.records == b""
        assert not late.result.error_code
        assert other.records == warm[1].records

    play(scenario)


def test_records_for_old_consumers_that_were_truncated_meanwhile(play: Play, is_early: bool) -> None:
    async def scenario(stage: Stage) -> None:
        stage.create(TP)
        stage.files.is_cold = True
        stage.reads.is_early = is_early
        await stage.fetch(0)
        stage.reads.hold()
        answer = asyncio.ensure_future(loaded(stage, TP))
        async with stage.held():
            stage.log().truncate_to(2)
        ((_, result, records),) = await answer
        assert (result.error_code, records) == (NotLeaderOrFollowerError.code, b"")

    play(scenario)
