"""The lag of groups: what is asked of the leaders, what is provided, and what is absent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from odradek.base.errors import KafkaStorageError, OffsetOutOfRangeError
from odradek.base.types import TopicPartition
from odradek.coordinator.broker_links import BrokerLinks
from odradek.coordinator.lag import lag_monitor
from odradek.coordinator.lag.lag_monitor import LagMonitor
from odradek.coordinator.lag.lag_values import LagSettings
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import FetchRequest
from odradek.records.v2.batch import BatchBuilder, read_header, stamp
from odradek_testkit.loop import WALL_START_MS, VirtualClock, run_virtual
from odradek_testkit.senders.peer_brokers import LISTENER, PeerBrokers

FIRST, SECOND, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
INTERVAL_MS: Final = 30_000


@dataclass
class Group:
    """A group with committed offsets."""

    group_id: str
    offsets: dict[TopicPartition, int]
    member_count: int = 1
    is_coordinated: bool = True

    def committed_offsets(self) -> dict[TopicPartition, int]:
        return self.offsets


@dataclass
class MemoryLog:
    """A log of one batch for each record, whose timestamps are milliseconds before the start of the test."""

    start: int = 0
    batches: list[bytes] = field(default_factory=list)
    error: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.batches)

    def append(self, *ages_ms: int, size: int = 1) -> None:
        for age_ms in ages_ms:
            builder = BatchBuilder(limit_bytes=1 << 22)
            builder.append(None, b"x" * size, timestamp_ms=WALL_START_MS - age_ms)
            batch = bytearray(builder.build())
            stamp(batch, 0, self.end, 0)
            self.batches.append(bytes(batch))


class Bench:
    """A monitor, and brokers 1 and 2, which lead `t` and `u`."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.brokers = PeerBrokers(self._answer)
        self.brokers.announce({1: 9001, 2: 9002})
        self.brokers.lead({FIRST: 1, SECOND: 1, OTHER: 2})
        self.logs = {FIRST: MemoryLog(), SECOND: MemoryLog(), OTHER: MemoryLog()}
        self.groups: list[Group] = []
        self.settings = LagSettings(True, INTERVAL_MS, 100)
        self.requests: list[tuple[int, Any]] = []
        self.links = BrokerLinks(
            cluster=self.brokers.cluster,
            listener=LISTENER,
            connect=self.brokers.connect,
            clock=self.clock,
            timeout_ms=1_000,
        )
        self.monitor = LagMonitor(
            groups=lambda: self.groups,
            cluster=self.brokers.cluster,
            links=self.links,
            clock=self.clock,
            settings=lambda: self.settings,
        )

    @property
    def fetches(self) -> list[FetchRequest]:
        return [request for _, request in self.requests if isinstance(request, FetchRequest)]

    async def _answer(self, broker_id: int, version: int, request: Any) -> Message:
        self.requests.append((broker_id, request))
        await asyncio.sleep(0.001)
        if isinstance(request, FetchRequest):
            assert version == 12
            return self._fetch(request)
        rows = [
            {"name": topic.name, "partitions": [self._listed(topic.name, item) for item in topic.partitions]}
            for topic in request.topics
        ]
        return {"topics": rows}

    def _listed(self, topic: str, item: Any) -> Message:
        log = self.logs[TopicPartition(topic, item.partition_index)]
        offset = log.start if item.timestamp == -2 else log.end
        return {
            "partition_index": item.partition_index,
            "error_code": log.error,
            "offset": -1 if log.error else offset,
            "old_style_offsets": [],
        }

    def _fetch(self, request: FetchRequest) -> Message:
        topics, is_first = [], True
        for topic in request.topics:
            for item in topic.partitions:
                log = self.logs[TopicPartition(topic.topic, item.partition)]
                code, records = log.error, b""
                if item.fetch_offset < log.start:
                    code = OffsetOutOfRangeError.code
                elif not code:
                    found = [batch for batch in log.batches if read_header(batch).base_offset >= item.fetch_offset]
                    records = b"".join(found)[: item.partition_max_bytes]
                    if found and len(found[0]) > item.partition_max_bytes:
                        records = found[0] if is_first else b""
                is_first = False
                row = {"partition_index": item.partition, "error_code": code, "high_watermark": log.end}
                topics.append(
                    {"topic": topic.topic, "partitions": [{**row, "records": records, "aborted_transactions": None}]}
                )
        return {"error_code": 0, "responses": topics}

    async def lags(self) -> dict[tuple[str, str, int], tuple[int | None, float | None]]:
        """Measure, and return records and seconds by group and partition."""
        await self.monitor.measure()
        return self.provided()

    def provided(self) -> dict[tuple[str, str, int], tuple[int | None, float | None]]:
        return {
            (measured.group.group_id, row.labels["topic"], int(row.labels["partition"])): (
                row.records,
                None if row.seconds is None else round(row.seconds),
            )
            for measured in self.monitor.measured()
            for row in measured.partitions
        }


def virtual(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            await test(bench)
        finally:
            await bench.monitor.close()
            await bench.links.close()

    run_virtual(main())


def test_lag_in_records_and_seconds() -> None:
    async def scenario(bench: Bench) -> None:
        bench.logs[FIRST].append(90_000, 60_000, 30_000)
        bench.logs[OTHER].append(5_000)
        bench.groups = [
            Group("slow", {FIRST: 1, OTHER: 0}),
            Group("quick", {FIRST: 3, SECOND: 0}),
            Group("ahead", {FIRST: 7}),
        ]
        assert await bench.lags() == {
            ("slow", "t", 0): (2, 60),
            ("slow", "u", 0): (1, 5),
            ("quick", "t", 0): (0, 0),
            ("quick", "t", 1): (0, 0),
            ("ahead", "t", 0): (0, 0),
        }
        # One request for the ends and one for the records from each leader that has any.
        assert len(bench.requests) == 4

    virtual(scenario)


def test_a_record_is_fetched_once_while_the_offset_stays() -> None:
    async def scenario(bench: Bench) -> None:
        bench.logs[FIRST].append(90_000, 60_000)
        bench.groups = [Group("a", {FIRST: 0}), Group("b", {FIRST: 0})]
        await bench.lags()
        await bench.lags()
        assert len(bench.fetches) == 1
        bench.groups[0].offsets[FIRST] = 1
        assert await bench.lags() == {("a", "t", 0): (1, 60), ("b", "t", 0): (2, 90)}
        assert len(bench.fetches) == 2

    virtual(scenario)


def test_several_offsets_of_a_partition_and_large_batches_take_several_fetches() -> None:
    async def scenario(bench: Bench) -> None:
        bench.logs[FIRST].append(90_000, 60_000, size=200_000)
        bench.logs[SECOND].append(30_000, size=200_000)
        bench.groups = [Group("a", {FIRST: 0, SECOND: 0}), Group("b", {FIRST: 1})]
        assert await bench.lags() == {("a", "t", 0): (2, 90), ("a", "t", 1): (1, 30), ("b", "t", 0): (1, 60)}
        for request in bench.fetches:
            named = [(topic.topic, item.partition) for topic in request.topics for item in topic.partitions]
            assert len(set(named)) == len(named)

    virtual(scenario)


def test_below_the_start_of_the_log_the_first_record_counts() -> None:
    async def scenario(bench: Bench) -> None:
        bench.logs[FIRST].start = 10
        bench.logs[FIRST].append(20_000)
        bench.groups = [Group("a", {FIRST: 4})]
        assert await bench.lags() == {("a", "t", 0): (7, 20)}

    virtual(scenario)


def test_without_an_answer_of_the_leader_the_lag_is_absent() -> None:
    async def scenario(bench: Bench) -> None:
        bench.logs[FIRST].append(20_000)
        bench.logs[OTHER].append(20_000)
        bench.groups = [Group("a", {FIRST: 0, SECOND: 0, OTHER: 0, TopicPartition("gone", 0): 5})]
        bench.logs[SECOND].error = KafkaStorageError.code
        bench.brokers.refusals[2] = OSError("refused")
        assert await bench.lags() == {
            ("a", "t", 0): (1, 20),
            ("a", "t", 1): (None, None),
            ("a", "u", 0): (None, None),
            ("a", "gone", 0): (None, None),
        }

    virtual(scenario)


def test_a_leader_that_does_not_answer_records_leaves_out_the_age_only() -> None:
    async def scenario(bench: Bench) -> None:
        bench.logs[FIRST].append(20_000)
        bench.groups = [Group("a", {FIRST: 0})]
        answer = bench.brokers.answer

        async def silent(broker_id: int, version: int, request: Any) -> Message:
            if isinstance(request, FetchRequest):
                await asyncio.sleep(3_600)
            return await answer(broker_id, version, request)

        bench.brokers.answer = silent
        assert await bench.lags() == {("a", "t", 0): (1, None)}

    virtual(scenario)


def test_corrupt_records_have_no_age() -> None:
    async def scenario(bench: Bench) -> None:
        bench.logs[FIRST].append(20_000)
        corrupt = bytearray(bench.logs[FIRST].batches[0])
        corrupt[16] = 9
        bench.logs[FIRST].batches[0] = bytes(corrupt)
        bench.groups = [Group("a", {FIRST: 0})]
        bench.brokers.answer = without_reading(bench)
        assert await bench.lags() == {("a", "t", 0): (1, None)}

    def without_reading(bench: Bench) -> Callable[[int, int, Any], Awaitable[Message]]:
        answer = bench.brokers.answer

        async def respond(broker_id: int, version: int, request: Any) -> Message:
            if not isinstance(request, FetchRequest):
                return await answer(broker_id, version, request)
            row = {"partition_index": 0, "error_code": 0, "high_watermark": 1, "aborted_transactions": None}
            records = bench.logs[FIRST].batches[0]
            return {"error_code": 0, "responses": [{"topic": "t", "partitions": [{**row, "records": records}]}]}

        return respond

    virtual(scenario)


def test_groups_beyond_the_limit_are_left_out_as_a_whole() -> None:
    async def scenario(bench: Bench) -> None:
        bench.settings = LagSettings(True, INTERVAL_MS, 2)
        bench.groups = [Group("c", {FIRST: 0}), Group("a", {FIRST: 0}), Group("b", {FIRST: 0, SECOND: 0})]
        assert set(await bench.lags()) == {("a", "t", 0), ("c", "t", 0)}
        assert bench.monitor.omitted == 2

    virtual(scenario)


def test_searches_of_one_measurement_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_monitor, "SEARCHES", 1)

    async def scenario(bench: Bench) -> None:
        bench.logs[FIRST].append(90_000, 60_000)
        bench.groups = [Group("a", {FIRST: 0}), Group("b", {FIRST: 1})]
        assert await bench.lags() == {("a", "t", 0): (2, 90), ("b", "t", 0): (1, None)}
        assert await bench.lags() == {("a", "t", 0): (2, 90), ("b", "t", 0): (1, 60)}

    virtual(scenario)


def test_measurements_are_repeated_while_they_are_enabled() -> None:
    async def scenario(bench: Bench) -> None:
        bench.groups = [Group("a", {FIRST: 0})]
        bench.monitor.start()
        assert bench.provided() == {}
        await bench.clock.sleep_ms(INTERVAL_MS + 100)
        assert bench.provided() == {("a", "t", 0): (0, 0)}
        bench.logs[FIRST].append(1_000)
        await bench.clock.sleep_ms(INTERVAL_MS)
        assert bench.provided()["a", "t", 0][0] == 1
        # A group that was deleted or moved disappears at once.
        bench.groups[0].is_coordinated = False
        assert bench.provided() == {}
        bench.groups = [Group("b", {FIRST: 0})]
        await bench.clock.sleep_ms(INTERVAL_MS)
        assert set(bench.provided()) == {("b", "t", 0)}
        bench.settings = LagSettings(False, INTERVAL_MS, 100)
        await bench.clock.sleep_ms(INTERVAL_MS)
        assert bench.provided() == {}
        asked = len(bench.requests)
        await bench.clock.sleep_ms(10 * INTERVAL_MS)
        assert len(bench.requests) == asked

    virtual(scenario)


def test_an_old_measurement_is_not_provided() -> None:
    async def scenario(bench: Bench) -> None:
        bench.groups = [Group("a", {FIRST: 0})]
        await bench.lags()
        await bench.clock.sleep_ms(lag_monitor.STALE_INTERVALS * INTERVAL_MS - 100)
        assert bench.provided() != {}
        await bench.clock.sleep_ms(200)
        assert bench.provided() == {}

    virtual(scenario)


def test_a_failed_measurement_provides_nothing_and_the_next_one_is_made() -> None:
    async def scenario(bench: Bench) -> None:
        def fail() -> dict[TopicPartition, int]:
            raise RuntimeError("a bug")

        broken = Group("a", {FIRST: 0})
        broken.committed_offsets = fail  # type: ignore[method-assign]
        bench.groups = [Group("b", {FIRST: 0})]
        await bench.lags()
        bench.groups.append(broken)
        bench.monitor.start()
        await bench.clock.sleep_ms(INTERVAL_MS + 100)
        assert bench.provided() == {}
        bench.groups.pop()
        await bench.clock.sleep_ms(INTERVAL_MS)
        assert bench.provided() == {("b", "t", 0): (0, 0)}

    virtual(scenario)
